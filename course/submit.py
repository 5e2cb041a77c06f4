"""Check prediction files before they are handed in, and pack them as a course wants them.

    python -m course.submit DIR --course cs224n --data DATA [--zip]
    python -m course.submit DIR --course cs224n --data DATA --pretrain RUN --finetune RUN [--year 2024]
    python -m course.submit DIR --course cmu --data DATA --andrew_id ID [--zip]
    python -m course.submit DIR --course glue [--zip]
    python -m course.submit DIR --course goettingen --data DATA

DIR holds the prediction files, or a folder predictions/ with them. An error is what a grader cannot read or would count
as wrong: missing files, ids or rows, labels that are none. A warning is what a grader reads and nobody wants: one class
for everything, a share of positives far from the training set's, a score below the majority class. The order of rows
never matters, except for GLUE and CMU, whose rows have no ids. The exit status is 0, 1 with errors, or 2.
"""
import argparse
import re
import shutil
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from corpora.files import write_atomically
from corpora.flags import Parser
from corpora.messages import printable, status_of
from corpora.tables import decimal, read_lines, read_table
from tasks.metrics import accuracy, pearson

ERROR, WARNING, NOTE = "error", "warning", "note"
FEW = 3  # ids that a message shows
FAR = 0.25  # difference of two shares of a class that is worth a warning


@dataclass
class Finding:
    """Hold one thing to say about a file."""

    level: str
    file: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        return printable(f"{self.level}: {place}: {self.text}")


@dataclass
class Gold:
    """Hold what a data file says: ids in order, labels where there are some, and lower-cased sentences."""

    ids: list[str] = field(default_factory=list)
    labels: dict[str, float] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    unlabelled: set[str] = field(default_factory=set)  # rows of a labelled file that have no label


@dataclass(frozen=True)
class Kind:
    """Say what a task's predictions look like."""

    task: str
    header: str
    classes: int | None  # None: a score
    data: str  # the data files' stem, with {split}
    label: str


CS224N = {
    "sst": Kind("sst", "id \t Predicted_Sentiment ", 5, "ids-sst-{split}.csv", "sentiment"),
    "cfimdb": Kind("cfimdb", "id \t Predicted_Sentiment ", 2, "ids-cfimdb-{split}.csv", "sentiment"),
    "para": Kind("para", "id \t Predicted_Is_Paraphrase ", 2, "quora-{split}.csv", "is_duplicate"),
    "sts": Kind("sts", "id \t Predicted_Similiary ", None, "sts-{split}.csv", "similarity"),
}
# Göttingen's variant has CS224N's rows in other files: sst-sentiment-dev.csv and, of predictions,
# predictions/bert/sst-sentiment-dev-output.csv.
GOETTINGEN = {"sst": "sst-sentiment", "para": "quora-paraphrase", "sts": "sts-similarity"}
PART_ONE = {2023: ("pretrain", "finetune"), 2024: ("last-linear-layer", "full-model")}
GLUE = {  # file -> rows, labels (None: a score from 0 to 5)
    "CoLA.tsv": (1063, ("0", "1")), "SST-2.tsv": (1821, ("0", "1")), "MRPC.tsv": (1725, ("0", "1")),
    "QQP.tsv": (390_965, ("0", "1")), "STS-B.tsv": (1379, None),
    "QNLI.tsv": (5463, ("entailment", "not_entailment")), "RTE.tsv": (3000, ("entailment", "not_entailment")),
    "WNLI.tsv": (146, ("0", "1")), "MNLI-m.tsv": (9796, ("entailment", "neutral", "contradiction")),
    "MNLI-mm.tsv": (9847, ("entailment", "neutral", "contradiction")),
    "AX.tsv": (1104, ("entailment", "neutral", "contradiction"))}
CMU_CODE = ("bert.py", "optimizer.py", "classifier.py")


def visible(text: str) -> str:
    """Write a line as `cat -A` does: tabs as ^I, the end as $."""
    return printable(text.replace("\t", "^I")) + "$"


def some(values: Sequence[str]) -> str:
    """Write the first few values."""
    return ", ".join(values[:FEW]) + (", ..." if len(values) > FEW else "")


def read_gold(path: Path, label: str) -> Gold:
    """Read a file of the course. Rows without a label, in a file that has labels, are noted apart."""
    gold = Gold()
    for row in read_table(path, ["id"], optional=[label, "sentence", "sentence1"]):
        identifier = row.text("id").lower()
        gold.ids.append(identifier)
        value = decimal(row.text(label)) if row.text(label) else None
        if value is None:
            gold.unlabelled.add(identifier)
        else:
            gold.labels[identifier] = value
    return gold


# ---- one file of CS224N ----------------------------------------------------------------------------------------------


def split_row(line: str) -> tuple[str, str, bool] | None:
    """Split a row into id, value, and whether a tab divides them. Returns None where that cannot be done."""
    separator = "," if "," in line else "\t"
    identifier, _, value = line.rpartition(separator)
    if not identifier.strip() or not value.strip():
        return None
    return identifier.strip().lower(), value.strip(), separator == "\t"


def _value(kind: Kind, text: str) -> tuple[float | None, str]:
    """Read a prediction. Returns it, or None and what is wrong with it."""
    value = decimal(text)
    if value is None:
        return None, f"prediction is {text[:40]!r}; expected a finite number"
    if kind.classes is None:
        return value, ""
    if value != int(value):
        what = "a probability or a logit, it seems" if abs(value) < 20 else "no label"
        return None, f"prediction is {text[:40]} ({what}); expected a class from 0 to {kind.classes - 1}"
    if not 0 <= value < kind.classes:
        return None, f"prediction is {text[:40]}; expected a class from 0 to {kind.classes - 1}"
    return value, ""


def check_cs224n_file(path: Path, kind: Kind, split: str, gold: Gold | None, other: Gold | None, train: Gold | None
                      ) -> list[Finding]:
    """Check one prediction file.

    Args:
        path: the file.
        kind: of its task.
        split: dev or test.
        gold: the data of the split, if it is at hand.
        other: of the other split, to recognise exchanged files.
        train: the training data, for plausibility.
    """
    findings: list[Finding] = []

    def say(level: str, text: str, line: int | None = None):
        """Note a finding."""
        findings.append(Finding(level, path.name, text, line))

    lines = list(read_lines(path))
    if lines and lines[-1] == "":
        lines.pop()
    if not lines:
        say(ERROR, "is empty")
        return findings
    if lines[0] != kind.header:
        level = NOTE if re.sub(r"\s", "", lines[0]) == re.sub(r"\s", "", kind.header) else ERROR
        say(level, f"the header is {visible(lines[0])[:80]}; the course writes {visible(kind.header)}", 1)
    values: dict[str, float] = {}
    faults: Counter[str] = Counter()
    tabs = 0
    for number, line in enumerate(lines[1:], start=2):
        row = split_row(line)
        if row is None:
            say(ERROR, f"found {visible(line)[:80]}; expected <id> , <value> ", number)
            continue
        identifier, text, tab = row
        tabs += tab
        value, wrong = _value(kind, text)
        if value is None:
            faults[wrong.split(";")[-1]] += 1
            if faults[wrong.split(";")[-1]] <= FEW:
                say(ERROR, wrong, number)
            continue
        if identifier in values:
            say(ERROR, f"the id {identifier} stands there twice", number)
        values[identifier] = value
    if tabs:
        say(NOTE, f"in {tabs} rows a tab divides id and value; the course writes ' , ', and readers take both")
    for reason, count in faults.items():
        if count > FEW:
            say(ERROR, f"{count - FEW} more rows like that;{reason}")
    if gold is not None:
        _check_ids(values, gold, other, split, say)
    _check_plausible(values, kind, split, gold, train, say)
    return findings


def _check_ids(values: dict[str, float], gold: Gold, other: Gold | None, split: str,
               say: Callable[..., None]):
    """Compare a file's ids with the data's. See `check_cs224n_file`."""
    known = set(gold.ids)
    unknown = [identifier for identifier in values if identifier not in known]
    if unknown:
        foreign = other is not None and all(identifier in set(other.ids) for identifier in unknown)
        note = f"; they are ids of the {'dev' if split == 'test' else 'test'} file" if foreign else ""
        say(ERROR, f"{len(unknown)} ids are not in the {split} data ({some(unknown)}){note}")
    # Some rows of the course's Quora files have no label: its reader drops them, so they may be absent.
    optional = gold.unlabelled if gold.labels else set()
    missing = [identifier for identifier in gold.ids if identifier not in values and identifier not in optional]
    if missing:
        say(ERROR, f"{len(missing)} of {len(gold.ids)} ids of the {split} data are missing ({some(missing)})")


def _check_plausible(values: dict[str, float], kind: Kind, split: str, gold: Gold | None, train: Gold | None,
                     say: Callable[..., None]):
    """Warn of predictions that nobody wants. See `check_cs224n_file`."""
    if len(values) < 2:
        return
    numbers = np.array(list(values.values()))
    if kind.classes is None:
        if numbers.min() == numbers.max():
            say(WARNING, f"every score is {numbers[0]:g}: the Pearson correlation is undefined")
        elif numbers.min() < -0.5 or numbers.max() > 5.5:
            say(WARNING, f"scores from {numbers.min():g} to {numbers.max():g}, outside 0 to 5: harmless for Pearson")
    elif len(set(values.values())) == 1:
        say(WARNING, f"every prediction is {int(numbers[0])}: nothing was learned, or a file of constants was written")
    elif kind.classes == 2 and train is not None and train.labels:
        predicted, usual = float(numbers.mean()), float(np.mean(list(train.labels.values())))
        if abs(predicted - usual) > FAR:
            say(WARNING, f"{100 * predicted:.1f} % predicted 1, train has {100 * usual:.1f} %: two sigmoids, or a "
                         "threshold of 0.5 on logits?")
    both = [(values[identifier], label) for identifier, label in (gold.labels if gold else {}).items()
            if identifier in values]
    if len(both) < 2:
        return
    predictions, labels = (np.array(column) for column in zip(*both, strict=True))
    if kind.classes is None:
        score = pearson(predictions, labels)
        if score < 0:
            say(WARNING, f"the Pearson correlation with {split} is {score:.3f}, negative: a distance instead of a "
                         "similarity?")
        return
    score, majority = accuracy(predictions, labels), max(Counter(labels.tolist()).values()) / len(labels)
    if score < majority:
        say(WARNING, f"{100 * score:.1f} % of {split} right; the majority class alone has {100 * majority:.1f} %"
                     + (": were ids and predictions paired after a shuffle?" if kind.classes > 2 else ""))


# ---- the three courses -----------------------------------------------------------------------------------------------


def check_cs224n(folder: Path, data: Path | None, part: int, year: int, goettingen: bool = False) -> list[Finding]:
    """Check the files of a part of CS224N's project: 1 (sst and cfimdb, two modes) or 2 (three tasks).

    Args:
        folder: of the prediction files.
        data: of the course's data files; without it ids are not checked.
        part: 1 or 2.
        year: names part one's modes.
        goettingen: files have the names of Göttingen's variant.
    """
    findings: list[Finding] = []
    wanted = [(f"{mode}-{task}-{split}-out.csv", task, split) for mode in PART_ONE[year] for task in ("sst", "cfimdb")
              for split in ("dev", "test")] if part == 1 else [
        (f"{GOETTINGEN[task] if goettingen else task}-{split}-output.csv", task, split)
        for task in ("sst", "para", "sts") for split in ("dev", "test")]
    golds: dict[tuple[str, str], Gold | None] = {}
    for task in {task for _, task, _ in wanted}:
        for split in ("train", "dev", "test"):
            kind = CS224N[task]
            stem = f"{GOETTINGEN[task]}-{{split}}.csv" if goettingen else kind.data
            path = (data or Path()) / stem.format(split="test-student" if split == "test" else split)
            golds[task, split] = read_gold(path, kind.label) if data is not None and path.is_file() else None
            if data is not None and split != "train" and golds[task, split] is None:
                findings.append(Finding(NOTE, path.name, "is not in the data folder, so the ids of predictions for it "
                                                         "are not checked"))
    for name, task, split in wanted:
        path = folder / name
        if not path.is_file():
            findings.append(Finding(ERROR, name, "is missing"))
            continue
        findings += check_cs224n_file(path, CS224N[task], split, golds[task, split],
                                      golds[task, "dev" if split == "test" else "test"], golds[task, "train"])
    return findings


def check_cmu(folder: Path, data: Path | None) -> list[Finding]:
    """Check CMU's four text files: `prediction ||| sentence`, or `sentence ||| gold ||| prediction`, in file order.

    folder: of the files. data: of CMU's data files; without it sentences are not compared.
    """
    findings: list[Finding] = []
    for task, classes in (("sst", 5), ("cfimdb", 2)):
        for split in ("dev", "test"):
            name = f"{task}-{split}-output.txt"
            if not (folder / name).is_file():
                findings.append(Finding(ERROR, name, "is missing"))
                continue
            source = data / f"{task}-{split}.txt" if data is not None else None
            rows = [line.partition("|||") for line in read_lines(source) if line.strip()] if (
                source is not None and source.is_file()) else None
            findings += _check_cmu_file(folder / name, classes, rows)
    return findings


def _check_cmu_file(path: Path, classes: int, rows: list[tuple[str, str, str]] | None) -> list[Finding]:
    """Check one of CMU's files against the data's rows (label, separator, sentence)."""
    findings: list[Finding] = []
    lines = [line for line in read_lines(path) if line.strip()]
    if rows is not None and len(lines) != len(rows):
        findings.append(Finding(ERROR, path.name, f"has {len(lines)} rows; the data have {len(rows)}"))
    foreign_gold = False
    values = []
    for number, line in enumerate(lines, start=1):
        parts = [part.strip() for part in line.split("|||")]
        if len(parts) not in (2, 3):
            findings.append(Finding(ERROR, path.name, f"found {visible(line)[:80]}; expected <prediction> ||| "
                                                      "<sentence>", number))
            continue
        prediction, sentence = (parts[0], parts[1]) if len(parts) == 2 else (parts[2], parts[0])
        value = decimal(prediction)
        if value is None or value != int(value) or not 0 <= value < classes:
            findings.append(Finding(ERROR, path.name, f"prediction is {prediction[:40]!r}; expected a class from 0 to "
                                                      f"{classes - 1}", number))
            continue
        values.append(int(value))
        if rows is not None and number <= len(rows):
            if sentence.lower().split() != rows[number - 1][2].lower().split():
                findings.append(Finding(ERROR, path.name, f"the sentence is not that of row {number} of the data",
                                        number))
                break
            foreign_gold |= len(parts) == 3 and parts[1] != rows[number - 1][0].strip()
    if foreign_gold:
        findings.append(Finding(NOTE, path.name, "its gold column differs from the data's; it is ignored"))
    if len(values) > 1 and len(set(values)) == 1:
        findings.append(Finding(WARNING, path.name, f"every prediction is {values[0]}"))
    return findings


def check_glue(folder: Path) -> list[Finding]:
    """Check the GLUE server's files: index and prediction, rows 0 to n - 1 in order. folder: of the files."""
    findings = []
    for name, (rows, labels) in GLUE.items():
        if not (folder / name).is_file():
            findings.append(Finding(NOTE, name, "is missing; --zip fills it in with one label for all rows, and the "
                                                "server's score of it means nothing"))
            continue
        findings += _check_glue_file(folder / name, rows, labels)
    if len(findings) == len(GLUE) and all(finding.level == NOTE for finding in findings):
        findings.append(Finding(ERROR, folder.name, f"holds none of {', '.join(GLUE)}"))
    return findings


def _check_glue_file(path: Path, rows: int, labels: tuple[str, ...] | None) -> list[Finding]:
    """Check one of GLUE's files. rows: that it must have. labels: that it may have; None: a number from 0 to 5."""
    findings = []
    lines = list(read_lines(path))
    if lines and lines[-1] == "":
        lines.pop()
    if not lines or lines[0] != "index\tprediction":
        findings.append(Finding(ERROR, path.name, f"the header is {visible(lines[0] if lines else '')[:60]}; expected "
                                                  f"{visible('index' + chr(9) + 'prediction')}", 1))
    if len(lines) - 1 != rows:
        findings.append(Finding(ERROR, path.name, f"has {max(0, len(lines) - 1):,} rows; expected {rows:,}"))
    for number, line in enumerate(lines[1:], start=2):
        index, _, value = line.partition("\t")
        if index != str(number - 2):
            findings.append(Finding(ERROR, path.name, f"the index is {index[:20]!r}; expected {number - 2}: rows stand "
                                                      "in the test file's order", number))
            break
        score = decimal(value)
        if labels is None and (score is None or not 0 <= score <= 5):
            findings.append(Finding(ERROR, path.name, f"prediction is {value[:20]!r}; expected a number from 0 to 5",
                                    number))
            break
        if labels is not None and value not in labels:
            digit = value.isdigit() and not labels[0].isdigit()
            findings.append(Finding(ERROR, path.name, f"prediction is {value[:20]!r}; expected {' or '.join(labels)}"
                                    + ("; the server wants words" if digit else ""), number))
            break
    return findings


# ---- packing ---------------------------------------------------------------------------------------------------------


def part_one(folder: Path, pretrain: Path, finetune: Path, year: int) -> list[Path]:
    """Copy two runs' prediction files to the names of part one.

    Args:
        folder: where to.
        pretrain, finetune: run folders with predictions of sst and cfimdb: the encoder frozen, and trained.
        year: names the modes.

    Raises:
        ValueError: a run lacks a file.
    """
    written = []
    for mode, run in zip(PART_ONE[year], (pretrain, finetune), strict=True):
        for task in ("sst", "cfimdb"):
            for split in ("dev", "test"):
                source = run / "predictions" / f"{task}-{split}-output.csv"
                if not source.is_file():
                    raise ValueError(f"{source}: no such file; expected a run of the tasks sst and cfimdb")
                target = folder / f"{mode}-{task}-{split}-out.csv"
                write_atomically(target, lambda place, file=source: shutil.copyfile(file, place))  # type: ignore[misc]
                written.append(target)
    return written


def pack(target: Path, members: dict[str, Path | str]):
    """Write a zip atomically. The same files give the same bytes.

    target: the zip. members: name inside -> a file, or the text itself.
    """

    def write(place: Path):
        """Write the archive."""
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted(members.items()):
                data = content.read_bytes() if isinstance(content, Path) else content.encode()
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)

    write_atomically(target, write)


def archive_of(course: str, code: Path, folder: Path, andrew_id: str) -> tuple[str, dict[str, Path | str]]:
    """Return the zip's name and members, as the course wants them.

    Args:
        course: cs224n, cmu or glue.
        code: folder of the Python files.
        folder: of the prediction files.
        andrew_id: names CMU's top folder.

    Raises:
        ValueError: code that the course asks for is missing.
    """
    if course == "cs224n":
        members: dict[str, Path | str] = {path.name: path for path in sorted(code.glob("*.py"))}
        members |= {f"predictions/{path.name}": path for path in sorted(folder.glob("*.csv"))}
        return "cs224n_default_final_project_submission.zip", members
    if course == "cmu":
        missing = [name for name in CMU_CODE if not (code / name).is_file()]
        if missing:
            raise ValueError(f"{code}: lacks {', '.join(missing)}, which CMU's grader asks for")
        files = [*sorted(code.glob("*.py")), *sorted(folder.glob("*-output.txt"))]
        return f"{andrew_id}.zip", {f"{andrew_id}/{path.name}": path for path in files}
    members = {}
    for name, (rows, labels) in GLUE.items():
        label = labels[0] if labels is not None else "2.5"
        members[name] = folder / name if (folder / name).is_file() else (
            "index\tprediction\n" + "".join(f"{index}\t{label}\n" for index in range(rows)))
    return "glue_submission.zip", members


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0 if everything is valid, 1 with errors, 2 for wrong arguments."""
    parser = Parser(prog="python -m course.submit", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--course", choices=("cs224n", "cmu", "glue", "goettingen"), default="cs224n")
    parser.add_argument("--data", type=Path, help="folder of the course's data files, to check ids and plausibility")
    parser.add_argument("--zip", action="store_true", help="pack the files, if there is no error")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the zip (default: here)")
    parser.add_argument("--code", type=Path, default=Path(), help="folder of the zip's Python files (default: here)")
    parser.add_argument("--andrew_id", default="", help="for CMU's zip")
    parser.add_argument("--part", type=int, choices=(1, 2), default=2, help="of CS224N's project (default: 2)")
    parser.add_argument("--year", type=int, choices=tuple(PART_ONE), default=2024, help="names part one's files")
    parser.add_argument("--pretrain", type=Path, metavar="RUN", help="write part one's files from two runs")
    parser.add_argument("--finetune", type=Path, metavar="RUN")
    options = parser.parse_args(arguments)
    findings: list[Finding] = []

    def run():
        folder = options.folder
        if (options.pretrain is None) != (options.finetune is None):
            raise ValueError("--pretrain and --finetune: expected both")
        if options.zip and options.course == "cmu" and not re.fullmatch(r"[A-Za-z0-9_-]+", options.andrew_id):
            raise ValueError(f"--andrew_id is {options.andrew_id!r}; expected letters and digits")
        part = options.part
        if options.pretrain is not None:
            part = 1
            for path in part_one(folder, options.pretrain, options.finetune, options.year):
                print(f"wrote {path}")
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such folder")
        if options.data is not None and not options.data.is_dir():
            raise ValueError(f"{options.data}: no such folder")
        if (folder / "predictions").is_dir():
            folder = folder / "predictions"
        goettingen = options.course == "goettingen"
        if goettingen and (folder / "bert").is_dir():
            folder = folder / "bert"
        if options.zip and goettingen:
            raise ValueError("--zip: Göttingen's course takes a repository, not a zip")
        findings.extend(check_cmu(folder, options.data) if options.course == "cmu" else
                        check_glue(folder) if options.course == "glue" else
                        check_cs224n(folder, options.data, part, options.year, goettingen))
        for finding in sorted(findings, key=lambda one: (ERROR, WARNING, NOTE).index(one.level)):
            print(finding)
        errors = sum(finding.level == ERROR for finding in findings)
        warnings = sum(finding.level == WARNING for finding in findings)
        print(f"{errors} errors, {warnings} warnings")
        if options.zip and not errors:
            name, members = archive_of(options.course, options.code, folder, options.andrew_id)
            options.out.mkdir(parents=True, exist_ok=True)
            pack(options.out / name, members)
            print(f"wrote {options.out / name}: {len(members)} files")

    return status_of(run) or int(any(finding.level == ERROR for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
