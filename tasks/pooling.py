"""Pooling: the token vectors of a sequence -> one vector.

Functions for [CLS], mean and maximum; a module for structured self-attention (Lin et al. 2017), which learns where to
look. Padding never takes part, and a sequence without tokens pools to zeros.
"""
import torch
from torch import Tensor, nn

from minbert.bert import BertOutput

POOLINGS = ("pooler", "cls", "mean", "max", "attentive")
CLS_POOLINGS = ("pooler", "cls")  # those that read the first token alone (see BertModel.forward, cls_only)


def cls_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """hidden: [B, T, H], mask: [B, T]. Returns the vectors at position 0, [B, H]."""
    return hidden[:, 0] * mask[:, :1].to(hidden.dtype)


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """hidden: [B, T, H], mask: [B, T]. Returns the mean over real tokens, [B, H]."""
    weights = mask.to(hidden.dtype)
    total = torch.bmm(weights.unsqueeze(1), hidden).squeeze(1)
    return total / weights.sum(dim=1, keepdim=True).clamp_min(1)


def max_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """hidden: [B, T, H], mask: [B, T]. Returns the element-wise maximum over real tokens, [B, H]."""
    real = mask.bool().unsqueeze(-1)
    highest = hidden.masked_fill(~real, torch.finfo(hidden.dtype).min).amax(dim=1)
    return highest * real.any(dim=1).to(hidden.dtype)


class AttentivePooling(nn.Module):
    """Structured self-attention (Lin et al. 2017, eqs. 6 to 8): r learned looks at the sequence, averaged.

    The paper concatenates the r rows to r * H numbers; their mean keeps every head's width the same.
    """

    def __init__(self, hidden_size: int, attention_size: int = 64, rows: int = 4):
        super().__init__()
        self.first = nn.Linear(hidden_size, attention_size, bias=False)  # W_s1
        self.second = nn.Linear(attention_size, rows, bias=False)  # W_s2
        self.last_penalty = torch.zeros(())

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """[B, T, H], [B, T] -> [B, H]; leaves the penalty of this call in `last_penalty`."""
        scores = self.second(self.first(hidden).tanh())  # [B, T, r]
        real = mask.bool().unsqueeze(-1)
        weights = scores.masked_fill(~real, torch.finfo(scores.dtype).min).softmax(dim=1)
        weights = weights * real.any(dim=1, keepdim=True).to(weights.dtype)
        self.last_penalty = attention_penalty(weights)
        return (weights.transpose(1, 2) @ hidden).mean(dim=1)  # [B, r, T] @ [B, T, H], then the mean row


def attention_penalty(weights: Tensor) -> Tensor:
    """||A A^T - I||^2 (Lin et al. 2017, eq. 8), which keeps the rows apart. weights: [B, T, r]. Mean over B."""
    product = weights.transpose(1, 2) @ weights  # [B, r, r]
    return (product - torch.eye(product.shape[-1], dtype=product.dtype, device=product.device)).square().sum(
        dim=(1, 2)).mean()


def pool(output: BertOutput, mask: Tensor, kind: str, attentive: AttentivePooling | None = None) -> Tensor:
    """One vector a sequence, [B, H], by the name a recipe gives."""
    if kind == "pooler":
        return output.pooler_output
    if kind == "attentive":
        return attentive(output.last_hidden_state, mask)
    functions = {"cls": cls_pool, "mean": mean_pool, "max": max_pool}
    return functions[kind](output.last_hidden_state, mask)
