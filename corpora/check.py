"""What a folder of data files holds, and what is wrong with it.

    python -m corpora.check DIR [--weights NAME] [--max_length 128] [--json]

For each file: examples, labels, lengths, blank and repeated rows, contradictory labels, encoding. Of each two files:
how many examples they share. Two examples are the same if they are equal after lower-casing, with the letters a to z
and digits only; the order of two sentences does not matter. A sentence that is mostly of other letters keeps them all.
A file that cannot be read to its end says where it fails.
"""
import dataclasses
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpora.flags import Parser, positive
from corpora.messages import printable, status_of
from corpora.tables import Row, decimal, parse_object, read_csv, read_json_lines, read_lines, read_table

SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl")
# The columns of sentences by the names that the corpora use, and the columns of labels.
SENTENCES = (("sentence1", "sentence2"), ("question1", "question2"), ("#1 String", "#2 String"),
             ("premise", "hypothesis"), ("document", "query"), ("sent0", "sent1"), ("sentence_A", "sentence_B"),
             ("question", "sentence"), ("sentence",))
LABELS = ("sentiment", "is_duplicate", "similarity", "gold_label", "label", "Quality", "score", "relatedness_score")
LENGTHS = (8, 16, 32, 64, 128, 256, 512)  # upper ends of the histogram's bins
SHOWN = 5  # line numbers, of blank rows
Lengths = Callable[[list[str]], list[int]]


@dataclass
class FileCheck:
    """Hold what one file holds."""

    path: Path
    kind: str = ""  # the columns of its sentences; empty: no sentences
    encoding: str = "UTF-8"
    examples: int = 0  # with all their sentences, and the label if the file has labels
    blank: list[int] = field(default_factory=list)  # lines of rows without a sentence or a label
    repeated: int = 0  # examples whose sentences stood in the file before
    contradictory: int = 0  # sentences (or pairs) that have two different labels
    labels: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)  # bin -> examples, by their longest sentence
    longest: int = 0
    unit: str = "words"
    cut: float | None = None  # share of examples that are longer than max_length
    problem: str = ""  # where reading ended, and why
    keys: Counter[str] = field(default_factory=Counter)  # normalised examples

    def to_json(self) -> dict[str, Any]:
        """Return what JSON can write."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name != "keys"}
        return {**values, "path": str(self.path), "blank": {"count": len(self.blank), "lines": self.blank[:SHOWN]}}


@dataclass
class Overlap:
    """Say how many different examples two files share."""

    first: str
    second: str
    shared: int
    of_first: float  # as a share of the file's different examples
    of_second: float


def normalised(sentences: Sequence[str]) -> str:
    """Return a key that is equal for examples that are the same.

    >>> normalised(["A dog!", "a CAT"]) == normalised(["A cat.", "A dog"])
    True
    """
    return "\t".join(sorted(map(_letters, sentences)))


def _letters(sentence: str) -> str:
    everything = re.sub(r"[\W_]+", "", sentence.lower())
    latin = re.sub(r"[^a-z0-9]+", "", everything)
    return latin if 2 * len(latin) > len(everything) else everything


def _columns(names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Choose the columns of sentences and of the label ("" if there is none) among a file's names."""
    sentences = next((columns for columns in SENTENCES if all(name in names for name in columns)), ())
    return sentences, next((name for name in LABELS if name in names and names.count(name) == 1), "")


def _cmu(path: Path, sentences: tuple[str, ...]) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path), start=1):
        label, _, sentence = line.partition("|||")
        if line.strip():
            yield Row(path, number, {"label": label, sentences[0]: sentence})


def _open(path: Path) -> tuple[tuple[str, ...], str, Iterator[Row]]:
    """Find out what a file is. Returns its columns of sentences, its label column, and its rows."""
    first = next((line for line in read_lines(path) if line.strip()), "")
    if path.suffix == ".jsonl":
        sentences, label = _columns(list(parse_object(first, f"{path}:1"))) if first else ((), "")
        return sentences, label, read_json_lines(path, sentences, (label,) if label else ())
    if path.suffix == ".txt" and "|||" in first:
        return ("sentence",), "label", _cmu(path, ("sentence",))
    delimiter = "\t" if "\t" in first else ","
    names = [name.strip().strip('"') for name in first.split(delimiter)]
    sentences, label = _columns(names)
    optional = (label,) if label else ()
    if delimiter == ",":
        return sentences, label, read_csv(path, sentences, optional)
    # GLUE's quote characters are text. The course's files, which have an id, wrap fields in quotes.
    return sentences, label, read_table(path, sentences, quoting="id" in names or path.suffix == ".csv",
                                        optional=optional, broken=[])


def _bin(length: int) -> str:
    low = 1
    for high in LENGTHS:
        if length <= high:
            return f"{low}-{high}"
        low = high + 1
    return f"{low}+"


def _label(text: str) -> str:
    """Write a label for the histogram: classes as they are, graded scores by their whole part."""
    value = decimal(text)
    if value is None:
        return text.strip()
    return str(int(value)) if value == int(value) else f"{int(value)}-{int(value) + 1}"


def check_file(path: Path, lengths: Lengths | None = None, max_length: int | None = None) -> FileCheck:
    """Read a file to its end, or to its first fault.

    Args:
        path: the file.
        lengths: returns how many tokens each of some texts has; words are counted if it is missing.
        max_length: tokens of a sequence, of which two are special.
    """
    check = FileCheck(Path(path), unit="words" if lengths is None else "tokens")
    label_of: dict[str, str] = {}
    longest: list[int] = []
    texts: list[str] = []

    def measure():
        """Count the tokens of the sentences that have come together."""
        counts = [len(text.split()) for text in texts] if lengths is None else lengths(texts)
        size = len(sentences)
        longest.extend(max(counts[start:start + size]) for start in range(0, len(counts), size))
        texts.clear()

    try:
        with open(path, "rb") as file:
            if file.read(3) == b"\xef\xbb\xbf":
                check.encoding = "UTF-8 with a byte order mark"
        sentences, label, rows = _open(check.path)
        if not sentences:
            return check
        check.kind = ", ".join(sentences)
        conflicting = set()
        for row in rows:
            example = [row.text(name) for name in sentences]
            if not all(example) or (label and not row.text(label)):
                check.blank.append(row.line)
                continue
            check.examples += 1
            key = normalised(example)
            check.repeated += key in check.keys
            check.keys[key] += 1
            if label:
                value = row.text(label)
                name = _label(value)
                check.labels[name] = check.labels.get(name, 0) + 1
                number = decimal(value)
                same = value if number is None else str(number)
                if label_of.setdefault(key, same) != same:
                    conflicting.add(key)
            texts += example
            if len(texts) >= 10_000:
                measure()
        check.contradictory = len(conflicting)
    except (OSError, ValueError) as error:
        check.problem = str(error).splitlines()[0]
        if "expected UTF-8" in check.problem:
            check.encoding = "not UTF-8"
    if check.kind:
        measure()
    for tokens in longest:
        name = _bin(tokens)
        check.lengths[name] = check.lengths.get(name, 0) + 1
    check.lengths = dict(sorted(check.lengths.items(), key=lambda item: int(re.split(r"[-+]", item[0])[0])))
    check.labels = dict(sorted(check.labels.items(), key=lambda item: (decimal(item[0].split("-")[0]) or 0, item[0])))
    check.longest = max(longest, default=0)
    if lengths is not None and max_length is not None and longest:
        check.cut = sum(tokens + 2 > max_length for tokens in longest) / len(longest)
    return check


def check_files(paths: Sequence[Path], lengths: Lengths | None = None, max_length: int | None = None
                ) -> list[FileCheck]:
    """Check files. See `check_file`."""
    return [check_file(path, lengths, max_length) for path in paths]


def overlaps(checks: Sequence[FileCheck]) -> list[Overlap]:
    """Compare each two files. Returns those that share examples."""
    result = []
    names = short_names([check.path for check in checks])
    for index, first in enumerate(checks):
        for other in range(index + 1, len(checks)):
            second = checks[other]
            shared = len(first.keys.keys() & second.keys.keys())
            if shared:
                result.append(Overlap(names[index], names[other], shared, shared / len(first.keys),
                                      shared / len(second.keys)))
    return result


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the paths below the folder that they have in common."""
    if not paths:
        return []
    top = Path(os.path.commonpath([path.resolve().parent for path in paths]))
    return [path.resolve().relative_to(top).as_posix() for path in paths]


def files_of(directory: Path) -> list[Path]:
    """Return the data files in a folder and below. Raise ValueError for a folder without any."""
    directory = Path(directory)
    if directory.is_file():
        return [directory]
    if not directory.is_dir():
        raise ValueError(f"{directory}: no such folder")
    files = sorted(path for path in directory.rglob("*") if path.suffix in SUFFIXES and path.is_file()
                   and not any(part.startswith(".") for part in path.relative_to(directory).parts))
    if not files:
        raise ValueError(f"{directory}: holds no data file; expected {', '.join(SUFFIXES)}")
    return files


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def as_text(checks: Sequence[FileCheck], leaks: Sequence[Overlap]) -> str:
    """Write the result for a terminal."""
    lines: list[str] = []
    for check, name in zip(checks, short_names([check.path for check in checks]), strict=True):
        if not check.kind and not check.problem:
            lines += [f"{name}: no sentences found in it; left out", ""]
            continue
        lines.append(f"{name}: {_count(check.examples, 'example')} ({check.kind or 'unreadable'}), {check.encoding}")
        if check.labels:
            shown = list(check.labels.items())
            lines.append("  labels: " + ", ".join(f"{label} {count:,}" for label, count in shown[:12])
                         + (f", and {len(shown) - 12} more" if len(shown) > 12 else ""))
        if check.lengths:
            cut = "" if check.cut is None else f"; {100 * check.cut:.1f} % are cut"
            lines.append(f"  {check.unit}: " + ", ".join(f"{size}: {count:,}" for size, count in check.lengths.items())
                         + f"; at most {check.longest:,}{cut}")
        if check.blank:
            places = ", ".join(map(str, check.blank[:SHOWN])) + (", ..." if len(check.blank) > SHOWN else "")
            lines.append(f"  {_count(len(check.blank), 'row')} without a sentence or a label (line {places})")
        if check.repeated:
            lines.append(f"  {_count(check.repeated, 'repeated example')}")
        if check.contradictory:
            lines.append(f"  {_count(check.contradictory, 'example')} with two different labels")
        if check.problem:
            lines.append(f"  ends early: {check.problem}")
        lines.append("")
    if leaks:
        lines.append("Examples that two files share:")
        lines += [f"  {leak.first} and {leak.second}: {leak.shared:,} ({100 * leak.of_first:.1f} % and "
                  f"{100 * leak.of_second:.1f} %)" for leak in leaks]
    else:
        lines.append("No two files share an example.")
    return "\n".join(map(printable, lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a folder. Returns 0, or 1 if a file could not be read to its end, or 2 for wrong arguments."""
    parser = Parser(prog="python -m corpora.check", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path, metavar="DIR", help="a folder, or one file")
    parser.add_argument("--weights", default="", help="count tokens of this model's vocabulary, not words: a folder "
                                                      "or a name, as in train_multitask.py")
    parser.add_argument("--max_length", type=positive, default=128, help="tokens of a sequence (default: 128)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    unreadable = False

    def run():
        nonlocal unreadable
        files = files_of(options.directory)
        lengths = None
        if options.weights:
            # Late, and only here: the rooms below the lesson do not know it (tests/test_house.py).
            from minbert.pretrained import fetch
            from minbert.tokenizer import BertTokenizer

            tokenizer = BertTokenizer.load(fetch(options.weights))
            lengths = lambda texts: [len(ids) for ids in tokenizer.ids(texts)]  # noqa: E731
        checks = check_files(files, lengths, options.max_length)
        leaks = overlaps(checks)
        unreadable = any(check.problem for check in checks)
        if options.json:
            print(json.dumps({"files": [check.to_json() for check in checks],
                              "overlaps": [dataclasses.asdict(leak) for leak in leaks]}, indent=1))
        else:
            print(as_text(checks, leaks))

    return status_of(run) or int(unreadable)


if __name__ == "__main__":
    sys.exit(main())
