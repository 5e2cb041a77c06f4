"""Runs recipes over seeds and compares them: one table with means, deviations, p-values, published figures and time.

    python -m training.compare recipes/lee/*.toml --seeds 3 --data DIR [-- flags of train_multitask.py]

Each (recipe, seed) is a process of its own with a folder of its own; one that is finished is not run again, one that
was killed goes on. The others are tested against the first recipe: a paired bootstrap over dev examples for each metric
(Efron & Tibshirani 1993; Berg-Kirkpatrick et al. 2012), McNemar's exact test for accuracies, Williams' test for
correlations with the same gold scores (Williams 1959; Graham & Baldwin 2014).
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
from corpora.messages import error_line
from tasks.metrics import accuracy, pearson
from training.commandline import PARENT
from training.recipe import load_recipe
from training.significance import mcnemar, paired_bootstrap, williams

PROGRAM = Path(__file__).resolve().parent.parent / "train_multitask.py"
LEADERBOARD = (("sst", "accuracy"), ("para", "accuracy"), ("sts", "pearson"))


@dataclass
class Job:
    """Hold one run: a recipe, a seed, and the folder of its results."""

    recipe: Path
    seed: int
    folder: Path
    train_size: int | None = None

    @property
    def result(self) -> Path:
        """Return the path of the run's results."""
        return self.folder / "results.json"


@dataclass
class Row:
    """Hold one line of the table: a recipe (at one training size), all its seeds."""

    name: str
    seeds: int
    means: dict[str, float]  # "sst accuracy" -> mean over seeds; "overall" too
    deviations: dict[str, float]  # sample standard deviation; nan for one seed
    p_values: dict[str, dict[str, float]] = field(default_factory=dict)  # metric -> test -> p against the first recipe
    published: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0  # of training, mean over seeds
    train_size: int | None = None


# ---- running ---------------------------------------------------------------------------------------------------------


def plan(recipes: list[Path], seeds: int, first_seed: int, out: Path, sizes: list[int | None]) -> list[Job]:
    """List the runs.

    Args:
        recipes: files.
        seeds: runs of each recipe.
        first_seed: the others follow.
        out: the folder of all runs.
        sizes: training examples of each task; None for the recipe's own.
    """
    names = [str(path.with_suffix("")) for path in recipes]
    common = os.path.commonpath([str(Path(name).parent) for name in names]) if len(names) > 1 else str(
        Path(names[0]).parent)
    jobs = []
    for path, name in zip(recipes, names, strict=True):
        relative = os.path.relpath(name, common or ".").replace(os.sep, "-")
        for size in sizes:
            label = relative if size is None else f"{relative}-{size}"
            jobs += [Job(path, seed, out / label / f"seed-{seed}", size)
                     for seed in range(first_seed, first_seed + seeds)]
    return jobs


def run_job(job: Job, flags: list[str], threads: int) -> str | None:
    """Run one job to its end. Returns the reason if it failed.

    Args:
        job: the run.
        flags: of train_multitask.py.
        threads: for torch.
    """
    if job.result.exists():
        return None
    job.folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(PROGRAM), "--recipe", str(job.recipe), "--seed", str(job.seed), "--out",
               str(job.folder), "--no_progress", *flags]
    if job.train_size is not None:
        command += ["--train_size", str(job.train_size)]
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


def metric_names(results: list[dict]) -> list[tuple[str, str]]:
    """Return each task's deciding metric, the leaderboard's tasks first."""
    found = [(task, next(iter(metrics))) for result in results for task, metrics in result["dev"].items()]
    return sorted(dict.fromkeys(found), key=lambda pair: (pair not in LEADERBOARD, LEADERBOARD.index(pair)
                                                          if pair in LEADERBOARD else 0))


def p_values(first: Job, other: Job, task: str, metric: str) -> dict[str, float]:
    """Test two runs on the same dev examples. Returns nothing for a metric without a test, or for other examples.

    Args:
        first, other: the runs.
        task, metric: what is tested.
    """
    runs = []
    for job in (first, other):
        path = job.folder / "predictions" / f"{task}-dev.json"
        if not path.exists():
            return {}
        runs.append(json.loads(path.read_text(encoding="utf-8")))
    if runs[0]["gold"] != runs[1]["gold"]:
        return {}
    gold, a, b = (np.array(values) for values in (runs[0]["gold"], runs[0]["predictions"], runs[1]["predictions"]))
    if metric == "accuracy":
        return {"bootstrap": paired_bootstrap(accuracy, gold, a, b), "mcnemar": mcnemar(a == gold, b == gold)}
    if metric == "pearson":
        return {"bootstrap": paired_bootstrap(pearson, gold, a, b), "williams": williams(gold, a, b)}
    return {}


def summarize(jobs: list[Job]) -> list[Row]:
    """Make one row for each recipe and size, in the order of the jobs. Jobs without a result are left out."""
    groups: dict[tuple, list[Job]] = {}
    for job in jobs:
        if job.result.exists():
            groups.setdefault((job.recipe, job.train_size), []).append(job)
    rows, reference = [], None
    for (recipe, size), members in groups.items():
        results = [read_result(job) for job in members]
        values: dict[str, list[float]] = {}
        for task, metric in metric_names(results):
            values[f"{task} {metric}"] = [r["dev"][task][metric]["value"] for r in results if task in r["dev"]]
        if all(result["overall"] is not None for result in results):
            values["overall"] = [result["overall"] for result in results]
        row = Row(load_recipe(recipe).name if size is None else f"{load_recipe(recipe).name} @ {size:,}", len(members),
                  {name: float(np.mean(v)) for name, v in values.items()},
                  {name: float(np.std(v, ddof=1)) if len(v) > 1 else math.nan for name, v in values.items()},
                  published=results[0]["published"], train_size=size,
                  seconds=float(np.mean([result["training_seconds"] for result in results])))
        if reference is None:
            reference = members
        else:
            paired = [(a, b) for a in reference for b in members if a.seed == b.seed]
            for task, metric in metric_names(results):
                tests = [p_values(a, b, task, metric) for a, b in paired]
                names = dict.fromkeys(name for test in tests for name in test)
                # Over seeds: the median, which no single lucky pair decides.
                row.p_values[f"{task} {metric}"] = {
                    name: float(np.median([test[name] for test in tests if name in test])) for name in names}
        rows.append(row)
    return rows


def _cell(row: Row, metric: str) -> str:
    if metric not in row.means:
        return ""
    deviation = row.deviations[metric]
    text = f"{row.means[metric]:.3f}" + ("" if math.isnan(deviation) else f" ± {deviation:.3f}")
    tests = row.p_values.get(metric, {})
    if tests:
        text += f" (p {min(1.0, tests['bootstrap']):.3f})"
    return text


def markdown(rows: list[Row]) -> str:
    """Write the table. Its p is the paired bootstrap's against the first row. Published figures stand beside ours."""
    names = list(dict.fromkeys(name for row in rows for name in row.means))
    published = list(dict.fromkeys(name for row in rows for name in row.published))
    lines = ["| recipe | seeds | " + " | ".join(names) + " | "
             + "".join(f"published {name} | " for name in published) + "training s |",
             "|---|---" + "|---" * (len(names) + len(published)) + "|---|"]
    for row in rows:
        lines.append(f"| {row.name} | {row.seeds} | " + " | ".join(_cell(row, name) for name in names) + " | "
                     + "".join(f"{row.published[name]:.3f} | " if name in row.published else " | "
                               for name in published) + f"{row.seconds:,.0f} |")
    return "\n".join(lines) + "\n"


def comma_separated(rows: list[Row]) -> str:
    """Write all numbers as comma-separated values."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["recipe", "train_size", "seeds", "metric", "mean", "deviation", "p_bootstrap", "p_mcnemar",
                     "p_williams", "training_seconds"])
    for row in rows:
        for name, mean in row.means.items():
            tests = row.p_values.get(name, {})
            writer.writerow([row.name, row.train_size or "", row.seeds, name, mean, row.deviations[name],
                             *(tests.get(test, "") for test in ("bootstrap", "mcnemar", "williams")), row.seconds])
    return buffer.getvalue()


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    flags = []
    if "--" in arguments:
        flags = arguments[arguments.index("--") + 1:]
        arguments = arguments[:arguments.index("--")]
    parser = argparse.ArgumentParser(prog="python -m training.compare", description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each recipe")
    parser.add_argument("--first_seed", type=int, default=11711)
    parser.add_argument("--data", type=Path, help="as train_multitask.py takes it")
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time; the cores are shared between them")
    parser.add_argument("--train_sizes", help="learning curve: every recipe at each of these sizes, as in 1000,5000")
    options = parser.parse_args(arguments)
    try:
        if options.seeds < 1 or options.parallel < 1:
            raise ValueError("--seeds and --parallel: expected 1 or more")
        sizes: list[int | None] = [None]
        if options.train_sizes:
            try:
                sizes = [int(size) for size in options.train_sizes.split(",")]
            except ValueError:
                raise ValueError(f"--train_sizes {options.train_sizes}: expected numbers, as in 1000,5000") from None
        for recipe in options.recipes:
            load_recipe(recipe)  # a mistake should show before the first of many runs
        if options.data is not None:
            flags = ["--data", str(options.data), *flags]
        jobs = plan(options.recipes, options.seeds, options.first_seed, options.out, sizes)
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
