"""A user's own files, and other courses': which columns, which words for labels -> examples.

A layout says how a file is cut into columns and what they are called there. A task says which columns it needs. Nothing
is guessed: a column that is not there is an error that names the columns found and what separates them.
"""
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corpora.course import labelled_examples
from corpora.examples import Dataset, Example
from corpora.near import near
from corpora.tables import Row, read_csv, read_json_lines, read_lines, read_table

FORMATS = ("tsv", "csv", "jsonl", "lines", "cmu")
CMU_SEPARATOR = "|||"  # CMU's files: `label ||| sentence` a line, without header and ids


@dataclass
class FileLayout:
    """Say how a file holds its columns.

    >>> FileLayout("csv", columns={"sentence": "text"}).name_of("sentence")
    'text'
    """

    format: str = "tsv"  # tsv, csv, jsonl, lines (a file for each column), cmu
    separator: str = ""  # between columns, where it is no tab (tsv) or comma (csv)
    header: bool = True  # the first line names the columns; without it, `columns` gives their places, from 1
    columns: dict[str, str] = field(default_factory=dict)  # the task's name of a column -> the file's
    labels: dict[str, float] = field(default_factory=dict)  # a word for a label -> the label

    def __post_init__(self):
        if self.format not in FORMATS:
            raise ValueError(f"format is {self.format!r}; known: {', '.join(FORMATS)}{near(self.format, FORMATS)}")
        if self.separator and self.format not in ("tsv", "csv"):
            raise ValueError(f"separator has no effect with format '{self.format}'; it is for tsv and csv")
        if self.format == "csv" and len(self.separator) > 1:
            raise ValueError(f"separator is {self.separator!r}; a csv file has one character between its columns")
        if not self.header and self.format not in ("tsv", "csv"):
            raise ValueError(f"header has no effect with format '{self.format}'; it is for tsv and csv")
        if self.format == "cmu" and self.columns:
            raise ValueError("columns have no effect with format 'cmu': its lines are `label ||| sentence`")

    def name_of(self, column: str) -> str:
        """Return what the file calls a task's column."""
        return self.columns.get(column, column)

    def rows(self, path: Path, columns: Sequence[str], optional: Sequence[str], strings: Sequence[str]
             ) -> Iterator[Row]:
        """Read the rows of a file, by the names of its own columns.

        Args:
            path: the file.
            columns: the task's names of columns that must be there.
            optional: of columns that may be missing.
            strings: of columns that hold text.
        """
        wanted, perhaps = ([self.name_of(name) for name in names] for names in (columns, optional))
        if self.format == "jsonl":
            return read_json_lines(path, wanted, perhaps, [self.name_of(name) for name in strings])
        if self.format == "lines":
            return _parallel_lines(path, wanted)
        if self.format == "cmu":
            if len(strings) != 1:
                raise ValueError(f"{path}: format 'cmu' holds one sentence a line; this task has {len(strings)}")
            return _cmu_lines(path, strings[0], next((name for name in columns if name not in strings), ""))
        if not self.header:
            return self._by_place(path, wanted, perhaps)
        if self.format == "csv":
            return read_csv(path, wanted, perhaps, self.separator or ",")
        return read_table(path, wanted, delimiter=self.separator or "\t", optional=perhaps)

    def _by_place(self, path: Path, wanted: list[str], perhaps: list[str]) -> Iterator[Row]:
        """Read a file without a header. Columns are named by their places: "1", "2", ..."""
        for name in wanted:
            if not (name.isascii() and name.isdigit() and 0 < int(name) <= 1000):
                raise ValueError(f"{path}: column {name!r} is no place; a file without a header needs places from 1, "
                                 "as in columns = { sentence = \"2\" }")
        places = [name for name in perhaps if name.isascii() and name.isdigit()]
        names = [str(place) for place in range(1, max(map(int, [*wanted, *places])) + 1)]
        if self.format == "csv":
            return read_csv(path, names, [], self.separator or ",", header=False)
        return read_table(path, names, header=False, delimiter=self.separator or "\t")


def _cmu_lines(path: Path, sentence: str, label: str) -> Iterator[Row]:
    """Read `label ||| sentence` lines. sentence, label: names for the two."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        before, separator, after = line.partition(CMU_SEPARATOR)
        if not separator:
            raise ValueError(f"{path}:{number}: found {line[:40]!r}; expected 'label {CMU_SEPARATOR} sentence'")
        yield Row(Path(path), number, {label: before, sentence: after})


def _parallel_lines(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Read files of parallel lines, one a column. The first column in `path`'s name is replaced by each other one."""
    path = Path(path)
    own = next((name for name in columns if name in path.name), None)
    if own is None:
        raise ValueError(f"{path}: its name has none of the columns {', '.join(columns)}; expected the file of one of "
                         "them, such as s1.train beside s2.train")
    files = {name: path.with_name(path.name.replace(own, name, 1)) for name in columns}
    lines = {name: list(read_lines(file)) for name, file in files.items()}
    if len({len(column) for column in lines.values()}) != 1:
        raise ValueError(f"{path}: the files have different numbers of lines: " + ", ".join(
            f"{files[name].name} {len(column):,}" for name, column in lines.items()))
    for number, values in enumerate(zip(*lines.values(), strict=True), start=1):
        yield Row(path, number, dict(zip(lines, values, strict=True)))


def read_own(path: Path, split: str, layout: FileLayout, sentences: Sequence[str], label: str,
             read_label: Callable[[Row, str], float]) -> Dataset:
    """Read a file in a layout. An id that is missing is the row's line.

    Args:
        path: the file.
        split: train, dev or test. The labels of a test file are not read.
        layout: of the file.
        sentences: the task's names of its sentence columns.
        label: the task's name of its label column.
        read_label: reads a label that is no word of the layout's: (row, the file's column) -> label.

    Raises:
        ValueError: with file and line, for whatever is not as the layout says.
    """
    columns = [*sentences, *([label] if split != "test" else [])]
    column = layout.name_of(label)
    has_ids = layout.format not in ("lines", "cmu") and (layout.header or "id" in layout.columns)
    rows = layout.rows(Path(path), columns, ["id"] if has_ids else [], sentences)

    def label_of(row: Row) -> float:
        if not layout.labels:
            return read_label(row, column)
        word = row.text(column)
        if word not in layout.labels:
            raise row.error(column, "one of " + ", ".join(layout.labels))
        return layout.labels[word]

    return labelled_examples(path, rows, split, [layout.name_of(name) for name in sentences], column, label_of,
                             layout.name_of("id") if has_ids else None, required_id=False)


def split_off(examples: Sequence[Example], share: float, seed: str) -> tuple[list[Example], list[Example]]:
    """Draw a share of the examples for dev. Returns (train, dev), each in the examples' order.

    Examples with the same sentences stay together: a sentence that was trained on says nothing at dev.

    Args:
        examples: to draw from.
        share: of them, about.
        seed: of the draw.
    """
    texts = sorted({example.sentences for example in examples})
    random.Random(seed).shuffle(texts)
    held_out = set(texts[:max(1, round(share * len(texts)))])
    train = [example for example in examples if example.sentences not in held_out]
    return train, [example for example in examples if example.sentences in held_out]
