"""The main program through its command line: what it writes, and one clear line for each mistake."""
import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from conftest import ROOT, SHARED

import corpora.examples
import train_multitask
from training.commandline import run_directory
from training.recipe import load_recipe
from training.runs import saved_recipe

SIX = [f"{task}-{split}-output.csv" for task in ("sst", "para", "sts") for split in ("dev", "test")]


def run(*arguments, cwd, expect=0):
    """The program in a process of its own, as a user starts it."""
    result = subprocess.run([sys.executable, str(ROOT / "train_multitask.py"), "--no_progress", *map(str, arguments)],
                            cwd=cwd, capture_output=True, text=True, timeout=2400, check=False)
    assert result.returncode == expect, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_directory, toy_directory):
    """A finished small run: its working directory and what it printed."""
    cwd = tmp_path_factory.mktemp("run")
    result = run("--weights", tiny_directory, "--data", toy_directory, "--epochs", 2, "--lr", "1e-3", cwd=cwd)
    return cwd, result.stdout


def test_a_run_prints_dev_scores_and_writes_all_six_files(trained, toy_directory):
    cwd, printed = trained
    for word in ("epoch 1 of 2", "epoch 2 of 2", "accuracy", "macro_f1", "pearson", "spearman", "overall", "final"):
        assert word in printed
    for name in SIX:
        course, own = cwd / "predictions" / name, cwd / "runs" / "default" / "predictions" / name
        assert course.read_bytes() == own.read_bytes()
        rows = 24 if "dev" in name else 12
        lines = course.read_text().split("\n")
        assert lines[0].startswith("id \t Predicted_") and len(lines) == rows + 2
    ids = [line.split("\t")[1] for line in (toy_directory / "sts-test-student.csv").read_text().splitlines()[1:]]
    lines = (cwd / "predictions" / "sts-test-output.csv").read_text().splitlines()[1:]
    assert [line.split(" , ")[0] for line in lines] == ids


def test_examples_on_disk_train_to_the_same_bits(trained, tiny_directory, toy_directory, tmp_path, monkeypatch):
    monkeypatch.setattr(corpora.examples, "LARGE_FILE", 0)
    monkeypatch.chdir(tmp_path)
    assert train_multitask.main(["--weights", str(tiny_directory), "--data", str(toy_directory), "--epochs", "2",
                                 "--lr", "1e-3", "--no_progress"]) == 0
    for name in ("metrics.jsonl", *(f"predictions/{name}" for name in SIX)):
        assert (tmp_path / "runs/default" / name).read_text() == (trained[0] / "runs/default" / name).read_text()


def test_the_run_folder_has_recipe_metrics_results_and_an_encoder(trained):
    folder = trained[0] / "runs" / "default"
    assert json.loads((folder / "results.json").read_text())["dev"]["sst"]["accuracy"]["value"] >= 0
    assert "epochs = 2" in (folder / "recipe.toml").read_text()
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2 * 8 + 2
    assert (folder / "encoder" / "model.safetensors").exists()


def test_training_scores_are_of_the_training_set(tmp_path, monkeypatch, tiny_directory, toy_directory):
    """Where train and dev are the same file, so are their scores; a smaller sample has its own."""
    monkeypatch.chdir(tmp_path)
    train = str(toy_directory / "ids-sst-train.csv")
    for scored in (1000, 10, 0):
        Path("r.toml").write_text(f'train_scored = {scored}\n[tasks.sst]\ntrain = "{train}"\ndev = "{train}"\n'
                                  'test = []\n[[stage]]\ntasks = ["sst"]\nepochs = 1\n')
        assert train_multitask.main(["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", ".", "--out",
                                     f"run-{scored}", "--no_progress"]) == 0
        results = json.loads(Path(f"run-{scored}/results.json").read_text())
        if scored == 1000:
            assert results["train"] == results["dev"]
        elif scored == 10:
            assert set(results["train"]) == {"sst"}
            assert 10 * results["train"]["sst"]["accuracy"]["value"] == pytest.approx(
                round(10 * results["train"]["sst"]["accuracy"]["value"]))
        else:
            assert results["train"] == {}


def test_evaluating_a_checkpoint_gives_the_same_predictions(trained, toy_directory):
    cwd, printed = trained
    result = run("--option", "evaluate", "--checkpoint", "runs/default", "--data", toy_directory, "--out", "again",
                 cwd=cwd)
    assert printed.split("final, dev")[1].split("final, train")[0] in result.stdout
    for name in SIX:
        assert (cwd / "again" / "predictions" / name).read_bytes() == (cwd / "predictions" / name).read_bytes()


def test_the_saved_recipe_runs_again_to_the_same_bits(trained, toy_directory):
    cwd, _ = trained
    run("--recipe", "runs/default/recipe.toml", "--data", toy_directory, "--out", "second", cwd=cwd)
    first = (cwd / "runs" / "default" / "model.safetensors").read_bytes()
    assert (cwd / "second" / "model.safetensors").read_bytes() == first


def test_another_recipe_leaves_a_finished_run_alone(trained, tiny_directory, toy_directory):
    cwd, _ = trained
    before = (cwd / "runs" / "default" / "model.safetensors").read_bytes()
    run("--weights", tiny_directory, "--data", toy_directory, "--epochs", 1, "--seed", 5, cwd=cwd)
    assert (cwd / "runs" / "default" / "model.safetensors").read_bytes() == before
    assert (cwd / "runs" / "default-2" / "model.safetensors").exists()
    result = run("--weights", tiny_directory, "--data", toy_directory, "--epochs", 3, "--out", "runs/default", cwd=cwd,
                 expect=2)
    assert "holds a run of another recipe" in result.stderr


@pytest.mark.parametrize(("change", "same"), [
    (lambda text: text, True),
    (lambda text: text.replace("smart = 0.0\n", ""), True),  # of a version that did not know the field
    (lambda text: text.replace("smart = 0.0\n", "smart = 2.0\n"), False),
    (lambda text: text.replace("smart = 0.0\n", "smart = 0.0\nof_tomorrow = 1\n"), False),
    (lambda text: text.replace("--data", "--data /elsewhere/"), False),
    (lambda text: text[:-20], False), (lambda text: "", False), (lambda text: "\xff", False)])
def test_a_folder_is_resumed_by_what_its_recipe_says(tmp_path, change, same):
    text = saved_recipe(load_recipe(ROOT / "recipes/best_alone.toml"), tmp_path, None)
    assert "smart = 0.0\n" in text
    (tmp_path / "recipe.toml").write_text(change(text), encoding="latin-1")
    flags = argparse.Namespace(out=tmp_path)
    recipe = argparse.Namespace(name="unused")
    if same:
        assert run_directory(flags, recipe, text) == tmp_path
    else:
        with pytest.raises(ValueError, match="holds a run of another recipe, data or flags"):
            run_directory(flags, recipe, text)


def test_with_no_data_it_says_so_and_pretrain_freezes_the_encoder(tmp_path, tiny_directory):
    result = run("--option", "pretrain", "--weights", tiny_directory, "--epochs", 1, "--limit", 40, cwd=tmp_path)
    assert "GENERATED corpus" in result.stdout
    before = safetensors.torch.load_file(tiny_directory / "model.safetensors")
    after = safetensors.torch.load_file(tmp_path / "runs" / "default" / "encoder" / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_flags_of_the_course_exist_and_name_files(tmp_path, tiny_directory, toy_directory):
    arguments = ["--option", "finetune", "--seed", 3, "--epochs", 1, "--batch_size", 16, "--hidden_dropout_prob", 0.1,
                 "--lr", "1e-4", "--weights", tiny_directory, "--data", toy_directory]
    stems = {"sst": "ids-sst", "para": "quora", "sts": "sts"}
    for task, stem in stems.items():
        for split in ("train", "dev", "test"):
            name = f"{stem}-{split}{'-student' if split == 'test' else ''}.csv"
            shutil.copy(toy_directory / name, tmp_path / f"my-{task}-{split}")
            arguments += [f"--{task}_{split}", f"my-{task}-{split}"]
        arguments += [f"--{task}_dev_out", f"out/{task}-d", f"--{task}_test_out", f"out/{task}-t"]
    run(*arguments, cwd=tmp_path)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        f"{task}-{split}" for task in stems for split in "dt")
    saved = (tmp_path / "runs" / "default" / "recipe.toml").read_text()
    assert "seed = 3" in saved and "batch_size = 16" in saved and "hidden_dropout_prob = 0.1" in saved


def spoil(directory, name, change):
    path = directory / name
    path.write_text(change(path.read_text()))


MISTAKES = {
    "a missing file": (lambda d: (d / "ids-sst-train.csv").unlink(), [], "ids-sst-train.csv: no such file"),
    "a wrong column": (lambda d: spoil(d, "sts-dev.csv", lambda t: t.replace("similarity", "score")), [],
                       "sts-dev.csv:1: no column similarity; found"),
    "a label out of range": (lambda d: spoil(d, "ids-sst-dev.csv", lambda t: t.rstrip("\n")[:-1] + "7\n"), [],
                             "ids-sst-dev.csv:25: sentiment is '7'; expected one of 0, 1, 2, 3, 4"),
    "a sentence of 100,000 characters": (
        lambda d: spoil(d, "quora-train.csv", lambda t: t.replace("\tthe ", "\t" + "x" * 100_000, 1)), [],
        "has 100,0"),
    "a missing folder": (lambda d: None, ["--data", "nowhere"], "nowhere: no such folder"),
    "an unknown option": (lambda d: None, ["--option", "train"], "invalid choice: 'train'"),
    "an unknown flag": (lambda d: None, ["--learning_rate", "1"], "unrecognized arguments: --learning_rate"),
    "a learning rate that is none": (lambda d: None, ["--lr", "-1"], "expected a learning rate"),
    "a batch size of zero": (lambda d: None, ["--batch_size", "0"],
                             "argument --batch_size: '0'; expected a whole number of 1 or more"),
    "a dropout of one": (lambda d: None, ["--hidden_dropout_prob", "1"], "expected a number from 0 to below 1"),
    "an unknown combiner": (lambda d: None, ["--combine", "pcgard"], "did you mean 'pcgrad'?"),
    "a missing recipe": (lambda d: None, ["--recipe", "none.toml"], "none.toml: cannot be read"),
    "missing weights": (lambda d: None, ["--weights", "./none"], "weights './none': no such directory"),
    "no checkpoint": (lambda d: None, ["--option", "evaluate"], "needs --checkpoint"),
    "an absent checkpoint": (lambda d: None, ["--option", "evaluate", "--checkpoint", "none"], "none: no such file"),
}
if not torch.cuda.is_available():
    MISTAKES["no GPU"] = (lambda d: None, ["--use_gpu"], "torch finds no GPU here")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_line_and_status_2(tmp_path, monkeypatch, capsys, tiny_directory, toy_directory, name):
    change, flags, message = MISTAKES[name]
    data = tmp_path / "data"
    shutil.copytree(toy_directory, data)
    change(data)
    monkeypatch.chdir(tmp_path)
    try:
        status = train_multitask.main(["--weights", str(tiny_directory), "--data", str(data), "--no_progress",
                                       "--epochs", "1", *flags])
    except SystemExit as stop:
        status = stop.code
    error = capsys.readouterr().err
    assert status == 2
    assert message in error and error.startswith("error: ") and error.count("\n") == 1


@pytest.mark.parametrize("damage", ["truncated", "another shape", "another model"])
def test_a_broken_checkpoint_is_one_clear_line(trained, tmp_path, monkeypatch, capsys, toy_directory, damage):
    folder = tmp_path / "run"
    shutil.copytree(trained[0] / "runs" / "default", folder)
    path = folder / "model.safetensors"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1000])
    else:
        tensors = safetensors.torch.load_file(path)
        if damage == "another shape":
            tensors["tasks.sst.head.1.weight"] = torch.zeros(7, 32)
        else:
            tensors = {"x": torch.zeros(1)}
        safetensors.torch.save_file(tensors, path)
    monkeypatch.chdir(tmp_path)
    status = train_multitask.main(["--option", "evaluate", "--checkpoint", str(folder), "--data", str(toy_directory)])
    error = capsys.readouterr().err
    assert status == 2 and error.count("\n") == 1 and "model.safetensors: " in error
    expected = {"truncated": "cut short", "another shape": "has shape [7, 32]", "another model": "not a checkpoint of"}
    assert expected[damage] in error


def test_a_glue_recipe_runs_with_no_data_too(tmp_path, tiny_directory):
    result = run("--recipe", ROOT / "recipes" / "glue" / "rte.toml", "--weights", tiny_directory, "--epochs", 1,
                 "--limit", 20, cwd=tmp_path)
    assert "GENERATED corpus" in result.stdout and (tmp_path / "runs/rte/predictions/RTE.tsv").exists()


@pytest.mark.slow
def test_the_first_command_of_the_readme_learns_the_generated_corpus(tmp_path):
    result = run("--option", "finetune", cwd=tmp_path)
    assert "GENERATED corpus" in result.stdout
    scores = json.loads((tmp_path / "runs" / "default" / "results.json").read_text())["dev"]
    assert scores["sst"]["accuracy"]["low"] > 0.5  # chance is 0.2
    assert scores["para"]["accuracy"]["low"] > 0.7  # the larger class is 0.6
    assert scores["sts"]["pearson"]["low"] > 0.7
    assert all((tmp_path / "predictions" / name).exists() for name in SIX)


@pytest.mark.slow
def test_a_few_steps_on_the_real_course_files(tmp_path):
    data = SHARED / "data" / "cs224n"
    if not data.is_dir():
        pytest.skip("no real data beside the project")
    run("--data", data, "--para_test", data / "quora-dev.csv", "--limit", 300, "--epochs", 1, "--steps_per_epoch", 20,
        cwd=tmp_path)
    scores = json.loads((tmp_path / "runs" / "default" / "results.json").read_text())["dev"]
    assert scores["sts"]["pearson"]["value"] > 0.7
    assert all((tmp_path / "predictions" / name).exists() for name in SIX)
