"""The comparison of runs: its tests of differences against scipy and exact counts, and the program end to end."""
import json
import math
import shutil

import numpy as np
import pytest
from conftest import ROOT
from scipy import stats

from tasks.metrics import accuracy, pearson
from training.compare import labels_of, main, mcnemar, paired_bootstrap, williams


def test_mcnemar_is_the_exact_binomial():
    first = np.array([True] * 12 + [False] * 3 + [True] * 20)
    second = np.array([False] * 12 + [True] * 3 + [True] * 20)
    expected = 2 * sum(math.comb(15, k) for k in range(4)) / 2**15
    assert mcnemar(first, second) == pytest.approx(expected)
    assert mcnemar(first, first) == 1.0


def test_williams_holds_its_level_and_sees_a_difference():
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(400):
        gold = rng.normal(size=60)
        p_values.append(williams(gold, gold + rng.normal(size=60), gold + rng.normal(size=60)))
    # Under the null p is uniform: the Kolmogorov-Smirnov test would reject a wrong formula.
    assert stats.kstest(p_values, "uniform").pvalue > 0.001
    assert williams(gold, gold + 0.1 * rng.normal(size=60), gold + 2 * rng.normal(size=60)) < 1e-6
    assert williams(gold, gold, gold) == 1.0 and williams(gold[:3], gold[:3], -gold[:3]) == 1.0


def test_the_paired_bootstrap_agrees_with_mcnemar_and_is_one_for_equals():
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 2, 500)
    first = np.where(rng.random(500) < 0.75, gold, 1 - gold)
    second = np.where(rng.random(500) < 0.80, gold, 1 - gold)
    p = paired_bootstrap(accuracy, gold, first, second, samples=4000)
    assert p == pytest.approx(mcnemar(first == gold, second == gold), abs=0.05)
    assert paired_bootstrap(accuracy, gold, first, first) == 1.0
    assert 0 < paired_bootstrap(pearson, gold, first, second) <= 1


@pytest.fixture
def flags(tiny_directory, toy_directory):
    return ["--data", str(toy_directory), "--", "--weights", str(tiny_directory), "--epochs", "1",
            "--steps_per_epoch", "1"]


def test_recipes_over_seeds_make_one_table_and_finished_runs_are_kept(tmp_path, capsys, flags):
    recipes = [str(ROOT / "recipes" / "ma" / f"{name}.toml") for name in ("cosine", "pcgrad")]
    arguments = [*recipes, "--seeds", "2", "--out", str(tmp_path), "--parallel", "2", *flags]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    table = (tmp_path / "comparison.md").read_text()
    assert table in printed
    dev, train, test, formula = table.split("\n\n| ")[1:] + [table.splitlines()[-1]]
    for part, figures in ((dev, ("0.738", "0.299", "0.415")), (train, ("0.989", "0.742", "0.882")),
                          (test, ("0.531", "0.734", "0.329", "0.531"))):
        (line,) = (line for line in part.splitlines() if line.startswith("| pcgrad | 2 |"))
        assert all(f"| {figure} |" in line for figure in figures), line  # the published row beside ours
    assert "±" in dev and "(p " in dev and "[0." in dev and formula == "overall: (sst + para + sts) / 3"
    rows = json.loads((tmp_path / "comparison.json").read_text())
    assert set(rows[1]["p_values"]["dev sst accuracy"]) == {"bootstrap", "mcnemar"}
    assert set(rows[1]["p_values"]["dev sts pearson"]) == {"bootstrap", "williams"}
    means = rows[0]["means"]
    assert means["dev overall"] == pytest.approx(
        (means["dev sst accuracy"] + means["dev para accuracy"] + means["dev sts pearson"]) / 3)
    assert (tmp_path / "comparison.csv").read_text().startswith("recipe,weights,train_size,seeds,score,mean")
    results = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("results.json")}
    assert len(results) == 4 and not list(tmp_path.rglob("state-*"))
    assert main(arguments) == 0
    assert results == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("results.json")}


@pytest.mark.slow
def test_a_learning_curve_runs_each_size(tmp_path, flags):
    assert main([str(ROOT / "recipes" / "glue" / "mrpc.toml"), "--seeds", "1", "--train_sizes", "10,20", "--out",
                 str(tmp_path), *flags]) == 0
    table = (tmp_path / "comparison.md").read_text()
    assert "| mrpc @ 10 |" in table and "| mrpc @ 20 |" in table


@pytest.mark.slow
def test_transfer_recipes_run_with_several_weights_and_sizes(tmp_path, toy_directory, tiny_directory):
    """A recipe of transfer fine-tuning goes to its own program; every weight and every size has its line."""
    other = tmp_path / "other" / tiny_directory.name
    shutil.copytree(tiny_directory, other)
    recipe = ROOT / "recipes" / "tft" / "full.toml"
    assert main([str(recipe), "--seeds", "1", "--corpus", str(toy_directory / "train.jsonl"), "--weights",
                 str(tiny_directory), str(other), "--train_sizes", "10,all", "--parallel", "2", "--out",
                 str(tmp_path / "runs"), "--", "--epochs", "1", "--steps_per_epoch", "1", "--held_out", "4"]) == 0
    rows = json.loads((tmp_path / "runs" / "comparison.json").read_text())
    assert [(row["weights"], row["train_size"]) for row in rows] == [
        (str(tiny_directory), 10), (str(tiny_directory), None), (str(other), 10), (str(other), None)]
    assert set(rows[1]["p_values"]) == {"dev tft phrasal", "dev tft sentential"}
    assert all(0 < tests["bootstrap"] <= 1 for row in rows[1:] for tests in row["p_values"].values())
    assert len({row["name"] for row in rows}) == 4 and rows[1]["name"].endswith("@ all")
    table = (tmp_path / "runs" / "comparison.md").read_text()
    line = next(line for line in table.split("test:")[1].splitlines() if line.startswith("| full"))
    assert "| 0.981 |" in line and "| 0.999 |" in line  # the paper's test accuracies
    seen = {folder.parent.name: json.loads((folder / "results.json").read_text()) for folder in
            (tmp_path / "runs").glob("*/seed-*")}
    assert len(seen) == 4


def test_weights_are_named_by_what_tells_them_apart():
    assert labels_of(["runs/a/encoder", "runs/b/encoder"]) == ["a-encoder", "b-encoder"]
    assert labels_of(["all-MiniLM-L6-v2", "runs/b"]) == ["all-MiniLM-L6-v2", "b"]
    with pytest.raises(ValueError, match="one is named twice"):
        labels_of(["runs/a", "runs/a"])


def test_a_failing_run_is_reported_and_the_others_stand(tmp_path, capsys, flags):
    broken = tmp_path / "broken.toml"
    broken.write_text('[tasks.sst]\ntrain = "nowhere.csv"\n[[stage]]\ntasks = ["sst"]\nepochs = 1\n')
    recipes = [str(broken), str(ROOT / "recipes" / "glue" / "mrpc.toml")]
    assert main([*recipes, "--seeds", "1", "--out", str(tmp_path / "runs"), *flags]) == 2
    captured = capsys.readouterr()
    assert "nowhere.csv: no such file" in captured.err and "| mrpc | 1 |" in captured.out


@pytest.mark.parametrize(("arguments", "message"), [
    (["none.toml"], "none.toml: cannot be read"),
    (["--train_sizes", "a,b", str(ROOT / "recipes/default.toml")], "expected numbers")])
def test_mistakes_are_one_clear_line(capsys, arguments, message):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
