"""Every recipe in recipes/ runs on generated data with a tiny encoder, and takes the tasks in the published order."""
import json
from itertools import groupby
from pathlib import Path

import pytest
from conftest import ROOT

import train_multitask
from corpora import toy
from training.recipe import load_recipe
from training.teacher import teachers_of

RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))


def name_of(path):
    return str(path.relative_to(ROOT / "recipes"))[:-5]


IN_TURN = [path for path in RECIPES if name_of(path).startswith(("lee/", "yi/"))]
PAIRS, THREE = ["para", "sts"], ["sst", "para", "sts"]

# The tasks of every stage, in the order in which an epoch takes them: all batches of one, then all of the next.
ORDERS = {
    **{f"lee/{name}": [THREE] for name in ("baseline", "shared", "sts_para_head_mod", "sts_para_head_mod_1")},
    **{f"lee/{name}": [PAIRS, ["sst"]] for name in ("freeze_sst", "sst_to_sts")},
    "lee/sst_to_sts_nearest": [PAIRS],  # its second stage trains nothing
    "lee/nli_regression": [["snli", "multinli"], THREE],
    "lee/nli_contrastive": [["snli_triplets", "multinli_triplets"], THREE],
    "lee/nli_triplet": [["snli_triplets", "multinli_triplets"], THREE],
    "yi/baseline": [THREE], "yi/baseline_cfimdb": [["cfimdb"]], "yi/all_together": [THREE],
    **{f"yi/para_{name}": [["para"]] for name in ("product", "u_v_product", "u_v_difference")},
    **{f"yi/sts_{name}": [["sts"]] for name in ("mse", "l1", "cross_entropy", "hinge")},
}


@pytest.fixture(scope="module")
def larger_directory(tmp_path_factory):
    """Enough sentences of each class for the exemplar heads."""
    directory = tmp_path_factory.mktemp("larger")
    toy.write_course_files(directory, train=1300, dev=24, test=12)
    return directory


def run(path, data, weights, *flags):
    """Train a recipe. Returns the records of its steps."""
    status = train_multitask.main(["--recipe", str(path), "--weights", str(weights), "--data", str(data), "--out",
                                   "run", "--no_progress", *flags])
    assert status == 0
    with open("run/metrics.jsonl", encoding="utf-8") as lines:
        return [record for record in map(json.loads, lines) if "loss" in record]


def weights_of(path, tiny_directory, deep_directory):
    own = any(task.options.own_layers for task in load_recipe(path).tasks.values())
    return deep_directory if own else tiny_directory


def data_of(path, toy_directory, larger_directory):
    return larger_directory if "sst_to_sts" in path.stem else toy_directory


@pytest.mark.parametrize("path", [path for path in RECIPES if path not in IN_TURN], ids=name_of)
def test_a_recipe_trains_two_steps(path, tmp_path, monkeypatch, tiny_directory, deep_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    few = ["--epochs", "1", "--steps_per_epoch", "2", "--batch_size", "4"]
    for teacher in teachers_of(load_recipe(path)):  # runs/X is a run of recipes/X.toml
        own = ROOT / "recipes" / f"{Path(teacher).name}.toml"
        assert train_multitask.main([
            "--recipe", str(own), "--weights", str(deep_directory), "--data", str(toy_directory), "--out", teacher,
            "--no_progress", *few]) == 0
    steps = run(path, toy_directory, weights_of(path, tiny_directory, deep_directory), *few)
    assert len(steps) == 2 * len({step["stage"] for step in steps}) and not any("skipped" in step for step in steps)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["dev"]


@pytest.mark.parametrize("path", IN_TURN, ids=name_of)
def test_two_epochs_take_all_of_one_task_and_then_all_of_the_next(path, tmp_path, monkeypatch, tiny_directory,
                                                                  toy_directory, larger_directory):
    monkeypatch.chdir(tmp_path)
    data = data_of(path, toy_directory, larger_directory)
    steps = run(path, data, tiny_directory, "--epochs", "2", "--batch_size", "32")
    assert not any("skipped" in step for step in steps)
    found = []
    for _, of_stage in groupby(steps, key=lambda step: step["stage"]):
        drawn = (task for step in of_stage for task in step["loss"])
        blocks = [(task, len(list(block))) for task, block in groupby(drawn)]
        half = max(1, len(blocks) // 2)
        if len(blocks) > 1:
            assert blocks[:half] == blocks[half:]  # the second epoch is as the first
        found.append([task for task, _ in blocks[:half]])
    assert found == ORDERS[name_of(path)]
    seen = json.loads((tmp_path / "run" / "results.json").read_text())["examples_seen"]
    if path.stem in ("shared", "sst_to_sts", "sst_to_sts_nearest"):  # trunk and exemplars come back from the checkpoint
        assert train_multitask.main(["--option", "evaluate", "--checkpoint", "run", "--out", "again",
                                     "--no_progress"]) == 0
        first, again = (json.loads((tmp_path / name / "results.json").read_text())["dev"] for name in ("run", "again"))
        assert first == again
    if "all_together" in path.stem:  # a quarter of the pairs an epoch
        assert seen["para"] == 2 * round(0.25 * 64) and seen["sts"] == 2 * 64


def test_one_task_of_a_recipe_trains_alone(tmp_path, monkeypatch, tiny_directory, toy_directory):
    """What a stage says of its other tasks goes with them."""
    monkeypatch.chdir(tmp_path)
    steps = run(ROOT / "recipes/yi/all_together.toml", toy_directory, tiny_directory, "--tasks", "sst", "--epochs", "1")
    assert {task for step in steps for task in step["loss"]} == {"sst"} and len(steps) == 8
