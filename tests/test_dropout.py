"""Dropout by cheap masks is dropout: the right rate, the right scale, the same mask in both passes."""
import pytest
import torch

from minbert.dropout import Dropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_rate_and_expectation(p):
    torch.manual_seed(0)
    count = 1_000_000
    result = dropout(torch.ones(count), p, training=True)
    dropped = (result == 0).float().mean().item()
    # Six standard deviations of a binomial: a right implementation fails once in a billion seeds.
    assert abs(dropped - p) < 6 * (p * (1 - p) / count) ** 0.5 + 1 / 65536
    kept = result[result != 0]
    assert torch.allclose(kept, torch.full_like(kept, 1 / (1 - p)), rtol=1e-3)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_expectation_is_exact_in_bfloat16_too(p):
    """bfloat16 cannot hold 1 / 0.9: the scale is another, and so is the rate, until their product is one."""
    torch.manual_seed(0)
    count = 4_000_000
    result = dropout(torch.ones(count, dtype=torch.bfloat16), p, training=True)
    assert abs((result == 0).double().mean().item() - p) < 0.005
    scale = 1 / (1 - p)
    assert abs(result.double().mean().item() - 1) < 6 * scale * (p * (1 - p) / count) ** 0.5 + 1e-4


def test_neighbours_are_independent():
    torch.manual_seed(1)
    kept = (dropout(torch.ones(1_000_000), 0.5, training=True) != 0).float() - 0.5
    for lag in (1, 2, 3, 4, 8):
        assert abs((kept[lag:] * kept[:-lag]).mean().item()) < 6 * 0.25 / 1000


def test_gradient_uses_the_mask_of_the_forward_pass():
    x = torch.randn(7, 11, requires_grad=True)
    result = dropout(x, 0.4, training=True)
    result.sum().backward()
    assert torch.allclose(result, x * x.grad)


def test_identity_outside_training_and_repeats_with_the_seed():
    x = torch.randn(5, 5)
    module = Dropout(0.5).eval()
    assert module(x) is x
    module.train()
    torch.manual_seed(3)
    first = module(x)
    torch.manual_seed(3)
    assert torch.equal(first, module(x))


def test_a_probability_of_one_is_refused():
    with pytest.raises(ValueError, match="expected 0 <= p < 1"):
        Dropout(1.0)
