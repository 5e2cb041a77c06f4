"""Metrics against scikit-learn and scipy, and the bootstrap against what it promises."""
import numpy as np
import pytest
import sklearn.metrics
from conftest import cases
from scipy import stats

from tasks import metrics


@pytest.fixture
def classes():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 300)
    return np.where(rng.random(300) < 0.6, labels, rng.integers(0, 5, 300)), labels


def test_classification_metrics_equal_scikit_learn(classes):
    predictions, labels = classes
    assert metrics.accuracy(predictions, labels) == pytest.approx(sklearn.metrics.accuracy_score(labels, predictions))
    assert metrics.macro_f1(predictions, labels, 5) == pytest.approx(
        sklearn.metrics.f1_score(labels, predictions, average="macro"))
    two, truth = predictions > 2, labels > 2
    assert metrics.f1(two.astype(int), truth.astype(int)) == pytest.approx(sklearn.metrics.f1_score(truth, two))
    assert metrics.matthews(two, truth) == pytest.approx(sklearn.metrics.matthews_corrcoef(truth, two))


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
def test_correlations_equal_scipy_at_any_scale(scale):
    rng = np.random.default_rng(0)
    x = rng.normal(size=100)
    y = np.round(x + rng.normal(size=100))  # with ties
    assert metrics.pearson(scale * x, y) == pytest.approx(stats.pearsonr(x, y)[0], rel=1e-12)
    assert metrics.spearman(scale * x, y) == pytest.approx(stats.spearmanr(x, y)[0], rel=1e-12)


def test_too_little_is_defined():
    constant, varied = np.ones(5), np.arange(5.0)
    for function in (metrics.pearson, metrics.spearman, metrics.matthews):
        assert function(constant, varied) == 0 and function(varied[:1], varied[:1]) == 0
    assert metrics.f1(np.zeros(3), np.zeros(3)) == 0
    assert metrics.accuracy(np.zeros(0), np.zeros(0)) == 0


def test_the_bootstrap_interval_covers_the_normal_one():
    rng = np.random.default_rng(0)
    labels = np.ones(1000)
    predictions = (rng.random(1000) < 0.8).astype(float)
    low, high = metrics.bootstrap_interval(metrics.accuracy, predictions, labels, samples=2000)
    mean = predictions.mean()
    deviation = (mean * (1 - mean) / 1000) ** 0.5
    assert low == pytest.approx(mean - 1.96 * deviation, abs=0.003)
    assert high == pytest.approx(mean + 1.96 * deviation, abs=0.003)
    again = metrics.bootstrap_interval(metrics.accuracy, predictions, labels, samples=2000)
    assert again == (low, high)
    assert metrics.bootstrap_interval(metrics.accuracy, predictions[:1], labels[:1]) == (predictions[0],) * 2


@pytest.mark.parametrize("case", cases("metric"))
def test_cases(case):
    predictions, targets = (np.array(case["input"][name]) for name in ("predictions", "targets"))
    for name, value in case["expected"].items():
        found = {"spearman": lambda: metrics.spearman(predictions, targets),
                 "accuracy": lambda: metrics.accuracy(predictions, targets),
                 "macro_f1": lambda: metrics.macro_f1(predictions, targets, case["input"]["num_labels"])}[name]()
        assert found == pytest.approx(value, abs=1e-9)
