"""The project around the code: examples run, commands are declared, the benchmark of two checkouts works."""
import importlib
import os
import subprocess
import sys
import tomllib

import pytest
import torch
from conftest import ROOT

sys.path.insert(0, str(ROOT / "examples"))


def test_sentences_find_their_nearest(model_directory):
    nearest = importlib.import_module("embed_sentences").main(str(model_directory))
    sentences = importlib.import_module("embed_sentences").SENTENCES
    assert nearest == [sentences[1], sentences[0], sentences[3], sentences[2]]


def test_attention_weights_are_shown(model_directory, capsys):
    weights = importlib.import_module("attention_weights").main(str(model_directory))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(len(weights)))
    assert capsys.readouterr().out.count("looks most at") == len(weights) == 8


def test_a_plain_loop_learns(model_directory):
    losses = importlib.import_module("finetune_in_ten_lines").main(str(model_directory))
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_an_example_runs_from_anywhere(name, tmp_path, tiny_directory):
    done = subprocess.run([sys.executable, str(ROOT / "examples" / name), str(tiny_directory)], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_declared_commands_and_packages_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    for target in project["project"]["scripts"].values():
        module, function = target.split(":")
        assert callable(getattr(importlib.import_module(module), function))
    rooms = sorted(path.parent.relative_to(ROOT).as_posix().replace("/", ".") for pattern in ("*", "*/*")
                   for path in ROOT.glob(f"{pattern}/__init__.py"))
    assert sorted(project["tool"]["setuptools"]["packages"]) == rooms
    for module in project["tool"]["setuptools"]["py-modules"]:
        assert (ROOT / f"{module}.py").exists()


def test_every_pin_is_within_the_declared_range():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = dict(line.lower().split("==") for line in (ROOT / "requirements.txt").read_text().splitlines()
                if line and not line.startswith("#"))
    assert {requirement.split(">=")[0] for requirement in project["dependencies"]} == set(pins)
    for requirement in project["dependencies"]:
        name, least = requirement.split(">=")
        assert tuple(map(int, pins[name].split("."))) >= tuple(map(int, least.split(".")))


@pytest.mark.slow
def test_two_checkouts_are_raced(tiny_directory, toy_directory, capsys):
    from benchmarks import commits

    assert commits.main([str(ROOT), "--data", str(toy_directory), "--weights", str(tiny_directory), "--rounds", "1",
                         "--batches", "1", "--batch_size", "4", "--precision", "float32"]) == 0
    assert capsys.readouterr().out.count("| the other |") == 3


@pytest.mark.slow
def test_an_editable_install_gives_the_commands(tmp_path):
    """Into an environment of its own that borrows the packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-e",
                    str(ROOT)], check=True)
    borrowed = next(path for path in sys.path if path.endswith("site-packages"))
    for command in ("minbert-train", "minbert-tft", "minbert-align", "minbert-compare"):
        done = subprocess.run([tmp_path / "venv" / "bin" / command, "--help"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": borrowed}, cwd=tmp_path, check=False)
        assert done.returncode == 0 and "usage:" in done.stdout, done.stderr
