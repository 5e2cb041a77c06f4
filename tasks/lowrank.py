"""LoRA: a task's own change of the shared encoder, in two thin matrices a projection (Hu et al. 2021, section 4).

The query and the value projections of every layer have the weight W + B A for this task, with A [r, H] and B [H, r].
W is the encoder's and may be frozen; A and B are the task's. B starts at zero, so the encoder starts unchanged. The
paper's factor alpha / r is 1 here: its alpha is r.
"""
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.bert import BertModel
from tasks.views import view_with, with_children

CHANGED = ("query", "value")  # the projections that the paper changes


class ChangedLinear(nn.Module):
    """Compute a linear layer with the weight W + B A. It owns no parameter: all are referred to.

    >>> base = nn.Linear(4, 4)
    >>> layer = ChangedLinear(base, torch.ones(1, 4), torch.ones(4, 1))
    >>> torch.equal(layer.weight, base.weight + 1), list(layer.parameters())
    (True, [])
    """

    def __init__(self, base: nn.Linear, down: Tensor, up: Tensor):
        super().__init__()
        self.parts = (base, down, up)  # in a tuple: torch would register them

    @property
    def weight(self) -> Tensor:
        """Return W + B A, [H, H]."""
        base, down, up = self.parts
        return base.weight + up @ down

    @property
    def bias(self) -> Tensor:
        """Return the base's bias, [H]."""
        return self.parts[0].bias

    def forward(self, x: Tensor) -> Tensor:
        """Compute x (W + B A)' + b. x: [..., H]."""
        return F.linear(x, self.weight, self.bias)


class LowRank(nn.Module):
    """Hold a task's matrices for all layers of an encoder.

    Args:
        encoder: says how many layers there are, and how wide they are.
        rank: r.
    """

    def __init__(self, encoder: BertModel, rank: int):
        super().__init__()
        layers, size = len(encoder.layers()), encoder.config.hidden_size
        if rank > size:
            raise ValueError(f"low_rank is {rank}; the encoder's hidden size is {size}")
        self.down = nn.Parameter(torch.randn(layers, len(CHANGED), rank, size) * size ** -0.5)  # A
        self.up = nn.Parameter(torch.zeros(layers, len(CHANGED), size, rank))  # B

    def on(self, encoder: BertModel) -> BertModel:
        """Return an encoder with changed projections. Everything else is the given encoder's."""
        layers = []
        for index, layer in enumerate(encoder.layers()):
            attention = layer.attention["self"]
            changed = {name: ChangedLinear(getattr(attention, name), self.down[index, place], self.up[index, place])
                       for place, name in enumerate(CHANGED)}
            layers.append(with_children(layer, attention=with_children(
                layer.attention, self=with_children(attention, **changed))))
        return view_with(encoder, layers)
