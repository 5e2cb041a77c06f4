"""Tests of a difference between two systems on the same examples: is it more than chance?"""
import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from tasks.metrics import pearson


def mcnemar(first: np.ndarray, second: np.ndarray) -> float:
    """Compute McNemar's exact two-sided p. first, second: bool, whether each system was right on each example."""
    only_first, only_second = int(np.sum(first & ~second)), int(np.sum(~first & second))
    total = only_first + only_second
    return float(stats.binomtest(only_first, total, 0.5).pvalue) if total else 1.0


def williams(gold: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Compute Williams' two-sided p that two systems' correlations with the same gold scores are equal.

    Args:
        gold: scores.
        first, second: predictions.
    """
    n = len(gold)
    r12, r13, r23 = pearson(gold, first), pearson(gold, second), pearson(first, second)
    k = 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23
    denominator = 2 * k * (n - 1) / (n - 3) + (r12 + r13) ** 2 / 4 * (1 - r23) ** 3 if n > 3 else 0.0
    if denominator <= 1e-300:
        return 1.0
    t = (r12 - r13) * math.sqrt((n - 1) * (1 + r23) / denominator)
    return float(2 * stats.t.sf(abs(t), n - 3))


def paired_bootstrap(metric: Callable[[np.ndarray, np.ndarray], float], gold: np.ndarray, first: np.ndarray,
                     second: np.ndarray, samples: int = 1000, seed: int = 0) -> float:
    """Compute the two-sided p of the difference metric(second) - metric(first) by the paired bootstrap.

    It is the share of resampled differences, centred on the observed one, that are at least as large.

    Args:
        metric: of predictions and gold.
        gold: labels or scores.
        first, second: predictions of two systems.
        samples: how often examples are drawn with replacement.
        seed: of the draws.
    """
    observed = metric(second, gold) - metric(first, gold)
    generator = np.random.default_rng(seed)
    extreme = 0
    for _ in range(samples):
        rows = generator.integers(0, len(gold), len(gold))
        difference = metric(second[rows], gold[rows]) - metric(first[rows], gold[rows])
        extreme += abs(difference - observed) >= abs(observed)
    return (extreme + 1) / (samples + 1)
