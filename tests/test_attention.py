"""Attention against torch's own, in float64 where rounding is all that may differ."""
import pytest
import torch
import torch.nn.functional as F
from conftest import TINY, cases
from torch.testing import assert_close

from minbert.attention import SelfAttention, attention, fused_attention
from minbert.packing import Packing


def random_qkv(dtype=torch.float64, batch=3, heads=2, length=7, size=8):
    torch.manual_seed(0)
    return torch.randn(3, batch, heads, length, size, dtype=dtype)


def test_attention_equals_torch_with_padding():
    query, key, value = random_qkv()
    mask = torch.arange(7) < torch.tensor([[7], [4], [1]])
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
    assert_close(attention(query, key, value, mask)[0], expected, rtol=1e-12, atol=1e-12)  # float64: rounding only
    assert_close(fused_attention(query, key, value, mask), expected, rtol=1e-12, atol=1e-12)


def test_weights_of_real_tokens_sum_to_one_and_padding_gets_exactly_zero():
    query, key, value = random_qkv(torch.float32)
    mask = torch.tensor([[True] * 5 + [False] * 2] * 3)
    weights = attention(query, key, value, mask)[1]
    assert torch.equal(weights[..., 5:], torch.zeros_like(weights[..., 5:]))
    assert_close(weights.sum(dim=-1), torch.ones(3, 2, 7))


def test_what_stands_at_padding_changes_nothing():
    query, key, value = random_qkv()
    mask = torch.arange(7) < torch.tensor([[7], [4], [2]])
    before = attention(query, key, value, mask)[0]
    for tensor in (key, value):
        tensor[~mask[:, None, :].expand(3, 2, 7)] = 1e6
    after = attention(query, key, value, mask)[0]
    assert_close(before, after, rtol=0, atol=0)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
def test_a_row_without_real_tokens_is_defined_at_any_scale(scale):
    query, key, value = random_qkv() * scale
    mask = torch.zeros(3, 7, dtype=torch.bool)
    for context in (attention(query, key, value, mask)[0], fused_attention(query, key, value, mask)):
        assert context.isfinite().all()


def test_one_token_attends_to_itself():
    query, key, value = random_qkv(length=1)
    assert_close(attention(query, key, value, None)[0], value)


@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_written_out_and_fused_gradients_agree(precision):
    mask = torch.arange(7) < torch.tensor([[7], [4], [3]])
    gradients = []
    torch.set_float32_matmul_precision(precision)
    for function in (lambda *x: attention(*x)[0], fused_attention):
        inputs = [tensor.clone().requires_grad_() for tensor in random_qkv()]
        function(*inputs, mask).square().sum().backward()
        gradients.append([tensor.grad for tensor in inputs])
    for first, second in zip(*gradients, strict=True):
        assert_close(first, second, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", cases("attention mask"))
def test_masked_keys_as_in_the_case(case):
    to_tensor = {name: torch.tensor(case["input"][name]) for name in ("query", "key", "value")}
    query, key, value = (to_tensor[name][None, None] for name in ("query", "key", "value"))
    mask = torch.tensor([case["input"]["attention_mask"]]).bool()
    context, weights = attention(query, key, value, mask)
    assert_close(weights[0, 0], torch.tensor(case["expected"]["probabilities"]), rtol=0, atol=1e-6)
    assert_close(context[0, 0], torch.tensor(case["expected"]["context"]), rtol=0, atol=1e-5)
    assert (weights[..., 2] == 0).all()


def test_self_attention_keeps_sequences_apart():
    torch.manual_seed(0)
    module = SelfAttention(TINY).eval()
    hidden = torch.randn(2, 5, TINY.hidden_size)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    packing = Packing.from_mask(mask)
    together, _ = module(packing.pack(hidden), packing)
    alone = Packing.from_mask(torch.ones(1, 3))
    second, _ = module(hidden[1, :3], alone)
    assert_close(together[5:], second, rtol=1e-5, atol=1e-6)
