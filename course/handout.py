"""Build what students start from: the reference, with the bodies that they are to write taken out.

    python -m course.handout --out DIR [--check]

exercises.toml names the functions of each exercise. Their signatures and docstrings stay; their bodies become a line
that says which exercise it is. The engine stays behind, so that the code which trains is the student's own. Whole
functions are taken out, not marked regions: the lesson then has no marks that a reader must ignore, and a region
cannot be nested or left open. --check proves the result: it imports, every check says "not started", filling one
exercise makes its check pass and no other, and no statement of a solution stands anywhere in it.
"""
import ast
import dataclasses
import io
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from corpora.flags import Parser
from corpora.messages import status_of
from course import extension
from course.exercises import Course, Exercise, load_course

ROOT = Path(__file__).resolve().parent.parent
# What is copied, and nothing else. The engine, the aligner, tests, benchmarks and known mistakes are not.
FILES = ("minbert/*.py", "tasks/*.py", "training/*.py", "corpora/*.py", "report/*.py", "report/templates/*",
         "course/__init__.py", "course/adapters.py", "course/check.py", "course/exercises.py", "course/exercises.toml",
         "course/extension.py", "course/fingerprints.py", "course/probes.py", "course/starter.py",
         "course/sanity_check.py", "course/optimizer_test.py", "course/checks/*", "course/data/*",
         "recipes/default.toml", "recipes/yi/*.toml",
         "docs/lessons/*.md", "docs/extending.md", "docs/own-data.md", "docs/reports.md", "docs/images/lesson-*",
         "examples/*.py", "train_multitask.py", "requirements.txt", "LICENSE")
PLAIN = (("training/commandline.py", 'choices=ENGINES, default="engine"', 'choices=ENGINES, default="plain"'),)
SHORTEST = 12  # characters of a statement that counts as a solution's
README = """# Your BERT

Everything here runs but the parts that you write. Begin with docs/lessons/01-tokens.md. Where you stand:

    pip install -r requirements.txt
    python -m course.check          # all exercises; --next shows the next one, --watch checks at every change

Then your own code trains:

    python train_multitask.py --limit 200 --epochs 1
"""


def stub(exercise: Exercise) -> str:
    """Return the line that stands for a body."""
    return (f'raise NotImplementedError("exercise {exercise.number}, {exercise.name}. Read {exercise.lesson}, then '
            f'run: python -m course.check {exercise.name}")')


def function_node(tree: ast.Module, name: str, where: str) -> ast.FunctionDef:
    """Find a function, or a method, by its dotted name. Raise ValueError where there is not exactly one."""
    nodes: Sequence[ast.stmt] = tree.body
    found: ast.stmt | None = None
    for part in name.split("."):
        matches = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part]
        if len(matches) != 1:
            raise ValueError(f"{where}: has {len(matches)} things called '{part}' of '{name}'; expected one")
        found = matches[0]
        nodes = found.body
    if not isinstance(found, ast.FunctionDef):
        raise ValueError(f"{where}: '{name}' is no function")
    return found


def body_lines(node: ast.FunctionDef) -> tuple[int, int]:
    """Return the first and the last line of a function's body, its docstring left out."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if not body:
        raise ValueError(f"line {node.lineno}: '{node.name}' has no body to take out")
    return body[0].lineno, node.end_lineno or body[-1].lineno


def regions(course: Course, root: Path) -> dict[str, list[tuple[int, int, Exercise]]]:
    """Return the bodies to take out: file -> (first line, last line, exercise), in order.

    Raises:
        ValueError: a file or a function is missing, or is named twice, or one is inside another.
    """
    result: dict[str, list[tuple[int, int, Exercise]]] = {}
    seen: set[str] = set()
    for exercise in course.exercises.values():
        for solution in exercise.solutions:
            file, _, name = (part.strip() for part in solution.partition(":"))
            path = root / file
            if solution in seen:
                raise ValueError(f"exercises.toml: '{solution}' is named twice")
            seen.add(solution)
            if not path.is_file():
                raise ValueError(f"exercises.toml: '{solution}': no such file")
            node = function_node(ast.parse(path.read_text(encoding="utf-8")), name, file)
            result.setdefault(file, []).append((*body_lines(node), exercise))
    for file, bodies in result.items():
        bodies.sort(key=lambda body: body[0])
        for (_, end, _), (start, _, _) in itertools.pairwise(bodies):
            if start <= end:
                raise ValueError(f"{file}:{start}: a solution inside another one")
    return result


def without_bodies(text: str, bodies: Sequence[tuple[int, int, Exercise]], file: str) -> str:
    """Put stubs in the place of bodies. Raise ValueError if what is left does not parse."""
    lines = text.split("\n")
    for start, end, exercise in reversed(bodies):
        indent = lines[start - 1][:len(lines[start - 1]) - len(lines[start - 1].lstrip())]
        lines[start - 1:end] = [indent + stub(exercise)]
    result = "\n".join(lines)
    try:
        ast.parse(result)
    except SyntaxError as error:
        raise ValueError(f"{file}:{error.lineno}: does not parse without its solutions ({error.msg})") from None
    return result


def statements(text: str) -> Iterator[str]:
    """Yield the logical lines of Python text, without comments and white space. What is no Python yields nothing."""
    parts: list[str] = []
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NEWLINE:
                yield "".join(parts)
                parts = []
            elif token.type not in skipped:
                parts.append(re.sub(r"\s+", "", token.string))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    if parts:
        yield "".join(parts)


def secrets(course: Course, root: Path) -> set[str]:
    """Return the statements that stand in solutions only, without white space."""
    inside: set[str] = set()
    outside: set[str] = set()
    taken = regions(course, root)
    for pattern in FILES:
        for path in sorted(root.glob(pattern)):
            if path.suffix != ".py":
                continue
            file = path.relative_to(root).as_posix()
            text = path.read_text(encoding="utf-8")
            lines = text.split("\n")
            for start, end, _ in taken.get(file, []):
                body = lines[start - 1:end]
                indent = len(body[0]) - len(body[0].lstrip())
                inside |= set(statements("\n".join(line[indent:] for line in body)))
            outside |= set(statements(without_bodies(text, taken.get(file, []), file)))
    return {one for one in inside - outside if len(one) >= SHORTEST}


def leaks(folder: Path, hidden: set[str]) -> list[str]:
    """Return where statements of solutions stand in a folder's text files: "file: statement" each."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix in (".npz", ".npy", ".png", ".data"):
            continue
        text = re.sub(r"\s+", "", path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(folder).as_posix()}: {one[:60]}" for one in sorted(hidden) if one in text]
    return found


def build(out: Path, course: Course, root: Path = ROOT, scan: bool = True, example: bool = False):
    """Write the handout into a new folder. Nothing stays behind if it fails.

    Args:
        out: the folder; must not exist, or be empty.
        course: its exercises.
        root: of the reference.
        scan: look for statements of solutions in what was written.
        example: with the reference's own extension, in place of an empty report.

    Raises:
        ValueError: the folder is in use, a region makes no sense, or a solution stands in a file that is copied.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: is not empty; choose another --out")
    taken = regions(course, root)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".handout-", dir=out.parent))
    try:
        copied = set()
        for pattern in FILES:
            for path in sorted(root.glob(pattern)):
                if not path.is_file():
                    continue
                file = path.relative_to(root).as_posix()
                copied.add(file)
                place = temporary / file
                place.parent.mkdir(parents=True, exist_ok=True)
                if file in taken:
                    text = without_bodies(path.read_text(encoding="utf-8"), taken[file], file)
                    place.write_text(text, encoding="utf-8")
                else:
                    place.write_bytes(path.read_bytes())
        for file in taken:
            if file not in copied:
                raise ValueError(f"exercises.toml: {file} has solutions, and is not part of the handout")
        for file, before, after in PLAIN:
            text = (temporary / file).read_text(encoding="utf-8")
            if text.count(before) != 1:
                raise ValueError(f"{file}: {before!r} stands there {text.count(before)} times; expected once")
            (temporary / file).write_text(text.replace(before, after), encoding="utf-8")
        (temporary / "README.md").write_text(README, encoding="utf-8")
        report = temporary / extension.REPORT
        if example:
            shutil.copytree(root / report.parent.name, report.parent)
        else:
            report.parent.mkdir()
            report.write_text(extension.template(), encoding="utf-8")
        if scan and (found := leaks(temporary, secrets(course, root))):
            raise ValueError(f"{len(found)} statements of solutions stand in the handout: {'; '.join(found[:3])}")
        if out.exists():
            out.rmdir()
        temporary.chmod(0o755)
        temporary.replace(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def checked(folder: Path) -> dict[str, str]:
    """Run the handout's checks in a process of their own. Returns exercise -> status."""
    done = subprocess.run([sys.executable, "-m", "course.check", "--json"], cwd=folder, capture_output=True, text=True,
                          check=False, env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"})
    try:
        return {result["exercise"]: result["status"] for result in json.loads(done.stdout)}
    except ValueError:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise ValueError(f"{folder}: course.check does not run there: {reason}") from None


def prove(folder: Path, course: Course, root: Path = ROOT) -> list[str]:
    """Prove a handout. Returns what is wrong with it; nothing, if it is right.

    Args:
        folder: of the handout.
        course: its exercises.
        root: of the reference.
    """
    wrong = []
    names = list(course.exercises)
    statuses = checked(folder)
    wrong += [f"{name}: the check says '{statuses.get(name)}'; expected 'not started'" for name in names
              if statuses.get(name) != "not started"]
    for name in names:
        needed = {name}
        while more := {need for one in needed for need in course.exercises[one].needs} - needed:
            needed |= more
        with tempfile.TemporaryDirectory() as temporary:
            # The exercise alone, if it is built on no other: else with those.
            filled = Path(temporary) / "filled"
            exercises = {one: dataclasses.replace(exercise, solutions=[]) if one in needed else exercise
                         for one, exercise in course.exercises.items()}
            build(filled, Course(exercises, course.hints), root, scan=False, example=name == "extension")
            now = checked(filled)
        expected = {one: "passed" if one in needed else "not started" for one in names}
        wrong += [f"with {', '.join(sorted(needed))} filled in, {one} is '{now.get(one)}'; expected '{status}'"
                  for one, status in expected.items() if now.get(one) != status]
    with tempfile.TemporaryDirectory() as temporary:
        build(Path(temporary) / "again", course, root)
        first, second = (
            {path.relative_to(place).as_posix(): path.read_bytes() for path in sorted(place.rglob("*"))
             if path.is_file() and "__pycache__" not in path.parts} for place in (folder, Path(temporary) / "again"))
        if first != second:
            wrong.append("two builds differ")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, 1 if the proof fails, or 2 for an error."""
    parser = Parser(prog="python -m course.handout", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--check", action="store_true", help="prove it: takes a minute")
    options = parser.parse_args(arguments)
    wrong: list[str] = []

    def run():
        course = load_course()
        build(options.out, course)
        exercises = course.exercises
        stubs = sum(len(one.solutions) or 1 for one in exercises.values())  # the last one is an empty report
        if not options.check:
            print(f"{options.out}: {len(exercises)} exercises, {stubs} stubs")
            return
        wrong.extend(prove(options.out, course))
        if wrong:
            shutil.rmtree(options.out)
            return
        print(f"{options.out}: {len(exercises)} exercises, {stubs} stubs, imports ok, all {len(exercises)} checks fail "
              f"by name, each filled in alone passes, {len(secrets(course, ROOT))} statements of solutions, 0 leaked, "
              "two builds identical")

    status = status_of(run)
    for line in wrong:
        print(f"FAULT {line}", file=sys.stderr)
    return status or int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
