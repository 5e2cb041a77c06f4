"""--log: what TensorBoard's own reader and W&B's offline mode see is what metrics.jsonl holds."""
import json
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import train_multitask

RECIPE = """
[[stage]]
tasks = ["sst", "sts"]
epochs = 2
steps_per_epoch = 3
log_conflicts = true
[[stage]]
tasks = ["sts"]
epochs = 1
steps_per_epoch = 2
"""


@pytest.fixture
def place(tmp_path, monkeypatch, tiny_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(RECIPE)
    return ["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory), "--no_progress",
            "--out", "run"]


def records():
    return [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]


def test_tensorboard_reads_every_number(place):
    assert train_multitask.main([*place, "--log", "tensorboard"]) == 0
    reader = EventAccumulator("run/tensorboard")
    reader.Reload()
    for stage in (0, 1):
        steps = [record for record in records() if record["stage"] == stage and "loss" in record]
        events = reader.Scalars(f"stage-{stage + 1}/loss/sts")
        assert [event.step for event in events] == [record["step"] for record in steps]
        assert [event.value for event in events] == pytest.approx([record["loss"]["sts"] for record in steps])
    epochs = [record for record in records() if "dev" in record and record["stage"] == 0]
    events = reader.Scalars("stage-1/dev/sst/accuracy")
    assert [(event.step, event.value) for event in events] == [
        (record["step"], pytest.approx(record["dev"]["sst"]["accuracy"]["value"])) for record in epochs]
    assert {"stage-1/conflict/sst/sts", "stage-1/gradient_norm"} <= set(reader.Tags()["scalars"])


def test_weights_and_biases_writes_offline(place, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert train_multitask.main([*place, "--log", "wandb", "tensorboard"]) == 0
    (file,) = Path("run/wandb").glob("offline-run-*/*.wandb")
    content = file.read_bytes()
    assert b"stage-1/loss/sst" in content and b"stage-2/dev/sts/pearson" in content
    assert list(Path("run/tensorboard").iterdir())


@pytest.mark.parametrize(("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_a_log_that_is_not_installed_is_one_error(place, monkeypatch, capsys, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    assert train_multitask.main([*place, "--log", name]) == 2
    assert f"error: --log {name}: {name} is not installed; pip install {name}" in capsys.readouterr().err


def test_logs_do_not_change_what_a_run_is(place):
    assert train_multitask.main(place) == 0
    first = Path("run/metrics.jsonl").read_text()
    assert train_multitask.main([*place[:-1], "other", "--log", "tensorboard"]) == 0
    assert Path("other/metrics.jsonl").read_text() == first
