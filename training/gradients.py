"""K tasks' gradients of the shared parameters, each in a flat buffer of its own.

Backward writes straight into a buffer (every parameter's .grad is a view of it), so keeping tasks apart costs no copy:
one backward a task, one K x K Gram matrix, one weighted sum. Only shared parameters take part; a head is its task's.
The table of word embeddings, half of a small encoder, has a gradient in the few rows whose words were read: only those
rows are cleared, multiplied and added.
"""
import math

import torch
from torch import Tensor, nn

# Elements a slice: few enough that K slices stay in the processor's caches while all their inner products are taken,
# and so many that starting the threads for one does not show.
SLICE = 1 << 18


class SharedGradients:
    """parameters: the shared ones that are trained. rows: most tasks a step; 1 is enough for a plain sum.

    table: the one of them, if any, that is looked up by ids, [V, H]; `read_ids` says which of its rows were.
    """

    def __init__(self, parameters: list[nn.Parameter], rows: int, table: nn.Parameter | None = None):
        self.parameters = parameters
        self.table = table
        dense = [parameter for parameter in parameters if parameter is not table]
        sizes = [parameter.numel() for parameter in dense]
        like = parameters[0] if parameters else torch.zeros(())
        self.flat = torch.zeros(rows, sum(sizes), device=like.device, dtype=like.dtype)  # [K, P]
        self.views = [{parameter: part.view_as(parameter)
                       for part, parameter in zip(row.split(sizes), dense, strict=True)} if dense else {}
                      for row in self.flat]
        self.touched = [torch.zeros(0, dtype=torch.int64, device=like.device) for _ in range(rows)]
        if table is not None:
            for views in self.views:
                views[table] = torch.zeros_like(table)

    def receive(self, row: int, clear: bool = True):
        """The next backward adds to this row."""
        if clear:
            self.flat[row].zero_()
            if self.table is not None:
                self.views[row][self.table].index_fill_(0, self.touched[row], 0)
                self.touched[row] = self.touched[row][:0]
        for parameter, view in self.views[row].items():
            parameter.grad = view

    def read_ids(self, row: int, ids: Tensor):
        """The next backward of this row touches these rows of the table. ids: any shape."""
        if self.table is not None:
            self.touched[row] = torch.cat([self.touched[row], ids.flatten()]).unique()

    def _table_rows(self, rows: int) -> tuple[Tensor, Tensor]:
        """The table's rows that any of the first tasks touched, [U], and their gradients [K, U * H]."""
        chosen = torch.cat(self.touched[:rows]).unique()
        return chosen, torch.stack([self.views[k][self.table][chosen].flatten() for k in range(rows)])

    def gram(self, rows: int) -> Tensor:
        """Inner products of the first rows' gradients, [K, K] float64 on the CPU.

        By dot products, not a matrix product: those may run in reduced precision (see Recipe.matmul_precision).
        """
        parts = [self.flat[:rows]] + ([self._table_rows(rows)[1]] if self.table is not None else [])
        entries = [(i, j) for i in range(rows) for j in range(i, rows)]
        totals = dict.fromkeys(entries, 0.0)
        for part in parts:
            for piece in part.split(SLICE, dim=1) if part.device.type == "cpu" else [part]:
                # All products before the first is asked for: a GPU is then waited for once.
                products = [torch.dot(piece[i], piece[j]) for i, j in entries]
                for entry, product in zip(entries, products, strict=True):
                    totals[entry] += product.item()
        return torch.tensor([[totals[min(i, j), max(i, j)] for j in range(rows)] for i in range(rows)],
                            dtype=torch.float64)

    def combine(self, weights: Tensor):
        """Row 0 becomes the weighted sum of the first len(weights) rows, and every parameter's gradient."""
        weights = weights.tolist()
        rows = len(weights)
        for piece in self.flat[:rows].split(SLICE if self.flat.device.type == "cpu" else max(self.flat.shape[1], 1), 1):
            piece[0].mul_(weights[0])
            for other, weight in zip(piece[1:], weights[1:], strict=True):
                piece[0].add_(other, alpha=weight)
        if self.table is not None:
            chosen, gradients = self._table_rows(rows)
            total = sum(weight * gradient for weight, gradient in zip(weights, gradients, strict=True))
            self.views[0][self.table][chosen] = total.view(len(chosen), -1)
            self.touched[0] = chosen
        self.receive(0, clear=False)

    def norm(self) -> float:
        """Euclidean norm of row 0."""
        squares = float(torch.linalg.vector_norm(self.flat[0])) ** 2
        if self.table is not None:
            squares += float(torch.linalg.vector_norm(self.views[0][self.table][self.touched[0]])) ** 2
        return math.sqrt(squares)
