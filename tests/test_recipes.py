"""Every recipe in recipes/ runs: two steps of every stage on generated data with a tiny encoder."""
import json

import pytest
from conftest import ROOT

import train_multitask

RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT / "recipes"))[:-5])
def test_a_recipe_trains_two_steps(path, tmp_path, monkeypatch, tiny_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    status = train_multitask.main(
        ["--recipe", str(path), "--weights", str(tiny_directory), "--data", str(toy_directory), "--out", "run",
         "--epochs", "1", "--steps_per_epoch", "2", "--batch_size", "4", "--no_progress"])
    assert status == 0
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "loss" in record]
    assert len(steps) == 2 * len({record["stage"] for record in records}) and not any("skipped" in r for r in steps)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["dev"]
