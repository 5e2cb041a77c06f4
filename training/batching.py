"""Batches of similar length. Sentences padded together should be about equally long, but not always the same ones.

The order of epoch e is a function of (seed, e) alone: shuffle, sort by length within windows of many batches, cut,
shuffle the batches. To resume, a run only needs to know how many batches it has drawn.
"""
import random
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

from corpora.examples import Example
from minbert.batch import by_size, by_tokens
from tasks.task import TrainerTask

WINDOW = 64  # batches that are sorted by length together: enough to match lengths, few enough to mix


def epoch_batches(lengths: Sequence[int], batch_size: int, seed: str, token_budget: int | None = None,
                  weights: Sequence[float] | None = None, count: int | None = None) -> list[list[int]]:
    """Cut one epoch's order into batches of indices.

    Args:
        lengths: tokens of each example.
        batch_size: examples of a batch.
        seed: of the epoch.
        token_budget: tokens of a batch, padding included, instead of batch_size.
        weights: draw with replacement by these.
        count: examples of the epoch; by default as many as there are.
    """
    rng = random.Random(seed)
    if weights is None:
        order = list(range(len(lengths)))
        rng.shuffle(order)
        order = order[:count]
    else:
        order = rng.choices(range(len(lengths)), weights=weights, k=len(lengths) if count is None else count)
    batches = []
    for start in range(0, len(order), batch_size * WINDOW):
        window = sorted(order[start:start + batch_size * WINDOW], key=lambda index: lengths[index])
        batches += by_size(window, batch_size) if token_budget is None else by_tokens(window, lengths, token_budget)
    rng.shuffle(batches)
    return batches


def balancing_weights(examples: Sequence[Example]) -> list[float]:
    """Return weights by which every class (or whole score) is drawn equally often."""
    classes = [round(example.label or 0) for example in examples]
    counts = Counter(classes)
    return [1 / counts[label] for label in classes]


class TaskBatches:
    """Make one task's training batches without end. Batch number n is always the same.

    Args:
        task: collates, and knows an example's length.
        examples: of the training set.
        batch_size: examples of a batch.
        seed: of the stage and task.
        token_budget: tokens of a batch, instead of batch_size.
        balanced: draw every class equally often.
        share: the fraction of the examples that an epoch has, drawn anew for each.
    """

    def __init__(self, task: TrainerTask, examples: Sequence[Example], batch_size: int, seed: str,
                 token_budget: int | None = None, balanced: bool = False, share: float = 1.0):
        self.task, self.examples, self.seed = task, examples, seed
        self.batch_size, self.token_budget = batch_size, token_budget
        self.weights = balancing_weights(examples) if balanced else None
        self.count = max(1, round(share * len(examples)))  # examples of an epoch
        self.lengths = array("i", (task.length(example) for example in examples))
        self.per_epoch = len(self._epoch(0))
        self._cached: tuple[int, list[list[int]]] = (-1, [])
        # A token budget cuts another number of batches from every shuffle. So an epoch's start is remembered, not
        # computed: (epoch, number of its first batch).
        self._start = (0, 0)

    def _epoch(self, epoch: int) -> list[list[int]]:
        return epoch_batches(self.lengths, self.batch_size, f"{self.seed}/{epoch}", self.token_budget, self.weights,
                             self.count)

    def indices(self, number: int) -> list[int]:
        """Return the examples of batch `number`."""
        epoch, start = self._start if number >= self._start[1] else (0, 0)
        while True:
            if self._cached[0] != epoch:
                self._cached = (epoch, self._epoch(epoch))
            if number < start + len(self._cached[1]):
                self._start = (epoch, start)
                return self._cached[1][number - start]
            start += len(self._cached[1])
            epoch += 1

    def collate(self, indices: list[int]) -> Any:
        """Make the batch of these examples."""
        return self.task.collate([self.examples[index] for index in indices])
