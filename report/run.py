"""A run's folder -> what a report shows. Everything is read from files; nothing is computed by a model here."""
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpora.predictions import Prediction, load_predictions
from minbert.tokenizer import BertTokenizer

RESULTS, LOG, RECIPE, ATTENTION = "results.json", "metrics.jsonl", "recipe.toml", "attention.json"


@dataclass
class Run:
    """Hold a finished run."""

    folder: Path
    results: dict[str, Any]
    recipe: str  # the resolved recipe's text
    steps: list[dict[str, Any]] = field(default_factory=list)  # metrics.jsonl: a record a training step
    epochs: list[dict[str, Any]] = field(default_factory=list)  # and a record an epoch, with dev scores
    predictions: dict[str, list[Prediction]] = field(default_factory=dict)  # of dev, by task
    attention: list[dict[str, Any]] = field(default_factory=list)  # see training/attention.py

    @property
    def name(self) -> str:
        """Return the folder's name."""
        return self.folder.resolve().name

    @property
    def title(self) -> str:
        """Return the recipe's name and the seed."""
        return f"{self.results.get('recipe', '?')}, seed {self.results.get('seed', '?')}"

    def tokenizer(self) -> BertTokenizer | None:
        """Return the run's tokenizer, or None if the folder has none."""
        return BertTokenizer.load(self.folder / "encoder") if (self.folder / "encoder").is_dir() else None

    def tasks(self, split: str = "dev") -> list[str]:
        """Return the tasks that were measured on a split."""
        return list(self.results.get(split) or {})

    def data_files(self) -> list[Path]:
        """Return the data files that the run read."""
        return [Path(name) for name in (self.results.get("identity") or {}).get("data") or {}]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read as JSON ({str(error).splitlines()[0]})") from None


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the log's records. Raise ValueError, with file and line, for a line that is none."""
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                    raise ValueError("expected an object with a step")
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}:{number}: not a record of a training step ({error})") from None
            yield record


def load_run(folder: Path) -> Run:
    """Read a run's folder. Raise ValueError, in one line, for a folder that is no finished run."""
    folder = Path(folder)
    if not (folder / RESULTS).is_file():
        raise ValueError(f"{folder}: no finished run is there; expected a folder with {RESULTS}")
    results = _json(folder / RESULTS)
    if not isinstance(results, dict) or not isinstance(results.get("dev"), dict):
        raise ValueError(f"{folder / RESULTS}: has no scores of dev; expected the results of a run")
    recipe = folder / RECIPE
    run = Run(folder, results, recipe.read_text(encoding="utf-8", errors="replace") if recipe.is_file() else "")
    if (folder / LOG).is_file():
        for record in _records(folder / LOG):
            (run.epochs if "epoch" in record else run.steps).append(record)
    for task in results["dev"]:
        path = folder / "predictions" / f"{task}-dev.jsonl"
        if path.is_file():
            run.predictions[task] = load_predictions(path)
    if (folder / ATTENTION).is_file():
        run.attention = _json(folder / ATTENTION)
    return run


def earlier_runs(run: Run, limit: int = 20) -> list[dict[str, Any]]:
    """Return the results of other runs of the same recipe in the same folder of runs, by name.

    A folder that cannot be read is not one of them.

    Args:
        run: the one that has a report.
        limit: at most so many.
    """
    result = []
    for path in sorted(run.folder.resolve().parent.glob(f"*/{RESULTS}"))[:1000]:
        if path.parent == run.folder.resolve():
            continue
        try:
            values = _json(path)
        except ValueError:
            continue
        if isinstance(values, dict) and values.get("recipe") == run.results.get("recipe"):
            result.append({**values, "name": path.parent.name})
    return result[-limit:]
