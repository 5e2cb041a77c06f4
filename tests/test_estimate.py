"""What a run says before it begins: nothing of the run changes by it, and the numbers are sums of measured ones."""
import json
import re
from pathlib import Path

import pytest
import safetensors.torch
import torch

import pretrain_tft
import train_multitask
from training import estimate, trainer

RECIPE = """
precision = "float32"
[tasks.para]
loss = "cosent"
[[stage]]
name = "pairs"
tasks = ["para", "sts"]
epochs = 2
steps_per_epoch = 15
combine = "pcgrad"
[[stage]]
name = "all in turn"
tasks = ["sst", "para", "sts"]
epochs = 1
mixing = "in_turn"
"""


@pytest.fixture
def place(tmp_path, monkeypatch, tiny_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(RECIPE)
    return ["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory), "--no_progress"]


def test_a_dry_run_says_what_each_stage_costs_and_writes_nothing(place, capsys):
    assert train_multitask.main([*place, "--out", "run", "--dry_run"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"pairs: about \d+ s \(0\.\d+ s a step, \d+\.\d s for dev after each of 2 epochs\), peak", out)
    assert re.search(r"all in turn: about \d+ s .* 1 epoch\)", out) and "in all about" in out
    assert re.search(r"largest batch fits: 8 examples of (para|sts), 16 sequences of \d+ tokens", out)
    assert [path.name for path in Path().iterdir()] == ["r.toml"]


@pytest.mark.parametrize("change", ["--data nowhere", "--weights ./nowhere", "--out r.toml/run"])
def test_a_dry_run_finds_what_is_missing(place, capsys, change):
    flag, value = change.split()
    flags = [*place, "--dry_run", flag, value]
    assert train_multitask.main(flags) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert [path.name for path in Path().iterdir()] == ["r.toml"]


def test_the_rehearsal_changes_nothing_of_the_run(place, monkeypatch):
    """With it and without it, the same bits: also thresholds, which a ranking loss moves at every step."""
    assert train_multitask.main([*place, "--out", "with"]) == 0
    monkeypatch.setattr(trainer, "SHORT", 10**9)
    assert train_multitask.main([*place, "--out", "without"]) == 0
    tensors = [safetensors.torch.load_file(f"{name}/model.safetensors") for name in ("with", "without")]
    assert all(torch.equal(tensor, tensors[1][name]) for name, tensor in tensors[0].items())
    logs = [[json.loads(line) for line in Path(name, "metrics.jsonl").read_text().splitlines()]
            for name in ("with", "without")]
    assert logs[0] == logs[1]


def test_the_cost_is_steps_and_evaluations():
    cost = estimate.Cost(steps=100, step_seconds=0.5, evaluation_seconds=10, epochs=4, peak_mb=1234.4)
    assert cost.seconds == 90 and cost.line().startswith("about 90 s (0.500 s a step, 10.0 s for dev after each of 4")
    assert cost.line().endswith("peak memory about 1,234 MB")


def test_steps_take_as_long_as_they_were_rehearsed(place, monkeypatch):
    """A clock of our own: each gradient takes two seconds, the update of all parameters half a second."""
    now = [0.0]
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: now[0])
    costs = []
    rehearse = trainer.StageSteps.rehearse

    def slow(self, number):
        rehearse(self, number)
        now[0] += 2.0

    monkeypatch.setattr(trainer.StageSteps, "rehearse", slow)
    monkeypatch.setattr(estimate.Update, "seconds", lambda self: 0.5)
    monkeypatch.setattr(trainer.Trainer, "_evaluation_seconds", lambda self, stage: 3.0)
    made = trainer.estimate
    monkeypatch.setattr(trainer, "estimate", lambda *arguments: costs.append(made(*arguments)) or costs[-1])
    assert train_multitask.main([*place, "--out", "run", "--dry_run"]) == 0
    assert [(cost.steps, cost.step_seconds, cost.epochs) for cost in costs] == [(30, 2.5, 2), (24, 2.5, 1)]
    assert costs[0].seconds == 30 * 2.5 + 2 * 3


def test_transfer_fine_tuning_has_a_dry_run_too(tmp_path, monkeypatch, tiny_directory, capsys):
    monkeypatch.chdir(tmp_path)
    assert pretrain_tft.main(["--weights", str(tiny_directory), "--dry_run", "--no_progress", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert "aligning all 3,000 pairs takes about" in out and "about" in out and "peak memory" in out
    assert not Path("run").exists()
