"""Packing: the real tokens of a padded batch, side by side in one matrix [N, H].

A batch of B sentences, padded to T tokens, wastes time on padding in every linear layer. We drop the padding once,
after the embedding look-up, and put it back once, at the end. In between only attention must know which token belongs
to which sentence. minbert/ has no such thing: packing changes no number at a real token (tests/test_packing.py).
"""
from dataclasses import dataclass

import torch
from torch import Tensor


def gather(flat: Tensor, positions: Tensor, size: int) -> Tensor:
    """Return `flat[positions]`, padded with zero rows to `size` rows.

    Args:
        flat: [B * T, ...].
        positions: of real tokens.
        size: rows of the result.
    """
    packed = flat.new_empty(size, *flat.shape[1:])
    torch.index_select(flat, 0, positions, out=packed[:len(positions)])
    packed[len(positions):] = 0
    return packed


def scatter(packed: Tensor, sources: Tensor, padding: Tensor) -> Tensor:
    """Return `packed[sources]` with zeros at `padding`: the inverse of `gather`.

    A look-up takes a third of the time of torch's index_copy_ into zeros.

    Args:
        packed: [N, ...].
        sources: [B * T] the row of each flat position.
        padding: flat positions of padding.
    """
    if not len(packed):
        return packed.new_zeros(len(sources), *packed.shape[1:])
    return packed.index_select(0, sources).index_fill_(0, padding, 0)


class _Pack(torch.autograd.Function):
    """Compute `gather`. The backward pass writes each row once; torch's general look-up would add rows up."""

    @staticmethod
    def forward(ctx, flat: Tensor, packing: "Packing") -> Tensor:
        ctx.packing = packing
        return gather(flat, packing.positions, packing.size)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return scatter(gradient, ctx.packing.sources, ctx.packing.padding), None


class _Unpack(torch.autograd.Function):
    """Compute `scatter`. The backward pass is `gather`."""

    @staticmethod
    def forward(ctx, packed: Tensor, packing: "Packing") -> Tensor:
        ctx.packing, ctx.size = packing, len(packed)
        return scatter(packed, packing.sources, packing.padding)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return gather(gradient, ctx.packing.positions, ctx.size), None


@dataclass
class Packing:
    """Say where each real token of a batch [B, T] is in the packed matrix [N, H].

    A rounded packing (shapes.py) has extra rows at the end. Their content is arbitrary and they receive no gradient.

    >>> packing = pack_mask(torch.tensor([[True, True], [True, False]]))
    >>> packing.pack(torch.tensor([[[1.], [2.]], [[3.], [9.]]])).tolist()
    [[1.0], [2.0], [3.0]]
    """

    mask: Tensor  # bool [B, T], True at real tokens
    positions: Tensor  # of each real token, its flat position b * T + t, ascending
    sources: Tensor  # [B * T] of each flat position, its row in the packed matrix; arbitrary at padding
    padding: Tensor  # flat positions of padding
    columns: Tensor  # [N] of each row, its place t in the sequence; 0 in extra rows

    @property
    def size(self) -> int:
        """Return N, the number of rows."""
        return len(self.columns)

    def pack(self, padded: Tensor) -> Tensor:
        """Drop padding: [B, T, ...] -> [N, ...]."""
        return _Pack.apply(padded.flatten(0, 1), self)

    def unpack(self, packed: Tensor, zeros: bool = True) -> Tensor:
        """Put padding back: [N, H] -> [B, T, H]. Padding holds zeros, or arbitrary values if `zeros` is False."""
        return _Unpack.apply(packed, self).unflatten(0, self.mask.shape)

    def first(self, packed: Tensor) -> Tensor:
        """Return the vectors at position 0 ([CLS]), [N, H] -> [B, H]; zeros for a sequence that is padding there."""
        starts = self.sources[::self.mask.shape[1]]
        vectors = packed[starts] if len(packed) else packed.new_zeros(len(starts), packed.shape[1])
        return vectors * self.mask[:, :1]

    def attention_mask(self) -> Tensor | None:
        """Return the mask that attention needs: None if no token is padding."""
        return self.mask if len(self.padding) else None


class IdentityPacking(Packing):
    """A packing that keeps every place of the batch, N = B * T, so that packing is a reshape."""

    def pack(self, padded: Tensor) -> Tensor:
        """Reshape: [B, T, ...] -> [B * T, ...]."""
        return padded.flatten(0, 1)

    def unpack(self, packed: Tensor, zeros: bool = True) -> Tensor:
        """Reshape back: [B * T, H] -> [B, T, H]. Padding holds zeros, or arbitrary values if `zeros` is False."""
        padded = packed.unflatten(0, self.mask.shape)
        return padded.masked_fill(~self.mask[..., None], 0) if zeros and len(self.padding) else padded

    def first(self, packed: Tensor) -> Tensor:
        """Return the vectors at position 0, [B * T, H] -> [B, H]; zeros where position 0 is padding."""
        vectors = packed[::self.mask.shape[1]]
        return vectors * self.mask[:, :1] if len(self.padding) else vectors


def pack_mask(attention_mask: Tensor) -> Packing:
    """Make the packing of a batch. attention_mask: [B, T], non-zero at real tokens. Padding may stand anywhere."""
    mask = attention_mask.bool()
    flat = mask.flatten()
    positions, padding = flat.nonzero().squeeze(1), (~flat).nonzero().squeeze(1)
    if not len(padding):
        return identity(mask, positions, padding)
    sources = flat.cumsum(0).sub_(1).clamp_min_(0)
    return Packing(mask, positions, sources, padding, positions % max(mask.shape[1], 1))


def identity(mask: Tensor, positions: Tensor, padding: Tensor) -> IdentityPacking:
    """Make the packing that keeps every place.

    Args:
        mask: [B, T].
        positions, padding: flat positions, as in Packing.
    """
    batch, length = mask.shape
    places = torch.arange(length, device=mask.device).repeat(batch)
    return IdentityPacking(mask, positions, torch.arange(batch * length, device=mask.device), padding, places)
