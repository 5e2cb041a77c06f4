"""The files of a recipe's tasks -> tokenized examples, with one printed line a file."""
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora.examples import Example, joined
from tasks.task import Task
from training.recipe import Recipe

SPLITS = ("train", "dev", "test")


@dataclass
class TaskData:
    """Hold a task's examples."""

    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]  # empty where there is no test file


def sample(examples: Sequence[Example], count: int | None, seed: str) -> Sequence[Example]:
    """Draw `count` of the examples, in their own order. The first rows of a sorted file would be one class.

    Args:
        examples: to draw from.
        count: how many; None for all.
        seed: of the draw.
    """
    if count is None or count >= len(examples):
        return examples
    chosen = sorted(random.Random(seed).sample(range(len(examples)), count))
    return [examples[index] for index in chosen]


def load_data(tasks: dict[str, Task], recipe: Recipe, directory: Path, limit: int | None = None,
              say: Callable[[str], None] = print, splits: tuple[str, ...] = SPLITS) -> dict[str, TaskData]:
    """Read, limit and tokenize each task's files.

    A missing test file is reported; a missing train or dev file is an error.

    Args:
        tasks: by name.
        recipe: names the files and the limits.
        directory: the files' folder.
        limit: at most so many examples of each split.
        say: prints a line.
        splits: those that are wanted.
    """
    data = {}
    for name, task in tasks.items():
        settings = recipe.tasks[name]
        parts: dict[str, Sequence[Example]] = {split: [] for split in SPLITS}
        for split in splits:
            files = [directory / file for file in getattr(settings, split)]
            if split == "test" and files and not any(file.exists() for file in files):
                say(f"{files[0]}: no such file; no test predictions for task {name}")
                continue
            if not files and split != "test":
                raise ValueError(f"task {name}: the recipe names no {split} file")
            datasets = []
            for file in files:
                datasets.append(task.read(file, split))
                say(datasets[-1].report())
            parts[split] = joined([dataset.examples for dataset in datasets])
            count = limit if split != "train" or settings.limit is None else min(settings.limit, limit or 10**12)
            parts[split] = sample(parts[split], count, f"{recipe.seed}/{name}/{split}")
            too_long = task.tokenize(parts[split])
            if too_long:
                say(f"  {too_long:,} of {len(parts[split]):,} {split} examples of task {name} are longer than "
                    f"{task.max_length} tokens and will be cut")
            if task.note():
                say(f"  {split}: {task.note()}")
        data[name] = TaskData(**parts)
    return data
