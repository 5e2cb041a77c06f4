"""Score what several runs say together: the mean of their probabilities, or of their scores, on the dev sets.

    python -m training.ensemble RUN RUN ...

For a task with two classes it is the mean of how far each run's number lies above the threshold of that run.
An ensemble costs as many models as it has runs. Its figures stand apart from those of one model.
"""
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from corpora.flags import Parser
from corpora.messages import first_line, status_of
from corpora.predictions import Prediction, load_predictions
from report.analysis import decided_by, is_classification
from tasks.leaderboard import FORMULAS
from tasks.metrics import bootstrap_interval
from training.compare import METRICS
from training.evaluate import Metric, table


def together(runs: Sequence[Path], task: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the ensemble's predictions and the gold labels of a task, [n] each.

    Args:
        runs: folders of finished runs.
        task: a name.

    Raises:
        ValueError: the runs answered other examples, or not all with probabilities of as many classes.
    """
    answered: list[list[Prediction]] = []
    for run in runs:
        path = run / "predictions" / f"{task}-dev.jsonl"
        answered.append(load_predictions(path))
        if [(row.id, row.gold) for row in answered[-1]] != [(row.id, row.gold) for row in answered[0]]:
            raise ValueError(f"{path}: has other examples than those of {runs[0]}")
        classes = [{len(row.probabilities or []) for row in rows} for rows in (answered[0], answered[-1])]
        if classes[0] != classes[1] or len(classes[0]) > 1:
            raise ValueError(f"{path}: has probabilities of other classes than {runs[0]}")
    gold = np.array([row.gold for row in answered[0]], dtype=float)
    if not all(map(is_classification, answered)):
        return np.mean([[row.prediction for row in rows] for rows in answered], axis=0), gold
    decisions = [decision for rows in answered if (decision := decided_by(rows)) is not None]
    if len(decisions) == len(answered):  # two classes: each run has a threshold of its own
        return (np.mean([numbers - used for numbers, used, _ in decisions], axis=0) > 0).astype(float), gold
    if any(row.probabilities is None for rows in answered for row in rows):
        raise ValueError(f"{runs[0]}: its classes of task {task} have no probabilities, which an ensemble needs")
    means = np.mean([[row.probabilities or [] for row in rows] for rows in answered], axis=0)
    return means.argmax(axis=1).astype(float), gold


def scores(runs: Sequence[Path]) -> tuple[dict[str, dict[str, Metric]], dict[str, tuple[int, int]], str]:
    """Score every task that all runs have, by its deciding metric.

    Returns:
        The scores by task and metric, the rows of each task (twice), and the name of the runs' overall formula.

    Raises:
        ValueError: a folder holds no finished run, or the runs have no task in common.
    """
    for run in runs:
        try:
            results = json.loads((run / "results.json").read_text(encoding="utf-8"))
            deciding = {task: next(iter(metrics)) for task, metrics in results["dev"].items()}
            formula = next(name for name, text in FORMULAS.items() if text == results["overall_formula"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError) as error:
            raise ValueError(f"{run}: {type(error).__name__}: {first_line(error)}; expected the folder of a finished "
                             "run") from None
    found: dict[str, dict[str, Metric]] = {}
    rows = {}
    for task, name in deciding.items():
        if name in METRICS and all((run / "predictions" / f"{task}-dev.jsonl").exists() for run in runs):
            predictions, gold = together(runs, task)
            low, high = bootstrap_interval(METRICS[name], predictions, gold)
            found[task] = {name: Metric(float(METRICS[name](predictions, gold)), low, high)}
            rows[task] = (len(gold), len(gold))
    if not found:
        raise ValueError(f"{', '.join(map(str, runs))}: have no task in common whose answers have a mean")
    return found, rows, formula


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m training.ensemble", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    options = parser.parse_args(arguments)

    def run():
        if len(options.runs) < 2:
            raise ValueError("an ensemble has two or more runs")
        print(f"ensemble of {len(options.runs)} runs, dev\n{table(*scores(options.runs))}")

    return status_of(run)


if __name__ == "__main__":
    sys.exit(main())
