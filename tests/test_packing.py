"""Packing drops padding and puts zeros back, wherever the padding stands."""
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from minbert.packing import Packing

masks = st.integers(1, 5).flatmap(lambda length: st.lists(
    st.lists(st.booleans(), min_size=length, max_size=length), min_size=1, max_size=4))


@settings(max_examples=100, deadline=None)
@given(masks)
def test_unpack_undoes_pack_up_to_zeros_at_padding(rows):
    mask = torch.tensor(rows)
    packing = Packing.from_mask(mask)
    padded = torch.randn(*mask.shape, 3, dtype=torch.float64, requires_grad=True)
    packed = packing.pack(padded)
    assert packed.shape == (int(mask.sum()), 3)
    back = packing.unpack(packed)
    assert torch.equal(back, padded * mask[..., None])
    assert torch.equal(packing.first(packed), (padded * mask[..., None])[:, 0])
    weights = torch.randn_like(padded)
    (back * weights).sum().backward()
    assert_close(padded.grad, weights * mask[..., None])


def test_positions_are_those_of_the_padded_batch():
    packing = Packing.from_mask(torch.tensor([[1, 1, 0], [1, 1, 1]]))
    assert packing.positions.tolist() == [0, 1, 3, 4, 5]
    assert packing.rows.tolist() == [0, 0, 1, 1, 1]
    assert packing.columns.tolist() == [0, 1, 0, 1, 2]
