"""Prediction files and hidden labels -> scores with intervals, by id."""
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpora.tables import decimal, read_table
from course.submit import CS224N, split_row
from tasks.leaderboard import overall_score
from tasks.metrics import accuracy, bootstrap_interval, pearson

TASKS = ("sst", "para", "sts")
LABELS = {task: CS224N[task].label for task in TASKS}
FILES = {"sst": "sst-test-output.csv", "para": "para-test-output.csv", "sts": "sts-test-output.csv"}
METRICS = {"sst": accuracy, "para": accuracy, "sts": pearson}
LARGEST = 4 << 20  # characters of a prediction file
SAMPLES = 300  # of the overall score's interval


@dataclass(frozen=True)
class Hidden:
    """Hold a task's hidden labels, in order, and which rows count for the public score."""

    ids: tuple[str, ...]
    labels: np.ndarray  # [n]
    public: np.ndarray  # bool [n]


def load_hidden(folder: Path) -> dict[str, Hidden]:
    """Read the labels that `course.split` wrote: <task>-labels.csv or, of one task, the file that has its column.

    Raises:
        ValueError: a task's labels are missing, or there are two files with them.
    """
    found: dict[str, Hidden] = {}
    for path in sorted(folder.glob("*-labels.csv")):
        with open(path, encoding="utf-8-sig", errors="replace") as file:  # read_table says what is no UTF-8
            header = file.readline().rstrip("\n").split("\t")
        task = next((name for name, column in LABELS.items() if column in header), None)
        if task is None:
            raise ValueError(f"{path}:1: has no column {', '.join(LABELS.values())}; expected a file of course.split")
        if task in found:
            raise ValueError(f"{path}: a second file with labels of {task}")
        rows = list(read_table(path, ["id", LABELS[task], "part"]))
        for row in rows:
            if row.text("part") not in ("public", "private"):
                raise row.error("part", "public or private")
        labels = np.array([row.number(LABELS[task], 0, 5) for row in rows])
        found[task] = Hidden(tuple(row.text("id") for row in rows), labels,
                             np.array([row.text("part") == "public" for row in rows]))
    missing = [task for task in TASKS if task not in found]
    if missing:
        raise ValueError(f"{folder}: has no labels of {', '.join(missing)}; expected *-labels.csv of course.split")
    return found


def parse(text: str, task: str, hidden: Hidden) -> np.ndarray:
    """Read a prediction file's text. Returns the predictions in the order of the hidden labels.

    Raises:
        ValueError: in one line that names the task and the row, for what cannot be scored.
    """
    if len(text) > LARGEST:
        raise ValueError(f"{task}: the file has {len(text):,} characters; expected at most {LARGEST:,}")
    wanted = {identifier: index for index, identifier in enumerate(hidden.ids)}
    values = np.full(len(hidden.ids), np.nan)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or (number == 1 and line.lstrip().lower().startswith("id")):
            continue
        identifier, value, _ = split_row(line) or ("", "", False)
        index, prediction = wanted.get(identifier), decimal(value)
        if index is None or prediction is None:
            raise ValueError(f"{task}: row {number} is {line[:60]!r}; expected <id> , <value>, with an id of the test "
                             "file")
        if not np.isnan(values[index]):
            raise ValueError(f"{task}: row {number}: the id {identifier[:30]} stands there twice")
        values[index] = prediction
    missing = int(np.isnan(values).sum())
    if missing:
        raise ValueError(f"{task}: {missing} of {len(values)} ids are missing")
    return values


def score(texts: Mapping[str, str], hidden: Mapping[str, Hidden]) -> dict[str, dict[str, list[float]]]:
    """Score a submission.

    Args:
        texts: the prediction file of each task.
        hidden: the labels of each task.

    Returns:
        "public" and "private" -> task or "overall" -> [value, low, high]; the limits are a 95 % bootstrap interval.

    Raises:
        ValueError: a file is missing, or cannot be scored.
    """
    absent = [task for task in TASKS if task not in texts]
    if absent:
        raise ValueError(f"{', '.join(absent)}: no prediction file; expected {', '.join(TASKS)}")
    predictions = {task: parse(texts[task], task, hidden[task]) for task in TASKS}
    result: dict[str, dict[str, list[float]]] = {}
    for part in ("public", "private"):
        rows = {task: hidden[task].public == (part == "public") for task in TASKS}
        scores = {}
        for task in TASKS:
            own, labels = predictions[task][rows[task]], hidden[task].labels[rows[task]]
            scores[task] = [METRICS[task](own, labels), *bootstrap_interval(METRICS[task], own, labels)]
        value = overall_score(*(scores[task][0] for task in TASKS))
        scores["overall"] = [value, *overall_interval(predictions, hidden, rows)]
        result[part] = {name: [float(number) for number in numbers] for name, numbers in scores.items()}
    return result


def overall_interval(predictions: Mapping[str, np.ndarray], hidden: Mapping[str, Hidden], rows: Mapping[str, np.ndarray]
                     ) -> tuple[float, float]:
    """Return the bootstrap interval of the overall score: rows of each task are drawn apart.

    Args:
        predictions, hidden: by task.
        rows: bool, those that count.
    """
    generator = np.random.default_rng(0)
    parts = {task: (predictions[task][rows[task]], hidden[task].labels[rows[task]]) for task in TASKS}
    values = []
    for _ in range(SAMPLES):
        drawn = []
        for task in TASKS:
            own, labels = parts[task]
            index = generator.integers(0, len(labels), len(labels))
            drawn.append(METRICS[task](own[index], labels[index]))
        values.append(overall_score(*drawn))
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
