"""A course from its first to its last step: handout, solutions, checks, training, grade, submission, leaderboard."""
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from browser import needs_chromium, opened
from conftest import ROOT

from corpora import toy
from corpora.tables import read_table
from course.autograder import sandbox
from course.exercises import load_course
from course.leaderboard.scoring import LABELS, TASKS
from tasks.leaderboard import overall_score

STEMS = {"sst": "ids-sst", "para": "quora", "sts": "sts"}


def run(*command, cwd=ROOT, status=0):
    done = subprocess.run([sys.executable, *map(str, command)], cwd=cwd, capture_output=True, text=True, check=False,
                          env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@needs_chromium
def test_the_whole_way(tmp_path, tiny_directory):
    course = load_course()
    # The instructor: a starter, and test sets whose labels stay with the grader.
    starter = tmp_path / "starter"
    assert "14 exercises" in run("-m", "course.handout", "--out", starter)
    data, secret = tmp_path / "data", tmp_path / "secret"
    toy.write_course_files(data, train=64, dev=24, test=12)
    toy.write_course_files(secret, train=8, dev=60, test=8)
    (tmp_path / "key").write_text("a key that nobody guesses")
    for stem in STEMS.values():
        run("-m", "course.split", secret / f"{stem}-dev.csv", "--key", tmp_path / "key", "--out", tmp_path / "split")
        shutil.copy(tmp_path / "split" / "student" / f"{stem}-dev-test-student.csv", data / f"{stem}-test-student.csv")

    # A student: nothing is done; then everything is, in each file that has a solution.
    run("-m", "course.check", cwd=starter, status=1)
    for exercise in course.exercises.values():
        for solution in exercise.solutions:
            file = solution.partition(":")[0]
            shutil.copy(ROOT / file, starter / file)
    shutil.copytree(ROOT / "extension", starter / "extension", dirs_exist_ok=True)
    statuses = {result["exercise"]: result["status"] for result in
                json.loads(run("-m", "course.check", "--json", cwd=starter))}
    assert set(statuses.values()) == {"passed"} and len(statuses) == 14
    shutil.copytree(tiny_directory, tmp_path / "weights")
    run("train_multitask.py", "--weights", tmp_path / "weights", "--data", data, "--epochs", 1, "--out", "run",
        "--no_progress", cwd=starter)
    assert "engine\": \"plain" in (starter / "run" / "results.json").read_text()

    # The autograder, and the submission's own check.
    flags = [] if sandbox.isolates() else ["--trust"]
    run("-m", "course.autograder", starter, "--out", tmp_path / "grade.json", *flags)
    assert json.loads((tmp_path / "grade.json").read_text())["score"] == 100.0
    assert "0 errors" in run("-m", "course.submit", starter / "run", "--data", data)

    # The leaderboard: the row is right, computed from the files alone.
    run("-m", "course.leaderboard", "score", starter / "run" / "predictions", "--labels", tmp_path / "split" / "grader",
        "--team", "The <b>whole</b> way", "--out", tmp_path / "scores.json")
    run("-m", "course.leaderboard", "build", tmp_path / "scores.json", "--out", tmp_path / "page.html")
    values = []
    for task in TASKS:
        predicted = dict(line.replace(" ", "").split(",") for line in (
            starter / "run" / "predictions" / f"{task}-test-output.csv").read_text().splitlines()[1:])
        rows = [row for row in read_table(tmp_path / "split" / "grader" / f"{STEMS[task]}-dev-labels.csv",
                                          ["id", LABELS[task], "part"]) if row.text("part") == "public"]
        own = np.array([float(predicted[row.text("id")]) for row in rows])
        gold = np.array([float(row.text(LABELS[task])) for row in rows])
        if task == "sts":
            values.append(float(np.corrcoef(own, gold)[0, 1]) if own.std() > 0 else 0.0)
        else:
            values.append(float((own == gold).mean()))
    with opened((tmp_path / "page.html").as_uri()) as page:
        cells = page.locator("#board tbody tr").first.locator("td[data-value]")
        shown = [float(cells.nth(index).get_attribute("data-value")) for index in range(4)]
        assert page.locator("#board tbody th").first.inner_text() == "The <b>whole</b> way"
    assert shown == pytest.approx([overall_score(*values), *values], abs=1e-9)
