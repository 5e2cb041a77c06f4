"""Put what went wrong into one line that a terminal can show."""
import sys
from collections.abc import Callable
from typing import Any


def printable(text: str) -> str:
    """Replace control characters, so that a file's content cannot steer the terminal.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode()
                   for character in text)


def error_line(error: Exception) -> str:
    """Say what went wrong in one line. What the operating system reports starts with the file's name.

    >>> error_line(FileNotFoundError(2, "No such file or directory", "a.csv"))
    'error: a.csv: No such file or directory'
    """
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return printable(f"error: {error.filename}: {error.strerror}")
    return printable(f"error: {error}")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type where it has none.

    >>> first_line(ValueError("one\\ntwo")), first_line(EOFError())
    ('one', 'EOFError')
    """
    return (str(error).splitlines() or [type(error).__name__])[0]


def in_words(seconds: float) -> str:
    """Write a time in the unit that fits.

    >>> in_words(42), in_words(4200), in_words(40_000)
    ('42 s', '70 min', '11.1 h')
    """
    return f"{seconds:.0f} s" if seconds < 120 else (f"{seconds / 60:.0f} min" if seconds < 3 * 3600
                                                      else f"{seconds / 3600:.1f} h")


def status_of(run: Callable[[], Any]) -> int:
    """Run a command. Print a user error as one line. Returns the exit status: 0, or 2 after an error.

    >>> status_of(lambda: None)
    0
    """
    try:
        run()
    except (ValueError, OSError) as error:
        print(error_line(error), file=sys.stderr)
        return 2
    return 0
