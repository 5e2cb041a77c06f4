"""The threshold of a two-class task, tuned on rows that are held out of training."""
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from conftest import TINY, make_task

import train_multitask
from corpora.examples import Example
from corpora.predictions import load_predictions
from minbert.tokenizer import BertTokenizer
from tasks.objectives import CrossEntropy
from tasks.options import ParaphraseOptions
from training import threshold
from training.data import TaskData, load_data
from training.engines import make_engine
from training.evaluate import answers
from training.model import load_run
from training.recipe import load_recipe, parse_recipe

RECIPE = """
[tasks.para]
held_out = ["held.csv"]
held_out_rows = 9
[tasks.more]
model_of = "para"
train = ["more.csv"]
[[stage]]
tasks = ["para", "more", "sts"]
epochs = 2
steps_per_epoch = 4
batch_size = 4
"""


@pytest.fixture
def place(tmp_path, monkeypatch, tiny_directory, toy_directory):
    """A folder of data. The first rows of held.csv are rows of train, with sentences swapped and in capitals."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    shutil.copytree(toy_directory, data)
    header, *lines = (data / "quora-train.csv").read_text().splitlines()
    held = []
    for line in lines[:20]:
        index, identifier, first, second, label = line.split("\t")
        held.append("\t".join((index, f"h{identifier}", second.upper(), first, label)))
    (data / "held.csv").write_text("\n".join([header, *held]) + "\n")
    shutil.copy(data / "quora-train.csv", data / "more.csv")
    Path("r.toml").write_text(RECIPE)
    return ["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(data), "--no_progress",
            "--precision", "float32"]


def seen(place, monkeypatch, *flags):
    """Run, and return the data that the run trained on."""
    known = {}
    real = threshold.tune
    monkeypatch.setattr("training.program.tune", lambda task, encoder, data, *rest: (
        known.update({task.name: data}), real(task, encoder, data, *rest))[1])
    assert train_multitask.main([*place, *flags]) == 0
    return known


def texts(examples):
    return {frozenset(sentence.lower() for sentence in example.sentences) for example in examples}


def test_what_is_held_out_is_trained_on_by_no_task_of_the_model(place, monkeypatch, capsys):
    held = seen(place, monkeypatch, "--out", "run")["para"].held_out
    assert len(held) == 9
    again = seen(place, monkeypatch, "--out", "again")["para"].held_out
    assert [example.id for example in held] == [example.id for example in again]
    other = seen(place, monkeypatch, "--out", "other", "--seed", "5")["para"].held_out
    assert [example.id for example in held] != [example.id for example in other]
    said = capsys.readouterr().out
    for task in ("para", "more"):
        assert f"training examples of {task} with their texts are left out" in said
    recipe = load_recipe(Path("run/recipe.toml"))
    model = load_run(recipe, Path("run"), Path("run/model.safetensors"), make_engine("engine").model)
    data = load_data(model.tasks_by_name(), recipe, Path("data"), say=lambda text: None)
    for task in ("para", "more"):
        whole = (Path("data") / ("more.csv" if task == "more" else "quora-train.csv")).read_text().count("\n") - 1
        assert not texts(held) & texts(data[task].train) and whole - 20 <= len(data[task].train) < whole
    assert texts(data["para"].held_out) == texts(held)


def test_predictions_follow_the_threshold_that_is_right_most_often(place, monkeypatch, capsys):
    held = seen(place, monkeypatch, "--out", "run")["para"].held_out
    saved = float(safetensors.torch.load_file("run/model.safetensors")["tasks.para.objective.threshold"])
    recipe = load_recipe(Path("run/recipe.toml"))
    model = load_run(recipe, Path("run"), Path("run/model.safetensors"), make_engine("engine").model)
    task = model.tasks_by_name()["para"]
    probabilities = answers(task, model.encoder, held, torch.device("cpu"))["probabilities"][:, 1]
    labels = np.array([example.label for example in held])
    middles = [(low + high) / 2 for low, high in zip(sorted(probabilities), sorted(probabilities)[1:], strict=False)]
    scores = [((probabilities > edge) == labels).mean() for edge in (*middles, -1, 2)]
    if max(scores[-2:]) < max(scores):
        assert ((probabilities > saved) == labels).mean() == max(scores)
    else:
        assert saved == 0.5
    rows = load_predictions(Path("run/predictions/para-dev.jsonl"))
    assert [row.prediction for row in rows] == [float(row.probabilities[1] > saved) for row in rows]
    assert "task para: threshold" in capsys.readouterr().out
    before = Path("run/predictions/para-dev-output.csv").read_text()
    assert train_multitask.main(["--option", "evaluate", "--checkpoint", "run"]) == 0
    written = next(Path("run/evaluations").rglob("para-dev-output.csv"))
    assert written.read_text() == before


@pytest.mark.parametrize("edge", [0.1, 0.5, 0.8])
def test_the_class_is_1_above_the_threshold(edge):
    objective = CrossEntropy(ParaphraseOptions(), 2, 1.0)
    logits = torch.randn(50, 2)
    assert torch.equal(objective.predict(logits), logits.argmax(1)) and not objective.state_dict()
    objective.threshold = torch.tensor(edge)
    probability = logits[:, 1].exp() / logits.exp().sum(1)
    assert objective.predict(logits).tolist() == (probability > edge).long().tolist()


def test_a_known_shift_is_found(place, monkeypatch):
    """A model that is sure of too much: class 1 begins at a probability of 0.7."""
    given = np.linspace(0, 1, 201)

    def shifted(task, encoder, examples, device, world):
        return {"probabilities": np.stack([1 - given, given], axis=1)}

    data = TaskData([], [], [], [Example("", ("", ""), float(value > 0.702)) for value in given])
    monkeypatch.setattr(threshold, "answers", shifted)
    recipe = parse_recipe({"tasks": {"para": {"held_out": ["x.csv"]}}, "stage": [{"tasks": ["para"]}]}, "r.toml")
    assert recipe.tasks["para"].held_out_rows == 2000
    task = make_task("paraphrase", "para", BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]), TINY, {})
    threshold.make_room(task)
    line = threshold.tune(task, None, data, torch.device("cpu"), None)
    assert float(task.objective.threshold) == pytest.approx(0.7025) and "right for 1.0000 of 201" in line
    data.held_out = [Example("", ("", ""), 1.0)] * 201
    assert "none is better than one class" in threshold.tune(task, None, data, torch.device("cpu"), None)


@pytest.mark.parametrize(("table", "message"), [
    ('[tasks.sts]\nheld_out = ["x"]', "held_out: needs a pair task with two classes"),
    ('[tasks.sst]\nheld_out = ["x"]', "held_out: needs a pair task with two classes"),
    ('[tasks.para]\nloss = "hinge"\nheld_out = ["x"]', "held_out: needs a pair task"),
    ('[tasks.para]\nheld_out_rows = 0', "held_out_rows is 0"),
    ('[tasks.para]\nheld_out = ["absent.csv"]', "absent.csv"),
    ('[tasks.para]\ntrain = ["one.csv"]\nheld_out = ["one.csv"]', "leaves nothing to train on")])
def test_what_makes_no_sense_is_one_line(place, capsys, table, message):
    Path("r.toml").write_text(f'{table}\n[[stage]]\ntasks = ["sst", "para", "sts"]\n')
    header, line, *_ = Path("data/quora-train.csv").read_text().splitlines()
    Path("data/one.csv").write_text(f"{header}\n{line}\n")
    assert train_multitask.main([*place, "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error


def test_the_run_knows_the_files_content(place, capsys):
    assert train_multitask.main([*place, "--out", "run"]) == 0
    assert any("held.csv" in name for name in json.loads(Path("run/results.json").read_text())["identity"]["data"])
