"""The numbers of a report against formulas of their own, its command line, and hostile folders."""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import pretrain_tft
import train_multitask
from corpora.predictions import Prediction, save_predictions
from report import analysis
from report.__main__ import main
from report.page import LARGEST, disagreements, render
from report.run import load_run
from training.baselines import overlap


def classes(count=400, size=5, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        probabilities = rng.dirichlet(np.ones(size))
        gold = int(rng.choice(size, p=probabilities)) if rng.random() < 0.8 else int(rng.integers(size))
        rows.append(Prediction(f"r{index}", [" ".join(["w"] * int(rng.integers(1, 40)))], gold,
                               int(probabilities.argmax()), probabilities=probabilities.tolist()))
    return rows


def test_the_confusion_matrix_counts_gold_by_predicted():
    rows = classes()
    expected = [[sum(row.gold == gold and row.prediction == predicted for row in rows) for predicted in range(5)]
                for gold in range(5)]
    assert analysis.confusion(rows).tolist() == expected


def test_calibration_is_the_weighted_gap_of_guo_et_al():
    rows = classes()
    expected = 0.0
    for low in np.arange(10) / 10:
        part = [row for row in rows if low <= max(row.probabilities) < low + 0.1 or (low == 0.9 and
                                                                                      max(row.probabilities) == 1)]
        if part:
            confidence = sum(max(row.probabilities) for row in part) / len(part)
            accuracy = sum(row.prediction == row.gold for row in part) / len(part)
            expected += len(part) / len(rows) * abs(confidence - accuracy)
    found = analysis.calibration(rows)
    assert found.error == pytest.approx(expected) and sum(found.counts) == len(rows)
    assert analysis.calibration([Prediction("a", ["x"], 1, 1, score=0.3)]) is None


@pytest.mark.parametrize("seed", range(5))
def test_the_best_threshold_is_found_by_trying_all(seed):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 12, 60) / 12  # with ties
    gold = (numbers + rng.normal(0, 0.3, 60) > 0.5).astype(int)
    edge, accuracy = analysis.best_threshold(numbers, gold)
    tries = [-1.0, *(np.unique(numbers) + 1e-9)]
    assert accuracy == max(((numbers > value) == gold).mean() for value in tries)
    assert ((numbers > edge) == gold).mean() == accuracy


@pytest.mark.parametrize("gold", [0, 1])
def test_where_one_class_is_best_for_all_the_threshold_is_infinite(gold):
    edge, accuracy = analysis.best_threshold(np.array([0.2, 0.2, 0.7]), np.full(3, gold))
    assert accuracy == 1 and edge == (np.inf if gold == 0 else -np.inf)


def test_a_tuned_threshold_of_probabilities_is_the_one_that_is_named():
    rows = [Prediction(str(index), ["x"], int(number > 0.6), int(number > 0.745), probabilities=[1 - number, number])
            for index, number in enumerate(np.linspace(0.01, 0.99, 99).round(2).tolist())]
    found = analysis.threshold(rows)
    assert found.used == pytest.approx(0.745) and found.best == pytest.approx(0.605) and found.best_accuracy == 1
    by_half = [Prediction(str(number), ["x"], 0, int(number > 0.5), probabilities=[1 - number, number])
               for number in (0.1, 0.8)]
    assert analysis.threshold(by_half).used == 0.5


def test_the_threshold_of_scores_lies_between_the_predicted_classes():
    rows = [Prediction(str(n), ["x", "y"], int(n > 6), int(n > 4), score=n / 10) for n in range(10)]
    found = analysis.threshold(rows)
    assert found.used == pytest.approx(0.45) and found.of == "score" and found.accuracy == 0.8
    assert found.best == pytest.approx(0.65) and found.best_accuracy == 1
    assert analysis.threshold(classes()) is None


def test_groups_cover_every_row_once_and_measure_it():
    rows = classes()
    groups = analysis.by_length(rows)
    assert sum(group.count for group in groups) == len(rows) and 3 <= len(groups) <= 6
    for group in groups:
        low, _, high = group.name.partition(" to ")
        part = [row for row in rows if int(low) <= len(row.sentences[0].split()) <= int(high or low)]
        assert group.count == len(part)
        assert group.value == pytest.approx(np.mean([row.prediction == row.gold for row in part]))
    by_label = analysis.by_label(rows)
    assert [group.name for group in by_label] == ["0", "1", "2", "3", "4"]
    graded = [Prediction(str(n), ["x"], n / 2, n / 2 + 1.0, score=0.1) for n in range(8)]
    assert [(group.name, group.count, group.value) for group in analysis.by_label(graded)] == [
        ("0 to 1", 2, 1.0), ("1 to 2", 2, 1.0), ("2 to 3", 2, 1.0), ("3 to 4", 2, 1.0)]


def test_the_worst_come_first():
    rows = classes()
    found = analysis.worst(rows, 10)
    wrong = [row for row in rows if row.prediction != row.gold]
    expected = sorted(wrong, key=lambda row: row.probabilities[row.gold])
    assert [row.id for row in found] == [row.id for row in expected[:10]]
    graded = [Prediction(str(n), ["x"], 2.5, 2.5 + error) for n, error in enumerate([0.5, -2.0, 1.0, 0.0])]
    assert [row.id for row in analysis.worst(graded, 2)] == ["1", "2"]
    scores = [Prediction(str(n), ["x", "y"], gold, int(score > 0.5), score=score)
              for n, (gold, score) in enumerate([(1, 0.4), (1, 0.1), (0, 0.9), (0, 0.2), (0, 0.45), (0, 0.55)])]
    assert [row.id for row in analysis.worst(scores, 9)] == ["1", "2", "0", "5"]


def test_overlap_is_jaccards():
    assert overlap(["A dog runs.", "the dog, a DOG"]) == pytest.approx(2 / 4)
    assert overlap(["", "..."]) == 1 and overlap(["a", "b"]) == 0


# ---- a real run ------------------------------------------------------------------------------------------------------

RECIPE = """
published.dev = { sst = 0.5, overall = 0.7 }
[tasks.sts]
[[stage]]
tasks = ["sst", "para", "sts"]
epochs = 2
steps_per_epoch = 6
combine = "pcgrad"
[[stage]]
name = "sts alone"
tasks = ["sts"]
epochs = 1
steps_per_epoch = 3
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_directory, toy_directory):
    """Two runs of one recipe, in one folder of runs, without their reports."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "r.toml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.program.report_of", lambda place: place / "report.html")
        for seed in (1, 2):
            assert train_multitask.main(["--recipe", str(folder / "r.toml"), "--weights", str(tiny_directory), "--data",
                                         str(toy_directory), "--seed", str(seed), "--out", str(folder / f"seed-{seed}"),
                                         "--no_progress"]) == 0
    return folder


@pytest.mark.reports
def test_a_finished_run_writes_its_report(tmp_path, monkeypatch, tiny_directory, toy_directory, capsys):
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(RECIPE)
    assert train_multitask.main(["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory),
                                 "--out", "run", "--no_progress"]) == 0
    assert "report: run/report.html" in capsys.readouterr().out
    assert 50_000 < Path("run/report.html").stat().st_size < LARGEST


def test_the_page_holds_every_section_and_the_runs_numbers(runs):
    run = load_run(runs / "seed-1")
    page = render(run)
    for anchor in ("scores", "training", "errors-sst", "errors-para", "errors-sts", "attention", "data", "facts"):
        assert f'id="{anchor}"' in page, anchor
    for task in ("sst", "para", "sts"):
        for metric in run.results["dev"][task].values():
            assert f"{metric['value']:.4f}" in page
    assert "dev 0.500" in page and "seed-2" in page and "share in conflict" in page
    assert run.results["baselines"]["sst"]["majority"] > 0 and run.results["peak_memory_mb"] > 100
    assert "ids-sst-train.csv" in page and run.results["versions"]["torch"] in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page  # needs no network
    again = render(load_run(runs / "seed-1"))
    assert again == page


def test_attention_rows_sum_to_one_and_have_the_sentences_tokens(runs):
    run = load_run(runs / "seed-1")
    assert 1 <= len(run.attention) <= 3
    for sentence in run.attention:
        weights = np.array(sentence["weights"])
        size = len(sentence["tokens"])
        assert weights.shape == (2, 2, size, size) and sentence["tokens"][0] == "[CLS]"
        assert np.abs(weights.sum(axis=-1) - 100).max() <= size / 2 + 1  # each is rounded


def test_several_runs_make_one_page(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(runs / "seed-1"), str(runs / "seed-2")]) == 0
    assert "comparison.html" in capsys.readouterr().out
    page = Path("comparison.html").read_text()
    assert "Comparison of 2 runs" in page and "-seed = 1" in page and "+seed = 2" in page
    first, second = (load_run(runs / f"seed-{seed}") for seed in (1, 2))
    counts = disagreements(first, second, "sst")
    rows = list(zip(first.predictions["sst"], second.predictions["sst"], strict=True))
    assert counts["first"] == sum(a.prediction == a.gold != b.prediction for a, b in rows)
    assert sum(counts.values()) == len(rows)
    assert disagreements(first, second, "sts") is None


def test_errors_are_printed_in_the_terminal(runs):
    rows = analysis.worst(load_run(runs / "seed-1").predictions["para"], 3)
    done = subprocess.run([sys.executable, "-m", "report", "errors", str(runs / "seed-1"), "--task", "para", "--worst",
                           "3"], capture_output=True, text=True, cwd=ROOT, check=True)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:9:3]] == [row.id for row in rows]
    assert lines[1].strip() == rows[0].sentences[0].strip()
    assert lines[-1] == "3 of 24 dev examples of para"


@pytest.mark.parametrize(("arguments", "message"), [
    (["nowhere"], "nowhere: no finished run is there"),
    (["errors", "{run}", "--task", "cola"], "has no dev predictions of it; its tasks: sst, para, sts"),
    (["{run}", "--out", "{folder}"], "is a folder; expected a file")])
def test_mistakes_are_one_line(runs, capsys, arguments, message):
    values = {"run": runs / "seed-1", "folder": runs}
    assert main([argument.format(**values) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(("name", "content"), [
    ("results.json", "{"), ("results.json", "[]"), ("results.json", '{"dev": 1}'), ("metrics.jsonl", "{\n"),
    ("metrics.jsonl", "[1]\n"), ("metrics.jsonl", '{"step": "x"}\n'), ("attention.json", "{"),
    ("predictions/sst-dev.jsonl", '{"id": 1}\n'), ("results.json", "[" * 100_000)])
def test_a_damaged_folder_is_one_error(runs, tmp_path, name, content):
    (tmp_path / "predictions").mkdir()
    (tmp_path / "results.json").write_text((runs / "seed-1" / "results.json").read_text())
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=Path(name).name) as caught:
        load_run(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_without_log_predictions_or_encoder_still_has_a_report(runs, tmp_path):
    results = json.loads((runs / "seed-1" / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps({"dev": results["dev"]}))
    page = render(load_run(tmp_path))
    assert 'id="scores"' in page and 'id="training"' not in page and 'id="errors-sst"' not in page
    save_predictions(tmp_path / "predictions" / "sst-dev.jsonl", classes(20))
    assert 'id="errors-sst"' in render(load_run(tmp_path))


def test_the_page_stays_small_however_large_the_model_is(runs, tmp_path):
    results = json.loads((runs / "seed-1" / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps({"dev": results["dev"]}))
    weights = np.full((24, 16, 20, 20), 5).tolist()
    (tmp_path / "attention.json").write_text(json.dumps(
        [{"task": "sst", "tokens": ["t"] * 20, "weights": weights} for _ in range(20)]))
    page = render(load_run(tmp_path))
    assert len(page.encode()) < LARGEST and 'id="attention"' in page


@pytest.mark.slow
@pytest.mark.reports
def test_transfer_fine_tuning_and_triplets_have_reports_too(tmp_path, monkeypatch, tiny_directory, toy_directory):
    """Their predictions are counts, or always the same: there is no baseline and no table of errors for counts."""
    monkeypatch.chdir(tmp_path)
    assert pretrain_tft.main(["--weights", str(tiny_directory), "--out", "tft", "--epochs", "1", "--limit", "60",
                              "--no_progress"]) == 0
    Path("r.toml").write_text('[[stage]]\ntasks = ["nli", "nli_triplets"]\nepochs = 1\nsteps_per_epoch = 2\n')
    assert train_multitask.main(["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory),
                                 "--out", "nli", "--no_progress"]) == 0
    for run, sections in (("tft", []), ("nli", ["nli", "nli_triplets"])):
        page = Path(run, "report.html").read_text()
        assert [task for task in ("tft", "nli", "nli_triplets") if f'id="errors-{task}"' in page] == sections
    results = json.loads(Path("nli/results.json").read_text())
    assert results["baselines"]["nli"]["majority"] > 0 and results["baselines"]["nli_triplets"] == {}
