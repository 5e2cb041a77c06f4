"""Loss weights that are learned: each task's factor follows from the losses that it has had.

Surgery (surgery.py) looks at gradients. These rules look at losses, and GradNorm at the gradients' lengths. What they
remember fits into the saved state. To add one is to add a class here, and its name to WEIGHTINGS in choices.py.
"""
import math
import statistics
from dataclasses import dataclass, field
from typing import Protocol

from training.choices import WEIGHTINGS

State = dict[str, float]  # what a rule remembers, by "task/what"
TINY = 1e-8  # is added to a loss before its logarithm is taken


@dataclass
class Seen:
    """Hold what a rule may learn from after a step, by task."""

    losses: dict[str, float]  # without factors, all of them finite
    epoch_ends: bool = False  # this was the last step of an epoch
    after: dict[str, float] = field(default_factory=dict)  # losses of the same batches after the step: looks_again
    norms: dict[str, float] = field(default_factory=dict)  # of the shared gradients, all factors included: needs_norms


class Weighting(Protocol):
    """List what a step asks of a rule."""

    of_logarithms: bool = False  # the factors are on the losses' logarithms
    looks_again: bool = False
    needs_norms: bool = False

    def factors(self, state: State, names: list[str]) -> dict[str, float]:
        """Return the factor on each named task's loss."""

    def observe(self, state: State, seen: Seen):
        """Take note of a step. state: is updated in place."""


def softmax_factors(scores: dict[str, float]) -> dict[str, float]:
    """Turn K scores into K softmax(scores), whose mean is 1.

    >>> softmax_factors({"sst": 0.0, "sts": math.log(3)})
    {'sst': 0.5, 'sts': 1.5}
    """
    highest = max(scores.values(), default=0.0)
    powers = {name: math.exp(score - highest) for name, score in scores.items()}
    return {name: len(powers) * power / sum(powers.values()) for name, power in powers.items()}


class Uncertainty(Weighting):
    """Weigh a loss by the noise of its task (Kendall, Gal & Cipolla 2018, eqs. 7 and 10).

    The total loss is the sum of exp(-s) L + s / 2 with s = log sigma^2 of each task. The paper trains s beside the
    network. Here each step takes one step down its gradient 1/2 - exp(-s) L, at a rate of its own. Where L stays what
    it is, the factor goes to 1 / (2 L).

    >>> rule, state = Uncertainty(), {}
    >>> for _ in range(2000):
    ...     rule.observe(state, Seen({"sst": 2.0}))
    >>> round(rule.factors(state, ["sst"])["sst"], 4)
    0.25
    """

    rate = 0.02

    def factors(self, state: State, names: list[str]) -> dict[str, float]:
        """Return exp(-s). See Weighting."""
        return {name: math.exp(-state.get(f"{name}/s", 0.0)) for name in names}

    def observe(self, state: State, seen: Seen):
        """Move each s down its gradient. See Weighting."""
        for name, loss in seen.losses.items():
            s = state.get(f"{name}/s", 0.0)
            # A step is at most 1: a large loss would throw s far beyond its minimum.
            state[f"{name}/s"] = s - max(-1.0, self.rate * (0.5 - math.exp(-s) * loss))


class DynamicWeightAverage(Weighting):
    """Weigh a loss by how slowly it falls (Dynamic Weight Average, Liu, Johns & Davison 2019, eq. 7).

    The factors are K softmax(r / T), where r is the ratio of a task's mean losses in the last two epochs, K counts the
    tasks, and T = 2. They are 1 in the first two epochs.

    >>> rule, state = DynamicWeightAverage(), {}
    >>> for sst, sts in ((4.0, 4.0), (2.0, 4.0)):
    ...     rule.observe(state, Seen({"sst": sst, "sts": sts}, epoch_ends=True))
    >>> {name: round(factor, 3) for name, factor in rule.factors(state, ["sst", "sts"]).items()}
    {'sst': 0.876, 'sts': 1.124}
    """

    temperature = 2.0

    def factors(self, state: State, names: list[str]) -> dict[str, float]:
        """Return the factors of this epoch. See Weighting."""
        return {name: state.get(f"{name}/factor", 1.0) for name in names}

    def observe(self, state: State, seen: Seen):
        """Add to the epoch's means; at its end, compute the next epoch's factors. See Weighting."""
        for name, loss in seen.losses.items():
            state[f"{name}/sum"] = state.get(f"{name}/sum", 0.0) + loss
            state[f"{name}/count"] = state.get(f"{name}/count", 0.0) + 1
        if not seen.epoch_ends:
            return
        ratios = {}
        for name in sorted({key.rsplit("/", 1)[0] for key in state}):
            if not state.get(f"{name}/count"):
                continue  # it had no step in this epoch
            mean = state.pop(f"{name}/sum") / state.pop(f"{name}/count")
            before = state.get(f"{name}/mean")
            state[f"{name}/mean"] = mean
            if before is not None:
                ratios[name] = mean / max(before, 1e-12)
        factors = softmax_factors({name: ratio / self.temperature for name, ratio in ratios.items()})
        state.update({f"{name}/factor": factor for name, factor in factors.items()})


class GradNorm(Weighting):
    """Let every task pull equally hard, and harder where its loss falls slowly (GradNorm, Chen et al. 2018, eq. 2).

    A task's gradient should have the length mean(G) r^alpha. mean(G) is the mean of all lengths. r is the task's loss
    over its first one above zero, divided by the mean of that ratio over the tasks. Each weight takes one step down the
    gradient of |G - mean(G) r^alpha|, and their sum stays what it was.

    What we chose: lengths are those of all shared parameters (the paper takes the last shared layer only). The step is
    `rate` times a gradient whose mean over the tasks is 1, so that it does not depend on the losses' scale. A weight
    stays above `lowest`.

    >>> rule, state = GradNorm(), {}
    >>> for _ in range(200):
    ...     factors = rule.factors(state, ["sst", "sts"])
    ...     lengths = {"sst": 3 * factors["sst"], "sts": factors["sts"]}
    ...     rule.observe(state, Seen({"sst": 1.0, "sts": 1.0}, norms=lengths))
    >>> {name: round(factor, 1) for name, factor in rule.factors(state, ["sst", "sts"]).items()}
    {'sst': 0.5, 'sts': 1.5}
    """

    needs_norms = True
    alpha = 1.5
    rate = 0.01
    lowest = 1e-3

    def factors(self, state: State, names: list[str]) -> dict[str, float]:
        """Return the weights. See Weighting."""
        return {name: state.get(f"{name}/weight", 1.0) for name in names}

    def observe(self, state: State, seen: Seen):
        """Move each weight by one step. See Weighting."""
        names = list(seen.norms)
        if len(names) < 2:
            return  # lengths are compared within a step
        factors = self.factors(state, names)
        ratios = {}
        for name in names:
            if state.get(f"{name}/first", 0.0) <= 0:  # a first loss of zero is nothing to compare with
                state[f"{name}/first"] = seen.losses[name]
            first = state[f"{name}/first"]
            ratios[name] = max(0.0, seen.losses[name]) / first if first > 0 else 1.0
        mean_ratio = max(statistics.fmean(ratios.values()), 1e-12)
        mean_norm = statistics.fmean(seen.norms.values())
        slopes = {name: seen.norms[name] / factors[name] for name in names}  # d G / d weight
        mean_slope = max(statistics.fmean(slopes.values()), 1e-12)
        moved = {}
        for name in names:
            target = mean_norm * (ratios[name] / mean_ratio) ** self.alpha
            sign = (seen.norms[name] > target) - (seen.norms[name] < target)
            moved[name] = max(self.lowest, factors[name] - self.rate * sign * slopes[name] / mean_slope)
        scale = sum(factors.values()) / sum(moved.values())
        state.update({f"{name}/weight": scale * weight for name, weight in moved.items()})


class FAMO(Weighting):
    """Let every loss fall by the same factor in each step (FAMO, Liu et al. 2023, algorithm 1).

    The loss is the sum of z log L over the tasks, with z = softmax(w). After the step the same batches are computed
    again. The gradient of w is J' d, where d = log L before - log L after, and J is the Jacobian of the softmax. If a
    loss fell more than the others did, its weight goes down.

    As in the authors' code, Adam takes the steps of w, at a rate of 0.025 and with a decay of 0.01 in the gradient.
    What we chose: z is multiplied by the number of tasks, so that the factors start at 1. The paper's common factor
    1 / sum(z / L) is left out, because AdamW's steps do not depend on it.

    >>> rule, state = FAMO(), {}
    >>> rule.observe(state, Seen({"sst": 1.0, "sts": 1.0}, after={"sst": 0.5, "sts": 0.9}))
    >>> {name: round(factor, 4) for name, factor in rule.factors(state, ["sst", "sts"]).items()}
    {'sst': 0.975, 'sts': 1.025}
    """

    of_logarithms = True
    looks_again = True
    rate, decay, betas, eps = 0.025, 0.01, (0.9, 0.999), 1e-8

    def factors(self, state: State, names: list[str]) -> dict[str, float]:
        """Return K z, where K counts the tasks. See Weighting."""
        return softmax_factors({name: state.get(f"{name}/logit", 0.0) for name in names})

    def observe(self, state: State, seen: Seen):
        """Take one step of Adam on each w. See Weighting."""
        names = list(seen.after)
        if not names:
            return  # the step was not taken
        z = {name: factor / len(names) for name, factor in self.factors(state, names).items()}
        falls = {name: math.log(max(0.0, seen.losses[name]) + TINY) - math.log(max(0.0, seen.after[name]) + TINY)
                 for name in names}
        mean = sum(z[name] * falls[name] for name in names)
        for name in names:
            logit = state.get(f"{name}/logit", 0.0)
            gradient = z[name] * (falls[name] - mean) + self.decay * logit
            count = state[f"{name}/count"] = state.get(f"{name}/count", 0.0) + 1
            first, second = self.betas
            m = state[f"{name}/m"] = first * state.get(f"{name}/m", 0.0) + (1 - first) * gradient
            v = state[f"{name}/v"] = second * state.get(f"{name}/v", 0.0) + (1 - second) * gradient ** 2
            step = m / (1 - first ** count) / (math.sqrt(v / (1 - second ** count)) + self.eps)
            state[f"{name}/logit"] = logit - self.rate * step


RULES: dict[str, Weighting] = {"uncertainty": Uncertainty(), "dwa": DynamicWeightAverage(), "gradnorm": GradNorm(),
                               "famo": FAMO()}
assert ["none", *RULES] == WEIGHTINGS
