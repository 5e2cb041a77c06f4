"""benchmarks/levers.py: every row is the base with one change, and the command runs them."""
import dataclasses
import json
import tomllib

import pytest

from benchmarks import levers
from corpora.tables import read_table
from training.recipe import parse_recipe

CHANGES = {  # of each row: the fields of the stage, or the tasks, that differ from the base's
    "ema": {"average", "ema_decay"}, "swa": {"average"}, "smart": {"smart"}, "rdrop": {"rdrop"}, "pcgrad": {"combine"},
    "cagrad": {"combine"}, "cross": {"para"}, "both": {"para"}, "uncertainty": {"weighting", "loss_weights"},
    "gradnorm": {"weighting", "loss_weights"}, "famo": {"weighting", "loss_weights"},
    "dwa": {"weighting", "epochs", "steps_per_epoch"}, "own_layers": {"sst", "para"}, "new_layers": {"sst", "para"},
    "low_rank": {"sst", "para"}, "adapter": {"sst", "para"}, "rate": {"optimizer"}, "threshold": {"para"},
    "label_smoothing": {"sst", "para"}, "teacher": {"sst", "para", "sts"}, "tft": set(),
    "simcse": {"twins"}, "masked_words": {"words"}, "nli": {"triplets"},
    "phrases": {"tasks", "batch_size", "phrases"}, "long_phrases": {"tasks", "batch_size", "phrases"},
    "duplicates": {"tasks", "batch_size", "loss_weights", "duplicates"},
    "mined": {"tasks", "batch_size", "loss_weights", "mined"},
    "unlabelled": {"tasks", "batch_size", "loss_weights", "mined", "para"},
    "phrases_first": {"tasks", "batch_size", "phrases", "steps_per_epoch", "schedule"},
    "frozen_end": {"sst", "para", "steps_per_epoch", "schedule"},
}


def read(name, change):
    return parse_recipe(tomllib.loads(levers.recipe_of(name, change)), name)


@pytest.mark.parametrize("name", levers.LEVERS)
def test_a_row_is_the_base_with_one_change(name):
    base, row = read("base", ""), read(name, levers.LEVERS[name][1])
    stage = next(stage for stage in row.stage if "sts" in stage.tasks)
    differing = {field.name for field in dataclasses.fields(stage)
                 if getattr(stage, field.name) != getattr(base.stage[0], field.name)}
    differing |= {task for task in row.tasks if row.tasks[task] != base.tasks.get(task)}
    assert differing == CHANGES[name] and (row.weights != base.weights) == (name == "tft")
    steps = sum(stage.epochs * int(stage.steps_per_epoch) for stage in row.stage)
    assert steps == 150 + 50 * (name in ("simcse", "masked_words", "nli"))
    assert row.stage[-1].keep == "last" and row.stage[-1].schedule == "linear"


@pytest.fixture
def shared(tmp_path, toy_directory):
    """The layout of the shared data, with generated rows."""
    for folder in ("cs224n", "qqp", "sst", "nli/triplets"):
        (tmp_path / "shared" / folder).mkdir(parents=True)
    for name in ("ids-sst-train.csv", "ids-sst-dev.csv", "sts-train.csv", "sts-dev.csv", "quora-dev.csv"):
        (tmp_path / "shared/cs224n" / name).write_bytes((toy_directory / name).read_bytes())
    (tmp_path / "shared/qqp/quora-train-merged2.csv").write_bytes((toy_directory / "quora-train.csv").read_bytes())
    (tmp_path / "shared/sst/ids-sst-phrases-train.csv").write_bytes((toy_directory / "ids-sst-train.csv").read_bytes())
    dev = next(read_table(toy_directory / "quora-dev.csv", ["sentence1", "sentence2"]))
    rows = [f"\t1\t{dev.text('sentence1').upper()}\tsomething new\t1.0", '\t2\tmy own one\t"""mine"""\t1.0']
    (tmp_path / "shared/qqp/quora-duplicates.csv").write_text("\n".join([levers.mining.HEADER, *rows]) + "\n")
    triplets = ["sent0,sent1,hard_neg"] + [f"a dog {n},an animal {n},a cat {n}" for n in range(600)]
    (tmp_path / "shared/nli/triplets/nli_for_simcse-dev.csv").write_text("\n".join(triplets) + "\n")
    return tmp_path / "shared"


def test_the_data_hold_no_question_of_dev_and_sentences_twice(shared, tmp_path, monkeypatch, toy_directory):
    monkeypatch.setattr(levers.mining, "main", lambda arguments: 0)
    levers.write_data(shared, tmp_path / "data")
    only, = read_table(tmp_path / "data/duplicates.csv", ["sentence1", "sentence2"])
    assert (only.sentence("sentence1"), only.sentence("sentence2")) == ("my own one", '"mine"')
    twins = [(row.sentence("sentence1"), row.sentence("sentence2")) for row in
             read_table(tmp_path / "data/twins.csv", ["sentence1", "sentence2"])]
    assert len(twins) == len(set(twins)) > 50 and all(first == second for first, second in twins)
    long = [row.text("sentence") for row in read_table(tmp_path / "data/long-phrases.csv", ["sentence"])]
    everything = [row.text("sentence") for row in read_table(tmp_path / "data/phrases.csv", ["sentence"])]
    assert long == [text for text in everything if len(text.split()) >= 4]


@pytest.mark.slow
def test_the_command_runs_rows(shared, tmp_path, monkeypatch, tiny_directory, toy_directory, capsys):
    for name in ("BASE", "BEFORE"):
        monkeypatch.setattr(levers, name, getattr(levers, name).replace("150", "6"))
    short = {name: (source, change.replace("100", "4").replace("= 50", "= 2").replace("= 25", "= 1"))
             for name, (source, change) in levers.LEVERS.items()}
    monkeypatch.setattr(levers, "LEVERS", short)
    monkeypatch.setattr(levers, "MINED_FROM", 40)
    real = levers.mining.main
    monkeypatch.setattr(levers.mining, "main", lambda arguments: real([
        *arguments, "--weights", str(tiny_directory), "--low", "-1", "--high", "0.9999"]))
    for name, change in (("own_layers", 1), ("frozen_end", 1)):
        short[name] = (short[name][0], short[name][1].replace("own_layers = 3", f"own_layers = {change}"))
    command = [str(shared), "--out", str(tmp_path / "out"), "--weights", str(tiny_directory), "--seeds", "1"]
    assert levers.main([*command, "--levers", "nothing"]) == 2
    assert levers.main([*command, "--levers", "unlabelled", "tft"]) == 0
    said = capsys.readouterr().out
    assert "unlabelled: left out, it needs --teacher" in said and "tft: left out" in said
    names = ["phrases_first", "mined", "masked_words", "duplicates", "frozen_end", "tft", "teacher", "unlabelled"]
    flags = ["--tft", str(tiny_directory), "--teacher", str(tmp_path / "out/runs/base/seed-11711")]
    assert levers.main([*command, *flags, "--levers", *names]) == 0
    rows = json.loads((tmp_path / "out/runs/comparison.json").read_text())
    assert [row["name"] for row in rows] == ["base", *names]
    assert all({"dev overall", "dev sst accuracy"} <= row["means"].keys() for row in rows)
