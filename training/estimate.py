"""What a stage will cost, measured before its first step: a few of its steps, without the optimizer's update.

A rehearsed step computes losses and gradients as a real one does, and throws them away. Positions are spread over the
stage, because tasks may come one after the other. The update is timed on a parameter of its own. Nothing of the run
changes by it.
"""
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from corpora.messages import in_words
from training.engines import Engine
from training.memory import peak_memory
from training.recipe import Stage
from training.step import StageSteps

PATIENCE = 3.0  # seconds for a stage's rehearsal
POSITIONS = 12  # steps that are rehearsed, if there is time
TRIAL = 1 << 20  # numbers of the parameter on which the update is timed
SHORT = 20  # steps: a stage that is no longer is over before it is estimated


@dataclass
class Cost:
    """Hold what a stage will cost."""

    steps: int
    step_seconds: float
    evaluation_seconds: float  # after each epoch
    epochs: int
    peak_mb: float

    @property
    def seconds(self) -> float:
        """Return the time of the stage."""
        return self.steps * self.step_seconds + self.epochs * self.evaluation_seconds

    def line(self) -> str:
        """Say it in a line."""
        epochs = f"{self.epochs} epoch{'' if self.epochs == 1 else 's'}"
        return (f"about {in_words(self.seconds)} ({self.step_seconds:.3f} s a step, {self.evaluation_seconds:.1f} s "
                f"for dev after each of {epochs}), peak memory about {self.peak_mb:,.0f} MB")


def update_seconds(steps: StageSteps, engine: Engine, stage: Stage, device: torch.device) -> float:
    """Time the optimizer's update of all the stage's parameters, by that of one parameter of a million numbers.

    Args:
        steps: knows the parameters.
        engine: makes the optimizer.
        stage: sets it.
        device: where.
    """
    parameter = nn.Parameter(torch.zeros(TRIAL // 1024, 1024, device=device))
    parameter.grad = torch.ones_like(parameter)
    group = {"params": [parameter], "lr": 0.0, "weight_decay": 0.0}
    optimizer, _ = engine.optimizer([group], stage.optimizer, 1, device)
    times = []
    for _ in range(4):
        before = time.perf_counter()
        engine.step(optimizer, 1.0)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - before)
    return min(times[1:]) * steps.trained_numbers() / TRIAL


def estimate(steps: StageSteps, engine: Engine, stage: Stage, device: torch.device, done: int,
             evaluate: Callable[[], float], patience: float = PATIENCE) -> Cost:
    """Measure what the rest of a stage will cost.

    Args:
        steps: of the stage. Its longest batches were tried.
        engine, stage, device: what computes, and how.
        done: steps that were taken before.
        evaluate: returns the seconds of an evaluation on dev.
        patience: seconds for the rehearsal.
    """
    positions = np.random.default_rng(0).permutation(np.linspace(done, steps.total - 1, POSITIONS).astype(int))
    times: list[float] = []
    started = time.perf_counter()
    for index, position in enumerate([positions[0], *positions]):
        before = time.perf_counter()
        steps.rehearse(int(position))
        if device.type == "cuda":
            torch.cuda.synchronize()
        if index:  # the first one warms up
            times.append(time.perf_counter() - before)
        if index >= 3 and time.perf_counter() - started > patience:
            break
    moments = 2 * 4 * steps.trained_numbers() / 2**20  # the optimizer makes them at its first step
    # On a CPU, a saved state is copied once more: the parameters and both moments.
    later = (0 if done else moments) + (1.5 * moments if device.type == "cpu" else 0)
    left = steps.total - done
    return Cost(left, float(np.mean(times)) + update_seconds(steps, engine, stage, device), evaluate(),
                -(-left // steps.per_epoch), peak_memory() + later)
