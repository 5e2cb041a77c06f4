"""Dropout: cheap masks have the right rate and scale, and every site of the model drops."""
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from conftest import TINY
from torch.testing import assert_close

import engine.attention
from engine.bert import FastBertModel, add_norm
from engine.dropout import dropout
from minbert.attention import attention
from minbert.bert import AddNorm, BertModel, Embeddings


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
    assert dropout(x, 0.5, training=False) is x and dropout(x, 0.0) is x
    torch.manual_seed(3)
    first = dropout(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(first, dropout(x, 0.5))


# ---- one test a site: what is dropped, at which rate, and nothing in evaluation --------------------------------------

RATE = 0.3
ROWS = 4000


def share_of_zeros(x):
    return (x == 0).double().mean().item()


def config_with(**rates):
    return dataclasses.replace(TINY, **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, **rates})


@pytest.mark.parametrize("function", [attention, engine.attention.attention])
def test_attention_drops_weights(function):
    """Over one-hot values the context shows the weights: each is zero with the rate, and scaled otherwise."""
    torch.manual_seed(0)
    length = 50
    query, key = torch.zeros(2, 8, 2, length, 4)
    value = torch.eye(length).expand(8, 2, length, length)
    context, weights = function(query, key, value, torch.ones(8, length, dtype=torch.bool), RATE)
    assert_close(weights, torch.full_like(weights, 1 / length))  # reported before dropout
    assert abs(share_of_zeros(context) - RATE) < 0.02
    assert_close(context[context != 0], torch.full_like(context[context != 0], 1 / length / (1 - RATE)), rtol=1e-3,
                 atol=0)


@pytest.mark.parametrize("kind", [BertModel, FastBertModel])
def test_self_attention_uses_its_rate_in_training_only(kind):
    torch.manual_seed(0)
    model = kind(config_with(attention_probs_dropout_prob=RATE))
    ids = torch.randint(5, 1000, (8, 20))
    model.train()
    assert (model(ids).last_hidden_state - model(ids).last_hidden_state).abs().max() > 1e-3
    model.eval()
    assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    assert all(layer.attention["self"].dropout_p == RATE for layer in model.encoder["layer"])
    assert model.embeddings.dropout_p == 0 and all(layer.output.dropout_p == 0 for layer in model.encoder["layer"])


@pytest.mark.parametrize("kind", [BertModel, FastBertModel])
def test_embeddings_drop_after_their_layer_norm(kind):
    torch.manual_seed(0)
    embeddings: Embeddings = kind(config_with(hidden_dropout_prob=RATE)).embeddings
    ids = torch.randint(5, 1000, (ROWS,))
    zeros = torch.zeros_like(ids)
    clean = embeddings.eval()(ids, zeros, zeros)
    dropped = embeddings.train()(ids, zeros, zeros)
    assert abs(share_of_zeros(dropped) - RATE) < 0.01 and share_of_zeros(clean) < 0.001
    assert_close(dropped[dropped != 0], (clean / (1 - RATE))[dropped != 0], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("run", [lambda module, x, residual: module(x, residual), add_norm])
def test_add_norm_drops_the_dense_output_and_never_the_residual(run):
    """A huge dense output next to a small residual: after LayerNorm, dropped numbers stand apart from the others."""
    torch.manual_seed(0)
    module = AddNorm(TINY.hidden_size, config_with(hidden_dropout_prob=RATE))
    with torch.no_grad():
        module.dense.weight.zero_()
        module.dense.bias.fill_(100.0)
    x, residual = torch.randn(2, ROWS, TINY.hidden_size)
    found = run(module.train(), x, residual)
    dropped = (found < found.mean(dim=1, keepdim=True)).double().mean().item()  # below: the residual alone
    assert abs(dropped - RATE) < 0.01
    where = found[0] < found[0].mean()  # where the dense output is dropped, the residual is still there
    assert torch.corrcoef(torch.stack([found[0][where], residual[0][where]]))[0, 1] > 0.99
    expected = F.layer_norm(100.0 + residual, (TINY.hidden_size,), eps=TINY.layer_norm_eps)
    assert_close(run(module.eval(), x, residual), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("site", ["attention", "output"])
@pytest.mark.parametrize("kind", [BertModel, FastBertModel])
def test_both_halves_of_every_layer_drop(kind, site):
    """Dropout in one half of one layer alone makes training random."""
    torch.manual_seed(0)
    model = kind(config_with()).train()
    ids = torch.randint(5, 1000, (4, 12))
    assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    for layer in model.encoder["layer"]:
        half = layer.attention["output"] if site == "attention" else layer.output
        half.dropout_p = RATE
        assert (model(ids).last_hidden_state - model(ids).last_hidden_state).abs().max() > 1e-3
        half.dropout_p = 0.0
