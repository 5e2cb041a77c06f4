"""Batches of similar length. Sentences padded together should be about equally long, but not always the same ones.

The order of epoch e is a function of (seed, e) alone: shuffle, sort by length within windows of many batches, cut,
shuffle the batches. To resume, a run only needs to know how many batches it has drawn.
"""
import random
from array import array
from collections import Counter
from collections.abc import Sequence

from tasks.task import Batch, Example, Task, cut

WINDOW = 64  # batches that are sorted by length together: enough to match lengths, few enough to mix


def epoch_batches(lengths: Sequence[int], batch_size: int, seed: str, token_budget: int | None = None,
                  weights: Sequence[float] | None = None) -> list[list[int]]:
    """Indices of each batch of one epoch. weights: draw with replacement by these, as many as there are examples."""
    rng = random.Random(seed)
    if weights is None:
        order = list(range(len(lengths)))
        rng.shuffle(order)
    else:
        order = rng.choices(range(len(lengths)), weights=weights, k=len(lengths))
    batches = []
    for start in range(0, len(order), batch_size * WINDOW):
        window = sorted(order[start:start + batch_size * WINDOW], key=lambda index: lengths[index])
        batches += cut(window, lengths, batch_size, token_budget)
    rng.shuffle(batches)
    return batches


def balancing_weights(examples: Sequence[Example]) -> list[float]:
    """Weights by which every class (or whole score) is drawn equally often."""
    classes = [round(example.label) for example in examples]
    counts = Counter(classes)
    return [1 / counts[label] for label in classes]


class TaskBatches:
    """An endless row of one task's training batches; number n is always the same batch."""

    def __init__(self, task: Task, examples: Sequence[Example], batch_size: int, seed: str,
                 token_budget: int | None = None, balanced: bool = False):
        self.task, self.examples, self.seed = task, examples, seed
        self.batch_size, self.token_budget = batch_size, token_budget
        self.weights = balancing_weights(examples) if balanced else None
        self.lengths = array("i", (task.length(example) for example in examples))
        self.per_epoch = len(self._epoch(0))
        self._cached = (-1, [])
        # A token budget cuts another number of batches from every shuffle; then an epoch's end is looked up, not
        # computed: (epoch, number of its first batch) as far as we got.
        self._start = (0, 0)

    def _epoch(self, epoch: int) -> list[list[int]]:
        return epoch_batches(self.lengths, self.batch_size, f"{self.seed}/{epoch}", self.token_budget, self.weights)

    def indices(self, number: int) -> list[int]:
        epoch, start = self._start if number >= self._start[1] else (0, 0)
        while True:
            if self._cached[0] != epoch:
                self._cached = (epoch, self._epoch(epoch))
            if number < start + len(self._cached[1]):
                self._start = (epoch, start)
                return self._cached[1][number - start]
            start += len(self._cached[1])
            epoch += 1

    def batch(self, number: int) -> Batch:
        return self.task.collate([self.examples[index] for index in self.indices(number)])
