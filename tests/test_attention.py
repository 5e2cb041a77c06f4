"""Attention: the lesson's against torch's and against the shared case, the engine's against the lesson's."""
import pytest
import torch
import torch.nn.functional as F
from conftest import TINY, cases
from torch.testing import assert_close

import engine.attention
from engine.attention import fused_attention, fused_pays, self_attention
from engine.packing import pack_mask
from minbert.attention import SelfAttention, attention


def random_qkv(dtype=torch.float64, batch=3, heads=2, length=7, size=8):
    torch.manual_seed(0)
    return torch.randn(3, batch, heads, length, size, dtype=dtype)


ALL = torch.ones(3, 7, dtype=torch.bool)
SOME = torch.arange(7) < torch.tensor([[7], [4], [1]])


@pytest.mark.parametrize("mask", [ALL, SOME])
def test_attention_equals_torch(mask):
    query, key, value = random_qkv()
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
    for context in (attention(query, key, value, mask)[0], engine.attention.attention(query, key, value, mask)[0],
                    fused_attention(query, key, value, mask)):
        assert_close(context, expected, rtol=1e-12, atol=1e-12)  # float64: rounding only


def test_the_engines_weights_equal_the_lessons():
    query, key, value = random_qkv()
    assert_close(engine.attention.attention(query, key, value, SOME)[1], attention(query, key, value, SOME)[1])
    assert_close(engine.attention.attention(query, key, value, None)[1], attention(query, key, value, ALL)[1])


@pytest.mark.parametrize("function", [attention, engine.attention.attention])
def test_weights_of_real_tokens_sum_to_one_and_padding_gets_exactly_zero(function):
    query, key, value = random_qkv(torch.float32)
    mask = torch.tensor([[True] * 5 + [False] * 2] * 3)
    weights = function(query, key, value, mask)[1]
    assert torch.equal(weights[..., 5:], torch.zeros_like(weights[..., 5:]))
    assert_close(weights.sum(dim=-1), torch.ones(3, 2, 7))


@pytest.mark.parametrize("function", [attention, engine.attention.attention])
def test_what_stands_at_padding_changes_nothing(function):
    query, key, value = random_qkv()
    mask = torch.arange(7) < torch.tensor([[7], [4], [2]])
    before = function(query, key, value, mask)[0]
    for tensor in (key, value):
        tensor[~mask[:, None, :].expand(3, 2, 7)] = 1e6
    assert_close(before, function(query, key, value, mask)[0], rtol=0, atol=0)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
def test_a_sequence_of_padding_attends_to_all_tokens_alike(scale):
    query, key, value = random_qkv() * scale
    mask = torch.zeros(3, 7, dtype=torch.bool)
    mean = value.mean(dim=2, keepdim=True).expand_as(value)
    assert_close(attention(query, key, value, mask)[0], mean)
    assert_close(engine.attention.attention(query, key, value, mask)[0], mean)
    assert fused_attention(query, key, value, mask).isfinite().all()


def test_one_token_attends_to_itself():
    query, key, value = random_qkv(length=1)
    assert_close(attention(query, key, value, torch.ones(3, 1, dtype=torch.bool))[0], value)


def test_gradients_of_all_forms_agree():
    mask = torch.arange(7) < torch.tensor([[7], [4], [3]])
    gradients = []
    for function in (lambda *x: attention(*x)[0], lambda *x: engine.attention.attention(*x)[0], fused_attention):
        inputs = [tensor.clone().requires_grad_() for tensor in random_qkv()]
        function(*inputs, mask).square().sum().backward()
        gradients.append([tensor.grad for tensor in inputs])
    for form in gradients[1:]:
        assert_close(form, gradients[0], rtol=1e-10, atol=1e-10)


def test_the_fused_kernel_runs_where_it_pays():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert fused_pays(cpu, 0.0, False) and fused_pays(gpu, 0.1, True)
    assert not fused_pays(cpu, 0.1, False) and not fused_pays(cpu, 0.0, True)


@pytest.mark.parametrize("case", cases("attention mask"))
@pytest.mark.parametrize("function", [attention, engine.attention.attention])
def test_masked_keys_as_in_the_case(case, function):
    to_tensor = {name: torch.tensor(case["input"][name]) for name in ("query", "key", "value")}
    query, key, value = (to_tensor[name][None, None] for name in ("query", "key", "value"))
    mask = torch.tensor([case["input"]["attention_mask"]]).bool()
    context, weights = function(query, key, value, mask)
    assert_close(weights[0, 0], torch.tensor(case["expected"]["probabilities"]), rtol=0, atol=1e-6)
    assert_close(context[0, 0], torch.tensor(case["expected"]["context"]), rtol=0, atol=1e-5)
    assert (weights[..., 2] == 0).all()


@pytest.mark.parametrize("fused", [False, True])
def test_self_attention_over_packed_tokens_equals_the_lessons(fused):
    torch.manual_seed(0)
    module = SelfAttention(TINY).double().eval()
    hidden = torch.randn(2, 5, TINY.hidden_size, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    expected, weights = module(hidden, mask)
    packing = pack_mask(mask)
    context, packed_weights = self_attention(module, packing.pack(hidden), packing, fused)
    assert_close(context, expected[mask], rtol=1e-10, atol=1e-10)
    first, _ = self_attention(module, packing.pack(hidden), packing, fused, cls_only=True)
    assert_close(first, expected[:, 0], rtol=1e-10, atol=1e-10)
    if not fused:
        assert_close(packed_weights[mask[:, None, :].expand(2, 2, 5)], weights[mask[:, None, :].expand(2, 2, 5)])


def test_self_attention_keeps_sequences_and_heads_apart():
    """Each head attends with its own slice of the projections: a loop over sequences and heads, written out."""
    torch.manual_seed(0)
    module = SelfAttention(TINY).double().eval()
    hidden = torch.randn(2, 5, TINY.hidden_size, dtype=torch.float64)
    found, _ = module(hidden, torch.ones(2, 5, dtype=torch.bool))
    size = TINY.hidden_size // TINY.num_attention_heads
    for row in range(2):
        for head in range(TINY.num_attention_heads):
            part = slice(head * size, (head + 1) * size)
            q, k, v = (project(hidden[row])[:, part] for project in (module.query, module.key, module.value))
            expected = (q @ k.T / size**0.5).softmax(dim=-1) @ v
            assert_close(found[row, :, part], expected, rtol=1e-10, atol=1e-10)
