"""K tasks' gradients of the shared parameters, each in a flat buffer of its own.

Backward writes straight into a buffer (every parameter's .grad is a view of it), so keeping tasks apart costs no copy:
one backward a task, one K x K Gram matrix, one weighted sum. Only shared parameters take part; a head is its task's.
"""
import torch
from torch import Tensor, nn

# Elements a slice: K slices together stay in the processor's cache while all their inner products are taken.
SLICE = 1 << 16


class SharedGradients:
    def __init__(self, parameters: list[nn.Parameter], rows: int):
        """parameters: the shared ones that are trained. rows: most tasks a step; 1 is enough for a plain sum."""
        self.parameters = parameters
        total = sum(parameter.numel() for parameter in parameters)
        device = parameters[0].device if parameters else "cpu"
        dtype = parameters[0].dtype if parameters else torch.float32
        self.flat = torch.zeros(rows, total, device=device, dtype=dtype)  # [K, P]
        sizes = [parameter.numel() for parameter in parameters]
        self.views = [[part.view_as(parameter) for part, parameter in zip(row.split(sizes), parameters, strict=True)]
                      for row in self.flat] if parameters else []

    def receive(self, row: int, clear: bool = True):
        """The next backward adds to this row."""
        if clear:
            self.flat[row].zero_()
        if self.parameters:
            for parameter, view in zip(self.parameters, self.views[row], strict=True):
                parameter.grad = view

    def gram(self, rows: int) -> Tensor:
        """Inner products of the first rows' gradients, [K, K] float64 on the CPU.

        By dot products, not a matrix product: those may run in reduced precision (see Recipe.matmul_precision).
        """
        result = torch.zeros(rows, rows, dtype=torch.float64)
        if self.flat.device.type == "cpu":
            for parts in zip(*(row.split(SLICE) for row in self.flat[:rows]), strict=True):
                for i in range(rows):
                    for j in range(i, rows):
                        result[i, j] += torch.dot(parts[i], parts[j]).item()
        else:
            entries = [torch.dot(self.flat[i], self.flat[j]) for i in range(rows) for j in range(i, rows)]
            values = torch.stack(entries).double().cpu()
            result[torch.triu_indices(rows, rows).unbind()] = values
        return result + result.T - torch.diag(result.diagonal())

    def combine(self, weights: Tensor):
        """Row 0 becomes the weighted sum of the first len(weights) rows, and every parameter's gradient."""
        weights = weights.tolist()
        if self.flat.device.type == "cpu":
            for parts in zip(*(row.split(SLICE) for row in self.flat[: len(weights)]), strict=True):
                parts[0].mul_(weights[0])
                for part, weight in zip(parts[1:], weights[1:], strict=True):
                    parts[0].add_(part, alpha=weight)
        else:
            self.flat[0].mul_(weights[0])
            for row, weight in zip(self.flat[1 : len(weights)], weights[1:], strict=True):
                self.flat[0].add_(row, alpha=weight)
        self.receive(0, clear=False)

    def norm(self) -> Tensor:
        """Euclidean norm of row 0."""
        return torch.linalg.vector_norm(self.flat[0]) if self.flat.numel() else torch.zeros(())
