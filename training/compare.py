"""Runs recipes over seeds and compares them: one table with means, deviations, p-values, published figures and time.

    python -m training.compare recipes/lee/*.toml --seeds 3 --data DIR [-- flags of train_multitask.py]
    python -m training.compare recipes/tft/*.toml --corpus PAIRS --train_sizes 1000,all [-- its flags]
    python -m training.compare recipes/glue/mrpc.toml --weights BEFORE AFTER --train_sizes 1000,all --data GLUE_FOLDER

A recipe with a task of kind "phrases" is run by pretrain_tft.py, any other by train_multitask.py. Each (recipe,
weights, training size, seed) is a process of its own with a folder of its own; one that is finished is not run again,
one that was killed goes on. The others are tested against the first row: a paired bootstrap over dev examples for
each metric (Efron & Tibshirani 1993; Berg-Kirkpatrick et al. 2012), McNemar's exact test for accuracies, Williams' test
for correlations with the same gold scores (Williams 1959; Graham & Baldwin 2014).
"""
import argparse
import csv
import io
import json
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from corpora.files import write_text
from corpora.flags import Parser, positive
from corpora.messages import error_line
from corpora.predictions import load_predictions
from tasks.metrics import accuracy, f1, matthews, pearson, phrasal, sentential
from training.commandline import PARENT
from training.recipe import load_recipe
from training.significance import mcnemar, paired_bootstrap, williams

HERE = Path(__file__).resolve().parent.parent
SPLITS = ("dev", "train", "test")
METRICS = {"accuracy": accuracy, "f1": f1, "matthews": matthews, "pearson": pearson, "phrasal": phrasal,
           "sentential": sentential}  # those with a paired test
LEADERBOARD = (("sst", "accuracy"), ("para", "accuracy"), ("sts", "pearson"))


@dataclass
class Job:
    """Hold one run: a recipe, a seed, and the folder of its results."""

    recipe: Path
    seed: int
    folder: Path
    train_size: int | None = None  # None: all
    weights: str | None = None  # None: the recipe's
    label: str = ""  # of the table's line: recipe, weights and size

    @property
    def result(self) -> Path:
        """Return the path of the run's results."""
        return self.folder / "results.json"


@dataclass
class Row:
    """Hold one line of the table: a recipe with some weights at some training size, all its seeds.

    Scores have names such as "dev sst accuracy" and "dev overall".
    """

    name: str
    seeds: int
    means: dict[str, float]  # mean over seeds
    deviations: dict[str, float]  # sample standard deviation; nan for one seed
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # 95 %, over examples: the seeds' mean
    p_values: dict[str, dict[str, float]] = field(default_factory=dict)  # score -> test -> p against the first line
    published: dict[str, dict[str, float]] = field(default_factory=dict)
    formula: str = ""  # of the overall score
    seconds: float = 0.0  # of training, mean over seeds
    train_size: int | None = None
    weights: str | None = None


# ---- running ---------------------------------------------------------------------------------------------------------


def labels_of(weights: list[str]) -> list[str]:
    """Name weights by the ends of their paths, as short as tells them apart.

    >>> labels_of(["runs/before/encoder", "runs/after/encoder"])
    ['before-encoder', 'after-encoder']
    """
    parts = [Path(name).parts for name in weights]
    for length in range(1, max(map(len, parts), default=1) + 1):
        labels = ["-".join(part[-length:]).replace("/", "") for part in parts]
        if len(set(labels)) == len(labels):
            return labels
    raise ValueError(f"--weights {' '.join(weights)}: one is named twice")


def plan(recipes: list[Path], seeds: int, first_seed: int, out: Path, sizes: list[int | None],
         weights: list[str] | None = None) -> list[Job]:
    """List the runs.

    Args:
        recipes: files.
        seeds: runs of each recipe.
        first_seed: the others follow.
        out: the folder of all runs.
        sizes: training examples of each task; None for all.
        weights: encoders to start from; None for the recipe's.
    """
    names = [str(path.with_suffix("")) for path in recipes]
    common = os.path.commonpath([str(Path(name).parent) for name in names]) if len(names) > 1 else str(
        Path(names[0]).parent)
    starts: list[tuple[str | None, str]] = [(None, "")]
    if weights:
        starts = list(zip(weights, labels_of(weights), strict=True))
    jobs = []
    for path, name in zip(recipes, names, strict=True):
        relative = os.path.relpath(name, common or ".").replace(os.sep, "-")
        for start, title in starts:
            for size in sizes:
                several = ["all" if size is None else f"{size}"] * (sizes != [None])
                label = " @ ".join([load_recipe(path).name, *[title] * bool(title), *several])
                folder = "-".join([relative, *[title] * bool(title), *several])
                jobs += [Job(path, seed, out / folder / f"seed-{seed}", size, start, label)
                         for seed in range(first_seed, first_seed + seeds)]
    return jobs


def program_of(recipe: Path) -> Path:
    """Return the program that runs a recipe."""
    phrases = any(task.kind == "phrases" for task in load_recipe(recipe).tasks.values())
    return HERE / ("pretrain_tft.py" if phrases else "train_multitask.py")


def run_job(job: Job, flags: list[str], threads: int) -> str | None:
    """Run one job to its end. Returns the reason if it failed.

    Args:
        job: the run.
        flags: of its program.
        threads: for torch.
    """
    if job.result.exists():
        return None
    job.folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(program_of(job.recipe)), "--recipe", str(job.recipe), "--seed", str(job.seed),
               "--out", str(job.folder), "--no_progress", *flags]
    if job.train_size is not None:
        command += ["--train_size", str(job.train_size)]
    if job.weights is not None:
        command += ["--weights", job.weights]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), PARENT: str(os.getpid())}
    with open(job.folder / "log.txt", "a", encoding="utf-8") as log:
        result = subprocess.run(command, stdout=log, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    if result.returncode:
        return (result.stderr.strip().splitlines() or ["no message"])[-1]
    # A finished run's optimizer state is of no more use, and is most of its size.
    for path in [*job.folder.glob("state-*.safetensors"), *job.folder.glob("best-*.safetensors"),
                 job.folder / "state.json"]:
        path.unlink(missing_ok=True)
    return None


def run_all(jobs: list[Job], flags: list[str], parallel: int) -> list[str]:
    """Run the jobs, some at a time with the cores shared evenly. Returns the failures.

    Args:
        jobs: the runs.
        flags: of train_multitask.py.
        parallel: how many at a time.
    """
    threads = max(1, (os.cpu_count() or 1) // parallel)
    started = time.monotonic()
    failures = []

    def one(job: Job):
        reason = run_job(job, flags, threads)
        minutes = (time.monotonic() - started) / 60
        print(f"[{minutes:5.1f} min] {job.folder}: {reason or 'done'}", flush=True)
        if reason:
            failures.append(f"{job.folder}: {reason}")

    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(one, jobs))
    return failures


# ---- the table -------------------------------------------------------------------------------------------------------


def read_result(job: Job) -> dict:
    """Read the results of a run."""
    return json.loads(job.result.read_text(encoding="utf-8"))


def score_names(results: list[dict], split: str) -> list[tuple[str, str]]:
    """Return each task's deciding metric, the leaderboard's tasks first. Transfer fine-tuning has two."""
    names = [(task, name) for result in results for task, metrics in result.get(split, {}).items()
             for index, name in enumerate(metrics) if index == 0 or name in ("phrasal", "sentential")]
    return sorted(dict.fromkeys(names), key=lambda pair: (pair not in LEADERBOARD, LEADERBOARD.index(pair)
                                                          if pair in LEADERBOARD else 0))


def p_values(first: Job, other: Job, task: str, metric: str) -> dict[str, float]:
    """Test two runs on the same dev examples. Returns nothing for a metric without a test, or for other examples.

    Args:
        first, other: the runs.
        task, metric: what is tested.
    """
    paths = [job.folder / "predictions" / f"{task}-dev.jsonl" for job in (first, other)]
    if not all(path.exists() for path in paths):
        return {}
    runs = [load_predictions(path) for path in paths]
    gold, same = (np.array([row.gold for row in run]) for run in runs)
    if not np.array_equal(gold, same):
        return {}
    a, b = (np.array([row.prediction for row in run]) for run in runs)
    if metric not in METRICS:
        return {}
    tests = {"bootstrap": paired_bootstrap(METRICS[metric], gold, a, b)}
    if metric == "accuracy":
        tests["mcnemar"] = mcnemar(a == gold, b == gold)
    if metric == "pearson":
        tests["williams"] = williams(gold, a, b)
    return tests


def summarize(jobs: list[Job]) -> list[Row]:
    """Make one row for each recipe, weights and size, in the order of the jobs. Jobs without a result are left out."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        if job.result.exists():
            groups.setdefault(str(job.folder.parent), []).append(job)
    rows: list[Row] = []
    reference: list[Job] = []
    for members in groups.values():
        results = [read_result(job) for job in members]
        first = members[0]
        row = Row(first.label, len(members), {}, {}, published=results[0]["published"],
                  formula=results[0]["overall_formula"], train_size=first.train_size, weights=first.weights,
                  seconds=float(np.mean([result["training_seconds"] for result in results])))
        for split in SPLITS:
            for task, metric in score_names(results, split):
                measured = [result[split][task][metric] for result in results if task in result[split]]
                name = f"{split} {task} {metric}"
                _add(row, name, [value["value"] for value in measured])
                row.intervals[name] = (float(np.mean([value["low"] for value in measured])),
                                       float(np.mean([value["high"] for value in measured])))
        if all(result["overall"] is not None for result in results):
            _add(row, "dev overall", [result["overall"] for result in results])
        if rows:
            paired = [(a, b) for a in reference for b in members if a.seed == b.seed]
            for task, metric in score_names(results, "dev"):
                tests = [p_values(a, b, task, metric) for a, b in paired]
                names = dict.fromkeys(name for test in tests for name in test)
                # Over seeds: the median, which no single lucky pair decides.
                row.p_values[f"dev {task} {metric}"] = {
                    name: float(np.median([test[name] for test in tests if name in test])) for name in names}
        else:
            reference = members
        rows.append(row)
    return rows


def _add(row: Row, name: str, values: list[float]):
    row.means[name] = float(np.mean(values))
    row.deviations[name] = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def _cell(row: Row, name: str) -> str:
    """Write a score: mean ± deviation over seeds, [interval over examples], p against the first line."""
    if name not in row.means:
        return ""
    deviation = row.deviations[name]
    text = f"{row.means[name]:.3f}" + ("" if math.isnan(deviation) else f" ± {deviation:.3f}")
    if name in row.intervals:
        text += " [{:.3f}, {:.3f}]".format(*row.intervals[name])
    tests = row.p_values.get(name, {})
    if tests:
        text += f" (p {min(1.0, tests['bootstrap']):.3f})"
    return text


def _published(row: Row, split: str, name: str) -> str:
    """Write the published figure of a score, if the recipe has one. It is named by its task or by its metric."""
    figures = row.published.get(split, {})
    words = name.split()  # split, task, metric
    figure = next((figures[word] for word in (words[-1], words[1]) if word in figures), None)
    return "" if figure is None else f"{figure:.3f}"


def markdown(rows: list[Row]) -> str:
    """Write a table for each split that was measured, with the published figures beside ours.

    A cell: mean ± deviation over seeds, [95 % interval over examples], p of the paired bootstrap against the first row.
    """
    parts = []
    for split in SPLITS:
        names = [name for name in dict.fromkeys(name for row in rows for name in row.means)
                 if name.startswith(f"{split} ")]
        # Published figures that have no score of ours stand in columns of their own.
        known = {word for name in names for word in name.split()[1:]}
        alone = list(dict.fromkeys(figure for row in rows for figure in row.published.get(split, {})
                                   if figure not in known))
        if not names and not alone:
            continue
        header, lines = ["recipe", "seeds"], []
        beside = {name: any(_published(row, split, name) for row in rows) for name in names}
        for name in names:
            header += [name.removeprefix(f"{split} "), *["published"] * beside[name]]
        header += [f"published {figure}" for figure in alone]
        for row in rows if names else [row for row in rows if row.published.get(split)]:
            cells = [row.name, str(row.seeds)]
            for name in names:
                cells += [_cell(row, name), *[_published(row, split, name)] * beside[name]]
            cells += [f"{row.published[split][figure]:.3f}" if figure in row.published.get(split, {}) else ""
                      for figure in alone]
            lines.append("| " + " | ".join([*cells, *[f"{row.seconds:,.0f}"] * (split == "dev")]) + " |")
        header += ["training s"] * (split == "dev")
        parts.append(f"{split}:\n\n| " + " | ".join(header) + " |\n|" + "---|" * len(header) + "\n" + "\n".join(lines)
                     + "\n")
    formulas = list(dict.fromkeys(row.formula for row in rows if "dev overall" in row.means))
    if formulas:
        parts.append(f"overall: {' or '.join(formulas)}\n")
    return "\n".join(parts)


def comma_separated(rows: list[Row]) -> str:
    """Write all numbers as comma-separated values."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["recipe", "weights", "train_size", "seeds", "score", "mean", "deviation", "low", "high",
                     "p_bootstrap", "p_mcnemar", "p_williams", "training_seconds"])
    for row in rows:
        for name, mean in row.means.items():
            tests = row.p_values.get(name, {})
            writer.writerow([row.name, row.weights or "", row.train_size or "", row.seeds, name, mean,
                             row.deviations[name], *row.intervals.get(name, ("", "")),
                             *(tests.get(test, "") for test in ("bootstrap", "mcnemar", "williams")), row.seconds])
    return buffer.getvalue()


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    flags = []
    if "--" in arguments:
        flags = arguments[arguments.index("--") + 1:]
        arguments = arguments[:arguments.index("--")]
    parser = Parser(prog="python -m training.compare", description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="+", type=Path)
    parser.add_argument("--seeds", type=positive, default=3, help="runs of each recipe")
    parser.add_argument("--first_seed", type=int, default=11711)
    parser.add_argument("--data", type=Path, help="as train_multitask.py takes it")
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    parser.add_argument("--parallel", type=positive, default=1,
                        help="runs at a time; the cores are shared between them")
    parser.add_argument("--corpus", type=Path, help="as pretrain_tft.py takes it")
    parser.add_argument("--weights", nargs="+", help="encoders to start from: every recipe with each of them")
    parser.add_argument("--train_sizes", help="learning curve: every recipe at each size, as in 1000,all")
    options = parser.parse_args(arguments)
    try:
        sizes: list[int | None] = [None]
        if options.train_sizes:
            try:
                sizes = [None if size == "all" else positive(size) for size in options.train_sizes.split(",")]
            except (ValueError, argparse.ArgumentTypeError):
                raise ValueError(f"--train_sizes {options.train_sizes}: expected numbers, or all, as in 1000,5000,all"
                                 ) from None
        for recipe in options.recipes:
            load_recipe(recipe)  # a mistake should show before the first of many runs
        for name in ("data", "corpus"):
            if getattr(options, name) is not None:
                flags = [f"--{name}", str(getattr(options, name)), *flags]
        jobs = plan(options.recipes, options.seeds, options.first_seed, options.out, sizes, options.weights)
        failures = run_all(jobs, flags, options.parallel)
        rows = summarize(jobs)
        for name, content in (("comparison.md", markdown(rows)), ("comparison.csv", comma_separated(rows)),
                              ("comparison.json", json.dumps([asdict(row) for row in rows], indent=1) + "\n")):
            write_text(options.out / name, content)
        print(markdown(rows), end="")
        for failure in failures:
            print(f"error: {failure}", file=sys.stderr)
        return 2 if failures else 0
    except (ValueError, OSError) as error:
        print(error_line(error), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
