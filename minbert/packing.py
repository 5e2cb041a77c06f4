"""Packing: the real tokens of a padded batch, side by side in one [N, H] matrix.

A batch of B sentences padded to T tokens wastes rows in every linear layer. We drop the padding once, after the
embedding look-up, and put it back once, at the end; in between only attention needs to know which token belongs to
which sentence. The collator makes the index tensors (on the CPU, from the lengths), never the forward pass.
"""
from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor


def gather(flat: Tensor, positions: Tensor, size: int) -> Tensor:
    """flat[positions], and zeros below: [size, ...]."""
    packed = flat.new_empty(size, *flat.shape[1:])
    torch.index_select(flat, 0, positions, out=packed[:len(positions)])
    packed[len(positions):] = 0
    return packed


def scatter(packed: Tensor, rows: Tensor, padding: Tensor) -> Tensor:
    """The inverse: packed[rows], and zeros at the padding.

    A look-up as well, since it takes a third of the time that torch's index_copy_ into zeros does.
    """
    if not len(packed):
        return packed.new_zeros(len(rows), *packed.shape[1:])
    return packed.index_select(0, rows).index_fill_(0, padding, 0)


class _Pack(torch.autograd.Function):
    """gather; its backward writes each row once, where torch's general look-up would add them up."""

    @staticmethod
    def forward(ctx, flat: Tensor, packing: "Packing") -> Tensor:
        ctx.packing = packing
        return gather(flat, packing.positions, packing.size)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return scatter(gradient, ctx.packing.rows, ctx.packing.padding), None


class _Unpack(torch.autograd.Function):
    """scatter; its backward is gather."""

    @staticmethod
    def forward(ctx, packed: Tensor, packing: "Packing") -> Tensor:
        ctx.packing, ctx.size = packing, len(packed)
        return scatter(packed, packing.rows, packing.padding)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return gather(gradient, ctx.packing.positions, ctx.size), None


@dataclass
class Packing:
    """Where each real token of a [B, T] batch sits. A packed matrix has N rows: one for each real token and, where it
    was rounded, rows below them that belong to no sentence and get no gradient."""

    positions: Tensor  # flat position b * T + t of each real token, ascending
    columns: Tensor  # [N] its place in the sequence, t: the position embedding's index; 0 in the rows below
    mask: Tensor  # bool [B, T], True at real tokens
    rows: Tensor  # [B * T] the row of the token at each flat position; at padding any
    padding: Tensor  # flat position of each padding token

    @classmethod
    def from_mask(cls, attention_mask: Tensor) -> "Packing":
        """attention_mask: [B, T], non-zero at real tokens; padding may stand anywhere."""
        mask = attention_mask.bool()
        flat = mask.flatten()
        positions, padding = flat.nonzero().squeeze(1), (~flat).nonzero().squeeze(1)
        rows = flat.cumsum(0).sub_(1).clamp_min_(0)
        return cls(positions, positions % max(mask.shape[1], 1), mask, rows, padding)

    def rounded(self) -> "Packing":
        """The same tokens in a few more rows and, where there is padding already, a little more of it.

        oneDNN, which multiplies torch's reduced-precision matrices on a CPU, compiles a product anew for every shape:
        that takes longer than the product itself, and a megabyte. So shapes should return. There are at most 16 numbers
        of rows between a power of two and the next, and T is a multiple of four; it costs some 2 % of the rows.
        """
        tokens, (_, length) = len(self.positions), self.mask.shape
        step = max(16, 1 << max(tokens.bit_length() - 5, 0))
        packing = self if self.full else Packing.from_mask(F.pad(self.mask, (0, -length % 4)))
        return replace(packing, columns=F.pad(self.columns, (0, -tokens % step)))

    @property
    def size(self) -> int:
        """N"""
        return len(self.columns)

    @property
    def full(self) -> bool:
        """No padding."""
        return len(self.positions) == self.mask.numel()

    @property
    def reshaped(self) -> bool:
        """No padding, and no rows below: packing is a reshape."""
        return self.full and self.size == len(self.positions)

    def to(self, device: torch.device) -> "Packing":
        return Packing(*(getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)))

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, ...] -> [N, ...]"""
        flat = padded.flatten(0, 1)
        return flat if self.reshaped else _Pack.apply(flat, self)

    def unpack(self, packed: Tensor) -> Tensor:
        """[N, ...] -> [B, T, ...], zeros at padding."""
        batch, length = self.mask.shape
        if self.reshaped:
            return packed.unflatten(0, (batch, length))
        return _Unpack.apply(packed, self).unflatten(0, (batch, length))

    def first(self, packed: Tensor) -> Tensor:
        """[N, H] -> [B, H]: the vector at position 0 ([CLS]); zeros for a row whose position 0 is padding."""
        batch, length = self.mask.shape
        if self.reshaped:
            return packed[::length]
        starts = self.mask[:, 0]
        indices = torch.searchsorted(self.positions, torch.arange(batch, device=packed.device) * length)
        chosen = packed[indices.clamp_max(max(len(packed) - 1, 0))] if len(packed) else packed.new_zeros(
            batch, packed.shape[1])
        return chosen * starts[:, None]
