"""Pooling: the token vectors of a sequence, or of a phrase -> one vector.

Functions for [CLS], mean and maximum; a module for structured self-attention (Lin et al. 2017), which learns where to
look. Padding never takes part. A sequence without tokens pools to zeros.
"""
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.bert import BertOutput
from tasks.options import POOLINGS

CLS_POOLINGS = ("pooler", "cls")  # those that read the first token only
PENALTY_WEIGHT = 0.03  # of the penalty of attentive pooling, in the loss; our choice


def cls_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the vectors at position 0, [B, H]. hidden: [B, T, H], mask: [B, T]."""
    return hidden[:, 0] * mask[:, :1].to(hidden.dtype)


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over real tokens, [B, H]. hidden: [B, T, H], mask: [B, T]."""
    weights = mask.to(hidden.dtype)
    total = torch.bmm(weights.unsqueeze(1), hidden).squeeze(1)
    return total / weights.sum(dim=1, keepdim=True).clamp_min(1)


def max_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the element-wise maximum over real tokens, [B, H]. hidden: [B, T, H], mask: [B, T]."""
    real = mask.bool().unsqueeze(-1)
    highest = hidden.masked_fill(~real, torch.finfo(hidden.dtype).min).amax(dim=1)
    return highest * real.any(dim=1).to(hidden.dtype)


def attention_penalty(weights: Tensor) -> Tensor:
    """Compute ||A A^T - I||^2 (Lin et al. 2017, eq. 8), which keeps the rows of A apart. weights: [B, T, r].

    Returns the mean over B.
    """
    product = weights.transpose(1, 2) @ weights  # [B, r, r]
    identity = torch.eye(product.shape[-1], dtype=product.dtype, device=product.device)
    return (product - identity).square().sum(dim=(1, 2)).mean()


class AttentivePooling(nn.Module):
    """Pool by structured self-attention (Lin et al. 2017, eqs. 6 to 8): the mean of r learned looks at the sequence.

    The paper concatenates the r rows to r * H numbers. Their mean gives every head the same width.

    >>> vectors, penalty = AttentivePooling(8)(torch.randn(2, 5, 8), torch.ones(2, 5))
    >>> vectors.shape, penalty.shape
    (torch.Size([2, 8]), torch.Size([]))
    """

    def __init__(self, hidden_size: int, attention_size: int = 64, rows: int = 4):
        super().__init__()
        self.first = nn.Linear(hidden_size, attention_size, bias=False)  # W_s1
        self.second = nn.Linear(attention_size, rows, bias=False)  # W_s2

    def forward(self, hidden: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Pool [B, T, H] with a mask [B, T]. Returns the vectors [B, H] and the penalty of `attention_penalty`."""
        scores = self.second(self.first(hidden).tanh())  # [B, T, r]
        real = mask.bool().unsqueeze(-1)
        weights = scores.masked_fill(~real, torch.finfo(scores.dtype).min).softmax(dim=1)
        weights = weights * real.any(dim=1, keepdim=True).to(weights.dtype)
        # [B, r, T] @ [B, T, H], then the mean row
        return (weights.transpose(1, 2) @ hidden).mean(dim=1), attention_penalty(weights)


# The one registry. A function takes the encoder's output and the mask [B, T], and returns [B, H].
_FUNCTIONS: dict[str, Callable[[BertOutput, Tensor], Tensor]] = {
    "pooler": lambda output, mask: output.pooler_output,
    "cls": lambda output, mask: cls_pool(output.last_hidden_state, mask),
    "mean": lambda output, mask: mean_pool(output.last_hidden_state, mask),
    "max": lambda output, mask: max_pool(output.last_hidden_state, mask),
}
assert set(_FUNCTIONS) | {"attentive"} == set(POOLINGS)


def pool(output: BertOutput, mask: Tensor, kind: str) -> Tensor:
    """Pool by a function without parameters. Returns one vector a sequence, [B, H].

    Args:
        output: of the encoder.
        mask: [B, T].
        kind: one of POOLINGS but attentive, which has parameters (AttentivePooling).

    Raises:
        ValueError: the kind is unknown.
    """
    if kind not in _FUNCTIONS:
        raise ValueError(f"pooling is {kind!r}; expected one of {', '.join(_FUNCTIONS)}")
    return _FUNCTIONS[kind](output, mask)


def _tokens_of(spans: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """List the F tokens of P spans [P, 2].

    Returns:
        places [F], rows of the hidden states; owners [F], which span a token is of; offsets [P], where a span begins.
    """
    lengths = spans[:, 1] - spans[:, 0]
    offsets = lengths.cumsum(0) - lengths
    owners = torch.repeat_interleave(torch.arange(len(spans), device=spans.device), lengths)
    places = torch.arange(len(owners), device=spans.device) - offsets[owners] + spans[owners, 0]
    return places, owners, offsets


def pool_spans(hidden: Tensor, spans: Tensor, pooling: str) -> Tensor:
    """Pool spans of tokens. Returns one vector a span, [P, H].

    Args:
        hidden: [N, H] hidden states of all tokens of a batch.
        spans: [P, 2] half-open ranges of rows of `hidden`, none empty.
        pooling: max or mean.
    """
    places, _, offsets = _tokens_of(spans)
    return F.embedding_bag(places, hidden, offsets, mode=pooling)


class SpanAttention(nn.Module):
    """Pool spans by structured self-attention (Lin et al. 2017, eqs. 6 to 8), with all r rows side by side.

    One row is plain self-attention, and has no penalty: there is nothing to keep it apart from.

    Args:
        hidden_size: of the hidden states.
        rows: how many vectors a span has.
        attention_size: inner width of the scores.
    """

    def __init__(self, hidden_size: int, rows: int, attention_size: int = 64):
        super().__init__()
        self.first = nn.Linear(hidden_size, attention_size, bias=False)  # W_s1
        self.second = nn.Linear(attention_size, rows, bias=False)  # W_s2

    def forward(self, hidden: Tensor, groups: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Pool several groups of spans of the same hidden states.

        Args:
            hidden: [N, H].
            groups: spans [P, 2] each, half-open ranges of rows of `hidden`, none empty.

        Returns:
            For each group the vectors [P, r * H], and the mean of ||A A^T - I||^2 over its spans.
        """
        scores = self.second(self.first(hidden).tanh())  # [N, r]
        return [self._pool(hidden, spans, scores) for spans in groups]

    def _pool(self, hidden: Tensor, spans: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        places, owners, offsets = _tokens_of(spans)
        of_tokens = scores[places]  # [F, r]
        rows = of_tokens.shape[1]
        # A shift leaves a softmax as it is. The span's own maximum keeps the exponentials in range.
        highest = of_tokens.new_full((len(spans), rows), -torch.inf)
        highest = highest.scatter_reduce(0, owners[:, None].expand_as(of_tokens), of_tokens.detach(), "amax")
        weights = (of_tokens - highest[owners]).exp()
        weights = weights / torch.zeros_like(highest).index_add(0, owners, weights)[owners]  # A, [F, r]
        vectors = torch.cat([F.embedding_bag(places, hidden, offsets, mode="sum",
                                             per_sample_weights=weights[:, row].to(hidden.dtype).contiguous())
                             for row in range(rows)], dim=1)
        if rows == 1 or not len(spans):
            return vectors, vectors.new_zeros(())
        products = (weights[:, :, None] * weights[:, None, :]).flatten(1)  # [F, r * r]
        products = products.new_zeros(len(spans), rows * rows).index_add(0, owners, products)  # A A^T of each span
        return vectors, (products - torch.eye(rows, device=products.device).flatten()).square().sum(dim=1).mean()
