"""Pack the autograder as Gradescope wants it: setup.sh and run_autograder at the root of a zip.

    python -m course.autograder.build --out autograder.zip
"""
import sys
from collections.abc import Sequence
from pathlib import Path

from corpora.flags import Parser
from corpora.messages import status_of
from course.handout import FILES
from course.patched import ROOT
from course.submit import pack

# The grader's side: the handout's files, whole, and what makes and judges them.
MORE = ("course/handout.py", "course/mutations.py", "course/patched.py", "course/submit.py", "course/mistakes/*.py",
        "course/autograder/*.py")
SETUP = """#!/usr/bin/env bash
set -euo pipefail
apt-get update && apt-get install -y python3 python3-venv
python3 -m venv /autograder/venv
/autograder/venv/bin/pip install --quiet uv
VIRTUAL_ENV=/autograder/venv /autograder/venv/bin/uv pip install --quiet --torch-backend=cpu -r \\
    /autograder/source/requirements.txt
chmod -R o= /autograder/source
"""
RUN = """#!/usr/bin/env bash
cd /autograder/source
mkdir -p /autograder/results
/autograder/venv/bin/python -m course.autograder /autograder/submission --out /autograder/results/results.json
"""
CLASSROOM = """name: Autograding
on: [push]
permissions: {checks: write, actions: read, contents: read}
jobs:
  grade:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.11"}
      - run: pip install uv && uv pip install --system --torch-backend=cpu -r requirements.txt
"""


def classroom() -> str:
    """Return a workflow for GitHub Classroom: a step an exercise, with its points, and the reporter."""
    from course.exercises import load_course

    exercises = [one for one in load_course().exercises.values() if one.solutions]
    lines = [CLASSROOM.rstrip("\n")]
    for one in exercises:
        lines += [f"      - name: {one.title}", f"        id: {one.name.replace('_', '-')}",
                  "        uses: classroom-resources/autograding-command-grader@v1", "        with:",
                  f"          test-name: {one.title}", f"          command: python -m course.check {one.name}",
                  "          timeout: 2", f"          max-score: {one.points}"]
    names = [one.name.replace("_", "-") for one in exercises]
    lines += ["      - uses: classroom-resources/autograding-grading-reporter@v1", "        env:"]
    lines += [f"          {name.upper()}_RESULTS: \"${{{{steps.{name}.outputs.result}}}}\"" for name in names]
    lines += ["        with:", f"          runners: {','.join(names)}"]
    return "\n".join(lines) + "\n"


def members(root: Path = ROOT) -> dict[str, Path | str]:
    """Return the zip's members: name -> file or text."""
    files: dict[str, Path | str] = {path.relative_to(root).as_posix(): path for pattern in (*FILES, *MORE)
                                    for path in sorted(root.glob(pattern)) if path.is_file()}
    return {**files, "setup.sh": SETUP, "run_autograder": RUN, ".github/workflows/classroom.yml": classroom()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m course.autograder.build", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)

    def run():
        content = members()
        pack(options.out, content)
        print(f"{options.out}: {len(content)} files, {options.out.stat().st_size / 1e6:.1f} MB")

    return status_of(run)


if __name__ == "__main__":
    sys.exit(main())
