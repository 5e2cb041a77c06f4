"""The course's leaderboard: one score of three tasks, and the six files of a submission."""
from pathlib import Path

from corpora.examples import IdRegister
from corpora.tables import decimal, read_lines


def overall_score(sst_accuracy: float, para_accuracy: float, sts_pearson: float) -> float:
    """Compute (sst + para + (sts + 1) / 2) / 3, each part from 0 to 1.

    Args:
        sst_accuracy, para_accuracy: from 0 to 1.
        sts_pearson: from -1 to 1.
    """
    return (sst_accuracy + para_accuracy + (sts_pearson + 1) / 2) / 3


def mean_score(sst_accuracy: float, para_accuracy: float, sts_pearson: float) -> float:
    """Compute the plain mean of the three, as some reports do. See `overall_score` for the arguments."""
    return (sst_accuracy + para_accuracy + sts_pearson) / 3


OVERALL = {"course": overall_score, "mean": mean_score}  # formulas by the name that a recipe gives
FORMULAS = {"course": "(sst + para + (sts + 1) / 2) / 3", "mean": "(sst + para + sts) / 3"}


def read_predictions(path: Path) -> list[tuple[str, float]]:
    """Read (id, prediction) of each row of a submission file, in file order. Raise ValueError with a bad row's line."""
    lines = list(read_lines(path))
    if not lines or not lines[0].startswith("id"):
        raise ValueError(f"{path}:1: found {(lines or ['an empty file'])[0]!r}; expected a header that begins with id")
    rows: list[tuple[str, float]] = []
    ids = IdRegister(Path(path))
    for number, line in enumerate(lines[1:], start=2):
        identifier, _, value = line.rpartition(",")
        prediction = decimal(value)
        if not identifier.strip() or prediction is None:
            raise ValueError(f"{path}:{number}: found {line[:60]!r}; expected 'id , prediction'")
        ids.add(identifier.strip(), number)
        rows.append((identifier.strip(), prediction))
    if not rows:
        raise ValueError(f"{path}: has no row; expected one for each example")
    return rows
