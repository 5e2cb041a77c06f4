"""Metrics, and how sure a dev set lets us be of them. Predictions and labels are one-dimensional arrays, equally long.

A metric of too little is defined: a correlation with a constant is 0, and so is an F1 without any true or predicted
member.
"""
from collections.abc import Callable

import numpy as np
from scipy import stats


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Compute the share of right predictions."""
    return float(np.mean(predictions == labels)) if len(labels) else 0.0


def f1(predictions: np.ndarray, labels: np.ndarray, positive: int = 1) -> float:
    """Compute 2 TP / (2 TP + FP + FN) of one class.

    Args:
        predictions, labels: classes.
        positive: the class.
    """
    hits = np.sum((predictions == positive) & (labels == positive))
    total = np.sum(predictions == positive) + np.sum(labels == positive)
    return float(2 * hits / total) if total else 0.0


def macro_f1(predictions: np.ndarray, labels: np.ndarray, classes: int) -> float:
    """Compute the unweighted mean of the classes' F1. A class that is never predicted counts as 0.

    Args:
        predictions, labels: classes.
        classes: how many there are.
    """
    return float(np.mean([f1(predictions, labels, positive) for positive in range(classes)]))


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Compute the Pearson correlation. With a constant it is 0."""
    x = np.asarray(predictions, dtype=np.float64)
    y = np.asarray(labels, dtype=np.float64)
    if len(x) < 2 or x.min() == x.max() or y.min() == y.max():  # a mean of equal numbers is rounded, so ask them
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / norm) if norm > 0 else 0.0


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Compute the Pearson correlation of the ranks. Ties share their average rank."""
    return pearson(stats.rankdata(predictions), stats.rankdata(labels))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Compute the Matthews correlation of two classes, which is their Pearson correlation (GLUE's metric for CoLA)."""
    return pearson(predictions, labels)


def phrasal(counts: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of right phrase pairs.

    Args:
        counts: of each sentence pair, right phrase pairs, phrase pairs, right sentence pairs, sentence pairs: [B, 4].
        labels: not read.
    """
    return float(counts[:, 0].sum() / max(counts[:, 1].sum(), 1))


def sentential(counts: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of right sentence pairs. See `phrasal`."""
    return float(counts[:, 2].sum() / max(counts[:, 3].sum(), 1))


def bootstrap_interval(metric: Callable[[np.ndarray, np.ndarray], float], predictions: np.ndarray, labels: np.ndarray,
                       samples: int = 500, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Compute a percentile bootstrap interval (Efron 1979): the middle of the metric over rows drawn with replacement.

    Args:
        metric: a function of predictions and labels.
        predictions, labels: of the rows.
        samples: how often rows are drawn.
        level: the share of samples inside.
        seed: of the draws.
    """
    if len(labels) < 2:
        value = metric(predictions, labels)
        return value, value
    generator = np.random.default_rng(seed)
    values = []
    for _ in range(samples):
        rows = generator.integers(0, len(labels), len(labels))
        values.append(metric(predictions[rows], labels[rows]))
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
