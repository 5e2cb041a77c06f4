"""Packing: the real tokens of a padded batch, side by side in one [N, H] matrix.

A batch of B sentences padded to T tokens wastes B*T - N rows in every linear layer. We drop the padding once, after the
embedding look-up, and put it back once, at the end; in between only attention needs to know which token belongs to
which sentence. The collator makes the index tensors (on the CPU, from the lengths), never the forward pass.
"""
from dataclasses import dataclass

import torch
from torch import Tensor


class _Pack(torch.autograd.Function):
    """flat[positions]; its backward writes each row once, where torch's general look-up would add them up."""

    @staticmethod
    def forward(ctx, flat: Tensor, positions: Tensor) -> Tensor:
        ctx.save_for_backward(positions)
        ctx.rows = len(flat)
        return flat.index_select(0, positions)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        (positions,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.rows, *gradient.shape[1:]).index_copy_(0, positions, gradient), None


class _Unpack(torch.autograd.Function):
    """Zeros with packed rows written at positions; its backward is a look-up."""

    @staticmethod
    def forward(ctx, packed: Tensor, positions: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(positions)
        return packed.new_zeros(rows, *packed.shape[1:]).index_copy_(0, positions, packed)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        (positions,) = ctx.saved_tensors
        return gradient.index_select(0, positions), None, None


@dataclass
class Packing:
    """Where each of the N real tokens of a [B, T] batch sits."""

    positions: Tensor  # [N] flat position b * T + t of each real token, ascending
    rows: Tensor  # [N] its sequence, b
    columns: Tensor  # [N] its place in the sequence, t: the position embedding's index
    mask: Tensor  # bool [B, T], True at real tokens
    full: bool  # no padding at all: packing is then a reshape

    @classmethod
    def from_mask(cls, attention_mask: Tensor) -> "Packing":
        """attention_mask: [B, T], non-zero at real tokens; padding may stand anywhere."""
        mask = attention_mask.bool()
        positions = mask.flatten().nonzero().squeeze(1)
        length = max(mask.shape[1], 1)
        return cls(positions, positions // length, positions % length, mask, len(positions) == mask.numel())

    def to(self, device: torch.device) -> "Packing":
        tensors = (t.to(device, non_blocking=True) for t in (self.positions, self.rows, self.columns, self.mask))
        return Packing(*tensors, full=self.full)

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, ...] -> [N, ...]"""
        flat = padded.flatten(0, 1)
        return flat if self.full else _Pack.apply(flat, self.positions)

    def unpack(self, packed: Tensor) -> Tensor:
        """[N, ...] -> [B, T, ...], zeros at padding."""
        batch, length = self.mask.shape
        if self.full:
            return packed.unflatten(0, (batch, length))
        flat = _Unpack.apply(packed, self.positions, batch * length)
        return flat.unflatten(0, (batch, length))

    def first(self, packed: Tensor) -> Tensor:
        """[N, H] -> [B, H]: the vector at position 0 ([CLS]); zeros for a row whose position 0 is padding."""
        batch, length = self.mask.shape
        if self.full:
            return packed[::length]
        starts = self.mask[:, 0]
        indices = torch.searchsorted(self.positions, torch.arange(batch, device=packed.device) * length)
        chosen = packed[indices.clamp_max(max(len(packed) - 1, 0))] if len(packed) else packed.new_zeros(
            batch, packed.shape[1])
        return chosen * starts[:, None]
