"""What a task's score is worth: the scores of two rules that read no meaning.

majority: always the commonest class of train. word_overlap: the share of words that two sentences have in common
(Jaccard); two classes are divided where that is best on train.
"""
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from corpora.examples import Example
from report.analysis import best_threshold
from tasks.task import Task

ENOUGH = 20_000  # training examples


def overlap(sentences: Sequence[str]) -> float:
    """Return the share of the words of two sentences that both have.

    >>> overlap(["A dog runs.", "the dog runs"])
    0.5
    """
    first, second = (set(re.findall(r"\w+", sentence.lower())) for sentence in sentences[:2])
    return len(first & second) / len(first | second) if first | second else 1.0


def baselines(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> dict[str, float]:
    """Score both rules on dev by the task's deciding metric. A rule that does not fit the task is left out.

    Args:
        task: knows its metric.
        train: what the rules may look at.
        dev: with labels.
    """
    if not task.answers_labels or not train or not dev or any(example.label is None for example in (train[0], dev[0])):
        return {}
    score = task.metrics()[task.metric]
    gold = np.array([example.label for example in dev])
    result = {}
    some = [train[index] for index in range(min(len(train), ENOUGH))]
    labels = np.array([example.label for example in some])
    if task.classes is not None:
        common = Counter(labels.tolist()).most_common(1)[0][0]
        result["majority"] = float(score(np.full(len(gold), common), gold))
    if len(dev[0].sentences) == 2 and task.classes in (None, 2):
        overlaps = np.array([overlap(example.sentences) for example in dev])
        if task.classes == 2:
            threshold, _ = best_threshold(np.array([overlap(example.sentences) for example in some]), labels)
            overlaps = (overlaps > threshold).astype(int)
        result["word_overlap"] = float(score(overlaps, gold))
    return {name: round(value, 6) for name, value in result.items() if np.isfinite(value)}
