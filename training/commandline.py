"""What the programs' command lines share: one line for a mistake, checked numbers, the choice of a run folder."""
import argparse
import sys
import typing
from collections.abc import Callable
from pathlib import Path

from training.recipe import Recipe


class Parser(argparse.ArgumentParser):
    """Answer a mistake with one line instead of the whole usage."""

    def error(self, message: str) -> typing.NoReturn:
        """Print the message and exit with status 2."""
        print(f"error: {message} (see --help)", file=sys.stderr)
        sys.exit(2)


def guarded(run: Callable[[argparse.Namespace], int], flags: argparse.Namespace) -> int:
    """Run `run(flags)`. Print a user error as one line and return 2."""
    try:
        return run(flags)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the last saved state", file=sys.stderr)
        return 130
    finally:
        if "torch" in sys.modules:  # a wrong flag is answered before torch is imported
            from training.distributed import leave

            leave()


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return value


def fraction(text: str) -> float:
    """Read a dropout probability."""
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 0 <= p < 1")
    return value


def rate(text: str) -> float:
    """Read a learning rate."""
    value = float(text)
    if not 0 <= value < 10:
        raise argparse.ArgumentTypeError(f"{text}: expected a learning rate from 0 to 10")
    return value


def run_directory(flags: argparse.Namespace, recipe: Recipe, text: str) -> Path:
    """Return --out, or runs/<recipe>. A folder that holds another recipe's run is left alone, and a number is added.

    Args:
        flags: of the command.
        recipe: names the folder.
        text: says what the run is (Program.saved_recipe).
    """
    base = flags.out or Path("runs") / recipe.name
    number, candidate = 1, base
    while (candidate / "recipe.toml").exists() and (candidate / "recipe.toml").read_text(encoding="utf-8") != text:
        if flags.out is not None:
            raise ValueError(f"{base}: holds a run of another recipe, data or flags; choose another --out")
        number += 1
        candidate = base.with_name(f"{base.name}-{number}")
    return candidate
