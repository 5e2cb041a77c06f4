"""Further logs of a run, beside metrics.jsonl: for TensorBoard, or Weights & Biases, where they are installed.

Numbers are named by their stage: stage-1/loss/sst, stage-1/dev/sst/accuracy, stage-1/lr. metrics.jsonl is what a run
resumes by. These logs are for looking at: after a resumed run, TensorBoard hides the steps that were taken twice.
"""
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol


class Log(Protocol):
    """List what a log can do."""

    def write(self, step: int, numbers: dict[str, float]):
        """Write down named numbers of a step."""

    def close(self):
        """Finish the log."""


class TensorBoardLog:
    """Write event files into a run's folder, for `tensorboard --logdir runs`.

    Args:
        folder: of the run.
        resumed: the step of the stage at which the run goes on; None for a new run.
    """

    def __init__(self, folder: Path, resumed: int | None):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("--log tensorboard: tensorboard is not installed; pip install tensorboard") from None
        self.writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=resumed)

    def write(self, step: int, numbers: dict[str, float]):
        """Write down named numbers of a step."""
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)

    def close(self):
        """Finish the file."""
        self.writer.close()


class WandbLog:
    """Write to Weights & Biases. Its own variables say where (WANDB_MODE=offline keeps all on this machine).

    Args:
        folder: of the run; its name is the run's.
        settings: what the run is, shown beside its curves.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]):
        try:
            self.wandb: Any = importlib.import_module("wandb")
        except ImportError:
            raise ValueError("--log wandb: wandb is not installed; pip install wandb") from None
        (folder / "wandb").mkdir(parents=True, exist_ok=True)
        self.run = self.wandb.init(project="minbert", name=folder.name, dir=str(folder), config=settings)

    def write(self, step: int, numbers: dict[str, float]):
        """Write down named numbers of a step."""
        self.run.log({**numbers, "step": step})

    def close(self):
        """Finish the run."""
        self.run.finish()


def open_logs(names: Sequence[str], folder: Path, settings: dict[str, Any], resumed: int | None) -> list[Log]:
    """Open the logs that a command asks for.

    Args:
        names: of training.choices.LOGS.
        folder: of the run.
        settings: what the run is.
        resumed: the step at which the run goes on; None for a new run.

    Raises:
        ValueError: one is not installed.
    """
    return [TensorBoardLog(folder, resumed) if name == "tensorboard" else WandbLog(folder, settings)
            for name in dict.fromkeys(names)]


def flatten(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    """Name the numbers of a record of metrics.jsonl.

    >>> dict(flatten({"lr": 0.1, "loss": {"sst": 1.5}}, "stage-1"))
    {'stage-1/lr': 0.1, 'stage-1/loss/sst': 1.5}
    """
    for name, value in values.items():
        if isinstance(value, dict):
            # Of a metric, the value is enough: the interval stands in metrics.jsonl.
            inner = {"": value["value"]} if "low" in value else value
            yield from flatten(inner, f"{prefix}/{name}".rstrip("/"))
        elif isinstance(value, int | float) and name not in ("stage", "step", "epoch"):
            yield f"{prefix}/{name}".rstrip("/"), float(value)
