"""Predictions -> the numbers of the errors section. All functions take lists of corpora.predictions.Prediction."""
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corpora.predictions import Prediction

BINS = 10  # of the reliability diagram


@dataclass
class Group:
    """Hold a part of the dev set and how well it was predicted."""

    name: str
    count: int
    value: float  # accuracy, or mean absolute error


@dataclass
class Calibration:
    """Say how often predictions of a confidence were right."""

    confidence: list[float]  # mean of each bin that is not empty
    accuracy: list[float]
    counts: list[int]
    error: float  # expected calibration error: the mean gap, weighted by counts (Guo et al. 2017, eq. 3)


@dataclass
class Threshold:
    """Compare the threshold that a two-class task used with the best one on dev."""

    used: float
    best: float
    accuracy: float  # with the one used
    best_accuracy: float
    of: str  # probability, or score


def scored(rows: Sequence[Prediction]) -> list[Prediction]:
    """Return the rows that have a gold label and one predicted number."""
    return [row for row in rows if row.gold is not None and not isinstance(row.prediction, list)]


def is_classification(rows: Sequence[Prediction]) -> bool:
    """Tell whether labels and predictions are classes: whole numbers, written without a point."""
    return all(type(row.prediction) is int and row.gold == int(row.gold or 0) for row in rows)


def classes_of(rows: Sequence[Prediction]) -> list[int]:
    """Return the classes, from 0."""
    highest = max(max(int(row.gold or 0), int(row.prediction)) for row in rows)
    return list(range(max(highest + 1, len(rows[0].probabilities or []), 2)))


def confusion(rows: Sequence[Prediction]) -> np.ndarray:
    """Count gold class (row) and predicted class (column), [C, C]."""
    size = len(classes_of(rows))
    matrix = np.zeros((size, size), dtype=int)
    for row in rows:
        matrix[int(row.gold or 0), int(row.prediction)] += 1
    return matrix


def calibration(rows: Sequence[Prediction]) -> Calibration | None:
    """Compare the probability of the predicted class with how often it is right. None without probabilities."""
    if not rows or any(row.probabilities is None for row in rows):
        return None
    confidence = np.array([max(row.probabilities or []) for row in rows])
    right = np.array([row.prediction == row.gold for row in rows])
    places = np.minimum((confidence * BINS).astype(int), BINS - 1)
    used = [place for place in range(BINS) if (places == place).any()]
    means = [float(confidence[places == place].mean()) for place in used]
    accuracies = [float(right[places == place].mean()) for place in used]
    counts = [int((places == place).sum()) for place in used]
    gaps = np.abs(np.array(means) - np.array(accuracies))
    return Calibration(means, accuracies, counts, float(gaps @ np.array(counts) / len(rows)))


def best_threshold(numbers: np.ndarray, gold: np.ndarray) -> tuple[float, float]:
    """Return the threshold above which calling an example 1 is right most often.

    Args:
        numbers: [n].
        gold: [n], 0 or 1.

    Returns:
        The threshold, infinite where one class is the best answer for all, and the accuracy.
    """
    order = np.argsort(numbers, kind="stable")
    ordered, labels = numbers[order], gold[order]
    # Right answers if the first k examples are called 0 and the others 1.
    right = np.concatenate([[0], np.cumsum(labels == 0)]) + np.concatenate(
        [np.cumsum((labels == 1)[::-1])[::-1], [0]])
    edges = np.concatenate([[-np.inf], (ordered[1:] + ordered[:-1]) / 2, [np.inf]])
    possible = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])  # equal numbers cannot be divided
    best = int(np.argmax(np.where(possible, right, -1)))
    return float(edges[best]), float(right[best] / len(gold))


def decided_by(rows: Sequence[Prediction]) -> tuple[np.ndarray, float, str] | None:
    """Tell by what a two-class task was decided. None where the rows do not say it.

    Returns:
        Each row's number, [n]; the threshold above which it was called 1, as the predictions show it; and what the
        number is: a probability, or a score.
    """
    if not rows or len(classes_of(rows)) != 2:
        return None
    if all(row.probabilities is not None for row in rows):
        numbers, kind = np.array([(row.probabilities or [0, 0])[1] for row in rows]), "probability"
    elif all(row.score is not None for row in rows):
        numbers, kind = np.array([row.score for row in rows], dtype=float), "score"
    else:
        return None
    predicted = np.array([row.prediction for row in rows])
    below, above = numbers[predicted == 0], numbers[predicted == 1]
    if kind == "probability" and ((numbers > 0.5) == predicted).all():
        used = 0.5
    else:  # between the two predicted classes
        used = float((below.max() + above.min()) / 2) if len(below) and len(above) else float(np.median(numbers))
    return numbers, used, kind


def threshold(rows: Sequence[Prediction]) -> Threshold | None:
    """Find the threshold on dev that would have been best for a two-class task. None where there is no number."""
    if (decision := decided_by(rows)) is None:
        return None
    numbers, used, kind = decision
    gold, predicted = (np.array([getattr(row, name) for row in rows]) for name in ("gold", "prediction"))
    best, accuracy = best_threshold(numbers, gold)
    return Threshold(used, best, float((predicted == gold).mean()), accuracy, kind)


def words(row: Prediction) -> int:
    """Count the words of an example's sentences."""
    return sum(len(sentence.split()) for sentence in row.sentences)


def _value(rows: Sequence[Prediction], classes: bool) -> float:
    if classes:
        return float(np.mean([row.prediction == row.gold for row in rows]))
    return float(np.mean([abs(row.prediction - (row.gold or 0)) for row in rows]))


def by_length(rows: Sequence[Prediction], groups: int = 5) -> list[Group]:
    """Divide the rows into groups of about the same size by their number of words."""
    classes = is_classification(rows)
    ordered = sorted(rows, key=words)
    result: list[Group] = []
    start = 0
    while start < len(ordered):
        end = min(len(ordered), max(start + 1, round((len(result) + 1) * len(ordered) / groups)))
        while end < len(ordered) and words(ordered[end]) == words(ordered[end - 1]):
            end += 1  # equal lengths stay together
        part = ordered[start:end]
        low, high = words(part[0]), words(part[-1])
        result.append(Group(f"{low}" if low == high else f"{low} to {high}", len(part), _value(part, classes)))
        start = end
    return result


def by_label(rows: Sequence[Prediction]) -> list[Group]:
    """Divide the rows by gold class, or by the whole part of the gold score."""
    classes = is_classification(rows)
    groups: dict[int, list[Prediction]] = {}
    for row in rows:
        groups.setdefault(int(row.gold or 0), []).append(row)
    return [Group(str(label) if classes else f"{label} to {label + 1}", len(part), _value(part, classes))
            for label, part in sorted(groups.items())]


def badness(row: Prediction, boundary: float = 0.0) -> float:
    """Say how bad a prediction is.

    With probabilities: what the gold class lacks to 1. With a score: its distance to the boundary. Otherwise, and for a
    regression, the distance to the gold label.

    Args:
        row: of a classifier or of a regression.
        boundary: between the two classes, for scores.
    """
    if row.probabilities is not None:
        gold = int(row.gold or 0)
        return 1 - row.probabilities[gold] if gold < len(row.probabilities) else 1.0
    if row.score is not None and type(row.prediction) is int:
        return abs(row.score - boundary)
    return abs(row.prediction - (row.gold or 0))


def worst(rows: Sequence[Prediction], count: int) -> list[Prediction]:
    """Return the worst predictions, the worst first. Of a classifier only wrong ones. Equals stay in file order."""
    classes = is_classification(rows)
    boundary = 0.0
    if classes and rows and rows[0].probabilities is None and (found := threshold(rows)) is not None:
        boundary = found.used
    chosen = [row for row in rows if row.wrong] if classes else list(rows)
    return sorted(chosen, key=lambda row: -badness(row, boundary))[:count]
