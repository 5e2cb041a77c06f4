"""The lessons: every block runs and prints what it says, names agree with exercises and stubs, figures are current."""
import ast
import doctest
import importlib.util
import re

import pytest
from conftest import ROOT

from course.exercises import load_course
from course.handout import function_node

LESSONS = ROOT / "docs" / "lessons"
COURSE = load_course()


@pytest.mark.parametrize("path", sorted(LESSONS.glob("*.md")), ids=lambda path: path.stem)
def test_every_block_runs_and_every_number_is_right(path):
    failed, tried = doctest.testfile(str(path), module_relative=False)
    assert not failed and (tried or path.stem in ("07-model",))


def test_there_is_a_lesson_for_each_exercise_and_one_before():
    names = [path.name for path in sorted(LESSONS.glob("*.md"))]
    assert names == ["00-setup.md", *(exercise.lesson.rsplit("/", 1)[-1] for exercise in COURSE.exercises.values())]


@pytest.mark.parametrize("exercise", COURSE.exercises.values(), ids=lambda exercise: exercise.name)
def test_a_lesson_names_its_functions_its_check_and_its_figure(exercise):
    text = (ROOT / exercise.lesson).read_text(encoding="utf-8")
    assert text.startswith(f"# {exercise.number}. ") and "## Try" in text
    assert f"../images/lesson-{exercise.number:02d}.svg" in text
    for solution in exercise.solutions:
        file, _, name = solution.partition(": ")
        function_node(ast.parse((ROOT / file).read_text("utf-8")), name, file)
        assert f"`{name}`" in text or f"`{name.rpartition('.')[2]}`" in text or file == "minbert/mpnet.py", name
        assert file in text
    if exercise.solutions:
        assert f"python -m course.check {exercise.name}" in text


def test_no_lesson_is_longer_than_a_sitting():
    for path in LESSONS.glob("*.md"):
        assert 150 < len(path.read_text("utf-8").split()) < 1500, path.name


@pytest.mark.parametrize("path", sorted(LESSONS.glob("*.md")), ids=lambda path: path.stem)
def test_what_a_lesson_points_to_is_there(path):
    text = path.read_text("utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("http") or (path.parent / link).exists(), link
    for file in re.findall(r"`((?:minbert|tasks|training|recipes|docs|examples)/[\w./-]+\.\w+)`", text):
        assert (ROOT / file).exists(), file


def parts(svg: str) -> str:
    """Return a drawing without its numbers, which may differ in their last digits between machines.

    matplotlib names a clip path by a hash of its numbers, so the names go too.
    """
    return re.sub(r"[-\d.]+", "", re.sub(r'(id="|url\(#|href="#)\w+', r"\1", svg))


def test_the_figures_are_those_that_the_script_draws():
    spec = importlib.util.spec_from_file_location("lesson_figures", LESSONS / "figures.py")
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    assert len(figures.FIGURES) == 15
    for number in range(15):
        stored = (ROOT / "docs" / "images" / f"lesson-{number:02d}.svg").read_text("utf-8")
        drawn = figures.draw(number)
        assert parts(drawn) == parts(stored), number
