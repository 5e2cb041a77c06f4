"""K tasks' gradients of the shared parameters, kept apart until surgery says how they become one.

Backward's own tensors are kept, not copied: one backward a task, one K x K Gram matrix, one weighted sum. Only shared
parameters take part; a head belongs to its task. The table of word embeddings is half of a small encoder, but only the
rows of words that were read have a gradient. autograd can hand it over as a sparse tensor; then only those rows are
multiplied and added.
"""
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from training.distributed import ALONE, World


class SharedGradients:
    """Collect the tasks' gradients of one step.

    Args:
        parameters: the shared ones that are trained.
        tasks: how many tasks' gradients are kept apart. 1 is enough for a plain sum.
        table: the word embeddings, if their gradients may be sparse and they are trained.

    >>> weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> gradients = SharedGradients([weight], tasks=2)
    >>> with gradients.collecting():
    ...     for task in (0, 1):
    ...         with gradients.of(task):
    ...             (weight[task] ** 2).backward()
    >>> gradients.gram().tolist()
    [[4.0, 0.0], [0.0, 16.0]]
    >>> gradients.combine(torch.tensor([1.0, 0.5]))
    >>> weight.grad.tolist()
    [2.0, 2.0]
    """

    def __init__(self, parameters: Sequence[nn.Parameter], tasks: int, table: nn.Embedding | None = None):
        self.parameters = list(parameters)
        self.embedding = table
        self.table: Any = None if table is None else table.weight
        # Of each task, gradient by parameter. A parameter that is absent has no gradient, which counts as zero.
        self.rows: list[dict[nn.Parameter, Tensor]] = [{} for _ in range(tasks)]
        # The optimizer wants the table's gradient whole: one buffer for all steps, zero but for the rows in `touched`.
        self.whole = None if self.table is None else torch.zeros_like(self.table)
        self.touched = torch.zeros(0, dtype=torch.int64, device=None if self.table is None else self.table.device)

    @contextmanager
    def collecting(self, world: World = ALONE) -> Iterator[None]:
        """Collect a step's gradients inside. At the end, all become their sums over the processes.

        Inside, the look-up of the table hands over sparse gradients. Afterwards it does what it did before.
        """
        self.rows = [{} for _ in self.rows]
        before = False
        if self.embedding is not None:
            assert self.whole is not None
            self.whole.index_fill_(0, self.touched, 0)
            before, self.embedding.sparse = self.embedding.sparse, True
        try:
            yield
        finally:
            if self.embedding is not None:
                self.embedding.sparse = before
        self._finish(world)

    @contextmanager
    def of(self, task: int) -> Iterator[None]:
        """Add the gradients of a backward pass inside to those of a task."""
        for parameter in self.parameters:
            parameter.grad = self.rows[task].get(parameter)
        yield
        self.rows[task] = {parameter: parameter.grad for parameter in self.parameters if parameter.grad is not None}

    def _finish(self, world: World):
        """Make the table's gradients dense ones, [U, H], of all rows that were touched, and add up over processes."""
        table = self.table
        reading = [row for row in self.rows if table is not None and table in row]
        self.touched = self.touched[:0]
        if table is not None and reading:
            sparse = [row[table].coalesce() for row in reading]
            self.touched = torch.cat([gradient.indices()[0] for gradient in sparse]).unique()
            if world.size > 1:
                self.touched = torch.cat(world.gather(self.touched.cpu())).unique().to(table.device)
            for row, gradient in zip(reading, sparse, strict=True):
                dense = gradient.values().new_zeros(len(self.touched), table.shape[1])
                places = torch.searchsorted(self.touched, gradient.indices()[0])
                row[table] = dense.index_copy_(0, places, gradient.values())
        world.add_up([gradient for row in self.rows for gradient in row.values()])

    def _flat(self) -> list[list[Tensor | None]]:
        """Return, for each parameter, its gradient of each task, flat."""
        return [[None if (gradient := row.get(parameter)) is None else gradient.flatten() for row in self.rows]
                for parameter in self.parameters]

    def gram(self) -> Tensor:
        """Compute the inner products of the tasks' gradients, [K, K] float64 on the CPU.

        By dot products, not by a matrix product, which may run in reduced precision.
        """
        size = len(self.rows)
        places, products = [], []
        for gradients in self._flat():
            for i in range(size):
                for j in range(i, size):
                    first, second = gradients[i], gradients[j]
                    if first is not None and second is not None:
                        places.append((i, j))
                        products.append(torch.dot(first, second))
        total = torch.zeros(size, size, dtype=torch.float64)
        # All products are made before the first is read: a GPU is then waited for once.
        for (i, j), product in zip(places, torch.stack(products).tolist() if products else [], strict=True):
            total[i, j] += product
        return total + total.triu(1).T

    def norm(self) -> float:
        """Return the Euclidean norm of the first task's gradients (of all tasks', where they are one sum)."""
        gradients = list(self.rows[0].values())
        if not gradients:
            return 0.0
        return float(torch.linalg.vector_norm(torch.stack(list(torch._foreach_norm(gradients))), dtype=torch.float64))

    def combine(self, weights: Tensor):
        """Make every parameter's .grad the weighted sum of its gradients. weights: [K], or fewer."""
        factors = weights.tolist()
        for parameter, gradients in zip(self.parameters, self._flat(), strict=True):
            total: Tensor | None = None
            for gradient, factor in zip(gradients, factors, strict=False):  # tasks beyond the weights have none
                if gradient is None:
                    continue
                if total is None:
                    total = gradient if factor == 1 else gradient.mul_(factor)
                else:
                    total.add_(gradient, alpha=factor)
            if parameter is not self.table or self.whole is None:
                parameter.grad = None if total is None else total.view_as(parameter)
                continue
            if total is not None:
                self.whole.index_copy_(0, self.touched, total.view(len(self.touched), -1))
            # Also where no task read a word: the moments of a trained table decay at every step.
            parameter.grad = self.whole
