"""Write files so that a reader never sees half of one."""
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def must_be_new(path: Path):
    """Refuse a place that a command would write to, and where something is already.

    Raises:
        ValueError: it exists.
    """
    if path.exists():
        raise ValueError(f"{path}: exists already; choose another --out, or delete it")


def write_atomically(path: Path, write: Callable[[Path], Any]):
    """Write a file beside its place, then rename it into place. A reader sees the old file or the new one.

    Args:
        path: the file's place. Missing folders are made.
        write: a function that is given a temporary path and writes there.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(temporary)
        with open(temporary, "rb") as file:  # after a power cut, a renamed file must not turn out to be empty
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str):
    """Write a UTF-8 text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any, indent: int | None = 1):
    """Write a value as JSON atomically.

    Args:
        path: the file.
        value: what JSON can hold.
        indent: of nested values; None for one line.

    Raises:
        ValueError: for a number that JSON does not have (NaN, infinity).
    """
    write_text(path, json.dumps(value, indent=indent, allow_nan=False) + "\n")
