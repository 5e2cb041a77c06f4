"""Which tasks take part in a step. A pure function of the step's number and a seed, so a run resumes by counting.

`cycle` takes a batch of every task at every step (shorter sets start over). `sequential` takes one task after another
over the whole stage. Two take every example exactly once in every epoch: `in_turn` all of the first task, then all of
the second, and so on; `shuffled` the batches of all tasks in random order, which is proportional mixing without
replacement. The others draw a task, with replacement, by the sizes of the sets: proportional, square_root, temperature
T (size ** (1 / T)), uniform, and annealed (Stickland & Murray 2019, section 4.1: from proportional towards uniform as
training goes on).
"""
import random
from collections.abc import Callable, Mapping
from functools import lru_cache

# How much each task weighs in a draw: (sizes, temperature, progress) -> weights. To add a mixing is to add a function
# here, and its name to MIXINGS.
SHARES: dict[str, Callable[[Mapping[str, int], float, float], dict[str, float]]] = {
    "proportional": lambda sizes, temperature, progress: powers(sizes, 1.0),
    "square_root": lambda sizes, temperature, progress: powers(sizes, 0.5),
    "temperature": lambda sizes, temperature, progress: powers(sizes, 1 / temperature),
    "uniform": lambda sizes, temperature, progress: powers(sizes, 0.0),
    "annealed": lambda sizes, temperature, progress: powers(sizes, 1 - 0.8 * progress),
}
WHOLE = ("in_turn", "shuffled")  # every example once an epoch
MIXINGS = ["cycle", "sequential", *WHOLE, *SHARES]


def powers(sizes: Mapping[str, int], exponent: float) -> dict[str, float]:
    """Raise each task's size to a power.

    >>> powers({"sst": 4, "sts": 9}, 0.5)
    {'sst': 2.0, 'sts': 3.0}
    """
    return {name: size ** exponent for name, size in sizes.items()}


def probabilities(sizes: Mapping[str, int], kind: str, temperature: float = 2.0, progress: float = 0.0,
                  cap: Mapping[str, int] | None = None) -> dict[str, float]:
    """Return each task's share of the draws. They sum to 1.

    Args:
        sizes: examples of each task.
        kind: a key of SHARES.
        temperature: of kind "temperature".
        progress: 0 at the start of training, 1 at its end (kind "annealed").
        cap: a task's size counts as at most this (T5's examples-proportional mixing, Raffel et al. 2020, section
            3.5.2).
    """
    capped = {name: min(size, (cap or {}).get(name, size)) for name, size in sizes.items()}
    weights = SHARES[kind](capped, temperature, progress)
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


@lru_cache(maxsize=4)
def epoch_order(batches: tuple[tuple[str, int], ...], kind: str, seed: str, epoch: int) -> list[str]:
    """Return the task of every batch of an epoch, each batch once.

    Args:
        batches: (task, its batches in one pass) each.
        kind: of WHOLE.
        seed, epoch: of the shuffle.

    >>> epoch_order((("sst", 2), ("sts", 1)), "in_turn", "seed", 0)
    ['sst', 'sst', 'sts']
    """
    order = [name for name, count in batches for _ in range(count)]
    if kind == "shuffled":
        random.Random(f"{seed}/order/{epoch}").shuffle(order)
    return order


def tasks_at(step: int, total: int, batches: Mapping[str, int], sizes: Mapping[str, int], kind: str, seed: str,
             draws: int = 1, temperature: float = 2.0, cap: Mapping[str, int] | None = None, per_epoch: int = 0
             ) -> list[str]:
    """Return the tasks of one step.

    Args:
        step, total: of the stage.
        batches: of each task in one pass (for sequential, in_turn and shuffled).
        sizes: examples of each task.
        kind: of MIXINGS.
        seed: of the stage.
        draws: tasks a step, where they are drawn or shuffled.
        temperature, cap: see `probabilities`.
        per_epoch: steps of an epoch (for in_turn and shuffled).
    """
    names = list(sizes)
    if kind == "cycle":
        return names
    if kind == "sequential":
        # Each task gets its share of the steps, in the order of the recipe.
        place = step * sum(batches.values()) / max(total, 1)
        for name in names:
            if place < batches[name]:
                return [name]
            place -= batches[name]
        return [names[-1]]
    if kind in WHOLE:
        epoch, place = divmod(step, per_epoch or total)
        order = epoch_order(tuple(batches.items()), kind, seed, epoch)
        taken = draws if kind == "shuffled" else 1
        start = place * taken % len(order)
        return order[start:start + taken]
    shares = probabilities(sizes, kind, temperature, step / max(total - 1, 1), cap)
    rng = random.Random(f"{seed}/mixing/{step}")
    return rng.choices(list(shares), weights=list(shares.values()), k=draws)
