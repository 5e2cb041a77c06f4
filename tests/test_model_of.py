"""More training data for a task: `model_of` gives a second set the first one's head."""
import json
from contextlib import suppress

import pytest
import safetensors.torch
import torch

import train_multitask
from training.recipe import load_recipe, parse_recipe, recipe_to_toml

RECIPE = """
[tasks.sst]
pooling = "mean"
own_layers = 1
[tasks.more]
model_of = "sst"
train = ["ids-sst-train.csv", "ids-sst-dev.csv"]
limit = 40
[[stage]]
tasks = ["more", "sts"]
epochs = 2
batch_size = { more = 4, sts = 8 }
steps_per_epoch = 4
[[stage]]
tasks = ["sst", "more"]
loss_weights = { more = 0.5 }
epochs = 1
batch_size = 8
steps_per_epoch = 3
combine = "pcgrad"
"""


@pytest.fixture
def flags(tmp_path, monkeypatch, tiny_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    return ["--weights", str(tiny_directory), "--data", str(toy_directory), "--no_progress"]


def test_both_sets_train_one_model_and_it_has_one_score(tmp_path, flags, capsys):
    (tmp_path / "r.toml").write_text(RECIPE)
    assert train_multitask.main(["--recipe", "r.toml", "--out", "run", *flags]) == 0
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert set(results["dev"]) == {"sst", "sts"}
    assert results["examples_seen"] == {"more": 2 * 4 * 4 + 3 * 8, "sts": 2 * 4 * 8, "sst": 3 * 8}
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [set(record["dev"]) for record in records if "dev" in record] == [{"sst", "sts"}] * 2 + [{"sst"}]
    tensors = safetensors.torch.load_file("run/model.safetensors")
    start = safetensors.torch.load_file(flags[1] + "/model.safetensors")
    own = [name.removeprefix("tasks.sst.") for name in tensors if name.startswith("tasks.sst.")]
    assert any(name.startswith("own_layers.layer.0.") for name in own) and "head.1.weight" in own
    for name in own:
        assert torch.equal(tensors[f"tasks.sst.{name}"], tensors[f"tasks.more.{name}"]), name
    name = "layer.0.output.dense.weight"
    assert not torch.equal(tensors[f"tasks.sst.own_layers.{name}"], start["encoder.layer.1.output.dense.weight"])
    assert not list((tmp_path / "run/predictions").glob("more*"))
    assert train_multitask.main(["--option", "evaluate", "--checkpoint", "run", "--out", "again", *flags[2:]]) == 0
    assert json.loads((tmp_path / "again/results.json").read_text())["dev"] == results["dev"]


def test_a_stage_of_the_further_data_alone_moves_the_head(tmp_path, flags):
    text = RECIPE.split("[[stage]]")[0] + '[[stage]]\ntasks = ["more"]\nepochs = 1\nsteps_per_epoch = 2\n'
    (tmp_path / "r.toml").write_text(text)
    (tmp_path / "none.toml").write_text(text.replace("steps_per_epoch = 2", "steps_per_epoch = 1").replace(
        "epochs = 1", "epochs = 1\nkeep = \"last\"\noptimizer = { lr = 0.0, weight_decay = 0.0 }"))
    heads = []
    for name in ("r", "none"):
        assert train_multitask.main(["--recipe", f"{name}.toml", "--out", name, *flags]) == 0
        heads.append(safetensors.torch.load_file(f"{name}/model.safetensors")["tasks.sst.head.1.weight"])
    assert not torch.equal(*heads)


def test_a_run_that_was_interrupted_ends_with_the_same_bits(tmp_path, flags, monkeypatch):
    from training.trainer import Trainer

    (tmp_path / "r.toml").write_text(RECIPE)
    assert train_multitask.main(["--recipe", "r.toml", "--out", "whole", *flags]) == 0
    save, seen = Trainer._save, []

    def dies_after(self, steps):
        save(self, steps)
        seen.append(self.state.step)
        if len(seen) == 4:  # within the second stage
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_save", dies_after)
    with suppress(KeyboardInterrupt):
        assert train_multitask.main(["--recipe", "r.toml", "--out", "cut", *flags]) != 0
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert train_multitask.main(["--recipe", "r.toml", "--out", "cut", *flags]) == 0
    first, second = (safetensors.torch.load_file(f"{name}/model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_the_resolved_recipe_reads_back(tmp_path):
    (tmp_path / "r.toml").write_text(RECIPE)
    recipe = load_recipe(tmp_path / "r.toml")
    assert recipe.tasks["more"].options == recipe.tasks["sst"].options
    assert recipe.tasks["more"].dev == recipe.tasks["more"].test == []
    (tmp_path / "again.toml").write_text(recipe_to_toml(recipe))
    assert load_recipe(tmp_path / "again.toml") == recipe
    assert recipe.scored(["more", "sts", "sst"]) == ["sst", "sts"]


@pytest.mark.parametrize(("more", "message"), [
    ({"model_of": "ssst"}, r"task 'more': model_of is 'ssst'; .*: sst, sts \(did you mean 'sst'\?\)"),
    ({"model_of": "more"}, "task 'more': model_of is 'more'; expected a task that has a model of its own: sst, sts"),
    ({"model_of": 3}, "no kind|model_of is 3"),
    ({"model_of": "sst", "pooling": "max"}, "has the model of 'sst', but other options; leave them out"),
    ({"model_of": "sst", "kind": "paraphrase"}, "unknown option 'head'|other options|expected"),
    ({"model_of": "sst", "dev": ["x.csv"]}, "which has its own dev and test; leave them out"),
    ({"model_of": "sst", "dev_share": 0.1}, "which has its own dev and test; leave them out")])
def test_what_makes_no_sense_is_one_error(more, message):
    values = {"tasks": {"sst": {"pooling": "mean"}, "more": {"train": ["a.csv"], **more}},
              "stage": [{"tasks": ["sst", "more", "sts"], "epochs": 1, "batch_size": 8}]}
    with pytest.raises(ValueError, match=message) as caught:
        parse_recipe(values, "r.toml")
    assert "\n" not in str(caught.value) and str(caught.value).startswith("r.toml")


def test_a_chain_of_models_and_a_head_of_training_sentences_are_refused():
    stage = {"tasks": ["sst", "a", "b"], "epochs": 1, "batch_size": 8}
    chain = {"a": {"model_of": "sst", "train": ["a"]}, "b": {"model_of": "a", "train": ["b"]}}
    with pytest.raises(ValueError, match="task 'b': model_of is 'a'; expected a task that has a model of its own: sst"):
        parse_recipe({"tasks": chain, "stage": [stage]}, "r.toml")
    nearest = {"sst": {"head": "nearest"}, "a": {"model_of": "sst", "train": ["a"]}}
    with pytest.raises(ValueError, match="whose head is made of training sentences"):
        parse_recipe({"tasks": nearest, "stage": [{**stage, "tasks": ["sst", "a"], "trainable": "heads"}]}, "r.toml")
