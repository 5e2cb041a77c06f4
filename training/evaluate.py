"""Predictions of a task over a set of examples, and what they are worth, with bootstrap intervals."""
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from corpora.examples import Example
from minbert.batch import by_length
from minbert.bert import BertModel
from tasks.encoding import TOKENS_PER_BATCH, evaluating
from tasks.leaderboard import FORMULAS, OVERALL
from tasks.metrics import bootstrap_interval
from tasks.task import Task
from training.distributed import ALONE, World


@dataclass
class Metric:
    """Hold a measured value and how sure we are of it."""

    value: float
    low: float  # 95 % bootstrap interval over examples
    high: float


def predict(task: Task, encoder: BertModel, examples: Sequence[Example], device: torch.device, world: World = ALONE
            ) -> np.ndarray:
    """Predict examples. Returns the predictions in the order of the examples. See `answers`."""
    return answers(task, encoder, examples, device, world)["prediction"]


@torch.inference_mode()
def answers(task: Task, encoder: BertModel, examples: Sequence[Example], device: torch.device, world: World = ALONE
            ) -> dict[str, np.ndarray]:
    """Return the predictions, and the probabilities or scores they were made from, in the order of the examples.

    Batches are made by length, so that padding costs little. Several processes take turns at them, and all get all
    predictions.

    Args:
        task, encoder: what predicts.
        examples: tokenized.
        device: where.
        world: the processes.
    """
    lengths = [task.length(example) for example in examples]
    budget = max(TOKENS_PER_BATCH // task.sequences_per_example, task.max_length)
    own = []
    with evaluating(encoder, task):
        for indices in by_length(lengths, budget)[world.rank::world.size]:
            batch = task.collate([examples[index] for index in indices]).to(device)
            own.append((indices, {name: values.cpu().numpy() for name, values in task.answers(encoder, batch).items()}))
    places, parts = zip(*(part for parts in world.gather(own) for part in parts), strict=True)
    result = {}
    for name in parts[0]:
        in_batches = np.concatenate([part[name] for part in parts])
        result[name] = np.empty_like(in_batches)
        result[name][np.concatenate(places)] = in_batches
    return result


def measure(task: Task, predictions: np.ndarray, examples: Sequence[Example]) -> dict[str, Metric]:
    """Compute each of the task's metrics, the deciding one first.

    Args:
        task: knows its metrics.
        predictions: in the order of the examples.
        examples: give the labels.
    """
    labels = np.array([example.label for example in examples])
    functions = task.metrics()
    result = {}
    for name in sorted(functions, key=lambda name: name != task.metric):
        value = functions[name](predictions, labels)
        result[name] = Metric(value, *bootstrap_interval(functions[name], predictions, labels))
    return result


def selection_score(tasks: dict[str, Task], results: dict[str, dict[str, Metric]]) -> float:
    """Return one number to choose epochs by: the mean over tasks.

    Correlations are moved to 0..1, as the course does.
    """
    values = []
    for name, metrics in results.items():
        value = metrics[tasks[name].metric].value
        values.append((value + 1) / 2 if tasks[name].classes is None else value)
    return float(np.mean(values))


def one_score(results: dict[str, dict[str, Metric]], formula: str) -> float | None:
    """Return the one score over sst, para and sts, if all three were measured. formula: of tasks.leaderboard."""
    try:
        return OVERALL[formula](results["sst"]["accuracy"].value, results["para"]["accuracy"].value,
                                results["sts"]["pearson"].value)
    except KeyError:
        return None


def conflicts(log: Path) -> dict[str, dict[str, float]]:
    """Say how often each pair of tasks pulled in opposite directions, from a run's metrics.jsonl.

    Returns:
        "para/sst" -> steps with both gradients, the share of them with a negative cosine, and the mean cosine. Empty
        where the tasks' gradients were not kept apart.
    """
    cosines: dict[str, list[float]] = {}
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            for pair, cosine in json.loads(line).get("conflict", {}).items():
                cosines.setdefault(pair, []).append(cosine)
    return {pair: {"steps": len(values), "rate": float(np.mean(np.array(values) < 0)),
                   "mean_cosine": float(np.mean(values))} for pair, values in cosines.items()}


def table(results: dict[str, dict[str, Metric]], counts: dict[str, tuple[int, int]], formula: str) -> str:
    """Lines of "task  metric  value [low, high]".

    Args:
        results: by task and metric.
        counts: examples used and available.
        formula: of the one score (tasks.leaderboard).
    """
    lines = []
    for task, metrics in results.items():
        used, available = counts[task]
        rows = f"{used:,} rows" if used == available else f"{used:,} of {available:,} rows"
        for index, (name, metric) in enumerate(metrics.items()):
            lines.append(f"  {task if index == 0 else '':<13}{name:<10}{metric.value:7.4f}  "
                         f"[{metric.low:.4f}, {metric.high:.4f}]{'  ' + rows if index == 0 else ''}")
    score = one_score(results, formula)
    if score is not None:
        lines.append(f"  {'score':<13}{'overall':<10}{score:7.4f}  {FORMULAS[formula]}")
    return "\n".join(lines)
