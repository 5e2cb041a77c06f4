"""Predictions with context: what a run writes, for every kind of task, and what the reader refuses."""
import json

import numpy as np
import pytest
import torch

import train_multitask
from corpora.predictions import Prediction, load_predictions, save_predictions

ROW = {"id": "a", "sentences": ["x", "y"], "gold": 1, "prediction": 0, "probabilities": [0.75, 0.25]}

RECIPE = """
[tasks.sst]
[tasks.para]
loss = "{loss}"
head = "{head}"
[tasks.sts]
[[stage]]
tasks = ["sst", "para", "sts"]
epochs = 1
steps_per_epoch = 3
"""


def test_rows_come_back(tmp_path):
    rows = [Prediction("a", ["é <script>"], 1, 0, probabilities=[0.75, 0.25]),
            Prediction("b", ["x", "\u2028"], 2.5, 3.5, score=0.7),
            Prediction("c", ["x", "y"], None, [1.0, 2.0, 1.0, 1.0])]
    save_predictions(tmp_path / "p.jsonl", rows)
    assert load_predictions(tmp_path / "p.jsonl") == rows


@pytest.mark.parametrize(("loss", "head"), [("cross_entropy", "linear"), ("bce", "linear"), ("bce", "cosine"),
                                            ("mse", "cosine"), ("hinge", "linear")])
def test_a_run_writes_ids_sentences_gold_and_probabilities(tmp_path, monkeypatch, tiny_directory, toy_directory, loss,
                                                           head):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text(RECIPE.format(loss=loss, head=head))
    assert train_multitask.main(["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory),
                                 "--out", "run", "--no_progress"]) == 0
    rows = {task: load_predictions(tmp_path / f"run/predictions/{task}-dev.jsonl") for task in ("sst", "para", "sts")}
    for task, name in (("sst", "sst-dev-output.csv"), ("para", "para-dev-output.csv"), ("sts", "sts-dev-output.csv")):
        lines = (tmp_path / "run/predictions" / name).read_text().splitlines()[1:]
        for row, line in zip(rows[task], lines, strict=True):
            identifier, value = (part.strip() for part in line.split(","))
            assert identifier == row.id and float(value) == pytest.approx(row.prediction)
    source = [line.split("\t") for line in (toy_directory / "quora-dev.csv").read_text().splitlines()[1:]]
    for row, columns in zip(rows["para"], source, strict=True):
        assert [row.id, *row.sentences] == [column.strip('"').strip() for column in columns[1:4]]
        assert row.gold == float(columns[4])
    for row in rows["sst"]:
        assert len(row.probabilities) == 5 and sum(row.probabilities) == pytest.approx(1, abs=1e-5)
        assert int(np.argmax(row.probabilities)) == row.prediction and row.score is None
    for row in rows["para"]:
        if loss in ("cross_entropy", "bce"):
            assert sum(row.probabilities) == pytest.approx(1, abs=1e-5)
            assert row.prediction == (row.probabilities[1] > 0.5) or abs(row.probabilities[1] - 0.5) < 1e-5
        else:
            assert row.probabilities is None and row.prediction == (row.score > (0.5 if loss == "mse" else 0))
    for row in rows["sts"]:  # a cosine in [0, 1] is five times as large as a label
        assert row.probabilities is None
        assert row.prediction == pytest.approx(5 * min(1, max(0, row.score)), abs=1e-4)


@pytest.mark.parametrize(("change", "message"), [
    ({"id": 3}, "id is '3'; expected text"), ({"sentences": []}, "sentences is '\\[\\]'; expected a list of texts"),
    ({"sentences": ["a", 1]}, "sentences is"), ({"gold": True}, "gold is 'True'; expected a number"),
    ({"gold": "1"}, "gold is '1'"), ({"prediction": None}, "prediction is 'None'"),
    ({"prediction": [1, "a"]}, "prediction is"), ({"probabilities": [1]}, "probabilities is"),
    ({"probabilities": 1}, "probabilities is"), ({"score": []}, "score is"), ({"more": 1}, "unknown field 'more'"),
    ({"prediction": ...}, "no field 'prediction'")])
def test_a_row_that_makes_no_sense_is_one_error(tmp_path, change, message):
    values = {name: value for name, value in {**ROW, **change}.items() if value is not ...}
    (tmp_path / "p.jsonl").write_text(json.dumps(ROW) + "\n\n" + json.dumps(values) + "\n")
    with pytest.raises(ValueError, match=f"p.jsonl:3: {message}") as caught:
        load_predictions(tmp_path / "p.jsonl")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"{", b"[" * 100_000, b"\xff\xfe", b"1", b"null", b'{"id": NaN}', b'""'])
def test_hostile_files_are_one_error(tmp_path, content):
    (tmp_path / "p.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match="p.jsonl") as caught:
        load_predictions(tmp_path / "p.jsonl")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="p.jsonl"):
        load_predictions(tmp_path / "missing" / "p.jsonl")


def test_a_number_that_json_does_not_have_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        save_predictions(tmp_path / "p.jsonl", [Prediction("a", ["x"], 1, float("nan"))])
    assert not list(tmp_path.iterdir())


def test_probabilities_of_a_cosine_are_its_place_in_the_range():
    from tasks.objectives import BinaryCrossEntropy, Bins
    from tasks.options import ParaphraseOptions, SimilarityOptions

    objective = BinaryCrossEntropy(ParaphraseOptions(head="linear", loss="bce"), 2, 1.0)
    logits = torch.tensor([-2.0, 0.0, 3.0])
    assert torch.allclose(objective.probabilities(logits)[:, 1], 1 / (1 + torch.exp(-logits)))
    graded = SimilarityOptions(head="cosine", loss="bce", target_range=[-1.0, 1.0])
    assert BinaryCrossEntropy(graded, None, 5.0).probabilities(torch.tensor([0.5])) is None
    assert Bins(SimilarityOptions(head="linear", loss="bins"), None, 5.0).probabilities(torch.zeros(2, 6)) is None
