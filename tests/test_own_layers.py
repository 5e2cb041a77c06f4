"""A task's own copies of the encoder's top layers: they start equal, learn at the encoder's rate, and come back."""
import json

import pytest
import safetensors.torch
import torch
from conftest import MPNET, TINY, encoder_of
from torch.testing import assert_close

import train_multitask
from engine.bert import FastBertModel
from minbert.bert import BertModel
from tasks.options import PhraseOptions, SentimentOptions
from tasks.registry import make_task
from training.parameters import optimizer_groups


def sentiment(encoder, tokenizer, **options):
    task = make_task("sentiment", "sst", tokenizer, encoder.config, SentimentOptions(**options).filled())
    task.take_layers(encoder)
    return task.eval()


@pytest.mark.parametrize("kind", [BertModel, FastBertModel])
@pytest.mark.parametrize("config", [TINY, MPNET], ids=["bert", "mpnet"])
@pytest.mark.parametrize("pooling", ["pooler", "mean"])
@pytest.mark.parametrize("count", [1, 2])
def test_copies_start_equal_and_then_are_the_tasks_alone(tiny_tokenizer, tokens, kind, config, pooling, count):
    encoder = encoder_of(config, kind)
    shared = sentiment(encoder, tiny_tokenizer, pooling=pooling)
    own = sentiment(encoder, tiny_tokenizer, pooling=pooling, own_layers=count)
    expected = shared.encode(encoder, tokens)[0]
    assert_close(own.encode(encoder, tokens)[0], expected, rtol=0, atol=0)
    own.encode(encoder, tokens)[0].square().sum().backward()
    top = [f"encoder.layer.{layer}." for layer in range(2 - count, 2)]
    for name, parameter in encoder.named_parameters():
        reached = not name.startswith((*top, "pooler."))
        unused = "token_type" in name and parameter.shape[0] > 1
        assert (parameter.grad is not None) == reached or unused, name
    for name, parameter in own.own_layers.named_parameters():
        assert (parameter.grad is not None) == (pooling == "pooler" or not name.startswith("pooler.")), name
    with torch.no_grad():
        for parameter in own.own_layers.parameters():
            parameter.add_(0.1)
    assert_close(shared.encode(encoder, tokens)[0], expected, rtol=0, atol=0)
    assert (own.encode(encoder, tokens)[0] - expected).abs().max() > 1e-3


def test_the_copied_layers_of_an_mpnet_refer_to_the_encoders_bias(tiny_tokenizer):
    encoder = encoder_of(MPNET, BertModel)
    own = sentiment(encoder, tiny_tokenizer, own_layers=2).own_layers
    bias = encoder.encoder["relative_attention_bias"]
    assert all(layer.attention["self"].shared[0] is bias for layer in own.layer)
    assert not any("bias.weight" in name or "shared" in name for name, _ in own.named_parameters())


def test_the_encoder_is_left_as_it_is(tiny_tokenizer, tokens):
    encoder = encoder_of(TINY, BertModel)
    before = [id(layer) for layer in encoder.layers()], id(encoder.pooler), set(vars(encoder))
    own = sentiment(encoder, tiny_tokenizer, own_layers=1)
    own.encode(encoder, tokens)
    assert ([id(layer) for layer in encoder.layers()], id(encoder.pooler), set(vars(encoder))) == before


def test_copies_learn_at_the_encoders_rate_and_heads_at_their_own(tiny_tokenizer):
    encoder = encoder_of(TINY, BertModel)
    task = sentiment(encoder, tiny_tokenizer, own_layers=1)
    groups = optimizer_groups(encoder, [task], lr=1e-5, head_lr=1e-3, weight_decay=0.01, layer_decay=1.0)
    rates = {parameter: group["lr"] for group in groups for parameter in group["params"]}
    decays = {parameter: group["weight_decay"] for group in groups for parameter in group["params"]}
    for name, parameter in task.named_parameters():
        assert rates[parameter] == (1e-5 if name.startswith("own_layers.") else 1e-3), name
        assert decays[parameter] == (0.0 if parameter.ndim < 2 else 0.01), name
    assert all(rates[parameter] == 1e-5 for parameter in encoder.parameters())


@pytest.mark.parametrize(("make", "message"), [
    (lambda: SentimentOptions(own_layers=-1), "own_layers is -1; expected 0 to 100"),
    (lambda: SentimentOptions(own_layers=101), "own_layers is 101; expected 0 to 100"),
    (lambda: SentimentOptions(own_layers=1, head="nearest"), "own_layers: would change the vectors of the frozen"),
    (lambda: PhraseOptions(own_layers=1), "own_layers: transfer fine-tuning trains the encoder")])
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


RECIPE = """
[tasks.sst]
own_layers = {sst}
[tasks.para]
own_layers = 1
[tasks.sts]
[[stage]]
tasks = ["sst", "para", "sts"]
epochs = 1
steps_per_epoch = 3
"""


def test_a_run_moves_them_and_its_checkpoint_predicts_alike(tmp_path, monkeypatch, tiny_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(RECIPE.format(sst=2))
    flags = ["--recipe", "own.toml", "--weights", str(tiny_directory), "--data", str(toy_directory), "--no_progress"]
    assert train_multitask.main([*flags, "--out", "run"]) == 0
    tensors = safetensors.torch.load_file("run/model.safetensors")
    start = safetensors.torch.load_file(tiny_directory / "model.safetensors")
    name = "layer.1.attention.self.query.weight"
    copies = [tensors[f"tasks.sst.own_layers.{name}"], tensors["tasks.para.own_layers." + name.replace("1", "0", 1)],
              tensors[f"encoder.encoder.{name}"]]
    for index, copy in enumerate(copies):
        assert not torch.equal(copy, start[f"encoder.{name}"]), index
    assert not torch.equal(copies[0], copies[1])
    assert train_multitask.main(["--option", "evaluate", "--checkpoint", "run", "--data", str(toy_directory),
                                 "--out", "again"]) == 0
    assert json.loads((tmp_path / "run/results.json").read_text())["dev"] == json.loads(
        (tmp_path / "again/results.json").read_text())["dev"]


def test_more_layers_than_there_are_is_one_error(tmp_path, monkeypatch, capsys, tiny_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(RECIPE.format(sst=3))
    assert train_multitask.main(["--recipe", "own.toml", "--weights", str(tiny_directory), "--data",
                                 str(toy_directory), "--no_progress"]) == 2
    assert "own_layers is 3; the encoder has 2 layers" in capsys.readouterr().err
