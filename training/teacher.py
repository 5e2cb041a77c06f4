"""Knowledge distillation: a finished run answers the training examples of another, and its answers are labels too.

The teacher says more than a label does: how sure it is, and which wrong class is the next best (Hinton et al. 2015,
section 2). It answers each example once; its answers are kept in the cache, and so are those of an interrupted call.
"""
import hashlib
import io
import zipfile
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from corpora.examples import Example
from corpora.files import write_atomically
from corpora.messages import first_line
from minbert.pretrained import cache_directory
from tasks.task import Task
from training.data import TaskData
from training.distributed import World
from training.engines import Engine
from training.evaluate import answers
from training.model import MultitaskModel, load_run
from training.recipe import Recipe, TaskRecipe, load_recipe
from training.runs import WEIGHTS, content_hash, require_finished

CHUNK = 8192  # examples that are answered, and kept, at a time


def teachers_of(recipe: Recipe) -> list[str]:
    """Return the folders of the recipe's teachers, each once."""
    return list(dict.fromkeys(task.options.teacher for task in recipe.tasks.values() if task.options.teacher))


def load_teacher(folder: Path, engine: Engine) -> tuple[Recipe, MultitaskModel]:
    """Read a finished run. Raise ValueError if there is none."""
    require_finished(folder, "teacher ")
    recipe = load_recipe(folder / "recipe.toml")
    with torch.random.fork_rng():  # building heads seeds torch; the student's own draws do not change by it
        return recipe, load_run(recipe, folder, folder / WEIGHTS, engine.model)


def teacher_task(student: Task, settings: TaskRecipe, folder: Path, teacher: Recipe, model: MultitaskModel) -> Task:
    """Return the teacher's task that answers for one of the student's. Raise ValueError if there is none.

    Args:
        student: a task. What is further training data of another may be answered by that one's.
        settings: of the student's task.
        folder, teacher, model: the teacher's.
    """
    for name in filter(None, (student.name, settings.model_of)):
        if name in teacher.tasks and teacher.tasks[name].kind == settings.kind:
            task = model.tasks_by_name()[name]
            if task.classes != student.classes:
                raise ValueError(f"teacher {folder}: its task '{name}' has {task.classes} classes; expected "
                                 f"{student.classes}")
            return task
    raise ValueError(f"teacher {folder}: has no task '{student.name}' of kind '{settings.kind}'; its tasks: "
                     f"{', '.join(teacher.tasks)}")


def _digest(example: Example) -> bytes:
    """Identify an example by its sentences."""
    return hashlib.sha256("\0".join((*example.sentences, "")).encode()).digest()


def _write(path: Path, digests: list[bytes], values: np.ndarray):
    buffer = io.BytesIO()  # np.savez would change the name of a file that is not called .npz
    np.savez(buffer, digests=np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 32), values=values)
    write_atomically(path, lambda place: place.write_bytes(buffer.getvalue()))


def _read(path: Path) -> dict[bytes, np.ndarray]:
    """Read answers by the digests of their examples."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            digests, values = arrays["digests"], arrays["values"]
        if not (digests.ndim == values.ndim == 2 and digests.shape == (len(values), 32)
                and (digests.dtype, values.dtype) == (np.uint8, np.float32)):
            raise ValueError(f"arrays of the shapes {list(digests.shape)} and {list(values.shape)}")
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot be read ({first_line(error)}); delete it, and the teacher answers "
                         "again") from None
    return dict(zip(map(bytes, digests), values, strict=True))


def kept_answers(task: Task, model: MultitaskModel, examples: Sequence[Example], identity: str,
                 device: torch.device, world: World, say: Callable[[str], None]) -> np.ndarray:
    """Return a teacher's answers, [examples, classes] or [examples, 1], from the cache where they are there.

    Args:
        task, model: the teacher's.
        examples: to answer.
        identity: of what answers: the hash of its weights, and the precision.
        device: where it computes.
        world: the processes; they take turns.
        say: prints a line.
    """
    folder = cache_directory() / "answers" / hashlib.sha256(f"{identity}/{task.name}".encode()).hexdigest()[:32]
    known: dict[bytes, np.ndarray] = {}
    for path in sorted(folder.glob("*.npz")):
        known.update(_read(path))
    world.wait()  # all have read before the first process writes more
    digests = [_digest(example) for example in examples]
    # Each once, and only the text: the teacher cuts and numbers it itself.
    missing = {digest: index for index, digest in enumerate(digests) if digest not in known}
    for start in range(0, len(missing), CHUNK):
        some = list(missing)[start:start + CHUNK]
        copies = [Example("", examples[missing[digest]].sentences) for digest in some]
        task.tokenize(copies)
        given = answers(task, model.encoder, copies, device, world)
        values = given["probabilities"] if task.classes is not None else given["prediction"][:, None]
        values = values.astype(np.float32)
        if world.first:
            _write(folder / f"{hashlib.sha256(b''.join(some)).hexdigest()[:32]}.npz", some, values)
        known.update(zip(some, values, strict=True))
        say(f"  {min(start + CHUNK, len(missing)):,} of {len(missing):,} examples of task {task.name} answered")
    return np.stack([known[digest] for digest in digests])


def teach(tasks: dict[str, Task], recipe: Recipe, data: dict[str, TaskData], engine: Engine, precision: str,
          device: torch.device, world: World, say: Callable[[str], None], ask: bool = True) -> dict[str, str]:
    """Give the training examples of every task that has a teacher the teacher's answers.

    Args:
        tasks: the student's, by name.
        recipe: the student's.
        data: the student's. Its training examples get their `answer`.
        engine: computes.
        precision: at which the student trains. The teacher answers at it too.
        device: where.
        world: the processes.
        say: prints a line.
        ask: the teachers. Without it they are checked, and every answer is the same (for a dry run).

    Returns:
        Each teacher's weight file -> the hash of its content.
    """
    hashes = {}
    for folder in teachers_of(recipe):
        teacher, model = load_teacher(Path(folder), engine)
        model.to(device)
        engine.use(precision, model.encoder)
        weights = Path(folder) / WEIGHTS
        hashes[str(weights)] = content_hash(weights)
        for name, student in tasks.items():
            if recipe.tasks[name].options.teacher != folder:
                continue
            say(f"task {name}: {folder} is the teacher")
            task = teacher_task(student, recipe.tasks[name], Path(folder), teacher, model)
            train = data[name].train
            if ask:
                given = kept_answers(task, model, train, f"{hashes[str(weights)]}/{precision}", device, world, say)
            else:
                given = np.full((len(train), task.classes or 1), 1 / (task.classes or 1), dtype=np.float32)
            for index, answer in enumerate(given.tolist()):
                example = train[index]
                example.answer = array("f", answer)
                train[index] = example  # type: ignore[index]  # an example of a list on disk has to be put back
    return hashes
