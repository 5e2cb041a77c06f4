"""Bottleneck adapters: a task's own small networks inside the shared encoder (Houlsby et al. 2019, section 2.1).

Each half of a layer ends with a linear layer whose output is added to the residual. For this task, that output x
becomes x + U gelu(D x), with D [M, H] and U [H, M], before the sum. U and the biases start at zero, so the encoder
starts unchanged. What we chose: the activation, and that LayerNorms stay the encoder's (the paper trains them too).
"""
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.bert import BertModel
from tasks.views import view_with, with_children


class AdaptedLinear(nn.Module):
    """Compute a linear layer, then an adapter. It owns no parameter: all are referred to.

    Args:
        base: the encoder's layer.
        down, down_bias: D [M, H] and its bias [M].
        up, up_bias: U [H, M] and its bias [H].

    >>> layer = AdaptedLinear(nn.Linear(2, 4), torch.ones(1, 4), torch.zeros(1), torch.zeros(4, 1), torch.ones(4))
    >>> x = torch.randn(3, 2)
    >>> torch.equal(layer(x), layer.parts[0](x) + 1), list(layer.parameters())
    (True, [])
    """

    def __init__(self, base: nn.Linear, down: Tensor, down_bias: Tensor, up: Tensor, up_bias: Tensor):
        super().__init__()
        self.parts = (base, down, down_bias, up, up_bias)  # in a tuple: torch would register them

    def forward(self, x: Tensor) -> Tensor:
        """Compute y + U gelu(D y), y = W x + b, in the input's type. x: [..., I]. Returns [..., H]."""
        base, *own = self.parts
        down, down_bias, up, up_bias = (tensor.to(x.dtype) for tensor in own)
        y = F.linear(x, base.weight.to(x.dtype), base.bias.to(x.dtype))
        return y + F.linear(F.gelu(F.linear(y, down, down_bias)), up, up_bias)


class Adapters(nn.Module):
    """Hold a task's adapters for all layers of an encoder, two a layer.

    Args:
        encoder: says how many layers there are, and how wide they are.
        size: M.
    """

    def __init__(self, encoder: BertModel, size: int):
        super().__init__()
        layers, hidden = len(encoder.layers()), encoder.config.hidden_size
        self.down = nn.Parameter(torch.randn(layers, 2, size, hidden) * hidden ** -0.5)  # D
        self.down_bias = nn.Parameter(torch.zeros(layers, 2, size))
        self.up = nn.Parameter(torch.zeros(layers, 2, hidden, size))  # U
        self.up_bias = nn.Parameter(torch.zeros(layers, 2, hidden))

    def on(self, encoder: BertModel) -> BertModel:
        """Return an encoder with adapters. Everything else is the given encoder's."""

        def adapted(half: Any, *place: int) -> Any:
            return with_children(half, dense=AdaptedLinear(
                half.dense, self.down[place], self.down_bias[place], self.up[place], self.up_bias[place]))

        return view_with(encoder, [
            with_children(layer, output=adapted(layer.output, index, 1), attention=with_children(
                layer.attention, output=adapted(layer.attention["output"], index, 0)))
            for index, layer in enumerate(encoder.layers())])
