"""Bottleneck adapters, against an encoder with the same networks put in by torch's hooks.

What a run does with them is tested with LoRA's, in test_lowrank.py.
"""
import copy

import pytest
import torch
import torch.nn.functional as F
from conftest import MPNET, TINY, encoder_of
from torch.testing import assert_close

from engine.bert import FastBertModel
from engine.precision import BY_NAME
from minbert.bert import BertModel
from tasks.adapters import Adapters
from tasks.options import MaskedOptions, PhraseOptions, SentimentOptions

NAMES = ("down", "down_bias", "up", "up_bias")


def states(encoder, tokens):
    return encoder(tokens.input_ids, tokens.attention_mask, tokens.token_type_ids).last_hidden_state


def put_in_by_hooks(encoder, adapters):
    """Return a plain BERT whose linear layers before the sums are followed by the adapters' formula."""
    encoder = copy.deepcopy(encoder)
    for index, layer in enumerate(encoder.layers()):
        for place, half in enumerate((layer.attention["output"], layer.output)):
            down, down_bias, up, up_bias = (getattr(adapters, name)[index, place] for name in NAMES)
            half.dense.register_forward_hook(lambda module, given, x, d=down, db=down_bias, u=up, ub=up_bias:
                                             x + F.gelu(x @ d.T + db) @ u.T + ub)
    return encoder


@pytest.mark.parametrize("kind", [BertModel, FastBertModel])
@pytest.mark.parametrize("config", [TINY, MPNET], ids=["bert", "mpnet"])
def test_it_computes_what_the_networks_put_in_by_hooks_do(tokens, kind, config):
    encoder = encoder_of(config, kind)
    plain = encoder_of(config, BertModel)
    plain.load_state_dict(encoder.state_dict())
    adapters = Adapters(encoder, 5)
    before = states(encoder, tokens)
    assert_close(states(adapters.on(encoder), tokens), before, rtol=0, atol=0)  # U is zero: nothing is changed yet
    for parameter in adapters.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    twin = copy.deepcopy(adapters)
    real = tokens.attention_mask.bool()
    found, expected = states(adapters.on(encoder), tokens)[real], states(put_in_by_hooks(plain, twin), tokens)[real]
    assert (expected - before[real]).abs().max() > 0.01
    assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert_close(states(encoder, tokens), before, rtol=0, atol=0)  # the encoder is as it was
    found.square().sum().backward()
    expected.square().sum().backward()
    for name in NAMES:
        assert_close(getattr(adapters, name).grad, getattr(twin, name).grad, rtol=1e-3, atol=1e-4)


def test_it_follows_the_engines_precision(tokens):
    encoder = encoder_of(TINY, FastBertModel)
    adapters = Adapters(encoder, 5)
    torch.nn.init.normal_(adapters.up, std=0.3)
    real = tokens.attention_mask.bool()
    exact = states(adapters.on(encoder), tokens)[real]
    encoder.precision = BY_NAME["bfloat16"]
    rounded = states(adapters.on(encoder), tokens)[real]
    assert 0 < (rounded - exact).abs().max() < 0.1 and rounded.dtype == exact.dtype == torch.float32


def test_the_size_is_that_of_the_paper():
    adapters = Adapters(encoder_of(TINY, BertModel), 4)
    layers, hidden = TINY.num_hidden_layers, TINY.hidden_size
    # 2 m d + d + m parameters an adapter, two adapters a layer (section 2.1).
    assert sum(parameter.numel() for parameter in adapters.parameters()) == layers * 2 * (2 * 4 * hidden + hidden + 4)
    assert adapters.down.std().item() == pytest.approx(hidden ** -0.5, rel=0.15)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: SentimentOptions(adapter=-1), "adapter is -1; expected 0 to 10000"),
    (lambda: SentimentOptions(adapter=2, low_rank=1), "low_rank and adapter: expected one of them"),
    (lambda: SentimentOptions(adapter=1, head="exemplars"), "adapter: would change the vectors of the frozen encoder"),
    (lambda: MaskedOptions(adapter=1), "adapter: masked words train the encoder; expected 0"),
    (lambda: PhraseOptions(adapter=1, new_layers=1), "new_layers, adapter: transfer fine-tuning trains the encoder")])
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
