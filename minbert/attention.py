"""Multi-head self-attention (Vaswani et al. 2017, section 3.2), twice: written out, and fused.

`attention` is the lesson: four lines that are equation 1. `fused_attention` is the default: one kernel of torch that
never stores the [T, T] weights. Tests hold the two equal. Everything outside the two functions works on packed tokens
[N, H] (see packing.py); this is the one place where padding comes back.
"""
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.config import BertConfig
from minbert.dropout import dropout
from minbert.layers import Linear
from minbert.packing import Packing


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float = 0.0
              ) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention, softmax(Q K^T / sqrt(D)) V (eq. 1).

    query, key, value: [B, A, T, D]. mask: bool [B, T], False at padding; None where there is none.
    Returns the context [B, A, T, D] and the weights [B, A, T, T]; a row without any real token attends to all alike.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # [B, A, T, T]
    if mask is not None:
        # Before the softmax, not after it: the real tokens' weights then sum to one. Beside the lowest number there is,
        # a score rounds away; to fill it in would take four times as long as to add it.
        padding = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
        scores = scores + padding.masked_fill_(~mask, torch.finfo(scores.dtype).min)[:, None, None, :]
    # A softmax of bfloat16 is taken in float32, which has the digits for it and is faster over rows as short as these.
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(value.dtype)
    return dropout(weights, dropout_p, training=True) @ value, weights  # [B, A, T, T] @ [B, A, T, D]


def fused_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float = 0.0) -> Tensor:
    """The same context by torch's fused kernel. Shapes as in `attention`.

    On a CPU the kernel has no dropout of its own, and torch's substitute draws slow masks; with matrix products in
    reduced precision it spends its time on rounding small blocks. In both cases the written-out form is faster there.
    """
    reduced = torch.get_float32_matmul_precision() != "highest"
    if query.device.type == "cpu" and (dropout_p > 0 or reduced):
        return attention(query, key, value, mask, dropout_p)[0]
    if mask is not None:
        mask = mask[:, None, None, :]
        # A row without any real token would be a softmax over nothing, NaN: let it attend to all, as `attention` does.
        mask = mask | ~mask.any(dim=-1, keepdim=True)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout_p)


class SelfAttention(nn.Module):
    """Projects packed tokens to queries, keys and values, and lets each token attend to its own sequence."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.dropout_p = config.attention_probs_dropout_prob
        self.query = Linear(config.hidden_size, config.hidden_size)
        self.key = Linear(config.hidden_size, config.hidden_size)
        self.value = Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, packing: Packing, fused: bool = True, cls_only: bool = False
                ) -> tuple[Tensor, Tensor | None]:
        """hidden: [N, H]. Returns the context [N, H] and, when not fused, the weights [B, A, T, T].

        cls_only: only the first token of each sequence asks; context [B, H], weights [B, A, 1, T].
        """
        dropout_p = self.dropout_p if self.training else 0.0
        # Three projections as one matrix product; on disk they stay three, as Hugging Face names them.
        weight = torch.cat([self.query.weight, self.key.weight, self.value.weight]).to(hidden.dtype)
        bias = torch.cat([self.query.bias, self.key.bias, self.value.bias]).to(hidden.dtype)
        # What stands at padding reaches no real token: it has no weight as a key, and as a query no reader.
        projected = packing.unpack(F.linear(hidden, weight, bias), zeros=False)  # [B, T, 3H]
        heads = projected.unflatten(-1, (3, self.num_attention_heads, -1))  # [B, T, 3, A, D]
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # [B, A, T, D] each
        if cls_only:
            query = query[:, :, :1]
        mask = None if packing.full else packing.mask
        if fused:
            context, weights = fused_attention(query, key, value, mask, dropout_p), None
        else:
            context, weights = attention(query, key, value, mask, dropout_p)
        context = context.transpose(1, 2).flatten(2)  # [B, T, H], or [B, 1, H]
        return context[:, 0] if cls_only else packing.pack(context), weights
