"""The one reader of tables. Every dataset here is lines of separated columns; what differs is said in the call.

Columns are found by name (or by position where a file has no header). A field that opens and closes with quotes is
unwrapped where the format says that quoting counts, and any other quote character is plain text: a stray one can
swallow nothing. An error names file, line, what was found and what was expected. Rows come one by one, as they are
read: a file may be larger than memory, and its faults show when they are reached.
"""
import csv
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# A longer "sentence" is a damaged file (a lost line break, another format), and would be cut to a token limit unseen.
MAX_SENTENCE = 50_000  # characters

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


def decimal(text: str) -> float | None:
    """Read a plain decimal number. Return None for anything else, and for a number that is not finite.

    >>> decimal(" 4.5 "), decimal("0_5"), decimal("nan"), decimal("1e999")
    (4.5, None, None, None)
    """
    value = float(text) if _DECIMAL.fullmatch(text.strip()) else math.inf
    return value if math.isfinite(value) else None


@dataclass
class Row:
    """Hold one row of a file.

    >>> Row(Path("a.csv"), 3, {"score": "4.5"}).number("score", 0, 5)
    4.5
    """

    path: Path
    line: int  # counted from 1, the header included
    values: dict[str, str]

    def error(self, column: str, expected: str) -> ValueError:
        """Make an error that says where the value is, what it is, and what was expected."""
        found = self.values[column]
        shown = repr(found if len(found) <= 60 else found[:57] + "...")
        return ValueError(f"{self.path}:{self.line}: {column} is {shown}; expected {expected}")

    def text(self, column: str) -> str:
        """Return the column's text without surrounding white space."""
        return self.values[column].strip()

    def first_blank(self, columns: Sequence[str]) -> str | None:
        """Return the first of the columns that holds no text, if there is one."""
        return next((column for column in columns if not self.text(column)), None)

    def sentence(self, column: str) -> str:
        """Return `text`, of a length that a sentence or a review can have. Raise ValueError for a longer one."""
        text = self.text(column)
        if len(text) > MAX_SENTENCE:
            raise ValueError(f"{self.path}:{self.line}: {column} has {len(text):,} characters; "
                             f"expected at most {MAX_SENTENCE:,}")
        return text

    def number(self, column: str, low: float, high: float) -> float:
        """Read a plain decimal number. "0_5" and digits of other scripts, which Python reads, are errors.

        Args:
            column: its name.
            low, high: the range.
        """
        value = decimal(self.values[column])
        if value is None or not low <= value <= high:
            raise self.error(column, f"a number from {low:g} to {high:g}")
        return value

    def label(self, column: str, names: Sequence[str] | dict[str, int]) -> int:
        """Return a class. names: a sequence (the class is the position; "0.0" also reads as "0"), or name -> class."""
        text = self.text(column)
        if isinstance(names, dict):
            if text in names:
                return names[text]
        else:
            plain = text[:-2] if text.endswith(".0") else text
            if plain in names:
                return names.index(plain)
        raise self.error(column, "one of " + ", ".join(dict.fromkeys(names)))


def read_lines(path: Path) -> Iterator[str]:
    """Read the lines of a UTF-8 file, with or without a byte order mark, without their ends (LF or CRLF).

    Other characters that Python calls a line break are text. Raises ValueError with the line of a wrong byte.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            for number, data in enumerate(file, start=1):
                try:
                    line = data.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise ValueError(f"{path}:{number}: found the byte 0x{data[error.start]:02x}; expected UTF-8 text"
                                     ) from None
                yield line.removesuffix("\n").removesuffix("\r")
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise ValueError(f"{path}: {reason}") from None


def _unquote(field: str) -> str:
    return field[1:-1].replace('""', '"') if _QUOTED.fullmatch(field) else field


def read_table(path: Path, columns: Sequence[str], quoting: bool = True, header: bool = True, delimiter: str = "\t",
               optional: Sequence[str] = (), broken: list[tuple[int, str]] | None = None) -> Iterator[Row]:
    """Read a table whose rows are lines.

    Args:
        path: the file.
        columns: names that must be there. Without a header they are in the file's order, and further ones are ignored.
        quoting: a field that begins and ends with quotes is unwrapped.
        header: the first line names the columns.
        delimiter: between fields.
        optional: columns that may be missing; rows then hold "" for them.
        broken: if given, a row with another number of columns than the header is not an error. It is left out, and
            (line, reason) is appended here.

    Raises:
        ValueError: with file and line, where the file is not such a table.
    """
    split = ((number, line.split(delimiter)) for number, line in enumerate(read_lines(path), start=1))
    if quoting:
        split = ((number, [_unquote(field) for field in fields]) for number, fields in split)
    return _named(path, split, columns, header, optional, broken, delimiter)


def read_csv(path: Path, columns: Sequence[str], optional: Sequence[str] = (), delimiter: str = ",",
             header: bool = True) -> Iterator[Row]:
    """Read a comma-separated file, whose quoted fields may hold commas and line breaks.

    Args:
        path: the file.
        columns: names that must be there.
        optional: columns that may be missing; rows then hold "" for them.
        delimiter: between fields, one character.
        header: the first line names the columns.
    """
    return _named(path, _comma_separated(path, delimiter), columns, header, optional, None, delimiter)


def _comma_separated(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line + "\n" for line in read_lines(path)), strict=True, delimiter=delimiter)
    first = 1
    try:
        for fields in reader:
            yield first, fields
            first = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}:{first}: {error}; expected comma-separated values with closed quotes") from None


def _separators(line: list[str], delimiter: str) -> str:
    """Say what separates the columns of a header, and which other separator a header of one column seems to have."""
    names = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
    own = names.get(delimiter, repr(delimiter))
    counts = {other: line[0].count(other) for other in names if other != delimiter} if len(line) == 1 else {}
    best = max(counts, key=lambda other: counts[other], default="")
    if not best or not counts[best]:
        return f" (separated by {own})"
    return f"; the columns seem to be separated by {names[best]}, expected {own}"


def _named(path: Path, rows: Iterable[tuple[int, list[str]]], columns: Sequence[str], header: bool,
           optional: Sequence[str], broken: list[tuple[int, str]] | None, delimiter: str) -> Iterator[Row]:
    """Name the fields of rows (line, fields). Raise ValueError for a file without any."""
    path, rows = Path(path), iter(rows)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{path}: empty; expected " + ("a header with " if header else "") + ", ".join(columns))
    if header:
        names = [name.strip() for name in first[1]]
        missing = [name for name in columns if name not in names]
        if missing:
            raise ValueError(f"{path}:1: no column {', '.join(missing)}; found " +
                             (", ".join(name or '""' for name in names[:12]) or "an empty header")
                             + _separators(first[1], delimiter))
        for name in (*columns, *optional):
            if names.count(name) > 1:
                raise ValueError(f"{path}:1: column {name} stands there {names.count(name)} times; expected once")
    else:
        names = list(columns)
        rows = itertools.chain([first], rows)
    absent = {name: "" for name in optional if name not in names}
    wanted = [(name, names.index(name)) for name in (*columns, *optional) if name in names]
    for line, fields in rows:
        if len(fields) < len(names) or (header and len(fields) > len(names)):
            if fields == [""]:
                continue  # a blank line
            if broken is not None:
                broken.append((line, f"with {len(fields)} columns instead of {len(names)}"))
                continue
            raise ValueError(f"{path}:{line}: found {len(fields)} columns; expected {len(names)}")
        yield Row(path, line, absent | {name: fields[index] for name, index in wanted})


def parse_object(line: str, where: str) -> dict:
    """Read a line's JSON object. Raise ValueError that begins with `where` for anything else."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError as well
        raise ValueError(f"{where}: {error}; expected one JSON object a line") from None
    if not isinstance(values, dict):
        raise ValueError(f"{where}: found a JSON {type(values).__name__}; expected an object")
    return values


def read_json_lines(path: Path, columns: Sequence[str], optional: Sequence[str] = (), strings: Sequence[str] = ()
                    ) -> Iterator[Row]:
    """Read one JSON object a line. Numbers and lists arrive as their JSON text.

    Args:
        path: the file.
        columns: fields that must be there.
        optional: fields that may be missing; rows then hold "" for them.
        strings: fields that must be JSON strings, such as sentences.

    Raises:
        ValueError: a line is no object, or lacks a field, or has one of the wrong kind.
    """
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        values = parse_object(line, f"{path}:{number}")
        missing = [name for name in columns if name not in values]
        if missing:
            raise ValueError(f"{path}:{number}: no field {', '.join(missing)}; found {', '.join(values) or 'none'}")
        for name in strings:
            if not isinstance(values[name], str):
                shown = json.dumps(values[name])
                raise ValueError(f"{path}:{number}: {name} is {shown if len(shown) <= 60 else shown[:57] + '...'}; "
                                 "expected a string")
        yield Row(Path(path), number, {
            name: value if isinstance(value := values.get(name, ""), str) else json.dumps(value)
            for name in (*columns, *optional)})
