"""K tasks' gradients of the shared parameters, kept apart until surgery says how they become one.

Backward's own tensors are kept, not copied: one backward a task, one K x K Gram matrix, one weighted sum. Only shared
parameters take part; a head is its task's. The table of word embeddings, half of a small encoder, has a gradient in the
few rows whose words were read: autograd hands it over as a sparse tensor, and only those rows are multiplied and added.
"""
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training.distributed import ALONE, World


class SharedGradients:
    """parameters: the shared ones that are trained. rows: most tasks a step; 1 is enough for a plain sum.

    table: the one of them, if any, that is looked up with sparse gradients, [V, H].
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rows: int, table: nn.Parameter | None = None):
        self.parameters = list(parameters)
        self.table = table
        self.rows: list[dict[nn.Parameter, Tensor]] = [{} for _ in range(rows)]  # absent: no gradient, as good as zero
        # The optimizer wants the table's gradient whole: one buffer for all steps, zero but for the rows in `touched`.
        self.whole = None if table is None else torch.zeros_like(table)
        self.touched = torch.zeros(0, dtype=torch.int64, device=None if table is None else table.device)

    def start(self):
        """Forgets the last step's gradients."""
        self.rows = [{} for _ in self.rows]
        if self.table is not None:
            self.whole.index_fill_(0, self.touched, 0)

    def receive(self, row: int):
        """The next backward adds to this row."""
        for parameter in self.parameters:
            parameter.grad = self.rows[row].get(parameter)

    def keep(self, row: int):
        """Takes what backward left."""
        self.rows[row] = {parameter: parameter.grad for parameter in self.parameters if parameter.grad is not None}

    def finish(self, world: World = ALONE):
        """After the last backward: the table's gradients become dense ones, [U, H], of all rows that were touched, and
        all gradients become their sums over the processes."""
        reading = [row for row in self.rows if self.table in row]
        self.touched = self.touched[:0]
        if reading:
            sparse = [row[self.table].coalesce() for row in reading]
            self.touched = torch.cat([gradient.indices()[0] for gradient in sparse]).unique()
            if world.size > 1:
                everyones = world.gather(self.touched.cpu())
                self.touched = torch.cat(everyones).unique().to(self.table.device)
            for row, gradient in zip(reading, sparse, strict=True):
                dense = gradient.values().new_zeros(len(self.touched), self.table.shape[1])
                places = torch.searchsorted(self.touched, gradient.indices()[0])
                row[self.table] = dense.index_copy_(0, places, gradient.values())
        world.add_up([gradient for row in self.rows for gradient in row.values()])

    def _in_rows(self) -> list[list[Tensor | None]]:
        """For each parameter its gradient in each row, flat."""
        found = [[row.get(parameter) for row in self.rows] for parameter in self.parameters]
        return [[None if gradient is None else gradient.flatten() for gradient in gradients] for gradients in found]

    def gram(self) -> Tensor:
        """Inner products of the rows' gradients, [K, K] float64 on the CPU.

        By dot products, not a matrix product: those may run in reduced precision (see precision.py).
        """
        size = len(self.rows)
        places, products = [], []
        for gradients in self._in_rows():
            for i in range(size):
                for j in range(i, size):
                    if gradients[i] is not None and gradients[j] is not None:
                        places.append((i, j))
                        products.append(torch.dot(gradients[i], gradients[j]))
        total = torch.zeros(size, size, dtype=torch.float64)
        # All products before the first is asked for: a GPU is then waited for once.
        for (i, j), product in zip(places, torch.stack(products).tolist() if products else [], strict=True):
            total[i, j] += product
        return total + total.triu(1).T

    def norm(self) -> float:
        """Euclidean norm of row 0."""
        gradients = list(self.rows[0].values())
        if not gradients:
            return 0.0
        return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)), dtype=torch.float64))

    def combine(self, weights: Tensor):
        """Every parameter's .grad becomes the weighted sum of its gradients in the rows."""
        weights = weights.tolist()
        for parameter, gradients in zip(self.parameters, self._in_rows(), strict=True):
            total = None
            for gradient, weight in zip(gradients, weights, strict=False):  # rows beyond the weights are empty
                if gradient is None:
                    continue
                if total is None:
                    total = gradient if weight == 1 else gradient.mul_(weight)
                else:
                    total.add_(gradient, alpha=weight)
            if parameter is not self.table:
                parameter.grad = None if total is None else total.view_as(parameter)
                continue
            if total is not None:
                self.whole.index_copy_(0, self.touched, total.view(len(self.touched), -1))
            # Also where no task read a word: the moments of a trained table decay at every step.
            parameter.grad = self.whole
