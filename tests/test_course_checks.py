"""The course's checks: every known mistake is named, every right variant passes, and the handout holds no solution."""
import dataclasses
import functools
import io
import json
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT

from course import fingerprints, handout, mutations
from course.check import difference, judge, main
from course.exercises import load_course
from course.fingerprints import Fingerprints
from course.patched import adapters_of, changed_texts
from course.probes import PROBES

COURSE = load_course()


def test_there_are_enough_mistakes_and_variants():
    assert len(mutations.MISTAKES) >= 60 and len(mutations.VARIANTS) >= 12
    identifiers = [one.id for one in [*mutations.MISTAKES, *mutations.VARIANTS]]
    assert len(set(identifiers)) == len(identifiers)
    assert {one.exercise for one in mutations.MISTAKES} == set(PROBES) == {
        name for name, exercise in COURSE.exercises.items() if exercise.solutions}
    assert len(COURSE.exercises) == 14 and sum(one.points for one in COURSE.exercises.values()) == 100


@pytest.mark.parametrize("exercise", list(PROBES))
def test_every_mistake_is_caught_and_named_and_the_stored_outputs_are_these(exercise, tmp_path):
    found = mutations.fingerprints_of(exercise)
    assert mutations.faults(exercise, found, found.mistakes) == []
    stored = fingerprints.load(exercise)
    assert fingerprints.same_outputs(stored.reference, found.reference)
    assert stored.mistakes.keys() == found.mistakes.keys() and stored.forms.keys() == found.forms.keys()
    for name, outputs in found.mistakes.items():
        assert stored.named(outputs) == [name]
    messages = fingerprints.load_messages()
    for name, outputs in found.mistakes.items():
        result = judge(COURSE.exercises[exercise], stored, outputs, messages)
        assert result.mistakes == [name] and messages[name]["title"] in result.hint[0]
    fingerprints.save(exercise, stored, tmp_path)
    first = (tmp_path / f"{exercise}.npz").read_bytes()
    fingerprints.save(exercise, stored, tmp_path)
    assert (tmp_path / f"{exercise}.npz").read_bytes() == first


@pytest.mark.slow
@pytest.mark.parametrize("exercise", list(PROBES))
def test_the_names_hold_for_other_seeds_four_threads_and_in_float32(exercise):
    for seed in range(4):  # python -m course.mutations --seeds 10 --float32 tries more
        torch.set_num_threads(1 if seed % 2 else 4)
        found = mutations.fingerprints_of(exercise, seed)
        assert mutations.faults(exercise, found, found.mistakes, seed) == []
        if seed < 2:
            assert mutations.faults_in_float32(exercise, found, seed) == []


def test_the_table_in_docs_is_the_one_that_the_program_writes():
    found = {exercise: fingerprints.load(exercise) for exercise in PROBES}
    assert mutations.table(found) == (ROOT / "docs" / "mutations.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["A13", "A14", "N6", "N7", "N8", "W6", "W19", "W21", "E5", "H7"])
def test_what_the_courses_own_tests_miss_is_among_them(name):
    """Dropout left out or misplaced, a shared step number, correct_bias ignored, a state that does not resume."""
    assert name in [one.id for one in mutations.MISTAKES]


def test_the_loaded_modules_are_put_back(tmp_path):
    import minbert.attention

    before = minbert.attention
    with adapters_of(changes=[("minbert/attention.py", " / math.sqrt(query.shape[-1])", "")]) as adapters:
        assert adapters.attention_module is not before
        assert sys.modules["minbert.attention"] is not before
    assert sys.modules["minbert.attention"] is before
    with pytest.raises(ValueError, match="stands there 0 times; expected once"):
        changed_texts(ROOT, [("minbert/attention.py", "no such text", "")])


# ---- what a check says -----------------------------------------------------------------------------------------------


def test_the_untouched_reference_passes_in_a_process_of_its_own():
    done = subprocess.run([sys.executable, "-m", "course.check", "--json"], cwd=ROOT, capture_output=True, text=True,
                          check=True)
    results = json.loads(done.stdout)
    assert [result["status"] for result in results] == ["passed"] * 14


def test_the_reference_in_one_file_with_other_names_passes_through_edited_adapters(tmp_path):
    """What code computes is checked, not how it is laid out: there is not even a room minbert as ours."""
    folder = tmp_path / "mine"
    handout.build(folder, COURSE, scan=False)
    shutil.rmtree(folder / "minbert")
    shutil.copytree(ROOT / "tests" / "relaid", folder, dirs_exist_ok=True)
    done = subprocess.run([sys.executable, "-m", "course.check", "--json"], cwd=folder, capture_output=True, text=True,
                          check=False)
    results = {result["exercise"]: result for result in json.loads(done.stdout)}
    assert results.pop("extension")["status"] == "not started"
    assert {name: result["lines"] for name, result in results.items() if result["status"] != "passed"} == {}
    assert len(results) == 13


def test_watch_checks_again_when_a_file_changes_and_ends_with_control_c(tmp_path):
    folder = tmp_path / "mine"
    handout.build(folder, COURSE, scan=False)
    shutil.copy(ROOT / "minbert" / "attention.py", folder / "minbert" / "attention.py")
    right = (folder / "minbert" / "attention.py").read_text()
    # A shell that starts tests in the background lets them ignore Ctrl-C, and they hand that on.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen([sys.executable, "-u", "-m", "course.check", "attention", "--watch"], cwd=folder,
                          stdout=subprocess.PIPE, text=True, preexec_fn=heed) as process:
        said = []
        try:
            for text in (right.replace(" / math.sqrt(query.shape[-1])", ""), right):
                said.append(_until(process, "points"))
                (folder / "minbert" / "attention.py").write_text(text)
            said.append(_until(process, "points"))
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
    assert ["1 of 1 right" in one for one in said] == [True, False, True] and "mistake A" in said[1]
    assert process.returncode == 0 and "Traceback" not in rest


def _until(process, word):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return "".join(lines)
    raise AssertionError("".join(lines))


@pytest.mark.parametrize(("expected", "found", "message"), [
    (np.zeros((2, 3)), np.zeros((3, 2)), r"the shape \[3, 2\]; expected \[2, 3\] \(the same sizes in another order"),
    (np.zeros((2, 3)), np.zeros((2, 4)), r"has the shape \[2, 4\]; expected \[2, 3\]$"),
    (np.zeros((2, 3)), np.array([[0, 0, 0], [0, 0.5, 0]]), r"at most 0.5 at \[1, 1\] \(found 0.5, expected 0"),
    (np.zeros(2), np.array([np.nan, 0]), "has 1 numbers that are NaN or infinite"),
    (np.array(1.5), np.array(2.0), r"differs by at most 0.5 \(found 2, expected 1.5\)"),
    (np.array([1, 2]), np.array([1, 3]), r"is \[1, 3\]; expected \[1, 2\]"),
    (np.array(["a", "b"]), np.array(["a", "c"]), r"is c at \[1\]; expected b"),
    (np.array(True), np.array(False), "is False; expected True")])
def test_a_difference_is_told_in_a_line(expected, found, message):
    line = difference("output", expected, found)
    assert line.startswith("output: ") and re.search(message, line)


def test_an_unknown_mistake_says_so_and_names_what_explains_a_part():
    exercise = COURSE.exercises["adamw"]
    stored = fingerprints.load("adamw")
    outputs = dict(stored.mistakes["W19"])  # correct_bias=False ignored: one output is wrong
    other = next(name for name in outputs if "after one step" in name)
    outputs[other] = outputs[other] + 0.1
    result = judge(exercise, stored, outputs, fingerprints.load_messages())
    assert result.status == "failed" and not result.mistakes
    assert "none of 23 known mistakes" in result.hint[0] and any("(mistake W19)" in line for line in result.hint)


def test_another_right_form_passes_with_a_note():
    stored = fingerprints.load("adamw")
    result = judge(COURSE.exercises["adamw"], stored, stored.forms["W-efficient"], fingerprints.load_messages())
    assert result.status == "passed" and "in another form" in result.lines[0]


@pytest.mark.parametrize(("arguments", "status", "text"), [
    (["--list"], 0, "14  extension"), (["attention"], 0, "1 of 1 right, 10 of 10 points"),
    (["--next"], 0, "14  extension   ok")])
def test_the_command_line(capsys, monkeypatch, arguments, status, text):
    monkeypatch.chdir(ROOT)
    assert main(arguments) == status
    assert text in capsys.readouterr().out


def test_an_exercise_that_is_not_there_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["atention"])
    assert caught.value.code == 2 and "unknown exercise 'atention'" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "message"), [
    ("hints = 3\n", "hints is 3; expected 0, 1 or 2"), ("[a]\ntitle = 'x'\n", r"\[a\] lacks"),
    ("[a]\ntitel = 'x'\n", "unknown key 'titel'"), ("a = 1\n", "expected a table"), ("[", "x.toml"),
    ("[a]\nneeds = ['b']\ntitle = ''\nsolutions = []\npoints = 1\nminutes = 1\nwhy = ''\nequation = ''\n",
     "needs 'b', which does not come before it")])
def test_a_wrong_list_of_exercises_is_one_error(tmp_path, text, message):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_course(tmp_path / "x.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", [b"", b"PK", "pickle"])
def test_damaged_or_hostile_outputs_are_one_error(tmp_path, damage):
    if damage == "pickle":
        buffer = io.BytesIO()
        np.savez(buffer, **{"reference/output": np.array([print], dtype=object)})
        damage = buffer.getvalue()
    (tmp_path / "attention.npz").write_bytes(damage)
    with pytest.raises(ValueError, match=r"attention\.npz: cannot be read"):
        fingerprints.load("attention", tmp_path)


# ---- the handout -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def starter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("handout") / "starter"
    handout.build(folder, COURSE)
    return folder


def test_every_check_of_the_handout_says_not_started(starter):
    assert handout.checked(starter) == dict.fromkeys(COURSE.exercises, "not started")


def test_nothing_of_the_instructors_side_is_in_it(starter):
    files = [path.relative_to(starter).as_posix() for path in starter.rglob("*") if path.is_file()]
    assert not [file for file in files if file.startswith(("engine", "tests", "alignment", "course/mistakes", ".git"))]
    assert "course/mutations.py" not in files and "course/handout.py" not in files
    assert not handout.leaks(starter, handout.secrets(COURSE, ROOT))
    text = (starter / "minbert" / "attention.py").read_text()
    assert "softmax(Q K^T / sqrt(D)) V (eq. 1)" in text and "masked_fill" not in text  # the docstring stays
    assert 'default="plain"' in (starter / "training" / "commandline.py").read_text()


@pytest.mark.parametrize("place", ["docs/extending.md", "recipes/default.toml"])
def test_a_solution_in_a_copied_file_stops_the_build(tmp_path, place):
    """Also where spaces and line breaks differ."""
    root = tmp_path / "root"
    for pattern in handout.FILES:
        for path in ROOT.glob(pattern):
            if path.is_file():
                (root / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, root / path.relative_to(ROOT))
    with open(root / place, "a", encoding="utf-8") as file:
        file.write("\n# scores = query @ key.transpose( -2, -1 ) / math.sqrt(query.shape[-1])\n")
    with pytest.raises(ValueError, match=f"statements of solutions stand in the handout: {place}"):
        handout.build(tmp_path / "out", COURSE, root)
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".handout-*"))


@pytest.mark.parametrize(("solution", "message"), [
    ("minbert/attention.py: atention", "has 0 things called 'atention'"),
    ("minbert/attentoin.py: attention", "no such file"), ("minbert/bert.py: Layer", "'Layer' is no function"),
    ("minbert/attention.py: attention", "is named twice"), ("minbert/bert.py: Layer.forwards", "called 'forwards'"),
    ("setup.py: x", "no such file"), ("engine/bert.py: linear", "has solutions, and is not part of the handout")])
def test_a_region_that_makes_no_sense_stops_the_build(tmp_path, solution, message):
    exercises = dict(COURSE.exercises)
    exercises["heads"] = dataclasses.replace(exercises["heads"], solutions=[solution])
    course = dataclasses.replace(COURSE, exercises=exercises)
    with pytest.raises(ValueError, match=message):
        handout.build(tmp_path / "out", course)
    assert not list(tmp_path.iterdir())


def test_an_out_that_is_in_use_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("x")
    assert handout.main(["--out", str(tmp_path)]) == 2
    assert "is not empty; choose another --out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_solution_pasted_in_passes_and_a_mistake_in_it_is_named(starter, tmp_path):
    mine = tmp_path / "mine"
    shutil.copytree(starter, mine)
    shutil.copy(ROOT / "minbert" / "adamw.py", mine / "minbert" / "adamw.py")
    statuses = handout.checked(mine)
    assert statuses.pop("adamw") == "passed" and set(statuses.values()) == {"not started"}
    text = (mine / "minbert" / "adamw.py").read_text()
    (mine / "minbert" / "adamw.py").write_text(text.replace("/ (root_of_v_hat + eps)", "/ root_of_v_hat"))
    done = subprocess.run([sys.executable, "-m", "course.check", "adamw"], cwd=mine, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1 and "your output EQUALS no eps (mistake W8)" in done.stdout
    (mine / "minbert" / "adamw.py").write_text(text.replace("(gradient, alpha=1 - beta1)", "(gradent)"))
    done = subprocess.run([sys.executable, "-m", "course.check", "adamw"], cwd=mine, capture_output=True, text=True,
                          check=False)
    assert "adamw.py:" in done.stdout and "NameError" in done.stdout and "Traceback" not in done.stdout


@pytest.mark.slow
def test_the_handout_is_proven(tmp_path, capsys):
    assert handout.main(["--out", str(tmp_path / "out"), "--check"]) == 0
    assert "14 exercises, 33 stubs, imports ok, all 14 checks fail by name" in capsys.readouterr().out


def test_fingerprints_know_nan_from_right():
    stored = Fingerprints({"output": np.zeros(2)}, {}, {"X1": {"output": np.array([np.nan, 0])}})
    assert stored.right({"output": np.array([np.nan, 0.0])}) is None
    assert stored.right({}) is None and stored.right({"output": np.zeros(3)}) is None
