"""The exercises of the course: exercises.toml, read and checked."""
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path

from course.extension import REPORT

FILE = Path(__file__).parent / "exercises.toml"


@dataclass
class Exercise:
    """Hold one exercise."""

    name: str
    number: int  # from 1, in the order of the file
    title: str
    solutions: list[str]  # "file: function" each: the bodies that the student writes
    points: int
    minutes: int
    why: str  # it matters
    equation: str
    needs: list[str] = field(default_factory=list)  # exercises that it is built on

    @property
    def file(self) -> str:
        """Return the first file that the student writes in. The last exercise has no functions: it is a report."""
        return self.solutions[0].partition(":")[0] if self.solutions else REPORT

    @property
    def lesson(self) -> str:
        """Return the lesson's file."""
        return f"docs/lessons/{self.number:02d}-{self.name}.md"


@dataclass
class Course:
    """Hold all exercises, in order, and how much a check says."""

    exercises: dict[str, Exercise]
    hints: int  # 0: what differs; 1: with --hint also the known mistake; 2: the known mistake at once


def load_course(path: Path = FILE) -> Course:
    """Read the exercises. Raise ValueError for an unknown key, a missing one, or one of the wrong kind."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    hints = values.pop("hints", 2)
    if hints not in (0, 1, 2):
        raise ValueError(f"{path}: hints is {hints!r}; expected 0, 1 or 2")
    kinds = {item.name: item.type for item in fields(Exercise) if item.name not in ("name", "number")}
    exercises: dict[str, Exercise] = {}
    for number, (name, table) in enumerate(values.items(), start=1):
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {name} is {table!r}; expected a table [{name}]")
        unknown, missing = table.keys() - kinds.keys(), kinds.keys() - table.keys() - {"needs"}
        if unknown or missing:
            raise ValueError(f"{path}: [{name}] " + (f"has an unknown key '{min(unknown)}'" if unknown else
                                                     f"lacks '{min(missing)}'"))
        for key, value in table.items():
            if type(value) is not (list if key in ("needs", "solutions") else kinds[key]):
                raise ValueError(f"{path}: [{name}] {key} is {value!r}")
        for other in table.get("needs", []):
            if other not in exercises:
                raise ValueError(f"{path}: [{name}] needs '{other}', which does not come before it")
        exercises[name] = Exercise(name, number, **table)
    return Course(exercises, hints)
