"""What the command lines of all programs share: one line for a mistake, and checked numbers."""
import argparse
import difflib
import sys
from collections.abc import Callable
from typing import NoReturn, TypeVar

Number = TypeVar("Number", int, float)
# What other programs call our flags.
OTHER_NAMES = {"learning_rate": "--lr", "fine_tune_mode": "--option", "num_epochs": "--epochs", "model": "--weights",
               "num_train_epochs": "--epochs", "train_batch_size": "--batch_size", "output_dir": "--out",
               "data_dir": "--data", "dropout": "--hidden_dropout_prob", "filepath": "--out", "gpu": "--use_gpu"}


class Parser(argparse.ArgumentParser):
    """Answer a mistake with one line instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        """Print the message, with what was perhaps meant, and exit with status 2."""
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            flags = {flag for action in self._actions for flag in action.option_strings}
            word = unknown.split()[0].split("=")[0]
            meant = OTHER_NAMES.get(word.strip("-").replace("-", "_"))
            close = [meant] if meant in flags else difflib.get_close_matches(word, flags, n=1, cutoff=0.6)
            message += f" (did you mean {close[0]}?)" if close else ""
        print(f"error: {message} (see --help)", file=sys.stderr)
        sys.exit(2)


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    return _number(text, int, "a whole number of 1 or more", lambda value: value >= 1)


def port(text: str) -> int:
    """Read the number of a TCP port. 0 lets the system choose one."""
    return _number(text, int, "a port from 0 to 65535", lambda value: 0 <= value <= 65535)


def fraction(text: str) -> float:
    """Read a probability, or a share, below 1."""
    return _number(text, float, "a number from 0 to below 1", lambda value: 0 <= value < 1)


def rate(text: str) -> float:
    """Read a learning rate."""
    return _number(text, float, "a learning rate from 0 to below 10", lambda value: 0 <= value < 10)


def _number(text: str, read: Callable[[str], Number], expected: str, fits: Callable[[Number], bool]) -> Number:
    try:
        value = read(text)
    except ValueError:
        value = None
    if value is None or not fits(value):
        raise argparse.ArgumentTypeError(f"{text!r}; expected {expected}")
    return value
