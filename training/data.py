"""The files of a recipe's tasks -> tokenized examples, with one printed line a file."""
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corpora.examples import Example, joined
from corpora.layouts import split_off
from tasks.task import Task
from training.recipe import Recipe, TaskRecipe

SPLITS = ("train", "dev", "test")


@dataclass
class TaskData:
    """Hold a task's examples."""

    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]  # empty where there is no test file
    held_out: Sequence[Example] = field(default_factory=list)  # that decide the task's threshold


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


def _read(task: Task, settings: TaskRecipe, files: Sequence[Path], split: str, say: Callable[[str], None]
          ) -> Sequence[Example]:
    """Read a split's files into one list, and say what each holds. See `load_data`."""
    layout = settings.layout()
    datasets = []
    for file in files:
        datasets.append(task.read(file, split) if layout is None else task.read_own(file, split, layout))
        say(datasets[-1].report())
    return joined([dataset.examples for dataset in datasets])


def _texts(example: Example) -> frozenset[str]:
    """Return an example's sentences, in any order and case."""
    return frozenset(sentence.casefold() for sentence in example.sentences)


def _hold_out(tasks: dict[str, Task], recipe: Recipe, directory: Path, data: dict[str, TaskData],
              say: Callable[[str], None]):
    """Draw the rows that decide thresholds, and take their texts out of the training data. See `load_data`."""
    for name, settings in recipe.tasks.items():
        if name not in tasks or not settings.held_out:
            continue
        everything = _read(tasks[name], settings, [directory / file for file in settings.held_out], "dev", say)
        # A small file, as the generated ones are, gives half of its rows at most: the rest is for training.
        count = min(settings.held_out_rows, max(1, len(everything) // 2))
        held = sample(everything, count, f"{recipe.seed}/{name}/held-out")
        tasks[name].tokenize(held)
        data[name].held_out = held
        texts = set(map(_texts, held))
        for other, part in data.items():
            if name in (other, recipe.tasks[other].model_of):
                before = len(part.train)
                part.train = [example for example in part.train if _texts(example) not in texts]
                if not part.train:
                    raise ValueError(f"task {other}: held_out leaves nothing to train on")
                say(f"  task {name}: {len(held):,} rows decide the threshold; {before - len(part.train):,} training "
                    f"examples of {other} with their texts are left out")


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
        shares: dict[str, Sequence[Example]] = {}  # train and dev, where dev is drawn from train: read once for both
        for split in splits if not settings.model_of else [split for split in splits if split == "train"]:
            drawn = settings.dev_share > 0 and split != "test"
            files = [directory / file for file in (settings.train if drawn else getattr(settings, split))]
            if split == "test" and files and not any(file.exists() for file in files):
                say(f"{files[0]}: no such file; no test predictions for task {name}")
                continue
            if not files and split != "test":
                raise ValueError(f"task {name}: the recipe names no {split} file")
            if not drawn:  # labels of a test file are not read
                parts[split] = _read(task, settings, files, "test" if settings.unlabelled else split, say)
            else:
                if not shares:
                    shares["train"], shares["dev"] = split_off(_read(task, settings, files, "train", say),
                                                               settings.dev_share, f"{recipe.seed}/{name}/dev")
                    if not shares["train"]:
                        raise ValueError(f"{files[0]}: dev_share {settings.dev_share:g} leaves nothing to train on")
                parts[split] = shares[split]
                say(f"  task {name}: {len(parts[split]):,} of them for {split}, drawn with seed {recipe.seed}")
            count = limit if split != "train" or settings.limit is None else min(settings.limit, limit or 10**12)
            parts[split] = sample(parts[split], count, f"{recipe.seed}/{name}/{split}")
            too_long = task.tokenize(parts[split])
            if too_long:
                say(f"  {too_long:,} of {len(parts[split]):,} {split} examples of task {name} are longer than "
                    f"{task.max_length} tokens and will be cut")
            if task.note():
                say(f"  {split}: {task.note()}")
        data[name] = TaskData(**parts)
    if "train" in splits:
        _hold_out(tasks, recipe, directory, data, say)
    return data
