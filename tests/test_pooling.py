"""Pooling: padding never counts, nothing pools to zeros."""
import pytest
import torch
from conftest import cases
from torch.testing import assert_close

from tasks.pooling import AttentivePooling, attention_penalty, cls_pool, max_pool, mean_pool

FUNCTIONS = {"cls": cls_pool, "mean": mean_pool, "max": max_pool}


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_equals_the_definition_row_by_row(kind, scale):
    torch.manual_seed(0)
    hidden = scale * torch.randn(4, 6, 5, dtype=torch.float64)
    lengths = [6, 1, 3, 0]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    found = FUNCTIONS[kind](hidden.masked_fill(~mask[..., None], 1e30), mask)
    for row, length in enumerate(lengths):
        real = hidden[row, :length]
        expected = torch.zeros(5, dtype=torch.float64) if not length else {
            "cls": lambda r=real: r[0], "mean": lambda r=real: r.mean(0), "max": lambda r=real: r.amax(0)}[kind]()
        # bmm adds the padding times zero: at 1e30 that is still exactly zero.
        assert_close(found[row], expected, rtol=1e-12, atol=0)


def test_attentive_pooling_is_lin_et_al_and_sees_no_padding():
    torch.manual_seed(0)
    module = AttentivePooling(8, attention_size=5, rows=3).double()
    hidden = torch.randn(2, 6, 8, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    found, _ = module(hidden, mask)
    alone = hidden[0, :4]
    weights = torch.softmax(module.second.weight @ torch.tanh(module.first.weight @ alone.T), dim=-1)  # A: [r, T]
    assert_close(found[0], (weights @ alone).mean(dim=0))
    expected = (weights @ weights.T - torch.eye(3, dtype=torch.float64)).square().sum()
    assert_close(attention_penalty(weights.T[None]), expected)
    hidden[0, 4:] = 1e6
    assert_close(module(hidden, mask)[0][0], found[0])
    assert_close(module(hidden[:1], mask[:1])[1], expected)
    assert torch.equal(module(hidden, torch.zeros(2, 6))[0], torch.zeros(2, 8, dtype=torch.float64))


@pytest.mark.parametrize("case", cases("pooling"))
def test_cases(case):
    hidden = torch.tensor(case["input"]["token_embeddings"])
    mask = torch.tensor(case["input"]["attention_mask"])
    assert torch.equal(mean_pool(hidden, mask), torch.tensor(case["expected"]["mean"]))
