"""Packing drops padding and puts zeros back, wherever the padding stands."""
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from engine.packing import IdentityPacking, pack_mask
from engine.shapes import round_shapes, rounded_size

masks = st.integers(1, 9).flatmap(lambda length: st.lists(
    st.lists(st.booleans(), min_size=length, max_size=length), min_size=1, max_size=6))


@settings(max_examples=200, deadline=None)
@given(masks, st.booleans())
def test_unpack_undoes_pack_up_to_zeros_at_padding(rows, rounded):
    mask = torch.tensor(rows)
    packing = pack_mask(mask)
    if rounded:
        packing = round_shapes(packing)
        mask = packing.mask
    padded = torch.randn(*mask.shape, 3, dtype=torch.float64, requires_grad=True)
    packed = packing.pack(padded)
    tokens = int(mask.sum())
    assert packed.shape == (packing.size, 3)
    if isinstance(packing, IdentityPacking):
        assert rounded or mask.all()
        assert torch.equal(packed, padded.flatten(0, 1)) and torch.equal(packing.unpack(packed, zeros=False), padded)
    else:
        assert torch.equal(packed[:tokens], padded[mask]) and not packed[tokens:].any()
    back = packing.unpack(packed)
    assert torch.equal(back, padded * mask[..., None])
    assert torch.equal(packing.first(packed), (padded * mask[..., None])[:, 0])
    weights = torch.randn_like(padded)
    (back * weights).sum().backward()
    assert_close(padded.grad, weights * mask[..., None])


@settings(max_examples=200, deadline=None)
@given(masks)
def test_rounding_moves_no_token(rows):
    mask = torch.tensor(rows)
    exact, rounded = pack_mask(mask), round_shapes(pack_mask(mask))
    tokens = len(exact.positions)
    assert torch.equal(rounded.mask[:, :mask.shape[1]], mask) and not rounded.mask[:, mask.shape[1]:].any()
    assert torch.equal(rounded.positions, rounded.mask.flatten().nonzero().squeeze(1))
    if isinstance(rounded, IdentityPacking):
        assert torch.equal(rounded.columns[rounded.positions], exact.columns)
    else:
        assert torch.equal(rounded.columns[:tokens], exact.columns) and not rounded.columns[tokens:].any()
    assert len(exact.padding) or rounded.mask.shape == mask.shape


def test_rounded_batches_have_few_shapes_and_few_rows_more():
    sizes = {tokens: rounded_size(tokens) for tokens in range(1, 4097)}
    assert all(tokens <= size <= max(tokens + 15, tokens * 17 / 16) for tokens, size in sizes.items())
    assert len({size for tokens, size in sizes.items() if 1024 < tokens <= 2048}) == 16
    assert round_shapes(pack_mask(torch.ones(1, 1000))).size == sizes[1000] == 1024


def test_positions_are_those_of_the_padded_batch():
    packing = pack_mask(torch.tensor([[1, 1, 0], [1, 1, 1]]))
    assert packing.positions.tolist() == [0, 1, 3, 4, 5]
    assert packing.columns.tolist() == [0, 1, 0, 1, 2]
