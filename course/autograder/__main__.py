"""Grade a submission and write the results as Gradescope, GitHub Classroom or check50 read them.

    python -m course.autograder SUBMISSION --out results.json [--format gradescope|check50] [--trust]

SUBMISSION is a folder or a zip with the student's minbert/, tasks/ and training/. Each run draws new inputs. The exit
status is 0, 2 for a submission that cannot be read, or 3 for a fault of the grader itself, which costs nobody a point.
"""
import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corpora.files import write_json
from corpora.flags import Parser
from corpora.messages import error_line, printable
from course import mutations
from course.autograder import sandbox, submission
from course.check import judge
from course.exercises import Course, Exercise, load_course
from course.fingerprints import Fingerprints, load_messages
from course.patched import ROOT
from course.probes import PROBES, Arrays

SHOWN = 4096  # bytes of a test's output
LARGEST_ANSWER = 16 << 20  # bytes


@dataclass
class Grade:
    """Hold an exercise's grade."""

    exercise: Exercise
    score: int = 0
    output: str = "did not finish"
    passed: bool = False
    fault: bool = False  # of the grader
    mistakes: list[str] = field(default_factory=list)


def read_answer(path: Path) -> Arrays | None:
    """Read a worker's arrays. Returns None for what is no such file: too large, damaged, or with pickles in it."""
    try:
        if path.is_symlink() or path.stat().st_size > LARGEST_ANSWER:
            return None
        with np.load(path, allow_pickle=False) as stored:
            if sum(stored.zip.getinfo(f"{name}.npy").file_size for name in stored.files) > LARGEST_ANSWER:
                return None
            return {name: stored[name] for name in stored.files}
    except Exception:  # whatever a hostile file makes numpy raise
        return None


def grade_one(exercise: Exercise, expected: Fingerprints | None, found: Arrays | None, said: str, hints: int, seed: int
              ) -> Grade:
    """Grade one exercise.

    Args:
        exercise: what is graded.
        expected: right outputs for this run's inputs; None if the grader could not compute them.
        found: the student's outputs, if there are some.
        said: what went wrong, if not.
        hints: how much the course lets a check say.
        seed: of this run's inputs.
    """
    if expected is None:
        return Grade(exercise, exercise.points, "grader fault: the reference did not run; this exercise is not counted "
                                                "against you", True, True)
    if found is None or found.keys() != expected.reference.keys():
        return Grade(exercise, output=said or "the answer is not what the probes return")
    result = judge(exercise, expected, found, load_messages())
    if result.status == "passed":
        return Grade(exercise, exercise.points, "\n".join(result.lines) or "right", True)
    if hints == 2:
        expected.mistakes = {one.id: mutations.outputs_of(one, exercise.name, seed)
                             for one in mutations.MISTAKES if one.exercise == exercise.name}
        result = judge(exercise, expected, found, load_messages())
    return Grade(exercise, output="\n".join([*result.lines, *(result.hint if hints == 2 else [])]),
                 mistakes=result.mistakes)


def expect(exercise: str, seed: int) -> Fingerprints | None:
    """Compute the right outputs for a run's inputs. Returns None if the reference fails: the grader's fault."""
    try:
        return Fingerprints(mutations.outputs_of(None, exercise, seed), {
            one.id: mutations.outputs_of(one, exercise, seed) for one in mutations.VARIANTS
            if one.exercise == exercise and one.form})
    except Exception as error:
        print(f"grader fault in {exercise}: {error_line(error)}", file=sys.stderr)
        return None


def as_gradescope(grades: Sequence[Grade], seconds: float) -> dict[str, Any]:
    """Return Gradescope's results.json."""
    return {"score": float(sum(grade.score for grade in grades)), "execution_time": round(seconds),
            "visibility": "visible", "stdout_visibility": "hidden", "output_format": "text",
            "output": f"{sum(grade.passed for grade in grades)} of {len(grades)} exercises are right",
            "tests": [{"name": f"{grade.exercise.number}. {grade.exercise.title}", "number": str(grade.exercise.number),
                       "score": float(grade.score), "max_score": float(grade.exercise.points),
                       "status": "passed" if grade.passed else "failed", "output_format": "text",
                       "output": "\n".join(map(printable, grade.output.encode()[:SHOWN].decode(errors="ignore")
                                               .split("\n"))),
                       "visibility": "visible", "tags": grade.mistakes} for grade in grades]}


def as_check50(grades: Sequence[Grade], seconds: float) -> dict[str, Any]:
    """Return JSON in the form of check50."""
    return {"slug": "minbert", "version": "1", "results": [
        {"name": grade.exercise.name, "description": grade.exercise.title, "passed": grade.passed,
         "log": [printable(line) for line in grade.output.split("\n")], "data": {},
         "cause": None if grade.passed else {"rationale": printable(grade.output.split("\n")[0]),
                                             "help": f"read {grade.exercise.lesson}"},
         "dependency": grade.exercise.needs[0] if grade.exercise.needs else None} for grade in grades]}


FORMATS = {"gradescope": as_gradescope, "check50": as_check50}


def grade(path: Path, course: Course, out: Path, form: str = "gradescope", trust: bool = False,
          exercises: Sequence[str] = tuple(PROBES), root: Path = ROOT) -> list[Grade]:
    """Grade a submission, and write the results after each exercise: first of all that none did finish.

    Args:
        path: of the submission, a folder or a zip.
        course: its exercises.
        out: of the results.
        form: of FORMATS.
        trust: run the code as this user where there is no second one.
        exercises: to grade.
        root: of the reference.

    Raises:
        ValueError: the submission cannot be read.
    """
    before = time.monotonic()
    grades = [Grade(course.exercises[name]) for name in exercises]

    def write():
        """Write what is known so far."""
        write_json(out, FORMATS[form](grades, time.monotonic() - before))

    write()
    seed = secrets.randbelow(1 << 30)
    expected = {name: expect(name, seed) for name in exercises}
    with tempfile.TemporaryDirectory() as temporary:
        submission.assemble(path, Path(temporary), course, root)
        code = Path(temporary) / "code"
        banned = submission.shortcuts(code, course)
        with sandbox.answers(code, ROOT / "course" / "probes.py", exercises, seed, trust) as given:
            for index, name in enumerate(exercises):
                error = given.folder / f"{name}.error"
                said = given.reasons.get(name, "")
                if not said and error.is_file() and not error.is_symlink():
                    with open(error, encoding="utf-8", errors="backslashreplace") as file:
                        said = file.read(2000)
                if banned[name]:
                    grades[index] = Grade(course.exercises[name], output="not allowed in this exercise: "
                                                                         + "; ".join(banned[name]))
                else:
                    grades[index] = grade_one(course.exercises[name], expected[name],
                                              read_answer(given.folder / f"{name}.npz"), said, course.hints, seed)
                write()
    return grades


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m course.autograder", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("submission", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="the results' file")
    parser.add_argument("--format", choices=FORMATS, default="gradescope")
    parser.add_argument("--trust", action="store_true", help="not as root: run the code as this user")
    options = parser.parse_args(arguments)
    try:
        course = load_course()
        grades = grade(options.submission, course, options.out, options.format, options.trust)
    except (ValueError, OSError) as error:
        print(error_line(error), file=sys.stderr)
        if options.format == "gradescope":
            write_json(options.out, {"score": 0.0, "output": error_line(error), "output_format": "text",
                                     "visibility": "visible", "tests": []})
        return 2
    for one in grades:
        print(f"{one.exercise.number:>2} {one.exercise.name:<11} {one.score:>3} of {one.exercise.points:>3}  "
              f"{printable(one.output.split(chr(10))[0])}")
    print(f"{sum(one.score for one in grades)} of {sum(one.exercise.points for one in grades)} points; {options.out}")
    return 3 if any(one.fault for one in grades) else 0


if __name__ == "__main__":
    sys.exit(main())
