"""Multi-head self-attention (Vaswani et al. 2017, section 3.2).

Letters: B sequences, T tokens with padding, H hidden_size, A heads, D = H / A numbers of one head.
"""
import math

import torch.nn.functional as F
from torch import Tensor, nn

from minbert.config import BertConfig

# The score of a masked token. exp(-1e30) is exactly 0. Minus infinity would turn a sequence of padding alone into NaN.
MASKED_SCORE = -1e30


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout_p: float = 0.0
              ) -> tuple[Tensor, Tensor]:
    """Compute scaled dot-product attention, softmax(Q K^T / sqrt(D)) V (eq. 1).

    Args:
        query, key, value: [B, A, T, D].
        mask: bool [B, T], False at padding.
        dropout_p: the probability with which a weight is dropped. Pass 0 outside training.

    Returns:
        The context [B, A, T, D], and the weights [B, A, T, T] before dropout. Row i holds what token i gives to all
        tokens, and sums to one. If a sequence is all padding, the weights are uniform.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # [B, A, T, T]
    # The mask comes before the softmax. The weights of the real tokens then sum to one.
    scores = scores.masked_fill(~mask[:, None, None, :], MASKED_SCORE)
    weights = scores.softmax(dim=-1)
    return F.dropout(weights, dropout_p) @ value, weights


class SelfAttention(nn.Module):
    """Let every token of a sequence attend to all tokens of its sequence, in A heads.

    >>> import torch
    >>> layer = SelfAttention(BertConfig(hidden_size=8, num_attention_heads=2))
    >>> context, weights = layer(torch.randn(1, 5, 8), torch.ones(1, 5).bool())
    >>> context.shape, weights.shape
    (torch.Size([1, 5, 8]), torch.Size([1, 2, 5, 5]))
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.dropout_p = config.attention_probs_dropout_prob
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def split_heads(self, projected: Tensor) -> Tensor:
        """Give each head its slice of the hidden size: [B, T, H] -> [B, A, T, D]."""
        return projected.unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2)

    def forward(self, hidden: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend. hidden: [B, T, H]. mask: bool [B, T]. Returns the context [B, T, H] and the weights [B, A, T, T]."""
        query, key, value = (self.split_heads(project(hidden)) for project in (self.query, self.key, self.value))
        context, weights = attention(query, key, value, mask, self.dropout_p if self.training else 0.0)
        return context.transpose(1, 2).flatten(2), weights  # the heads side by side again
