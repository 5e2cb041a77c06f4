"""Masked words: what is hidden, and the head and the loss against Hugging Face's."""
import dataclasses
import json

import numpy as np
import pytest
import torch
import transformers
from conftest import TINY, make_task

import train_multitask
from corpora.examples import Example
from minbert.bert import BertModel
from tasks.masked import MaskedHead, hide


def test_what_is_hidden_has_the_papers_shares():
    ids = torch.randint(10, 1000, (400, 50), generator=torch.Generator().manual_seed(0))
    candidates = torch.ones_like(ids, dtype=torch.bool)
    candidates[:, [0, 7, 49]] = False
    hidden, chosen = hide(ids, candidates, 0.15, 4, 1000, torch.Generator().manual_seed(1))
    count = int(chosen.sum())
    total = int(candidates.sum())
    assert not (chosen & ~candidates).any() and torch.equal(hidden[~chosen], ids[~chosen])
    assert count / total == pytest.approx(0.15, abs=4 * (0.15 * 0.85 / total) ** 0.5)
    deviation = 4 * (0.8 * 0.2 / count) ** 0.5
    assert float((hidden[chosen] == 4).float().mean()) == pytest.approx(0.8, abs=deviation)
    assert float((hidden[chosen] == ids[chosen]).float().mean()) == pytest.approx(0.1, abs=deviation)
    another = hidden[chosen & (hidden != 4) & (hidden != ids)]
    assert len(another) / count == pytest.approx(0.1, abs=deviation) and len(another.unique()) > 0.7 * len(another)


def test_a_short_sequence_has_one_hidden_word_and_an_empty_one_none():
    candidates = torch.tensor([[False, True, False], [False, False, False]])
    for seed in range(20):
        _, chosen = hide(torch.full((2, 3), 9), candidates, 0.01, 4, 100, torch.Generator().manual_seed(seed))
        assert chosen.tolist() == candidates.tolist()


@pytest.mark.parametrize("act", ["gelu", "relu", "gelu_new"])
def test_the_head_equals_hugging_faces(act):
    config = dataclasses.replace(TINY, hidden_act=act)
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**dataclasses.asdict(config))).eval()
    ours = MaskedHead(config)
    state = {name.removeprefix("cls.predictions."): value for name, value in theirs.state_dict().items()
             if name.startswith("cls.predictions.") and "decoder" not in name}
    assert state.keys() == ours.state_dict().keys()
    for value in state.values():
        value.copy_(torch.randn_like(value))
    theirs.cls.predictions.bias.data.copy_(state["bias"])
    ours.load_state_dict(state)
    hidden = torch.randn(7, config.hidden_size)
    expected = theirs.cls(hidden)
    torch.testing.assert_close(ours(hidden, theirs.bert.embeddings.word_embeddings.weight), expected)


SENTENCES = ["the dog runs in the old house", "a cat", "the film is good and the story is not"]


@pytest.fixture
def task(tiny_tokenizer):
    return make_task("masked_words", "words", tiny_tokenizer, TINY, {"share": 0.3})


@pytest.mark.parametrize("training", [True, False])
def test_the_loss_equals_hugging_faces(task, training, monkeypatch):
    torch.manual_seed(0)
    encoder = BertModel(TINY).eval()
    task.train(training)
    examples = [Example(str(i), (text,), 1) for i, text in enumerate(SENTENCES)]
    task.tokenize(examples)
    batch = task.collate(examples)
    seen = {}
    real = task._hidden
    monkeypatch.setattr(task, "_hidden", lambda tokens: seen.setdefault("hidden", real(tokens)))
    outputs = task.outputs(encoder, batch)
    loss = task.training_loss(outputs, batch)
    hidden, chosen = seen["hidden"]
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**dataclasses.asdict(TINY))).eval()
    theirs.bert.load_state_dict(encoder.state_dict(), strict=False)
    theirs.cls.predictions.load_state_dict({**task.head.state_dict(), "decoder.bias": task.head.bias,
                                            "decoder.weight": encoder.embeddings.word_embeddings.weight})
    labels = batch.tokens.input_ids.masked_fill(~chosen, -100)
    expected = theirs(input_ids=hidden, attention_mask=batch.tokens.attention_mask.long(), labels=labels)
    torch.testing.assert_close(loss, expected.loss)
    loss.backward()
    expected.loss.backward()
    torch.testing.assert_close(encoder.embeddings.word_embeddings.weight.grad,
                               theirs.bert.embeddings.word_embeddings.weight.grad, rtol=1e-4, atol=1e-6)
    right = (expected.logits.argmax(-1) == labels).sum(1) / chosen.sum(1)
    torch.testing.assert_close(task.predict_from(outputs), right)
    assert task.metrics()["accuracy"](right.numpy(), np.ones(3)) == pytest.approx(float(right.mean()))


def test_dev_hides_the_same_words_whatever_is_beside_a_sentence(task):
    task.eval()
    examples = [Example(str(i), (text,), 1) for i, text in enumerate(SENTENCES)]
    task.tokenize(examples)
    together = task._hidden(task.collate(examples).tokens)
    torch.manual_seed(5)
    for index, example in enumerate(examples):
        alone = task._hidden(task.collate([example]).tokens)
        width = alone[0].shape[1]
        for one, other in zip(alone, together, strict=True):
            assert torch.equal(one[0], other[index, :width])


def test_sentences_are_read_from_any_of_the_courses_files(task, toy_directory, tmp_path):
    lines = (toy_directory / "quora-train.csv").read_text().splitlines()
    names = lines[0].split("\t")
    expected = []
    for line in lines[1:]:
        row = dict(zip(names, line.split("\t"), strict=True))
        expected += [row["sentence1"], row["sentence2"]]
    data = task.read(toy_directory / "quora-train.csv", "train")
    assert [example.sentences[0] for example in data.examples] == list(dict.fromkeys(expected))
    assert len(task.read(toy_directory / "ids-sst-test-student.csv", "test").examples) > 5
    (tmp_path / "x.csv").write_text("id\ttext\n1\thello\n")
    with pytest.raises(ValueError, match=r"x.csv:1: columns are 'id\\ttext'; expected a column sentence or"):
        task.read(tmp_path / "x.csv", "train")
    (tmp_path / "x.csv").write_text("id\tsentence\n1\t\n2\t \n")
    with pytest.raises(ValueError, match="no usable row"):
        task.read(tmp_path / "x.csv", "train")


RECIPE = """
[tasks.words]
kind = "masked_words"
train = ["ids-sst-train.csv", "quora-train.csv"]
dev = ["ids-sst-dev.csv"]
[[stage]]
tasks = ["words"]
epochs = 2
steps_per_epoch = 40
batch_size = 16
{extra}
optimizer = {{ lr = 1e-2 }}
"""


@pytest.mark.parametrize("engine", ["engine", "plain"])
def test_an_encoder_learns_the_words_by_command(tmp_path, monkeypatch, tiny_directory, toy_directory, engine):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text(RECIPE.format(extra=""))
    assert train_multitask.main(["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory),
                                 "--engine", engine, "--precision", "float32", "--out", "run", "--no_progress"]) == 0
    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    losses = [line["loss"]["words"] for line in lines if "loss" in line]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.5
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert 0 < results["dev"]["words"]["accuracy"]["value"] < 1 and not results["baselines"]["words"]


def test_three_sentences_are_learned_by_heart(task):
    torch.manual_seed(0)
    encoder = BertModel(TINY)
    examples = [Example(str(i), (text,), 1) for i, text in enumerate(SENTENCES)] * 4
    task.tokenize(examples)
    optimizer = torch.optim.Adam([*encoder.parameters(), *task.parameters()], lr=3e-3)
    for _ in range(300):
        optimizer.zero_grad()
        task.train()
        task.loss(encoder, task.collate(examples)).backward()
        optimizer.step()
    task.eval()
    encoder.eval()
    assert task.predict(encoder, task.collate(examples)).mean().item() > 0.8


def test_agreement_of_two_maskings_is_refused(tmp_path, monkeypatch, capsys, tiny_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text(RECIPE.format(extra="rdrop = 1.0"))
    assert train_multitask.main(["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory),
                                 "--out", "run", "--no_progress"]) == 2
    assert "R-Drop and SMART compare two outputs for one input" in capsys.readouterr().err
