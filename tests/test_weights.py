"""Weights: what others wrote we read, what we write others read, and what is broken is one clear error."""
import dataclasses
import json
import pickle

import numpy as np
import pytest
import safetensors.torch
import sentence_transformers
import torch
import transformers
from conftest import TINY, case
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch.testing import assert_close

from minbert.bert import BertModel
from minbert.config import BertConfig, SentenceSettings
from minbert.weights import export, load_encoder, load_weights, our_name, read_tensors
from tasks.encoding import embed
from tasks.pooling import mean_pool


def vectors(model, tokenizer, texts, pooling=mean_pool):
    rows = [tokenizer.encode(text).input_ids for text in texts]
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    mask = torch.arange(length) < torch.tensor([[len(row)] for row in rows])
    with torch.inference_mode():
        return torch.nn.functional.normalize(pooling(model.eval()(ids, mask).last_hidden_state, mask), dim=1)


TEXTS = ["the dog found a red car", "yesterday , a large crowd painted the boat in the kitchen .", "x"]


LONG = "the dog found a red car in the kitchen . " * 12  # far above every length below


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "pooler"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("max_length", [9, 64, 1000])
def test_embed_and_the_exported_folder_agree(tiny_model, tiny_tokenizer, tmp_path, pooling, normalize, max_length):
    """For every pooling and above every length: what is declared is what both make, and what a reload makes."""
    settings = SentenceSettings(pooling, normalize, max_length)
    tiny_model.config = dataclasses.replace(tiny_model.config, sentences=settings)
    export(tiny_model, tiny_tokenizer, tmp_path)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu").encode([*TEXTS, LONG])
    np.testing.assert_allclose(embed(tiny_model, tiny_tokenizer, [*TEXTS, LONG]), theirs, atol=1e-5)
    again, tokenizer, _ = load_encoder(tmp_path)
    np.testing.assert_allclose(embed(again, tokenizer, [*TEXTS, LONG]), theirs, atol=1e-5)
    assert again.config.sentences == SentenceSettings(pooling, normalize, min(64, max_length))


def test_the_default_model_is_cut_where_sentence_transformers_cuts(model_directory, tmp_path):
    given = case("export-max-length")["input"]
    text = ("The committee met on Monday to talk about trains. " * 20
            + "Cats sleep all day in the warm kitchen, and nobody minds. " * 20)
    assert "460 tokens" in given["text"]
    encoder, tokenizer, _ = load_encoder(model_directory)
    export(encoder, tokenizer, tmp_path)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu").encode([text])
    np.testing.assert_allclose(embed(encoder, tokenizer, [text]), theirs, atol=1e-5)


def test_what_a_folder_declares_and_we_do_not_make_is_refused_by_name(tiny_model, tiny_tokenizer, tmp_path):
    export(tiny_model, tiny_tokenizer, tmp_path)
    pooling = tmp_path / "1_Pooling" / "config.json"
    whole = (tmp_path / "modules.json").read_text(), pooling.read_text()

    def refused(message):
        encoder, tokenizer, _ = load_encoder(tmp_path)  # the encoder itself is fine
        with pytest.raises(ValueError, match=message):
            embed(encoder, tokenizer, TEXTS)
        assert embed(encoder, tokenizer, TEXTS, pooling="mean").shape == (3, TINY.hidden_size)

    pooling.write_text(json.dumps({**json.loads(whole[1]), "pooling_mode_max_tokens": True}))
    refused("1_Pooling/config.json: pooling is mean, max; this library has cls, mean and max")
    pooling.write_text(json.dumps({"pooling_mode_weightedmean_tokens": True}))
    refused("pooling is pooling_mode_weightedmean_tokens")
    pooling.write_text(whole[1])
    (tmp_path / "modules.json").write_text(json.dumps(json.loads(whole[0])[:2] + [
        {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}]))
    (tmp_path / "2_Dense").mkdir()
    safetensors.torch.save_file({"linear.weight": torch.zeros(32, 32)}, tmp_path / "2_Dense" / "model.safetensors")
    refused("a Dense module that is not the encoder's own pooler")
    (tmp_path / "modules.json").write_text('[{"type": "x.CLIPModel", "path": ""}]')
    refused("modules are CLIPModel")
    for damage in ("{", "[3]", '[{"path": 1}]'):
        (tmp_path / "modules.json").write_text(damage)
        with pytest.raises(ValueError, match=r"modules.json: cannot be read as a list of modules"):
            load_encoder(tmp_path)
    (tmp_path / "modules.json").write_text(whole[0])
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": "many"}')
    with pytest.raises(ValueError, match="max_seq_length is 'many'"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("name", ["encoder.layer.0.attention.self.query.bias",
                                  "encoder.layer.1.output.LayerNorm.weight", "embeddings.word_embeddings.weight"])
def test_a_missing_or_misspelt_parameter_is_an_error(tiny_model, tiny_tokenizer, tmp_path, name):
    export(tiny_model, tiny_tokenizer, tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    tensors[name.replace("layer.", "layers.") + "s"] = tensors.pop(name)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"lacks {name} \\(1 of .*only the pooler may be missing"):
        load_encoder(tmp_path)


def test_only_the_pooler_may_be_missing(tiny_model, tiny_tokenizer, tmp_path):
    export(tiny_model, tiny_tokenizer, tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    safetensors.torch.save_file({name: tensor for name, tensor in tensors.items() if not name.startswith("pooler")},
                                tmp_path / "model.safetensors")
    assert load_encoder(tmp_path)[2].missing == ["pooler.dense.bias", "pooler.dense.weight"]


@pytest.mark.parametrize(("content", "message"), [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 90868376\n", "is a Git LFS pointer (7"),
    (b"<!DOCTYPE html>\n<html><body>Not found</body></html>", "is an HTML or XML page (5"), (b"", "is empty (0 bytes)"),
    (b"\x00" * 100, "not a readable weight file, or cut short (100 bytes)|not a plain pickle")])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_files_that_are_something_else_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_tensors(tmp_path / name)
    assert any(part in str(caught.value) for part in message.split("|")) and "\n" not in str(caught.value)


def test_a_vocabulary_smaller_than_the_table_is_said(tiny_model, tiny_tokenizer, tmp_path):
    export(tiny_model, tiny_tokenizer, tmp_path)
    report = load_encoder(tmp_path)[2]
    assert report.unreachable == TINY.vocab_size - len(tiny_tokenizer.id_of) > 0
    assert f"{report.unreachable} rows of the word embeddings belong to no token" in str(report)


def test_an_export_loads_in_transformers_and_back(tiny_model, tiny_tokenizer, tmp_path):
    export(tiny_model, tiny_tokenizer, tmp_path)
    theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
    ids = torch.randint(5, 900, (2, 8))
    with torch.inference_mode():
        assert_close(tiny_model(ids).last_hidden_state, theirs(input_ids=ids).last_hidden_state, rtol=0, atol=1e-5)
    again, tokenizer, report = load_encoder(tmp_path)
    assert not report.missing and not report.unexpected
    assert tokenizer.vocabulary == tiny_tokenizer.vocabulary
    for name, tensor in tiny_model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


def test_the_default_model_gives_sentence_transformers_vectors(model_directory):
    encoder, tokenizer, _ = load_encoder(model_directory)
    theirs = sentence_transformers.SentenceTransformer(
        modules=[Transformer(str(model_directory)), Pooling(384)], device="cpu")
    expected = torch.nn.functional.normalize(torch.from_numpy(theirs.encode(TEXTS)), dim=1)
    assert_close(vectors(encoder, tokenizer, TEXTS), expected, rtol=0, atol=1e-5)


def transfer_ft_layout(state: dict) -> dict:
    """The layout of pytorch_pretrained_bert: `bert.` in front, LayerNorm as gamma and beta, a classifier beside it."""
    renamed = {}
    for name, tensor in state.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        renamed["bert." + name] = tensor
    return renamed | {"classifier.weight": torch.zeros(3, 5), "classifier.bias": torch.zeros(3)}


@pytest.mark.parametrize("prefix", ["", "bert.", "module.bert.", "module."])
@pytest.mark.parametrize("suffix", [".safetensors", ".bin", ".pkl"])
def test_every_file_type_and_prefix(tiny_model, tmp_path, prefix, suffix):
    state = {prefix + name: tensor.clone() for name, tensor in tiny_model.state_dict().items()}
    path = tmp_path / f"weights{suffix}"
    safetensors.torch.save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    torch.manual_seed(1)
    fresh = BertModel(TINY)
    report = load_weights(fresh, path)
    assert not report.missing and not report.unexpected
    assert all(torch.equal(a, b) for a, b in zip(fresh.state_dict().values(), tiny_model.state_dict().values(),
                                                 strict=True))


def test_the_transfer_ft_pickle_is_read_and_its_heads_are_named(tiny_model, tmp_path):
    path = tmp_path / "transferFT-bert-base-uncased.pkl"
    torch.save(transfer_ft_layout(tiny_model.state_dict()), path)
    torch.manual_seed(1)
    fresh = BertModel(TINY)
    report = load_weights(fresh, path)
    assert report.unexpected == ["classifier.bias", "classifier.weight"] and not report.missing
    assert torch.equal(fresh.embeddings.LayerNorm.weight, tiny_model.embeddings.LayerNorm.weight)


def test_missing_parameters_are_reported_by_name(tiny_model, tmp_path):
    state = {name: tensor for name, tensor in tiny_model.state_dict().items() if not name.startswith("pooler")}
    torch.save(state | {"cls.predictions.bias": torch.zeros(4)}, tmp_path / "w.bin")
    report = load_weights(BertModel(TINY), tmp_path / "w.bin")
    assert report.missing == ["pooler.dense.bias", "pooler.dense.weight"]
    assert report.unexpected == ["cls.predictions.bias"]
    assert "left as initialised" in str(report) and "not used" in str(report)


def test_names_of_a_sentence_transformer_or_a_compiled_model_are_ours_too():
    assert our_name("module._orig_mod.bert.pooler.dense.bias") == "pooler.dense.bias"
    assert our_name("encoder.layer.0.output.LayerNorm.gamma") == "encoder.layer.0.output.LayerNorm.weight"
    assert our_name("encoder.encoder.layer.0.output.dense.bias") == "encoder.layer.0.output.dense.bias"


class Malicious:
    def __reduce__(self):
        return (print, ("code from a pickle ran",))


def broken(tmp_path, kind, state):
    path = tmp_path / ("w.safetensors" if "safetensors" in kind else "w.bin")
    if kind == "absent":
        return path
    if kind == "malicious":
        path.write_bytes(pickle.dumps(Malicious()))
    elif kind == "empty" or kind == "empty safetensors":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("<html>not found</html>")
    elif kind == "list":
        torch.save([1, 2], path)
    elif kind == "cut bin":
        torch.save(state, path)
        path.write_bytes(path.read_bytes()[:2000])
    elif kind == "cut safetensors":
        safetensors.torch.save_file(state, path)
        path.write_bytes(path.read_bytes()[:-100])
    elif kind == "safetensors with a lying header":
        path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    return path


@pytest.mark.parametrize("kind", ["absent", "malicious", "empty", "text", "list", "cut bin", "empty safetensors",
                                  "cut safetensors", "safetensors with a lying header"])
def test_a_broken_weight_file_is_one_clear_error_and_runs_no_code(tiny_model, tmp_path, kind, capsys):
    path = broken(tmp_path, kind, dict(tiny_model.state_dict()))
    with pytest.raises(ValueError) as caught:
        read_tensors(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert "ran" not in capsys.readouterr().out


def test_another_shape_and_another_model_are_clear_errors(tiny_model, tmp_path):
    state = tiny_model.state_dict()
    torch.save(state | {"pooler.dense.bias": torch.zeros(5)}, tmp_path / "shape.bin")
    with pytest.raises(ValueError, match=r"pooler.dense.bias has shape \[5\]; this model expects \[32\]"):
        load_weights(BertModel(TINY), tmp_path / "shape.bin")
    torch.save({"conv1.weight": torch.zeros(3)}, tmp_path / "other.bin")
    with pytest.raises(ValueError, match="no parameter of a BERT encoder"):
        load_weights(BertModel(TINY), tmp_path / "other.bin")


@pytest.mark.parametrize(("text", "message"), [
    ("{", "cannot be read"), ("[]", "expected an object"), ('{"model_type": "gpt2"}', "expected 'bert'"),
    ('{"hidden_size": 10, "num_attention_heads": 3}', "does not divide"), ('{"hidden_act": "swish"}', "hidden_act"),
    ('{"hidden_act": 3}', "hidden_act is 3"), ('{"hidden_size": "384"}', "hidden_size is 384; expected a whole number"),
    ('{"layer_norm_eps": null}', "layer_norm_eps is None"), ('{"hidden_dropout_prob": "0.1"}', "0 <= p < 1"),
    ('{"vocab_size": true}', "vocab_size is True"), ('{"vocab_size": ' + "9" * 5000 + "}", "cannot be read"),
    ("[" * 100_000, "cannot be read"),
    ('{"vocab_size": 0}', "a whole number from 1"), ('{"hidden_dropout_prob": 1.5}', "0 <= p < 1")])
def test_a_wrong_configuration_is_a_clear_error(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        BertConfig.load(tmp_path / "config.json")


def test_unknown_configuration_fields_survive_a_round_trip(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 24, "num_attention_heads": 2, "note": [1, 2]}')
    config = BertConfig.load(tmp_path / "config.json")
    (tmp_path / "again.json").write_text(config.to_json())
    assert BertConfig.load(tmp_path / "again.json").other["note"] == [1, 2]
