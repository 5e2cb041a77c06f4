"""Recipes: every mistake is one clear error, and what is saved is read back the same."""
import datetime
import math
import re

import pytest
import torch
from conftest import DEEP, ROOT

from minbert.bert import BertModel
from training.model import build_model
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
    (stage(tasks=["sst", "sts"], combine="pcgard"), r"combine is 'pcgard'; expected one of .*did you mean 'pcgrad'"),
    (stage(mixing="round"), "mixing is 'round'"),
    (stage(trainable="top-0"), "trainable is 'top-0'; expected all, heads or top-K"),
    (stage(warmup=1.0), "warmup is 1.0"),
    (stage(tasks=["sst", "para"], batch_size={"para": 8}), "batch_size has no entry for sst"),
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
    ({**stage(tasks=["mine"]), "tasks": {"mine": {"kind": "sentimental"}}},
     r"\[tasks.mine\]: unknown kind 'sentimental'.*did you mean 'sentiment'"),
    ({**stage(), "tasks": {"sst": {"poling": "mean"}}},
     r"\[tasks.sst\]: unknown option 'poling'.*did you mean 'pooling'"),
    ({**stage(), "tasks": {"sst": {"dropout": "much"}}}, r"\[tasks.sst\]: dropout is 'much'; expected float"),
    ({**stage(), "tasks": {"sst": {"pooling": "bogus"}}}, r"\[tasks.sst\]: pooling is 'bogus'; known"),
    ({**stage(), "tasks": {"sst": {"label_smoothing": datetime.date(2020, 1, 1)}}}, "label_smoothing is datetime"),
    ({**stage(tasks=["nli_triplets"]), "tasks": {"nli_triplets": {"pooling": "bogus"}}}, "pooling is 'bogus'"),
    ({**stage(), "tasks": {"../x": {"kind": "sentiment"}}}, "a task is called '../x'; expected letters"),
    ({**stage(), "tasks": {"/abs": {"kind": "sentiment"}}}, "a task is called '/abs'"),
    ({**stage(), "tasks": {"sts.v2": {"kind": "similarity"}}}, "a task is called 'sts.v2'"),
    ({**stage(), "name": "../../x"}, "name is '../../x'"), ({**stage(), "name": ".."}, "name is '..'"),
    (stage(combine="pcgrad"), "combine is 'pcgrad', which needs two tasks in a step"),
    (stage(tasks=["sst", "sts"], mixing="uniform", combine="cagrad"), "which needs two tasks in a step"),
    (stage(tasks=["sst", "sts"], mixing="sequential", combine="pcgrad"), "which needs two tasks in a step"),
    (stage(loss_weights={"sst": -1.0}), "loss_weights: sst is -1.0"),
    (stage(loss_weights={"sst": math.nan}), "loss_weights: sst is nan"),
    (stage(temperature=math.inf), "temperature is inf"), (stage(cap={"sst": 0}), "cap: sst is 0"),
    (stage(clip=math.nan), "clip is nan"), (stage(optimizer={"lr": math.inf}), "lr is inf"),
    (stage(optimizer={"eps": math.nan}), "eps is nan"), (stage(batch_size={"sst": 8, "para": 4}), "names task 'para'"),
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
    (tmp_path / "digits.toml").write_text("seed = 1" + "0" * 5000)
    with pytest.raises(ValueError, match="not TOML"):
        load_recipe(tmp_path / "digits.toml")
    (tmp_path / "deep.toml").write_text("x = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(ValueError, match="not TOML"):
        load_recipe(tmp_path / "deep.toml")
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
    assert (task.options.classes, task.options.max_length) == (2, 64) and task.dev == ["d.csv"]
    assert task.train == ["ids-cfimdb-train.csv"]


def test_the_default_recipe_has_the_courses_defaults():
    recipe = load_recipe(ROOT / "recipes" / "default.toml")
    assert (recipe.seed, recipe.hidden_dropout_prob) == (11711, 0.3)
    assert (recipe.stage[0].epochs, recipe.stage[0].batch_size) == (10, 8)


def test_every_recipe_says_how_to_run_it():
    for path in all_recipes():
        header = path.read_text().split("\n\n")[0]
        assert re.search(r"Run: +python ", header) and header.startswith("#"), path


def test_a_byte_order_mark_is_no_part_of_a_recipe(tmp_path):
    (tmp_path / "r.toml").write_text("\ufeff[[stage]]\ntasks = ['sst']\n", encoding="utf-8")
    assert load_recipe(tmp_path / "r.toml").stage[0].tasks == ["sst"]


def test_a_recipe_value_fills_only_what_task_and_class_leave_open():
    recipe = parse_recipe({**stage(tasks=["sst", "para", "mrpc", "tft", "cfimdb"]), "hidden_dropout_prob": 0.5,
                           "max_length": 99, "tasks": {"para": {"dropout": 0.4}}}, "r")
    filled = {name: task.options.filled(recipe.max_length, recipe.hidden_dropout_prob)
              for name, task in recipe.tasks.items()}
    assert {name: options.dropout for name, options in filled.items()} == {
        "sst": 0.5, "para": 0.4, "mrpc": 0.1, "tft": 0.2, "cfimdb": 0.5}
    assert {name: options.max_length for name, options in filled.items()} == {
        "sst": 99, "para": 99, "mrpc": 99, "tft": 99, "cfimdb": 256}


@pytest.mark.parametrize("path", all_recipes(), ids=lambda path: str(path.relative_to(ROOT / "recipes")))
def test_the_dropout_in_a_recipes_header_is_what_is_built(path, tiny_tokenizer):
    """Every recipe's header says the dropout before its heads; every head that is built has it."""
    header = path.read_text().split("\n\n")[0]
    said = re.search(r"dropout (0\.\d+)", header)
    assert said, f"{path.name}: the header does not say the dropout"
    recipe = load_recipe(path)
    model = build_model(recipe, DEEP, BertModel(DEEP), tiny_tokenizer)
    for name, task in model.tasks_by_name().items():
        rates = {module.p for module in task.modules() if isinstance(module, torch.nn.Dropout)}
        assert rates == {float(said.group(1))}, (path.name, name)
