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
TRIAL = 1 << 23  # numbers of the parameter on which the update is timed
GAPS = 1.0  # of the memory that steps work in: it grew by 0.5 to 1.4 of itself in some hundred steps
REPORT = 50.0  # megabytes of the library that draws it
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


class Update:
    """Time the optimizer's update of all the stage's parameters, by that of one parameter, too large for a cache.

    Args:
        steps: knows the parameters.
        engine: makes the optimizer.
        stage: sets it.
        device: where.
    """

    def __init__(self, steps: StageSteps, engine: Engine, stage: Stage, device: torch.device):
        self.engine, self.share = engine, steps.trained_numbers() / TRIAL
        parameter = nn.Parameter(torch.zeros(TRIAL // 1024, 1024, device=device))
        parameter.grad = torch.ones_like(parameter)
        group = {"params": [parameter], "lr": 0.0, "weight_decay": 0.0}
        self.optimizer, _ = engine.optimizer([group], stage.optimizer, 1, device)
        self.seconds()  # the first one makes the moments

    def seconds(self) -> float:
        """Take an update, and return its time."""
        before = time.perf_counter()
        self.engine.step(self.optimizer, 1.0)
        if self.optimizer.param_groups[0]["params"][0].is_cuda:
            torch.cuda.synchronize()
        return (time.perf_counter() - before) * self.share


def peak_of_run(steps: StageSteps, device: torch.device, done: int, resting: float, rehearsed: float) -> float:
    """Return the most memory that a run will hold, in megabytes, from what its rehearsal held.

    Args:
        steps: of the stage.
        device: on a CPU, states are copied while they are saved, blocks of many sizes leave gaps between them, and the
            report is drawn by the same process.
        done: steps that were taken before: the optimizer's moments are there.
        resting: the process before the first step, with model and data.
        rehearsed: the process after the rehearsal.
    """
    weights = 4 * steps.trained_numbers() / 2**20
    moments = 2 * weights  # the optimizer makes them at its first step
    total = rehearsed + (0 if done else moments)
    if device.type == "cpu":
        total += GAPS * max(0.0, rehearsed - resting) + 1.5 * moments + (weights if steps.stage.keep == "best" else 0)
        total += REPORT
    return total


def estimate(steps: StageSteps, engine: Engine, stage: Stage, device: torch.device, done: int, resting: float,
             evaluate: Callable[[], float], patience: float = PATIENCE) -> Cost:
    """Measure what the rest of a stage will cost.

    Args:
        steps: of the stage. Its longest batches were tried.
        engine, stage, device: what computes, and how.
        done: steps that were taken before.
        resting: megabytes of the process before its first step.
        evaluate: returns the seconds of an evaluation on dev.
        patience: seconds for the rehearsal.
    """
    positions = np.random.default_rng(0).permutation(np.linspace(done, steps.total - 1, POSITIONS).astype(int))
    times: list[float] = []
    started = time.perf_counter()
    steps.rehearse(int(positions[0]))  # warms up
    update = Update(steps, engine, stage, device)
    for index, position in enumerate(positions):
        before = time.perf_counter()
        steps.rehearse(int(position))
        if device.type == "cuda":
            torch.cuda.synchronize()
        gradient = time.perf_counter() - before
        times.append(gradient + update.seconds())  # in turn, as in a step: each finds the caches full of the other
        if index >= 2 and time.perf_counter() - started > patience:
            break
    left = steps.total - done
    rehearsed = peak_memory() - 4 * 4 * TRIAL / 2**20  # without the trial's parameter, gradient and moments
    return Cost(left, float(np.mean(times)), evaluate(), -(-left // steps.per_epoch),
                peak_of_run(steps, device, done, resting, rehearsed))
