"""Check the exercises, one by one or all in order.

    python -m course.check                  all exercises
    python -m course.check attention        one
    python -m course.check --next           the first that is not right yet
    python -m course.check --watch          again whenever a file changes
    python -m course.check --list           titles, points, lessons

A check runs your code on small inputs and compares its outputs with stored ones. If they equal the outputs of a known
mistake, it says which. It needs course/adapters.py alone to find your code.
"""
import argparse
import contextlib
import importlib
import json
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from corpora.flags import Parser
from corpora.messages import printable
from course import extension, fingerprints
from course.exercises import Course, Exercise, load_course
from course.fingerprints import SEED, Fingerprints, same
from course.probes import Arrays

PASSED, FAILED, MISSING, WAITING = "passed", "failed", "not started", "waiting"
SIGNS = {PASSED: "ok", FAILED: "x", MISSING: "-", WAITING: "."}


@dataclass
class Result:
    """Hold what a check found."""

    exercise: str
    number: int
    status: str
    points: int
    lines: list[str] = field(default_factory=list)  # what differs, and why it matters
    mistakes: list[str] = field(default_factory=list)  # ids of known mistakes that the outputs equal
    hint: list[str] = field(default_factory=list)  # what they are, and what to look at


def shape_of(array: np.ndarray) -> str:
    """Write a shape: [2, 3], or a number."""
    return f"[{', '.join(map(str, array.shape))}]" if array.ndim else "a number"


def difference(name: str, expected: np.ndarray, found: np.ndarray) -> str:
    """Say in a line how an output differs."""
    if expected.shape != found.shape:
        note = ""
        if sorted(expected.shape) == sorted(found.shape):
            note = " (the same sizes in another order: is an axis transposed?)"
        return f"{name}: has the shape {shape_of(found)}; expected {shape_of(expected)}{note}"
    if expected.dtype.kind in "USb" or found.dtype.kind in "USb":
        wrong = np.argwhere(np.atleast_1d(expected != found))[0]
        place = tuple(wrong)
        return (f"{name}: is {np.atleast_1d(found)[place]}{f' at {[int(i) for i in wrong]}' if expected.ndim else ''}; "
                f"expected {np.atleast_1d(expected)[place]}")
    if expected.dtype.kind in "iu" and found.dtype.kind in "iu":
        return f"{name}: is {found.tolist()}; expected {expected.tolist()}"
    found = found.astype(float)
    if not np.isfinite(found).all():
        return f"{name}: has {int((~np.isfinite(found)).sum())} numbers that are NaN or infinite"
    gap = np.abs(found - expected)
    place = np.unravel_index(int(gap.argmax()), gap.shape)
    where = f" at {[int(index) for index in place]}" if gap.ndim else ""
    return (f"{name}: differs by at most {gap.max():.3g}{where} (found {found[place]:.4g}, expected "
            f"{expected[place]:.4g}); the shape {shape_of(expected)} is right")


def judge(exercise: Exercise, stored: Fingerprints, found: Arrays, messages: dict[str, dict[str, Any]]) -> Result:
    """Compare outputs with the stored ones.

    Args:
        exercise: what was tried.
        stored: right outputs, and those of known mistakes.
        found: the student's outputs.
        messages: of mistakes and forms, by id.
    """
    result = Result(exercise.name, exercise.number, PASSED, exercise.points)
    form = stored.right(found)
    if form == "":
        return result
    if form is not None:
        result.lines = [f"right, in another form: {messages[form]['title']}"]
        return result
    result.status = FAILED
    differ = [name for name in stored.reference if not same(stored.reference[name], found[name])]
    result.lines = [difference(name, stored.reference[name], found[name]) for name in differ[:3]]
    if len(differ) > 3:
        result.lines.append(f"and {len(differ) - 3} more outputs differ")
    right = [name for name in stored.reference if name not in differ]
    if right:
        result.lines.append(f"right are: {', '.join(right[:6])}{', ...' if len(right) > 6 else ''}")
    if exercise.equation:
        result.lines.append(f"the equation: {exercise.equation}")
    result.lines.append(f"why it matters: {exercise.why}")
    result.mistakes = stored.named(found)
    if result.mistakes:
        result.hint = [f"your output EQUALS {messages[name]['title']} (mistake {name}); look at this: "
                       f"{messages[name]['cure']}" for name in result.mistakes]
    else:
        result.hint = [f"none of {len(stored.mistakes)} known mistakes gives this output; perhaps there are two"]
        near = partial_matches(stored, found, differ)
        result.hint += [f"{', '.join(names)}: as with {messages[one]['title']} (mistake {one})"
                        for one, names in near.items()]
    return result


def partial_matches(stored: Fingerprints, found: Arrays, differ: Sequence[str]) -> dict[str, list[str]]:
    """Return mistakes that explain some of the outputs that differ, those that explain most first: id -> outputs."""
    matches = {}
    for name, outputs in stored.mistakes.items():
        explained = [output for output in differ if same(outputs[output], found[output])]
        if explained:
            matches[name] = explained
    return dict(sorted(matches.items(), key=lambda item: -len(item[1]))[:2])


def where(error: BaseException) -> str:
    """Return the file and line of the student's code in which an error arose."""
    others = ("site-packages", "lib/python", "/course/")
    own = [frame for frame in traceback.extract_tb(error.__traceback__)
           if not any(part in Path(frame.filename).as_posix() for part in others)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}: " if own else ""


def run_exercise(exercise: Exercise, adapters: ModuleType, stored: Fingerprints, messages: dict[str, dict[str, Any]]
                 ) -> Result:
    """Run an exercise's probes on the student's code, and judge what comes out. Errors of the code are a result too.

    Args:
        exercise: to run.
        adapters: over the student's code.
        stored: its right outputs, and those of known mistakes.
        messages: of mistakes and forms.
    """
    from course.probes import PROBES

    try:
        found = PROBES[exercise.name](adapters, SEED)
    except NotImplementedError as error:
        return Result(exercise.name, exercise.number, MISSING, exercise.points,
                      [where(error) + str(error).partition(". Read ")[0]])
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return Result(exercise.name, exercise.number, FAILED, exercise.points, [
            f"{where(error)}{type(error).__name__}: {first}", f"the equation: {exercise.equation}"])
    return judge(exercise, stored, found, messages)


def run_extension(exercise: Exercise) -> Result:
    """Check the last exercise: files, not code."""
    lacking = extension.check(Path.cwd())
    if lacking is None:
        return Result(exercise.name, exercise.number, MISSING, exercise.points, [f"write {exercise.file}"])
    if lacking:
        lacking = [*lacking, f"why it matters: {exercise.why}"]
    return Result(exercise.name, exercise.number, FAILED if lacking else PASSED, exercise.points, lacking)


def run_all(course: Course, names: Sequence[str]) -> list[Result]:
    """Run exercises in order. One whose parts are not right yet waits: its output could only be wrong.

    course: all exercises. names: of those to run.
    """
    try:
        adapters = importlib.import_module("course.adapters")
    except Exception as error:
        return [Result(name, course.exercises[name].number, FAILED, course.exercises[name].points,
                       [f"course/adapters.py cannot be imported: {where(error)}{type(error).__name__}: {error}"])
                for name in names]
    messages = fingerprints.load_messages()
    results: dict[str, Result] = {}

    def result_of(name: str) -> Result:
        """Run an exercise, and those that it needs, once."""
        if name not in results:
            exercise = course.exercises[name]
            result = (run_exercise(exercise, adapters, fingerprints.load(name), messages) if exercise.solutions
                      else run_extension(exercise))
            waits = [other for other in exercise.needs if result_of(other).status != PASSED]
            # What is wrong may be wrong below. A stub of its own is this exercise's, whatever else is missing.
            if waits and result.status != PASSED and f"exercise {exercise.number}, " not in " ".join(result.lines):
                result = Result(name, exercise.number, WAITING, exercise.points,
                                [f"it is built on {', '.join(waits)}; finish that first"])
            results[name] = result
        return results[name]

    return [result_of(name) for name in names]


def as_text(result: Result, exercise: Exercise, hints: int, asked: bool) -> str:
    """Write a result for a terminal.

    Args:
        result: of the check.
        exercise: what was checked.
        hints: how much the course lets a check say.
        asked: the student asked for the hint.
    """
    lines = [f"{result.number:>2}  {exercise.name:<11} {SIGNS[result.status]:<2}  {exercise.title}"
             + (f": {result.status}" if result.status != PASSED else "")]
    lines += [f"                    {line}" for line in result.lines]
    if result.hint and (hints == 2 or (hints == 1 and asked)):
        lines += [f"                    {line}" for line in result.hint]
    elif result.hint and hints == 1:
        lines.append("                    --hint says more")
    if result.status in (FAILED, MISSING):
        lines.append(f"                    read {exercise.lesson}, then run: python -m course.check {exercise.name}")
    return "\n".join(map(printable, lines))


def _times() -> dict[Path, float]:
    times = {}
    for room in ("minbert", "tasks", "training", "course", "extension"):
        for path in Path(room).rglob("*.*"):
            if path.suffix in (".py", ".md", ".json"):
                with contextlib.suppress(OSError):  # an editor replaces a file by a new one
                    times[path] = path.stat().st_mtime
    return times


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0 if everything that was run is right, 1 if not, 2 for wrong arguments."""
    course = load_course()
    parser = Parser(prog="python -m course.check", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercises", nargs="*", metavar="EXERCISE", help=f"of {', '.join(course.exercises)}")
    parser.add_argument("--next", action="store_true", help="only the first that is not right")
    parser.add_argument("--hint", action="store_true", help="name the known mistake, if your course allows it")
    parser.add_argument("--watch", action="store_true", help="check again whenever a file changes")
    parser.add_argument("--list", action="store_true", help="list the exercises and stop")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.exercises if name not in course.exercises]
    if unknown:
        parser.error(f"unknown exercise '{unknown[0]}'; expected some of {', '.join(course.exercises)}")
    if options.list:
        for exercise in course.exercises.values():
            print(f"{exercise.number:>2}  {exercise.name:<11} {exercise.points:>3} points  {exercise.minutes:>3} min  "
                  f"{exercise.title} ({exercise.file}; {exercise.lesson})")
        return 0
    if options.watch:
        return watch([argument for argument in sys.argv[1:] if argument != "--watch"])
    import torch  # late: --help and --list are quick

    torch.set_num_threads(1)
    results = run_all(course, options.exercises or list(course.exercises))
    if options.next:
        results = next(([result] for result in results if result.status != PASSED), results[-1:])
    if options.json:
        print(json.dumps([{key: value for key, value in asdict(result).items() if key != "hint" or course.hints == 2}
                          for result in results], indent=1))
    else:
        for result in results:
            print(as_text(result, course.exercises[result.exercise], course.hints, options.hint))
        passed = [result for result in results if result.status == PASSED]
        print(f"{len(passed)} of {len(results)} right, {sum(result.points for result in passed)} of "
              f"{sum(result.points for result in results)} points")
    return int(any(result.status != PASSED for result in results))


def watch(arguments: Sequence[str]) -> int:
    """Run the command anew, as a process of its own, whenever a file of the rooms changes. Ctrl-C ends it."""
    import subprocess

    before: dict[Path, float] = {}
    try:
        while True:
            now = _times()
            if now != before:
                before = now
                subprocess.run([sys.executable, "-m", "course.check", *arguments], check=False)
            time.sleep(0.5)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
