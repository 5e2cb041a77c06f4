"""Recipes: every mistake is one clear error, and what is saved is read back the same."""
import re

import pytest
from conftest import ROOT

from training.recipe import load_recipe, parse_recipe, recipe_to_toml

STAGE = {"tasks": ["sst"]}


def stage(**fields):
    return {"stage": [{**STAGE, **fields}]}


@pytest.mark.parametrize(("values", "message"), [
    ({}, r"r.toml: no stage"),
    ({"stage": []}, "no stage"),
    ({"stage": 3}, r"expected tables \[\[stage\]\]"),
    ({"stages": [STAGE], "stage": [STAGE]}, r"unknown field 'stages'; known: .*\(did you mean 'stage'\?\)"),
    ({"stage": [{"tasks": ["stss"]}]}, r"stage 1: unknown task 'stss'; known: .*\(did you mean 'sts'\?\)"),
    ({"stage": [STAGE, {"tasks": []}]}, "stage 2: no tasks"),
    (stage(tasks=["sst", "sst"]), "one is named twice"),
    (stage(epoch=3), r"unknown field 'epoch'.*did you mean 'epochs'"),
    (stage(epochs=0), "epochs is 0; expected 1 or more"),
    (stage(epochs="3"), "epochs is '3'; expected int"),
    (stage(epochs=True), "epochs is True; expected int"),
    (stage(combine="pcgard"), r"combine is 'pcgard'; expected one of .*did you mean 'pcgrad'"),
    (stage(mixing="round"), "mixing is 'round'"),
    (stage(trainable="top-0"), "trainable is 'top-0'; expected all, heads or top-K"),
    (stage(warmup=1.0), "warmup is 1.0"),
    (stage(batch_size={"para": 8}), "batch_size has no entry for sst"),
    (stage(loss_weights={"para": 2.0}), "loss_weights names task 'para', which is not of this stage"),
    (stage(steps_per_epoch="long"), "steps_per_epoch is 'long'"),
    (stage(optimizer={"lr": -1.0}), "stage 1: optimizer: lr is -1.0; expected 0 or more"),
    (stage(optimizer={"beta": [0.1, 0.2]}), "optimizer: unknown field 'beta'.*did you mean 'betas'"),
    (stage(optimizer=3), "optimizer is 3"),
    (stage(optimizer={"compile": "yes"}), "compile is 'yes'; expected true, false or auto"),
    (stage(optimizer={"compile": 1}), "compile is 1; expected bool"),
    ({**stage(), "max_length": 2}, "max_length is 2"),
    ({**stage(), "precision": "bfloat61"}, "precision is 'bfloat61'"),
    ({**stage(), "tasks": {"sst": {"limit": 0}}}, r"\[tasks.sst\]: limit is 0"),
    ({**stage(), "tasks": {"sst": 3}}, "expected a table"),
    ({**stage(tasks=["mine"]), "tasks": {"mine": {"train": "x"}}}, r"\[tasks.mine\]: no kind"),
])
def test_a_mistake_is_one_clear_error(values, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_recipe(values, "r.toml")
    assert str(caught.value).startswith("r.toml") and "\n" not in str(caught.value)


def test_files_that_are_no_recipes(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        load_recipe(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("stage = [")
    with pytest.raises(ValueError, match="not TOML"):
        load_recipe(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="cannot be read"):
        load_recipe(tmp_path / "bytes.toml")


def all_recipes():
    return sorted((ROOT / "recipes").rglob("*.toml"))


@pytest.mark.parametrize("path", all_recipes(), ids=lambda path: str(path.relative_to(ROOT / "recipes")))
def test_a_resolved_recipe_reads_back_the_same(path, tmp_path):
    recipe = load_recipe(path)
    saved = tmp_path / f"{recipe.name}.toml"
    saved.write_text(recipe_to_toml(recipe))
    assert load_recipe(saved) == recipe
    assert recipe_to_toml(load_recipe(saved)) == recipe_to_toml(recipe)


def test_strings_survive_saving(tmp_path):
    recipe = parse_recipe({**stage(), "about": 'a "quoted"\\ \n\t line'}, "r")
    (tmp_path / "r.toml").write_text(recipe_to_toml(recipe))
    assert load_recipe(tmp_path / "r.toml") == recipe


def test_options_stand_beside_files_and_usual_ones_can_be_overridden():
    recipe = parse_recipe({**stage(tasks=["cfimdb"]), "tasks": {"cfimdb": {"max_length": 64, "dev": "d.csv"}}}, "r")
    task = recipe.tasks["cfimdb"]
    assert task.options == {"classes": 2, "max_length": 64} and task.dev == ["d.csv"]
    assert task.train == ["ids-cfimdb-train.csv"]


def test_the_default_recipe_has_the_courses_defaults():
    recipe = load_recipe(ROOT / "recipes" / "default.toml")
    assert (recipe.seed, recipe.hidden_dropout_prob) == (11711, 0.3)
    assert (recipe.stage[0].epochs, recipe.stage[0].batch_size) == (10, 8)


def test_every_recipe_says_how_to_run_it():
    for path in all_recipes():
        header = path.read_text().split("\n\n")[0]
        assert re.search(r"Run: +python ", header) and header.startswith("#"), path
