"""Tasks: files to examples to batches to losses to predictions, for every choice a recipe can make."""
import itertools
import json

import numpy as np
import pytest
import torch
from conftest import TINY, cases

import tasks.task
from corpora import toy
from corpora.disklist import DiskList
from minbert.bert import BertModel
from tasks import TASKS, make_task
from tasks.inference import build_triplets, read_pairs
from tasks.leaderboard import overall_score, read_predictions
from tasks.pair import CLASS_LOSSES, SCORE_LOSSES
from tasks.pooling import POOLINGS
from tasks.task import Example, joined

FILES = {"sentiment": "ids-sst", "paraphrase": "quora", "similarity": "sts"}


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    return BertModel(TINY)


def batch_of(task, directory, count=8):
    suffix = ".jsonl" if task.name.startswith("inference") else ".csv"
    stem = FILES.get(task.name, "nli")
    examples = task.read(directory / f"{stem}-train{suffix}", "train").examples[:count]
    task.tokenize(examples)
    return task.collate(examples), examples


def check_trains(task, encoder, directory):
    batch, examples = batch_of(task, directory)
    task.train()
    loss = task.loss(encoder, batch)
    assert loss.ndim == 0 and loss.isfinite()
    encoder.zero_grad()
    loss.backward()
    gradient = encoder.encoder.layer[0].intermediate.dense.weight.grad
    assert gradient is not None and gradient.isfinite().all()
    task.eval()
    predictions = task.predict(encoder, batch)
    assert predictions.shape == (len(examples),) and predictions.isfinite().all()


PAIR_CHOICES = [
    ({"head": head, "loss": loss, "pooling": pooling, "combination": combination})
    for (head, loss), pooling, combination in [
        *itertools.product([("linear", "cross_entropy"), ("mlp", "cross_entropy"), ("cosine", "cross_entropy")],
                           POOLINGS, ["u,v,|u-v|"]),
        *itertools.product([("linear", "cross_entropy")], ["mean"],
                           ["u,v", "u,v,u*v", "u*v", "|u-v|", "u,v,|u-v|,u*v", "u,v,cos"]),
        *itertools.product([("cosine", loss) for loss in CLASS_LOSSES] + [("linear", "hinge")], ["mean"],
                           ["u,v,|u-v|"])]]


@pytest.mark.parametrize("choices", PAIR_CHOICES, ids=lambda c: "-".join(c.values()))
def test_every_siamese_choice_of_paraphrase_trains(encoder, tiny_tokenizer, toy_directory, choices):
    task = make_task("paraphrase", "paraphrase", tiny_tokenizer, TINY, choices)
    check_trains(task, encoder, toy_directory)


@pytest.mark.parametrize("head", ["cosine", "linear", "mlp"])
@pytest.mark.parametrize("loss", SCORE_LOSSES)
def test_every_head_and_loss_of_similarity_trains(encoder, tiny_tokenizer, toy_directory, head, loss):
    choices = {"head": head, "loss": loss, "encoding": "siamese"}
    if head == "cosine" and loss == "bins":
        with pytest.raises(ValueError, match="needs several"):
            make_task("similarity", "similarity", tiny_tokenizer, TINY, choices)
        return
    check_trains(make_task("similarity", "similarity", tiny_tokenizer, TINY, choices), encoder, toy_directory)


@pytest.mark.parametrize("kind", ["paraphrase", "similarity", "inference"])
def test_cross_encoding_puts_both_sentences_in_one_sequence(encoder, tiny_tokenizer, toy_directory, kind):
    loss = "mse" if kind == "similarity" else "cross_entropy"
    task = make_task(kind, kind, tiny_tokenizer, TINY, {"encoding": "cross", "head": "linear", "loss": loss})
    batch, examples = batch_of(task, toy_directory)
    assert len(batch.tokens.input_ids) == len(examples) and batch.tokens.token_type_ids.max() == 1
    check_trains(task, encoder, toy_directory)


@pytest.mark.parametrize("options", [{"loss": "mse", "head": "cosine"}, {"loss": "cross_entropy"}])
def test_inference_as_classification_and_as_regression(encoder, tiny_tokenizer, toy_directory, options):
    task = make_task("inference", "inference", tiny_tokenizer, TINY, options)
    check_trains(task, encoder, toy_directory)
    if options["loss"] == "mse":
        found = task.predict_from(torch.tensor([-0.5, 0.2, 0.3, 0.74, 0.76, 1.3]))
        assert found.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("objective", ["triplet", "contrastive"])
def test_inference_triplets_train(encoder, tiny_tokenizer, tmp_path, objective):
    rows = [(f"p{i}", f"{label[0]}{i}", label) for label in ("entailment", "contradiction") for i in range(8)]
    (tmp_path / "nli-train.jsonl").write_text("".join(
        json.dumps({"sentence1": a, "sentence2": b, "gold_label": c}) + "\n" for a, b, c in rows))
    task = make_task("inference_triplets", "inference_triplets", tiny_tokenizer, TINY, {"objective": objective})
    check_trains(task, encoder, tmp_path)


def test_triplets_are_built_from_pairs_without_losing_a_hypothesis():
    pairs = [Example("", sentences, label) for sentences, label in [
        (("a", "a-e1"), 2), (("b", "b-e1"), 2), (("a", "a-c1"), 0), (("a", "a-n"), 1), (("a", "a-e2"), 2),
        (("c", "c-c1"), 0), (("a", "a-e3"), 2)]]
    assert [t.sentences for t in build_triplets(pairs)] == [
        ("a", "a-e1", "a-c1"), ("a", "a-e2", "a-c1"), ("a", "a-e3", "a-c1")]


def test_nli_files_in_every_layout(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"sentence1": "p", "sentence2": "h", "gold_label": "neutral"}\n'
                                      '{"sentence1": "p", "sentence2": "h", "gold_label": "-"}\n')
    (tmp_path / "b.tsv").write_text('premise\thypothesis\tlabel\np\t"h\tentailment\n')
    (tmp_path / "c.jsonl").write_text('{"query": "h", "document": "p", "label": 1, "idx": "x"}\n')
    for name, text in (("s1.dev", "p\n"), ("s2.dev", "h\n"), ("labels.dev", "contradiction\n")):
        (tmp_path / name).write_text(text)
    found = [read_pairs(tmp_path / name, "train") for name in ("a.jsonl", "b.tsv", "c.jsonl", "labels.dev")]
    assert [d.examples[0].label for d in found] == [1, 2, 0, 0]
    assert [d.examples[0].sentences for d in found] == [("p", "h"), ("p", '"h'), ("p", "h"), ("p", "h")]
    assert found[0].skipped == [(2, "without an agreed label")] and "1 without an agreed label" in found[0].report()
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(ValueError, match="bad.jsonl:1: columns are x; expected sentence1, sentence2, gold_label or"):
        read_pairs(tmp_path / "bad.jsonl", "train")
    (tmp_path / "s1.dev").write_text("p\nq\n")
    with pytest.raises(ValueError, match="1 labels for 2 and 1"):
        read_pairs(tmp_path / "labels.dev", "train")


@pytest.mark.parametrize(("kind", "options", "file", "split"), [
    ("sentiment", {}, "ids-sst-train.csv", "train"), ("paraphrase", {}, "quora-test-student.csv", "test"),
    ("similarity", {}, "sts-dev.csv", "dev"), ("inference", {}, "nli-dev.jsonl", "dev"),
    ("inference_triplets", {}, "nli-train.jsonl", "train"), ("glue", {"layout": "mrpc"}, "MRPC/train.tsv", "train")])
def test_a_large_files_examples_stay_on_disk(monkeypatch, tiny_tokenizer, tmp_path, kind, options, file, split):
    toy.write_course_files(tmp_path, train=12, dev=6, test=6)
    toy.write_glue_files(tmp_path, train=12, dev=6, test=6)
    task = make_task(kind, kind, tiny_tokenizer, TINY, {"max_length": 8, **options})
    in_memory = task.read(tmp_path / file, split).examples
    monkeypatch.setattr(tasks.task, "LARGE_FILE", 0)
    on_disk = task.read(tmp_path / file, split).examples
    assert isinstance(on_disk, DiskList) == (kind != "inference_triplets")  # made of many rows, they are made in memory
    assert task.tokenize(on_disk) == task.tokenize(in_memory)
    assert list(on_disk) == list(in_memory) and on_disk[0].ids
    for both in ([on_disk, in_memory], [in_memory, on_disk]):
        assert list(joined(both)) == 2 * in_memory


def test_real_nli_files_are_read_whole(shared_data):
    assert len(read_pairs(shared_data / "nli/mnli/dev.jsonl", "dev").examples) == 9815
    assert len(read_pairs(shared_data / "nli/snli/labels.dev", "dev").examples) == 9842
    assert len(read_pairs(shared_data / "nli/counterfactual/original/dev.tsv", "dev").examples) == 200


def test_blank_labels_are_counted_in_the_real_files(tiny_tokenizer, shared_data):
    task = make_task("paraphrase", "para", tiny_tokenizer, TINY, {})
    dataset = task.read(shared_data / "cs224n/quora-dev.csv", "dev")
    assert len(dataset.examples) == 20_212 and len(dataset.skipped) == 2
    as_test = task.read(shared_data / "cs224n/quora-dev.csv", "test")
    assert len(as_test.examples) == 20_214 and not as_test.skipped


def test_both_sides_of_a_pair_go_through_in_one_call(tiny_tokenizer, toy_directory, encoder):
    task = make_task("similarity", "similarity", tiny_tokenizer, TINY, {})
    batch, examples = batch_of(task, toy_directory)
    assert len(batch.tokens.input_ids) == 2 * len(examples)
    swapped = task.collate([Example(e.id, e.sentences[::-1], e.label, e.ids[::-1]) for e in examples])
    task.eval()
    encoder.eval()
    assert torch.allclose(task.predict(encoder, batch), task.predict(encoder, swapped), atol=1e-5)
    encoder.train()


@pytest.mark.parametrize(("kind", "options", "message"), [
    ("sentimental", {}, r"unknown kind 'sentimental'.*did you mean 'sentiment'"),
    ("sentiment", {"poling": "mean"}, r"unknown option 'poling'.*did you mean 'pooling'"),
    ("sentiment", {"pooling": "average"}, "pooling is 'average'; known"),
    ("sentiment", {"dropout": "much"}, "dropout is 'much'; expected float"),
    ("paraphrase", {"combination": "u,w"}, "unknown part 'w'"),
    ("paraphrase", {"loss": "cross"}, "loss is 'cross'; known"),
    ("paraphrase", {"encoding": "cross", "head": "cosine"}, "a cross-encoded pair has one"),
    ("similarity", {"encoding": "cross", "head": "linear", "loss": "info_nce"}, "use encoding 'siamese'"),
    ("inference", {"head": "cosine"}, "needs several"),
    ("inference_triplets", {"objective": "quadruplet"}, "objective is 'quadruplet'"),
])
def test_a_wrong_choice_is_a_clear_error(tiny_tokenizer, kind, options, message):
    with pytest.raises(ValueError, match=message):
        make_task(kind, "t", tiny_tokenizer, TINY, options)


def test_every_kind_can_be_made_with_its_defaults(tiny_tokenizer):
    for kind in TASKS:
        assert make_task(kind, "t", tiny_tokenizer, TINY, {}).metric


def test_a_long_sequence_is_cut_and_counted(tiny_tokenizer, encoder):
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {"max_length": 10})
    examples = [Example("1", ("the dog " * 50,), 1), Example("2", ("the dog",), 2)]
    assert task.tokenize(examples) == 1
    assert task.collate(examples).tokens.input_ids.shape == (2, 10)


@pytest.mark.parametrize("case", cases("submission"))
def test_predictions_of_each_split_go_to_its_own_file(case, tiny_tokenizer, tmp_path):
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {})
    for split in ("dev", "test"):
        examples = [Example(i, ("x",)) for i in case["input"][f"{split}_ids"]]
        path = tmp_path / f"{split}.csv"
        task.write_predictions(path, examples, np.array(case["input"][f"{split}_pred"]))
        lines = path.read_text().split("\n")
        assert lines[0] == "id \t Predicted_Sentiment " and lines[-1] == ""
        found = {line.split(",")[0].strip(): int(line.split(",")[1].strip()) for line in lines[1:-1]}
        assert found == case["expected"][f"{split}_file"]


def test_prediction_files_are_the_courses_to_the_letter(tiny_tokenizer, tmp_path):
    expected = {"sentiment": ("id \t Predicted_Sentiment ", "4"), "paraphrase": ("id \t Predicted_Is_Paraphrase ", "1"),
                "similarity": ("id \t Predicted_Similiary ", "2.5")}
    for kind, (header, value) in expected.items():
        task = make_task(kind, kind, tiny_tokenizer, TINY, {})
        task.write_predictions(tmp_path / kind, [Example("ab", ("x",)), Example("ab", ("y",))],
                               np.array([float(value)] * 2))
        assert (tmp_path / kind).read_text() == f"{header}\nab , {value} \nab , {value} \n"
        assert read_predictions(tmp_path / kind) == [("ab", float(value))] * 2


def test_the_overall_score_of_a_published_row():
    # Lee et al., nli_triplet, dev: .532 / .881 / .880 gives .784
    assert overall_score(0.532, 0.881, 0.880) == pytest.approx(0.784, abs=5e-4)


@pytest.mark.parametrize("text", ["", "x\n", "id\na\n", "id\na , b\n", "id\n1 2\n"])
def test_a_broken_prediction_file_is_a_clear_error(tmp_path, text):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ValueError, match=r"p.csv:[12]: found"):
        read_predictions(tmp_path / "p.csv")
