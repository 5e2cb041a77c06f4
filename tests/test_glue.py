"""GLUE: every layout's files, official metrics, and the server's submission files."""
import numpy as np
import pytest
import sklearn.metrics
import torch
from conftest import TINY, make_task

from minbert.bert import BertModel
from tasks.glue import LAYOUTS
from tasks.task import Outputs

FOLDERS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "qqp": "QQP", "mnli": "MNLI",
           "mnli_mm": "MNLI", "qnli": "QNLI", "rte": "RTE", "wnli": "WNLI", "paws": "PAWS"}


def make(tokenizer, layout):
    return make_task("glue", layout, tokenizer, TINY, {"layout": layout})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_reads_trains_and_writes(tiny_tokenizer, toy_directory, tmp_path, layout):
    folder = toy_directory / FOLDERS[layout]
    task = make(tiny_tokenizer, layout)
    examples = task.read(folder / "train.tsv", "train").examples
    test = task.read(folder / {"mnli": "test_matched.tsv", "mnli_mm": "test_mismatched.tsv"}.get(layout, "test.tsv"),
                     "test").examples
    assert len(examples) in (40, 39) and len(test) == 10 and test[0].label is None
    assert len({example.label for example in examples}) > 1
    task.tokenize(examples)
    batch = task.collate(examples[:8])
    loss = task.loss(BertModel(TINY), batch)
    loss.backward()
    assert loss.isfinite()
    predictions = np.zeros(10) if task.classes else np.linspace(-1, 6, 10)
    task.write_predictions(tmp_path / task.prediction_file("test"), test, predictions)
    lines = (tmp_path / LAYOUTS[layout].submission).read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 11 and lines[1].startswith("0\t")
    value = lines[1].split("\t")[1]
    assert value == (LAYOUTS[layout].names[0] if task.classes else "0.000")


def test_real_files_have_the_rows_that_were_counted(tiny_tokenizer, shared_data):
    counted = {("mrpc", "MRPC/train.tsv"): 3668, ("mrpc", "MRPC/dev.tsv"): 408, ("rte", "RTE/train.tsv"): 2490,
               ("rte", "RTE/dev.tsv"): 277, ("stsb", "STS-B/sts-train.csv"): 5749, ("stsb", "STS-B/sts-dev.csv"): 1500,
               ("mrpc", "MRPC/msr_paraphrase_train.txt"): 4076}
    for (layout, name), rows in counted.items():
        dataset = make(tiny_tokenizer, layout).read(shared_data / "glue" / name, "train")
        assert len(dataset.examples) == rows, name
    tested = make(tiny_tokenizer, "mrpc").read(shared_data / "glue/MRPC/test.tsv", "test").examples
    assert len(tested) == 1725
    labels = [e.label for e in make(tiny_tokenizer, "rte").read(shared_data / "glue/RTE/dev.tsv", "dev").examples]
    assert (labels.count(0), labels.count(1)) == (146, 131)  # entailment is class 0, as in GLUE


def test_metrics_are_the_official_ones(tiny_tokenizer):
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    found = {name: function(predictions, labels) for name, function in make(tiny_tokenizer, "mrpc").metrics().items()}
    assert found == pytest.approx({"f1": sklearn.metrics.f1_score(labels, predictions),
                                   "accuracy": sklearn.metrics.accuracy_score(labels, predictions)})
    assert list(make(tiny_tokenizer, "cola").metrics()) == ["matthews"]
    assert make(tiny_tokenizer, "stsb").metric == "pearson"


@pytest.mark.parametrize(("layout", "text", "message"), [
    ("mrpc", "Quality\t#1 String\t#2 String\n2\ta\tb\n", ":2: Quality is '2'; expected one of 0, 1"),
    ("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tneutral\n", "expected one of entailment, not_entailment"),
    ("stsb", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t6\n", "expected a number from 0 to 5"),
    ("mnli", "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\t-\n", "no usable row"),
    ("qqp", "id\tquestion1\n", "no column question2, is_duplicate"), ("cola", "x\ty\n", ":1: found 2 columns"),
    ("sst2", "", "empty")])
def test_mistakes_are_clear_errors(tiny_tokenizer, tmp_path, layout, text, message):
    (tmp_path / "f.tsv").write_text(text)
    with pytest.raises(ValueError, match=message):
        make(tiny_tokenizer, layout).read(tmp_path / "f.tsv", "train")


def test_an_unknown_layout_is_a_clear_error(tiny_tokenizer):
    with pytest.raises(ValueError, match="layout is 'mrcp'; known"):
        make(tiny_tokenizer, "mrcp")


def test_predictions_of_a_trained_direction_rise(tiny_tokenizer):
    task = make(tiny_tokenizer, "stsb")
    outputs = Outputs(torch.tensor([-0.1, 0.0, 0.5, 1.0, 1.2]), torch.zeros(()))
    assert torch.equal(task.predict_from(outputs), torch.tensor([0.0, 0.0, 2.5, 5.0, 5.0]))
