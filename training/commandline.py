"""What the programs' command lines share: one line for a mistake, checked numbers, the choice of a run folder."""
import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from training.recipe import Recipe


class Parser(argparse.ArgumentParser):
    """One line instead of the whole usage: the user asked one thing and should read one answer."""

    def error(self, message: str):
        print(f"error: {message} (see --help)", file=sys.stderr)
        sys.exit(2)


def guarded(run: Callable[[argparse.Namespace], int], flags: argparse.Namespace) -> int:
    """run(flags), with what a user can cause as one line and exit status 2."""
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
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return value


def rate(text: str) -> float:
    value = float(text)
    if not 0 <= value < 10:
        raise argparse.ArgumentTypeError(f"{text}: expected a learning rate from 0 to 10")
    return value


def run_directory(flags: argparse.Namespace, recipe: Recipe, text: str) -> Path:
    """--out, or runs/<recipe>; a folder that holds another recipe's run is left alone and a number is added."""
    base = flags.out or Path("runs") / recipe.name
    number, candidate = 1, base
    while (candidate / "recipe.toml").exists() and (candidate / "recipe.toml").read_text(encoding="utf-8") != text:
        if flags.out is not None:
            raise ValueError(f"{base}: holds a run of another recipe, data or flags; choose another --out")
        number += 1
        candidate = base.with_name(f"{base.name}-{number}")
    return candidate
