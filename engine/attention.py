"""Attention over packed tokens. Must equal minbert/attention.py, and the attention of minbert/mpnet.py.

Three things are faster. The three projections are one matrix product. Where torch has a fused kernel that pays, the
weights [T, T] are never stored. A model that reads only [CLS] asks one query a sequence.
"""
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.dropout import dropout
from engine.packing import Packing


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float = 0.0,
              bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute what minbert.attention.attention computes, in any floating-point type.

    Args:
        query, key, value: [B, A, T, D].
        mask: bool [B, T], False at padding. None means no padding.
        dropout_p: the probability with which a weight is dropped.
        bias: added to the scores, [A, T, T]. MPNet has one.

    Returns:
        The context [B, A, T, D] and the weights [B, A, T, T].
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # [B, A, T, T]
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        # Adding the most negative float gives the same softmax as masked_fill and is four times faster.
        padding = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
        scores = scores + padding.masked_fill_(~mask, torch.finfo(scores.dtype).min)[:, None, None, :]
    # The softmax of bfloat16 is computed in float32: it needs the digits, and is faster over short rows.
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(value.dtype)
    return dropout(weights, dropout_p) @ value, weights


def fused_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float = 0.0,
                    bias: Tensor | None = None) -> Tensor:
    """Compute the same context by torch's fused kernel.

    Args:
        query, key, value, mask, dropout_p, bias: as in `attention`.
    """
    if mask is not None:
        mask = mask[:, None, None, :]
        # A sequence without a real token would be a softmax over nothing, which is NaN. Let it attend to all tokens.
        mask = mask | ~mask.any(dim=-1, keepdim=True)
        if bias is not None:
            bias = torch.where(mask, bias, torch.finfo(bias.dtype).min)  # [B, A, T, T]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask if bias is None else bias,
                                          dropout_p=dropout_p)


def fused_pays(device: torch.device, dropout_p: float, reduced: bool) -> bool:
    """Decide whether the fused kernel is faster than the written-out form.

    On a CPU the kernel has no dropout of its own, and torch's substitute draws slow masks. With products in reduced
    precision the kernel spends its time on rounding small blocks.

    Args:
        device: where.
        dropout_p: of attention; 0 outside training.
        reduced: whether products are in reduced precision.
    """
    return device.type != "cpu" or (dropout_p == 0 and not reduced)


def self_attention(module: Any, hidden: Tensor, packing: Packing, fused: bool, cls_only: bool = False
                   ) -> tuple[Tensor, Tensor | None]:
    """Run a minbert.attention.SelfAttention, or MPNet's, over packed tokens.

    Args:
        module: the SelfAttention whose parameters are used.
        hidden: [N, H].
        packing: where the tokens are in the batch.
        fused: use torch's fused kernel.
        cls_only: compute the context of the first token of each sequence only. All tokens serve as keys and values.

    Returns:
        The context [N, H], or [B, H] with cls_only. The weights [B, A, T, T] (or [B, A, 1, T]); None if fused.
    """
    dropout_p = module.dropout_p if module.training else 0.0
    weight = torch.cat([module.query.weight, module.key.weight, module.value.weight]).to(hidden.dtype)
    offset = torch.cat([module.query.bias, module.key.bias, module.value.bias]).to(hidden.dtype)
    # Values at padding do not matter: they are masked as keys and discarded as queries.
    projected = packing.unpack(F.linear(hidden, weight, offset), zeros=False)  # [B, T, 3H]
    heads = projected.unflatten(-1, (3, module.num_attention_heads, -1))  # [B, T, 3, A, D]
    query, key, value = heads.permute(2, 0, 3, 1, 4)  # [B, A, T, D] each
    bias: Tensor | None = None
    if hasattr(module, "position_bias"):  # MPNet's
        bias = module.position_bias(query.shape[2]).to(query.dtype)
    if cls_only:
        query = query[:, :, :1]
        bias = None if bias is None else bias[:, :1]
    weights = None
    if fused:
        context = fused_attention(query, key, value, packing.attention_mask(), dropout_p, bias)
    else:
        context, weights = attention(query, key, value, packing.attention_mask(), dropout_p, bias)
    context = context.transpose(1, 2).flatten(2)  # [B, T, H], or [B, 1, H]
    return (context[:, 0] if cls_only else packing.pack(context)), weights
