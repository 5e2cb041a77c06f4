"""Examples: what a task's files hold, in memory or, where a file is large, on disk."""
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corpora.disklist import DiskList

LARGE_FILE = 64 << 20  # bytes; the examples of a larger file stay on disk


@dataclass(slots=True)  # there may be a million of them
class Example:
    """Hold one row of a file.

    >>> Example("a1", ("A dog runs.",), 3).label
    3
    """

    id: str
    sentences: tuple[str, ...]
    label: float | None = None  # a class (whole number) or a score; None where the file has none
    ids: tuple[Sequence[int], ...] = ()  # each sentence's token ids, without [CLS] and [SEP]; a task fills them in
    answer: Sequence[float] = ()  # what a teacher says: the classes' probabilities, or a score

    def to_list(self) -> list:
        """Return what JSON can write."""
        return [self.id, self.sentences, self.label, [list(ids) for ids in self.ids], list(self.answer)]

    @classmethod
    def from_list(cls, values: list) -> "Example":
        """Make an example from the result of `to_list`."""
        identifier, sentences, label, ids, answer = values
        return cls(identifier, tuple(sentences), label, tuple(array("i", numbers) for numbers in ids),
                   array("f", answer) if answer else ())


def example_list(on_disk: bool) -> list[Example] | DiskList:
    """Return an empty list that examples can be appended to."""
    return DiskList(Example.to_list, Example.from_list) if on_disk else []


def examples_of(path: Path) -> list[Example] | DiskList:
    """Return an empty list for the examples of a file: on disk if the file is large."""
    path = Path(path)
    return example_list(path.is_file() and path.stat().st_size > LARGE_FILE)


def joined(parts: Sequence[Sequence[Example]]) -> Sequence[Example]:
    """Put several files' examples into one list: on disk if one of them is."""
    if len(parts) == 1:
        return parts[0]
    together = example_list(any(isinstance(part, DiskList) for part in parts))
    for part in parts:
        for example in part:
            together.append(example)
    return together


@dataclass
class Dataset:
    """Hold one file: its usable examples, and what was left out and why. Raise ValueError if no row is usable.

    >>> Dataset(Path("a.csv"), [Example("a1", ("x",), 1)], [(3, "without label")]).report()
    'a.csv: 1 example; 1 row left out (1 without label; lines 3)'
    """

    path: Path
    examples: Sequence[Example]
    skipped: list[tuple[int, str]] = field(default_factory=list)  # (line, reason)

    def __post_init__(self):
        if not self.examples:
            raise ValueError(f"{self.path}: has no usable row; expected at least one")

    def report(self) -> str:
        """Say in one line how many examples there are, and how many rows were left out for which reason."""
        text = f"{self.path}: {len(self.examples):,} example{'' if len(self.examples) == 1 else 's'}"
        if self.skipped:
            reasons = Counter(reason for _, reason in self.skipped)
            lines = sorted({line for line, _ in self.skipped})
            where = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
            text += (f"; {len(self.skipped):,} row{'' if len(self.skipped) == 1 else 's'} left out ("
                     + ", ".join(f"{count} {reason}" for reason, count in reasons.items()) + f"; lines {where})")
        return text


class IdRegister:
    """Remember the ids of a file and refuse one that comes twice.

    >>> ids = IdRegister(Path("a.csv"))
    >>> ids.add("x", 2)
    >>> ids.add("x", 9)
    Traceback (most recent call last):
    ValueError: a.csv:9: id 'x' stands on line 2 already; expected different ids
    """

    def __init__(self, path: Path):
        self.path = path
        self._line_of: dict[int, int] = {}  # by the id's hash: a file may have a million ids

    def add(self, identifier: str, line: int):
        """Note that an id stands on a line. Raise ValueError that names both lines if it is known."""
        first = self._line_of.setdefault(hash(identifier), line)
        if first != line:
            raise ValueError(f"{self.path}:{line}: id {identifier!r} stands on line {first} already; "
                             "expected different ids")
