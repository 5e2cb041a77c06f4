"""The learning rate over time, as a factor between 0 and 1 of each group's own rate."""
import math

SCHEDULES = ("linear", "cosine", "constant")


def rate_factor(kind: str, step: int, total: int, warmup: float) -> float:
    """Return the factor on the rate at a step counted from 0.

    Args:
        kind: of SCHEDULES.
        step, total: of the stage.
        warmup: the fraction of all steps in which the rate rises from 0.
    """
    rising = math.ceil(warmup * total)
    if step < rising:
        return (step + 1) / (rising + 1)
    progress = (step - rising) / max(1, total - rising)
    if kind == "linear":
        return 1 - progress
    if kind == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    return 1.0
