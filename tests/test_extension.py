"""The last exercise's check: a report is asked for its sections, its runs and its numbers."""
import json
import shutil

import pytest
from conftest import ROOT

from course import extension
from course.check import main

RECIPE = 'about = "x"\n[tasks.sst]\npooling = "mean"\n[[stage]]\ntasks = ["sst"]\nepochs = 2\n'


@pytest.fixture
def work(tmp_path):
    """A finished extension: two recipes, three seeds of each, a report with their means."""
    def run(name, recipe, seed, overall):
        folder = tmp_path / extension.MEASURED / name / f"seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "recipe.toml").write_text(recipe)
        (folder / "results.json").write_text(json.dumps({"seed": seed, "overall": overall, "dev": {}}))

    for seed, before, after in ((1, 0.7, 0.71), (2, 0.702, 0.712), (3, 0.704, 0.7105)):
        run("default", RECIPE, seed, before)
        run("mine", RECIPE.replace("mean", "cls"), seed, after)
    text = extension.template()
    for content in extension.SECTIONS.values():
        text = text.replace(f"{extension.OPEN}{content}.", "We measured .702 before and 0.711 after.")
    (tmp_path / extension.REPORT).write_text(text)
    return tmp_path


def edited(work, before, after):
    path = work / extension.REPORT
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_a_finished_extension_passes(work):
    assert extension.check(work) == []


def test_an_empty_report_is_not_started(tmp_path):
    assert extension.check(tmp_path) is None
    (tmp_path / "extension").mkdir()
    (tmp_path / extension.REPORT).write_text(extension.template())
    assert extension.check(tmp_path) is None


@pytest.mark.parametrize("title", extension.SECTIONS)
def test_each_section_is_asked_for(work, title):
    edited(work, f"## {title}\n", "## Something else\n")
    [line] = extension.check(work)
    assert f"lacks the section '## {title}'" in line


@pytest.mark.parametrize("content", ["", f"{extension.OPEN}all of it."])
def test_an_empty_section_is_named(work, content):
    edited(work, "## Errors\n\nWe measured .702 before and 0.711 after.", f"## Errors\n\n{content}")
    [line] = extension.check(work)
    assert "the section 'Errors' is empty; expected three examples" in line


@pytest.mark.parametrize("wrong", ["0.71", "0.7112", "0.712", "10.711", ".7"])
def test_a_mean_that_was_not_measured_is_named(work, wrong):
    edited(work, "0.711", wrong)
    [line] = extension.check(work)
    assert "0.711, the mean of mine over 3 seeds, does not stand there" in line


def test_one_recipe_alone_is_no_comparison(work):
    shutil.rmtree(work / extension.MEASURED / "default")
    [line] = extension.check(work)
    assert "has the runs of 1 recipes; expected two or more" in line


def test_two_seeds_are_too_few_and_other_seeds_are_not_paired(work):
    shutil.rmtree(work / extension.MEASURED / "mine" / "seed-3")
    lines = extension.check(work)
    assert any("mine: has 2 seeds; expected 3 or more" in line for line in lines)
    assert any("have other seeds" in line for line in lines)


def test_the_same_recipe_twice_is_no_change(work):
    for path in (work / extension.MEASURED / "mine").glob("*/recipe.toml"):
        path.write_text('seed = 4\nname = "other"\n' + RECIPE)
    [line] = extension.check(work)
    assert "default and mine are the same recipe; expected a change" in line


@pytest.mark.parametrize("content", ["", "[]", "{", '{"seed": 1}', '{"seed": 1, "overall": null, "dev": {}}',
                                     '{"seed": "a", "overall": 1}', "\x00"])
def test_a_damaged_result_is_one_line(work, content):
    (work / extension.MEASURED / "mine" / "seed-2" / "results.json").write_text(content)
    [line] = extension.check(work)
    assert "seed-2" in line and "expected results.json and recipe.toml of a finished run" in line


def test_a_run_without_an_overall_score_counts_its_deciding_metrics():
    dev = {"sst": {"accuracy": {"value": 0.5}, "macro_f1": {"value": 0.1}}, "para": {"accuracy": {"value": 0.7}}}
    assert extension.score_of({"overall": None, "dev": dev}) == pytest.approx(0.6)


def test_the_differences_of_two_recipes_are_named():
    first = {"seed": 1, "tasks": {"sst": {"pooling": "mean"}}, "stage": [{"epochs": 1}]}
    other = {"seed": 2, "tasks": {"sst": {"pooling": "cls"}}, "stage": [{"epochs": 1, "lr": 3}]}
    assert extension.differences(first, other) == ["tasks.sst.pooling", "stage.0.lr"]


def test_the_projects_own_extension_passes(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["extension"]) == 0
    assert "1 of 1 right" in capsys.readouterr().out


def test_the_check_names_what_is_missing(work, monkeypatch, capsys):
    edited(work, "## Errors", "## Mistakes")
    monkeypatch.chdir(work)
    assert main(["extension"]) == 1
    said = capsys.readouterr().out
    assert "14  extension" in said and "lacks the section '## Errors'" in said and "why it matters" in said
