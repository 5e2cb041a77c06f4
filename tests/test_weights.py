"""Weights: what others wrote we read, what we write others read, and what is broken is one clear error."""
import pickle

import pytest
import safetensors.torch
import sentence_transformers
import torch
import transformers
from conftest import TINY
from torch.testing import assert_close

from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.weights import export, load_encoder, load_weights, our_name, read_tensors
from tasks.pooling import cls_pool, max_pool, mean_pool


def vectors(model, tokenizer, texts, pooling=mean_pool):
    rows = [tokenizer.encode(text).input_ids for text in texts]
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    mask = torch.arange(length) < torch.tensor([[len(row)] for row in rows])
    with torch.inference_mode():
        return torch.nn.functional.normalize(pooling(model.eval()(ids, mask).last_hidden_state, mask), dim=1)


TEXTS = ["the dog found a red car", "yesterday , a large crowd painted the boat in the kitchen .", "x"]


@pytest.mark.parametrize(("pooling", "function"), [("mean", mean_pool), ("cls", cls_pool), ("max", max_pool)])
def test_an_export_gives_the_same_vectors_in_sentence_transformers(tiny_model, tiny_tokenizer, tmp_path, pooling,
                                                                   function):
    export(tiny_model, tiny_tokenizer, tmp_path, pooling=pooling)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    assert_close(vectors(tiny_model, tiny_tokenizer, TEXTS, function),
                 torch.from_numpy(theirs.encode(TEXTS)), rtol=0, atol=1e-5)


def test_an_export_loads_in_transformers_and_back(tiny_model, tiny_tokenizer, tmp_path):
    export(tiny_model, tiny_tokenizer, tmp_path)
    theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
    ids = torch.randint(5, 900, (2, 8))
    with torch.inference_mode():
        assert_close(tiny_model(ids).last_hidden_state, theirs(input_ids=ids).last_hidden_state, rtol=0, atol=1e-5)
    again, tokenizer, report = load_encoder(tmp_path)
    assert str(report) == "every parameter found"
    assert tokenizer.vocabulary == tiny_tokenizer.vocabulary
    for name, tensor in tiny_model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


def test_the_default_model_gives_sentence_transformers_vectors(model_directory):
    encoder, tokenizer, _ = load_encoder(model_directory)
    theirs = sentence_transformers.SentenceTransformer(
        modules=[sentence_transformers.models.Transformer(str(model_directory)),
                 sentence_transformers.models.Pooling(384)], device="cpu")
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
    ('{"vocab_size": 0}', "at least 1"), ('{"hidden_dropout_prob": 1.5}', "0 <= p < 1")])
def test_a_wrong_configuration_is_a_clear_error(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        BertConfig.load(tmp_path / "config.json")


def test_unknown_configuration_fields_survive_a_round_trip(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 24, "num_attention_heads": 2, "note": [1, 2]}')
    config = BertConfig.load(tmp_path / "config.json")
    (tmp_path / "again.json").write_text(config.to_json())
    assert BertConfig.load(tmp_path / "again.json").other["note"] == [1, 2]
