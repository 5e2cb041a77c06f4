"""LoRA: a task's own low-rank change of the shared encoder, against an encoder whose weights were changed by hand.

The last tests are of what a run does with LoRA and with adapters alike.
"""
import copy
import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from conftest import MPNET, TINY, encoder_of, make_task
from torch.testing import assert_close

import train_multitask
from engine.bert import FastBertModel
from minbert.bert import BertModel
from tasks.lowrank import LowRank
from tasks.options import PhraseOptions, SentimentOptions
from training.parameters import freeze, optimizer_groups


def states(encoder, tokens):
    return encoder(tokens.input_ids, tokens.attention_mask, tokens.token_type_ids).last_hidden_state


@pytest.mark.parametrize("kind", [BertModel, FastBertModel])
@pytest.mark.parametrize("config", [TINY, MPNET], ids=["bert", "mpnet"])
def test_it_computes_what_an_encoder_with_changed_weights_does(tokens, kind, config):
    encoder = encoder_of(config, kind)
    low_rank = LowRank(encoder, 3)
    before = states(encoder, tokens)
    assert_close(states(low_rank.on(encoder), tokens), before, rtol=0, atol=0)  # B is zero: nothing is changed yet
    torch.nn.init.normal_(low_rank.up, std=0.3)
    by_hand = copy.deepcopy(encoder)
    with torch.no_grad():
        for index, layer in enumerate(by_hand.layers()):
            for place, name in enumerate(("query", "value")):
                getattr(layer.attention["self"], name).weight += low_rank.up[index, place] @ low_rank.down[index, place]
    expected = states(by_hand, tokens)
    assert (expected - before).abs().max() > 0.01
    assert_close(states(low_rank.on(encoder), tokens), expected, rtol=1e-5, atol=1e-5)
    assert_close(states(encoder, tokens), before, rtol=0, atol=0)  # the encoder is as it was

    states(low_rank.on(encoder), tokens).square().sum().backward()
    states(by_hand, tokens).square().sum().backward()
    for index, layer in enumerate(by_hand.layers()):
        for place, name in enumerate(("query", "value")):
            gradient = getattr(layer.attention["self"], name).weight.grad
            for own, expected in ((low_rank.up, gradient @ low_rank.down[index, place].T),
                                  (low_rank.down, low_rank.up[index, place].T @ gradient)):
                assert_close(own.grad[index, place], expected, rtol=1e-3, atol=1e-4)
            assert_close(getattr(encoder.layers()[index].attention["self"], name).weight.grad, gradient,
                         rtol=1e-3, atol=1e-4)


def test_the_size_is_that_of_the_paper(tiny_tokenizer):
    low_rank = LowRank(encoder_of(TINY, BertModel), 4)
    layers, size = TINY.num_hidden_layers, TINY.hidden_size
    assert sum(parameter.numel() for parameter in low_rank.parameters()) == layers * 2 * 2 * 4 * size
    assert set(low_rank.state_dict()) == {"down", "up"} and not low_rank.up.any()
    assert low_rank.down.std().item() == pytest.approx(size ** -0.5, rel=0.15)


@pytest.mark.parametrize(("field", "part"), [("low_rank", "low_rank"), ("adapter", "adapters")])
def test_a_tasks_own_part_learns_at_the_heads_rate_and_a_frozen_encoder_does_not(tiny_tokenizer, field, part):
    encoder = encoder_of(TINY, FastBertModel)
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {field: 2})
    task.take_layers(encoder)
    freeze(encoder, "heads")
    groups = optimizer_groups(encoder, [task], lr=1e-5, head_lr=1e-3, weight_decay=0.01, layer_decay=1.0)
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    assert {rates[id(parameter)] for parameter in getattr(task, part).parameters()} == {1e-3}
    assert not {id(parameter) for parameter in encoder.parameters()} & set(rates)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: SentimentOptions(low_rank=-1), "low_rank is -1; expected 0 to 1000"),
    (lambda: SentimentOptions(low_rank=2, own_layers=1), "own_layers and low_rank: expected one of them"),
    (lambda: SentimentOptions(low_rank=1, head="nearest"), "low_rank: would change the vectors of the frozen encoder"),
    (lambda: PhraseOptions(low_rank=1), "low_rank: transfer fine-tuning trains the encoder"),
    (lambda: LowRank(encoder_of(TINY, BertModel), 33), "low_rank is 33; the encoder's hidden size is 32")])
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("engine", "field", "part"), [
    ("engine", "low_rank", "low_rank"), ("plain", "low_rank", "low_rank"), ("engine", "adapter", "adapters"),
    ("plain", "adapter", "adapters")])
def test_a_run_on_a_frozen_encoder_moves_the_tasks_own_part_alone(tmp_path, monkeypatch, tiny_directory, toy_directory,
                                                                  engine, field, part):
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(f'[tasks.sst]\n{field} = 2\n[tasks.more]\nmodel_of = "sst"\ntrain = ["ids-sst-dev.csv"]\n'
                              f'[tasks.para]\n{field} = 4\n[[stage]]\ntasks = ["sst", "more", "para"]\nepochs = 1\n'
                              'steps_per_epoch = 3\ntrainable = "heads"\n')
    flags = ["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory), "--no_progress"]
    assert train_multitask.main([*flags, "--engine", engine, "--precision", "float32", "--out", "run"]) == 0
    tensors = safetensors.torch.load_file("run/model.safetensors")
    start = safetensors.torch.load_file(tiny_directory / "model.safetensors")
    assert tensors[f"tasks.sst.{part}.up"].any() and tensors[f"tasks.para.{part}.up"].shape == (2, 2, 32, 4)
    assert torch.equal(tensors[f"tasks.more.{part}.up"], tensors[f"tasks.sst.{part}.up"])  # one model for both
    for name, tensor in start.items():
        assert torch.equal(tensors[f"encoder.{name}"], tensor), name
    assert train_multitask.main(["--option", "evaluate", "--checkpoint", "run", "--data", str(toy_directory),
                                 "--out", "again"]) == 0
    for folder in ("run", "again"):
        assert json.loads(Path(folder, "results.json").read_text())["dev"] == json.loads(
            Path("run/results.json").read_text())["dev"]
