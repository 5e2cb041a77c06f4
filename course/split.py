"""Make a test set whose labels nobody outside knows.

    python -m course.split FILE --key KEYFILE --out DIR [--public 0.3]

The course's own "hidden" SST labels are public: CMU ships the same sentences with them. So take a labelled file in the
course's form that your students do not have, and make two of it: what students get (new ids, another order, no labels),
and what the grader keeps (ids, labels, and which rows count for the public score). All of it follows from a secret key:
the same key gives the same files, another key other ids, another order and other public rows.
"""
import argparse
import hashlib
import hmac
import sys
from collections.abc import Sequence
from pathlib import Path

from corpora.files import write_text
from corpora.flags import Parser
from corpora.messages import status_of
from corpora.tables import Row, read_table

SHORTEST_KEY = 16  # bytes
ID_LENGTH = 25  # characters, as in the course's files
COLUMNS = {"sentiment": ("sentence",), "is_duplicate": ("sentence1", "sentence2"),
           "similarity": ("sentence1", "sentence2")}


def read_key(path: Path) -> bytes:
    """Read a key. Raise ValueError for one that could be guessed."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    if len(key) < SHORTEST_KEY:
        raise ValueError(f"{path}: the key has {len(key)} bytes; expected at least {SHORTEST_KEY} (for example: "
                         "openssl rand -hex 32)")
    return key


def keyed(key: bytes, purpose: str, text: str) -> str:
    """Return a number in hexadecimal that only the key's owner can compute.

    Args:
        key: the secret.
        purpose: what the number is for. Another purpose gives another number.
        text: what is numbered.
    """
    return hmac.new(key, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()


def quoted(text: str) -> str:
    """Write a field as the course does: in quotes if it has a quote or a tab."""
    return '"' + text.replace('"', '""') + '"' if '"' in text or "\t" in text else text


def read_labelled(path: Path) -> tuple[list[Row], str]:
    """Read a labelled file of the course. Returns its rows that have a label, and the label's column."""
    for label, sentences in COLUMNS.items():
        try:
            rows = list(read_table(path, ["id", *sentences, label]))
        except ValueError as error:
            if "no column" in str(error):
                continue
            raise
        return [row for row in rows if row.text(label) and all(row.text(name) for name in sentences)], label
    raise ValueError(f"{path}:1: has no column {', '.join(COLUMNS)}; expected a labelled file of the course")


def split(path: Path, key: bytes, share: float) -> tuple[str, str]:
    """Return the students' file and the grader's file.

    Args:
        path: a labelled file of the course.
        key: the secret.
        share: of the rows that count for the public score.

    Raises:
        ValueError: the file makes no sense, or an id comes twice.
    """
    rows, label = read_labelled(path)
    ids = [row.text("id") for row in rows]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{path}: an id comes twice")
    if len(rows) < 2:
        raise ValueError(f"{path}: has {len(rows)} labelled rows; expected at least 2")
    rows.sort(key=lambda row: keyed(key, "order", row.text("id")))
    public = {row.text("id") for row in sorted(rows, key=lambda row: keyed(key, "public", row.text("id")))[
        :max(1, round(share * len(rows)))]}
    sentences = COLUMNS[label]
    student, grader = ["\t".join(["", "id", *sentences])], ["\t".join(["id", label, "part"])]
    for number, row in enumerate(rows):
        identifier = keyed(key, "id", row.text("id"))[:ID_LENGTH]
        student.append("\t".join([str(number), identifier, *(quoted(row.text(name)) for name in sentences)]))
        part = "public" if row.text("id") in public else "private"
        grader.append("\t".join([identifier, row.text(label), part]))
    return "\n".join(student) + "\n", "\n".join(grader) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m course.split", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE", help="labelled, in the course's form")
    parser.add_argument("--key", type=Path, required=True, metavar="KEYFILE", help="a file with a secret")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="student/ and grader/ go there")
    parser.add_argument("--public", type=float, default=0.3, help="share of rows of the public score (default: 0.3)")
    options = parser.parse_args(arguments)

    def run():
        if not 0 < options.public < 1:
            raise ValueError(f"--public is {options.public:g}; expected between 0 and 1")
        student, grader = split(options.file, read_key(options.key), options.public)
        name = options.file.stem
        places = options.out / "student" / f"{name}-test-student.csv", options.out / "grader" / f"{name}-labels.csv"
        for place, text in zip(places, (student, grader), strict=True):
            if place.exists() and place.read_text(encoding="utf-8") != text:
                raise ValueError(f"{place}: holds another split; choose another --out")
            write_text(place, text)
        print(f"{places[0]}: {student.count(chr(10)) - 1} rows without labels\n{places[1]}: their labels; keep it")

    return status_of(run)


if __name__ == "__main__":
    sys.exit(main())
