"""Dropout with a cheap mask (Srivastava et al. 2014).

torch's dropout on a CPU spends about 7 ns an element on drawing from a Bernoulli distribution, which is more than a
transformer layer spends on its LayerNorm and GELU together. Sixteen random bits compared with a threshold are the same
draw to within 1 / 65,536, and cost a seventh. On an accelerator torch's own kernel is the fast one.
"""
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zeroes each element with probability p and scales the others by 1 / (1 - p); the identity outside training.

    Draws from torch's default generator, so torch.manual_seed makes it repeat.
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    # The scale as the input's type holds it, and then the probability that makes the expectation exact with that scale:
    # bfloat16 rounds 1 / 0.9 to 1.109, which is right for p = 0.0986.
    scale = torch.tensor(1 / (1 - p), dtype=x.dtype).item()
    threshold = round((1 - 1 / scale) * 65536)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-2**63, None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    # Compared straight into the input's type: a boolean mask would have to be converted in both passes.
    keep = torch.ge(bits, threshold - 32768, out=torch.empty(x.shape, dtype=x.dtype))
    return x * keep.mul_(65536 / (65536 - threshold))


class Dropout(nn.Module):
    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout probability is {p!r}; expected 0 <= p < 1")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"
