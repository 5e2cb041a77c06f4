"""Few matrix shapes: round the number of packed rows up.

oneDNN multiplies torch's reduced-precision matrices on a CPU. It compiles a kernel for every new matrix shape, which
takes longer than the product itself and a megabyte of memory. So we use few shapes: N is rounded up to one of 16 values
between a power of two and the next, for example 1,000 to 1,024. That adds some 2 % of rows.
"""
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from engine.packing import IdentityPacking, Packing, identity, pack_mask


def rounded_size(tokens: int) -> int:
    """Round a number of rows up. Between a power of two and the next there are at most 16 results, from 16 on.

    >>> [rounded_size(tokens) for tokens in (1, 16, 100, 1000)]
    [16, 16, 112, 1024]
    """
    step = max(16, 1 << max(tokens.bit_length() - 5, 0))
    return tokens + -tokens % step


def packing_for(mask: Tensor, reduced: bool) -> Packing:
    """Make the packing of a batch, with few shapes where products of many shapes are slow.

    Args:
        mask: [B, T], non-zero at real tokens.
        reduced: whether products are in reduced precision.
    """
    packing = pack_mask(mask)
    return round_shapes(packing) if reduced and mask.device.type == "cpu" else packing


def round_shapes(packing: Packing) -> Packing:
    """Return a packing of the same tokens with a rounded number of rows.

    Where a batch has padding, T is rounded up to a multiple of four too, because attention multiplies matrices of T
    rows. If the rounded number of rows equals B * T, padding stays in its place and packing is a reshape.
    """
    size = rounded_size(len(packing.positions))
    if size != packing.mask.numel() and len(packing.padding):
        packing = pack_mask(F.pad(packing.mask, (0, -packing.mask.shape[1] % 4)))
    if size == packing.mask.numel():
        return packing if isinstance(packing, IdentityPacking) else identity(
            packing.mask, packing.positions, packing.padding)
    columns = F.pad(packing.columns, (0, size - len(packing.positions)))
    return Packing(packing.mask, packing.positions, packing.sources, packing.padding, columns) if isinstance(
        packing, IdentityPacking) else replace(packing, columns=columns)
