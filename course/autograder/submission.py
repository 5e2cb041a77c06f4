"""A submission -> a folder of code: unpacked with care, laid over the starter, searched for shortcuts."""
import ast
import shutil
import stat
import zipfile
from pathlib import Path

from course.exercises import Course
from course.handout import build

ROOMS = ("minbert", "tasks", "training")  # what students write in
LARGEST = 20 << 20  # bytes of all files together
MOST = 2000  # files
BANNED = {"scaled_dot_product_attention", "multi_head_attention_forward", "MultiheadAttention", "TransformerEncoder",
          "TransformerEncoderLayer", "Transformer"}
BANNED_MODULES = {"transformers", "sentence_transformers"}


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
    """Return the uses of what students are to write themselves: file -> "line: name" each.

    code: the folder that is graded. course: names the files.
    """
    found: dict[str, list[str]] = {}
    for room in ROOMS:
        for path in sorted((code / room).rglob("*.py")):
            file = path.relative_to(code).as_posix()
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except (SyntaxError, ValueError):
                continue  # importing it will say so
            for node in ast.walk(tree):
                names: set[str] = set()
                if isinstance(node, ast.Attribute):
                    names = {node.attr}
                elif isinstance(node, ast.Name):
                    names = {node.id}
                elif isinstance(node, ast.Import | ast.ImportFrom):
                    names = {alias.name.split(".")[0] for alias in node.names} | {
                        alias.name.split(".")[-1] for alias in node.names}
                    names |= {(node.module or "").split(".")[0]} if isinstance(node, ast.ImportFrom) else set()
                banned = names & BANNED or (names & BANNED_MODULES if isinstance(node, ast.Import | ast.ImportFrom)
                                            else set())
                if isinstance(node, ast.Attribute) and node.attr.startswith("Adam") and isinstance(
                        node.value, ast.Attribute) and node.value.attr == "optim":
                    banned = {f"torch.optim.{node.attr}"}
                line = getattr(node, "lineno", 0)
                found_here = [f"{line}: {name}" for name in sorted(banned)]
                if found_here:
                    found.setdefault(file, []).extend(found_here)
    return found
