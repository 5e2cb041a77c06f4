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
    """Where each real token of a [B, T] batch sits. A packed matrix has N rows, one for each real token. One that was
    rounded has more, which hold anything and get no gradient: either rows below, or the padding where it stands."""

    positions: Tensor  # flat position b * T + t of each real token, ascending
    columns: Tensor  # [N] its place in the sequence, t: the position embedding's index; 0 in rows below
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
        """The same tokens in a few more rows and, where there is padding already, perhaps a little more of it.

        oneDNN, which multiplies torch's reduced-precision matrices on a CPU, compiles a product anew for every shape:
        that takes longer than the product itself, and a megabyte. So shapes should return. There are at most 16 numbers
        of rows between a power of two and the next, and where there is padding T is a multiple of four, unless B * T is
        such a number already; it costs some 2 % of the rows.
        """
        tokens = len(self.positions)
        step = max(16, 1 << max(tokens.bit_length() - 5, 0))
        size = tokens + -tokens % step
        packing = self
        if size != self.mask.numel() and not self.full:
            packing = Packing.from_mask(F.pad(self.mask, (0, -self.mask.shape[1] % 4)))
        batch, length = packing.mask.shape
        if size == batch * length:  # as many rows as places: then every token stays in its own
            return replace(packing, columns=torch.arange(length, device=self.mask.device).repeat(batch))
        return replace(packing, columns=F.pad(self.columns, (0, size - tokens)))

    @property
    def size(self) -> int:
        """N"""
        return len(self.columns)

    @property
    def full(self) -> bool:
        """No padding."""
        return not len(self.padding)

    @property
    def reshaped(self) -> bool:
        """As many rows as places: packing is a reshape."""
        return self.size == self.mask.numel()

    def to(self, device: torch.device) -> "Packing":
        return Packing(*(getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)))

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, ...] -> [N, ...]"""
        flat = padded.flatten(0, 1)
        return flat if self.reshaped else _Pack.apply(flat, self)

    def unpack(self, packed: Tensor, zeros: bool = True) -> Tensor:
        """[N, H] -> [B, T, H], zeros at padding; without `zeros`, whatever comes free of cost."""
        if not self.reshaped:
            return _Unpack.apply(packed, self).unflatten(0, self.mask.shape)
        padded = packed.unflatten(0, self.mask.shape)
        return padded.masked_fill(~self.mask[..., None], 0) if zeros and not self.full else padded

    def first(self, packed: Tensor) -> Tensor:
        """[N, H] -> [B, H]: the vector at position 0 ([CLS]); zeros for a row whose position 0 is padding."""
        batch, length = self.mask.shape
        starts = self.mask[:, 0]
        if self.reshaped:
            return packed[::length] if self.full else packed[::length] * starts[:, None]
        indices = torch.searchsorted(self.positions, torch.arange(batch, device=packed.device) * length)
        chosen = packed[indices.clamp_max(max(len(packed) - 1, 0))] if len(packed) else packed.new_zeros(
            batch, packed.shape[1])
        return chosen * starts[:, None]
