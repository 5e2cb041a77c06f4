"""Loss weights that are learned: each task's factor follows from the losses that it has had.

Surgery (surgery.py) looks at gradients. These rules look at losses only, so they cost nothing, and what they remember
fits into the saved state. To add one is to add a class here, and its name to WEIGHTINGS in choices.py.
"""
import math
from typing import Protocol

from training.choices import WEIGHTINGS

State = dict[str, float]  # what a rule remembers, by "task/what"


class Weighting(Protocol):
    """List what a step asks of a rule."""

    def factors(self, state: State, names: list[str]) -> dict[str, float]:
        """Return the factor on each named task's loss."""

    def observe(self, state: State, losses: dict[str, float], epoch_ends: bool):
        """Take note of a step's losses, without factors.

        Args:
            state: is updated in place.
            losses: by task, all of them finite.
            epoch_ends: whether this was the last step of an epoch.
        """


class Uncertainty:
    """Weigh a loss by the noise of its task (Kendall, Gal & Cipolla 2018, eqs. 7 and 10).

    The total loss is the sum of exp(-s) L + s / 2 with s = log sigma^2 of each task. The paper trains s beside the
    network. Here each step takes one step down its gradient 1/2 - exp(-s) L, at a rate of its own. Where L stays what
    it is, the factor goes to 1 / (2 L).

    >>> rule, state = Uncertainty(), {}
    >>> for _ in range(2000):
    ...     rule.observe(state, {"sst": 2.0}, False)
    >>> round(rule.factors(state, ["sst"])["sst"], 4)
    0.25
    """

    rate = 0.02

    def factors(self, state: State, names: list[str]) -> dict[str, float]:
        """Return exp(-s). See Weighting."""
        return {name: math.exp(-state.get(f"{name}/s", 0.0)) for name in names}

    def observe(self, state: State, losses: dict[str, float], epoch_ends: bool):
        """Move each s down its gradient. See Weighting."""
        for name, loss in losses.items():
            s = state.get(f"{name}/s", 0.0)
            # A step is at most 1: a large loss would throw s far beyond its minimum.
            state[f"{name}/s"] = s - max(-1.0, self.rate * (0.5 - math.exp(-s) * loss))


class DynamicWeightAverage:
    """Weigh a loss by how slowly it falls (Dynamic Weight Average, Liu, Johns & Davison 2019, eq. 7).

    The factors are K softmax(r / T), where r is the ratio of a task's mean losses in the last two epochs, K counts the
    tasks, and T = 2. They are 1 in the first two epochs.

    >>> rule, state = DynamicWeightAverage(), {}
    >>> for sst, sts in ((4.0, 4.0), (2.0, 4.0)):
    ...     rule.observe(state, {"sst": sst, "sts": sts}, True)
    >>> {name: round(factor, 3) for name, factor in rule.factors(state, ["sst", "sts"]).items()}
    {'sst': 0.876, 'sts': 1.124}
    """

    temperature = 2.0

    def factors(self, state: State, names: list[str]) -> dict[str, float]:
        """Return the factors of this epoch. See Weighting."""
        return {name: state.get(f"{name}/factor", 1.0) for name in names}

    def observe(self, state: State, losses: dict[str, float], epoch_ends: bool):
        """Add to the epoch's means; at its end, compute the next epoch's factors. See Weighting."""
        for name, loss in losses.items():
            state[f"{name}/sum"] = state.get(f"{name}/sum", 0.0) + loss
            state[f"{name}/count"] = state.get(f"{name}/count", 0.0) + 1
        if not epoch_ends:
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
        highest = max(ratios.values(), default=0.0)
        powers = {name: math.exp((ratio - highest) / self.temperature) for name, ratio in ratios.items()}
        for name, power in powers.items():
            state[f"{name}/factor"] = len(powers) * power / sum(powers.values())


RULES: dict[str, Weighting] = {"uncertainty": Uncertainty(), "dwa": DynamicWeightAverage()}
assert ["none", *RULES] == WEIGHTINGS
