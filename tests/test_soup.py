"""Several runs as one: the mean of their weights (a soup), and the mean of their answers (an ensemble)."""
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import train_multitask
from corpora.predictions import Prediction, load_predictions, save_predictions
from training import ensemble, soup


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_directory, toy_directory):
    """Two seeds of one recipe."""
    folder = tmp_path_factory.mktemp("seeds")
    for seed in (1, 2):
        status = train_multitask.main(["--weights", str(tiny_directory), "--data", str(toy_directory), "--seed",
                                       str(seed), "--out", str(folder / f"seed-{seed}"), "--epochs", "1",
                                       "--steps_per_epoch", "3", "--no_progress"])
        assert status == 0
    return [folder / "seed-1", folder / "seed-2"]


def test_a_soup_is_the_mean_and_is_evaluated_as_a_run(runs, tmp_path, capsys):
    out = tmp_path / "soup"
    assert soup.main([*map(str, runs), "--out", str(out)]) == 0
    first, second, mean = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (*runs, out))
    assert first.keys() == mean.keys()
    for name, tensor in mean.items():
        expected = (first[name].numpy().astype(np.float64) + second[name].numpy().astype(np.float64)) / 2
        np.testing.assert_allclose(tensor.numpy(), expected, atol=1e-7)
    assert any(not torch.equal(first[name], mean[name]) for name in mean)
    encoder = safetensors.torch.load_file(out / "encoder" / "model.safetensors")
    name = next(name for name in encoder if name.endswith("layer.0.attention.self.query.weight"))
    own = next(tensor for key, tensor in mean.items() if key.endswith(name.removeprefix("bert.")))
    assert torch.equal(encoder[name], own)
    assert set(json.loads((out / "soup.json").read_text())) == set(map(str, runs))
    assert train_multitask.main(["--option", "evaluate", "--checkpoint", str(out), "--no_progress"]) == 0
    results = json.loads((out / "evaluations" / "1" / "results.json").read_text())
    assert 0 <= results["overall"] <= 1 and "final, dev" in capsys.readouterr().out


def _edit(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def _reshape(folder):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    name = next(iter(tensors))
    safetensors.torch.save_file({**tensors, name: torch.zeros(3)}, folder / "model.safetensors")


def _lose(folder):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors.pop(next(iter(tensors)))
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(("change", "message"), [
    (lambda folder: (folder / "results.json").unlink(), "has no results.json; expected the folder of a finished run"),
    (lambda folder: (folder / "results.json").write_text("{"), "expected the folder of a finished run"),
    (lambda folder: (folder / "results.json").write_text("[]"), "expected the folder of a finished run"),
    (lambda folder: (folder / "recipe.toml").write_text("hidden_dropout_prob = 0.5\n"), "is of another recipe than"),
    (lambda folder: _edit(folder / "results.json", lambda values: values["identity"].update(weights={"a": "b"})),
     "began with other weights than"),
    (_reshape, "has the shape [3]; expected"), (_lose, "lacks "),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "model.safetensors")])
def test_runs_that_make_no_soup_are_one_line_and_leave_nothing(runs, tmp_path, capsys, change, message):
    shutil.copytree(runs[1], tmp_path / "other")
    change(tmp_path / "other")
    assert soup.main([str(runs[0]), str(tmp_path / "other"), "--out", str(tmp_path / "soup")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error and str(tmp_path / "other") in error
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_one_run_is_no_soup_and_no_folder_is_overwritten(runs, tmp_path, capsys):
    assert soup.main([str(runs[0]), str(runs[0]), "--out", str(tmp_path / "soup")]) == 2
    assert "two or more different runs" in capsys.readouterr().err
    assert soup.main([*map(str, runs), "--out", str(tmp_path)]) == 2
    assert "exists already; choose another --out" in capsys.readouterr().err


def test_whole_numbers_have_no_mean(tmp_path):
    paths = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for path, value in zip(paths, (1, 2), strict=True):
        safetensors.torch.save_file({"count": torch.tensor([value])}, path)
    with pytest.raises(ValueError, match="b.safetensors: count is not as in .*, and whole numbers have no mean"):
        soup.mean_tensors(paths)


# ---- ensembles -------------------------------------------------------------------------------------------------------


def test_an_ensemble_means_probabilities_and_scores(runs, capsys):
    assert ensemble.main(list(map(str, runs))) == 0
    said = capsys.readouterr().out
    found, rows, _ = ensemble.scores(runs)
    for task, metric in (("sst", "accuracy"), ("para", "accuracy"), ("sts", "pearson")):
        one, two = (load_predictions(run / "predictions" / f"{task}-dev.jsonl") for run in runs)
        gold = np.array([row.gold for row in one])
        if task == "sts":
            mean = np.array([row.prediction for row in one]) / 2 + np.array([row.prediction for row in two]) / 2
            expected = np.corrcoef(mean, gold)[0, 1]
        else:
            mean = np.array([row.probabilities for row in one]) + np.array([row.probabilities for row in two])
            expected = (mean.argmax(1) == gold).mean()
        assert found[task][metric].value == pytest.approx(expected, abs=1e-9) and rows[task] == (len(one), len(one))
        assert f"{expected:7.4f}" in said
    assert "overall" in said and "ensemble of 2 runs, dev" in said


def test_two_wrong_answers_can_be_right_together(tmp_path):
    rows = {"one": [[0.5, 0.1, 0.4], [0.1, 0.2, 0.7]], "two": [[0.0, 0.55, 0.45], [0.2, 0.1, 0.7]]}
    for name, probabilities in rows.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps({
            "dev": {"sst": {"accuracy": {}}}, "overall_formula": "(sst + para + (sts + 1) / 2) / 3"}))
        save_predictions(tmp_path / name / "predictions" / "sst-dev.jsonl", [
            Prediction(str(number), ["x"], 2, int(np.argmax(row)), probabilities=row)
            for number, row in enumerate(probabilities)])
    predictions, gold = ensemble.together([tmp_path / "one", tmp_path / "two"], "sst")
    assert predictions.tolist() == [2, 2] == gold.tolist()
    assert ensemble.scores([tmp_path / "one", tmp_path / "two"])[0]["sst"]["accuracy"].value == 1.0


@pytest.mark.parametrize("kind", ["probability", "score"])
def test_two_classes_are_decided_by_how_far_each_run_is_above_its_own_threshold(tmp_path, kind):
    random = np.random.default_rng(0)
    gold, sums = random.integers(2, size=400), np.zeros(400)
    for name, threshold in (("one", 0.8), ("two", 0.3)):
        numbers = np.clip(threshold + random.normal(0.1 * (2 * gold - 1), 0.1), 0.001, 0.999)
        sums += numbers - threshold
        save_predictions(tmp_path / name / "predictions" / "para-dev.jsonl", [
            Prediction(str(index), ["x", "y"], int(label), int(number > threshold), **(
                {"score": float(number)} if kind == "score" else {"probabilities": [float(1 - number), float(number)]}))
            for index, (label, number) in enumerate(zip(gold, numbers, strict=True))])
    predictions, _ = ensemble.together([tmp_path / "one", tmp_path / "two"], "para")
    clear = np.abs(sums) > 0.02  # the thresholds are known from the predictions, up to the gap between two numbers
    assert clear.mean() > 0.9 and (predictions[clear] == (sums > 0)[clear]).all()
    assert (predictions == gold).mean() > 0.85


def test_classes_without_numbers_make_no_ensemble(tmp_path):
    for name in ("one", "two"):
        save_predictions(tmp_path / name / "predictions" / "sst-dev.jsonl", [Prediction("a", ["x"], 3, 3)])
    with pytest.raises(ValueError, match="its classes of task sst have no probabilities, which an ensemble needs"):
        ensemble.together([tmp_path / "one", tmp_path / "two"], "sst")


def _first_row(folder, **changes):
    path = folder / "predictions" / "sst-dev.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(lines[0]), **changes}), *lines[1:]]) + "\n")


@pytest.mark.parametrize(("change", "message"), [
    (lambda folder: (folder / "results.json").unlink(), "expected the folder of a finished run"),
    (lambda folder: (folder / "results.json").write_text("[]"), "expected the folder of a finished run"),
    (lambda folder: _first_row(folder, id="other"), "has other examples than those of"),
    (lambda folder: _first_row(folder, probabilities=[0.5, 0.5]), "has probabilities of other classes than"),
    (lambda folder: (folder / "predictions" / "sst-dev.jsonl").write_text("{"), "sst-dev.jsonl:1"),
    (lambda folder: shutil.rmtree(folder / "predictions"), "have no task in common")])
def test_runs_that_make_no_ensemble_are_one_line(runs, tmp_path, capsys, change, message):
    shutil.copytree(runs[1], tmp_path / "other")
    change(tmp_path / "other")
    assert ensemble.main([str(runs[0]), str(tmp_path / "other")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error and str(tmp_path / "other") in error


def test_one_run_is_no_ensemble(runs, capsys):
    assert ensemble.main([str(runs[0])]) == 2
    assert "two or more runs" in capsys.readouterr().err


def test_the_folders_that_soups_leave_are_no_finished_runs(runs, tmp_path, capsys):
    assert soup.main([*map(str, runs), "--out", str(tmp_path / "soup")]) == 0
    assert soup.main([str(tmp_path / "soup"), str(runs[0]), "--out", str(tmp_path / "again")]) == 2
    assert "has no results.json" in capsys.readouterr().err and not Path(tmp_path / "again").exists()
