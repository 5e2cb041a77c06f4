"""A submission -> a folder of code: unpacked with care, laid over the starter, searched for shortcuts."""
import ast
import shutil
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path

from course.exercises import Course
from course.handout import build

ROOMS = ("minbert", "tasks", "training")  # what students write in
LARGEST = 20 << 20  # bytes of all files together
MOST = 2000  # files
# What torch has ready, and the exercises that it would do.
BANNED = {
    **dict.fromkeys(("scaled_dot_product_attention", "multi_head_attention_forward", "MultiheadAttention"),
                    ("attention", "heads")),
    **dict.fromkeys(("TransformerEncoder", "TransformerEncoderLayer", "Transformer"), ("heads", "layer", "model")),
}
BANNED_MODULES = {"transformers", "sentence_transformers"}  # in no exercise


def unpack(submission: Path, folder: Path):
    """Copy a submission, a folder or a zip, into a new folder. Links, absolute names and too much data are refused.

    Raises:
        ValueError: in one line, for what is refused.
    """
    folder.mkdir(parents=True)
    size = 0
    if submission.is_dir():
        for number, path in enumerate(sorted(submission.rglob("*"))):
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise ValueError(f"{path.relative_to(submission)}: is a link or no plain file")
            if path.is_file() and path.suffix == ".py":
                size += path.stat().st_size
                _require_small(size, number)
                target = folder / path.relative_to(submission)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        return
    try:
        with zipfile.ZipFile(submission) as archive:
            for number, member in enumerate(archive.infolist()):
                name = Path(member.filename)
                if name.is_absolute() or ".." in name.parts or "\\" in member.filename:
                    raise ValueError(f"{member.filename[:60]!r}: leads out of the submission")
                if stat.S_ISLNK(member.external_attr >> 16):
                    raise ValueError(f"{member.filename[:60]!r}: is a link")
                size += member.file_size
                _require_small(size, number)
                if member.is_dir() or name.suffix != ".py":
                    continue
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source:
                    target.write_bytes(source.read(LARGEST + 1))  # a false size in the header helps nobody
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ValueError(f"{submission.name}: cannot be unpacked ({str(error).splitlines()[0]})") from None


def _require_small(size: int, number: int):
    if size > LARGEST or number >= MOST:
        raise ValueError(f"the submission is larger than {LARGEST >> 20} MB, or has more than {MOST} files")


def top_of(folder: Path) -> Path:
    """Return the folder that holds the rooms: the one given, or the only one in it."""
    if any((folder / room).is_dir() for room in ROOMS):
        return folder
    inside = [path for path in folder.iterdir() if path.is_dir() and any((path / room).is_dir() for room in ROOMS)]
    if len(inside) != 1:
        raise ValueError(f"the submission has no folder {', '.join(ROOMS)}; hand in the project's folder")
    return inside[0]


def assemble(submission: Path, place: Path, course: Course, root: Path):
    """Make the folder that is graded: the starter, with the student's files of the rooms over it.

    Files elsewhere are left out: a torch.py or a sitecustomize.py beside the rooms is never imported.

    Args:
        submission: a folder or a zip.
        place: a new folder; code/ in it is the result.
        course: its exercises, to build the starter.
        root: of the reference.
    """
    build(place / "code", course, root, scan=False)
    unpack(submission, place / "submitted")
    top = top_of(place / "submitted")
    for room in ROOMS:
        for path in sorted((top / room).rglob("*.py")):
            target = place / "code" / path.relative_to(top)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    if (top / "course" / "adapters.py").is_file():
        shutil.copyfile(top / "course" / "adapters.py", place / "code" / "course" / "adapters.py")


def shortcuts(code: Path, course: Course) -> dict[str, list[str]]:
    """Return the uses of what students are to write themselves, in any file: exercise -> "file:line: name" each.

    code: the folder that is graded. course: its exercises.
    """
    uses: dict[str, list[str]] = {name: [] for name in course.exercises}
    for room in ROOMS:
        for path in sorted((code / room).rglob("*.py")):
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except (SyntaxError, ValueError):
                continue  # importing it will say so
            for node in ast.walk(tree):
                for name, exercises in _banned(node, list(course.exercises)).items():
                    for exercise in set(exercises) & uses.keys():
                        where = f"{path.relative_to(code).as_posix()}:{getattr(node, 'lineno', 0)}"
                        uses[exercise].append(f"{where}: {name}")
    return uses


def _banned(node: ast.AST, every: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the names in a node that are not allowed, with the exercises in which they are not."""
    names: set[str] = set()
    modules: set[str] = set()
    if isinstance(node, ast.Attribute):
        names = {node.attr}
        if node.attr.startswith("Adam") and isinstance(node.value, ast.Attribute) and node.value.attr == "optim":
            return {f"torch.optim.{node.attr}": ("adamw",)}
    elif isinstance(node, ast.Name):
        names = {node.id}
    elif isinstance(node, ast.Import | ast.ImportFrom):
        names = {alias.name.split(".")[-1] for alias in node.names}
        modules = {alias.name.split(".")[0] for alias in node.names} if isinstance(node, ast.Import) else {
            (node.module or "").split(".")[0]}
        if isinstance(node, ast.ImportFrom) and node.module == "torch.optim":
            return {f"torch.optim.{name}": ("adamw",) for name in sorted(names) if name.startswith("Adam")}
    return ({name: BANNED[name] for name in sorted(names & BANNED.keys())}
            | dict.fromkeys(sorted(modules & BANNED_MODULES), every))
