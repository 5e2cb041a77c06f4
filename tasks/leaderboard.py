"""The course's leaderboard: one score of three tasks, and the six files of a submission."""
from pathlib import Path

from corpora.tables import read_lines


def overall_score(sst_accuracy: float, para_accuracy: float, sts_pearson: float) -> float:
    """(sst + para + (sts + 1) / 2) / 3, each part from 0 to 1."""
    return (sst_accuracy + para_accuracy + (sts_pearson + 1) / 2) / 3


def read_predictions(path: Path) -> list[tuple[str, float]]:
    """(id, prediction) of each row of a submission file, in file order. Raises ValueError with a bad row's line."""
    lines = list(read_lines(path))
    if not lines or not lines[0].startswith("id"):
        raise ValueError(f"{path}:1: found {(lines or ['an empty file'])[0]!r}; expected a header that begins with id")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        identifier, comma, value = line.rpartition(",")
        try:
            rows.append((identifier.strip(), float(value)))
        except ValueError:
            comma = ""
        if not comma:
            raise ValueError(f"{path}:{number}: found {line[:60]!r}; expected 'id , prediction'")
    return rows
