"""The files of a recipe's tasks -> tokenized examples, with one printed line a file."""
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.task import Example, Task, joined
from training.recipe import Recipe

SPLITS = ("train", "dev", "test")


@dataclass
class TaskData:
    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]  # empty where there is no test file


def sample(examples: Sequence[Example], count: int | None, seed: str) -> Sequence[Example]:
    """`count` of the examples, drawn with the seed, in their own order: a sorted file's first rows are one class."""
    if count is None or count >= len(examples):
        return examples
    chosen = sorted(random.Random(seed).sample(range(len(examples)), count))
    return [examples[index] for index in chosen]


def load_data(tasks: dict[str, Task], recipe: Recipe, directory: Path, limit: int | None = None, say=print,
              splits: tuple[str, ...] = SPLITS) -> dict[str, TaskData]:
    """Reads, limits and tokenizes each task's files. A missing test file is said; a missing train or dev file is an
    error. limit: at most so many examples of each split. splits: those wanted."""
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
            cut = task.tokenize(parts[split])
            if cut:
                say(f"  {cut:,} of {len(parts[split]):,} {split} examples of task {name} are longer than "
                    f"{task.max_length} tokens and will be cut")
            if task.note():
                say(f"  {split}: {task.note()}")
        data[name] = TaskData(**parts)
    return data
