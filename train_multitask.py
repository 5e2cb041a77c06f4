"""Train, evaluate and predict the tasks of a recipe with one shared encoder.

    python train_multitask.py --option finetune                       # generated data, or data/ where it is filled
    python train_multitask.py --recipe recipes/default.toml --data DIR --out runs/mine
    python train_multitask.py --option evaluate --checkpoint runs/mine

The flags are the course's; each overrides a field of the recipe.
"""
import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from training.choices import COMBINERS, ENGINES, PRECISIONS
from training.commandline import Parser, fraction, guarded, positive, rate, run_directory
from training.recipe import USUAL_TASKS, Recipe, load_recipe

HERE = Path(__file__).parent
DEFAULT_RECIPE = HERE / "recipes" / "default.toml"
GENERATED = Path("data") / "generated"
COURSE_TASKS = ("sst", "para", "sts")


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    result = Parser(description=__doc__.splitlines()[0])
    result.add_argument("--option", choices=("pretrain", "finetune", "evaluate"), default="finetune",
                        help="pretrain: the encoder is frozen and only heads are trained; finetune: all is trained; "
                             "evaluate: a checkpoint is scored, nothing is trained")
    result.add_argument("--recipe", type=Path, default=None, help="TOML file (default: recipes/default.toml)")
    result.add_argument("--weights", help="encoder to start from: a directory, a hub id, or all-MiniLM-L6-v2")
    result.add_argument("--data", type=Path, help="folder with the course's files (default: data/, else generated)")
    result.add_argument("--out", type=Path, help="run folder (default: runs/<recipe>)")
    result.add_argument("--checkpoint", type=Path, help="with --option evaluate: a run folder or its model.safetensors")
    result.add_argument("--limit", type=positive, help="at most so many examples of every file, for a quick look")
    result.add_argument("--train_size", type=positive, help="at most so many training examples of each task")
    result.add_argument("--seed", type=int)
    result.add_argument("--epochs", type=positive, help="of every stage (default of the default recipe: 10)")
    result.add_argument("--batch_size", type=positive, help="examples of each task in a step (default recipe: 8)")
    result.add_argument("--steps_per_epoch", type=positive)
    result.add_argument("--lr", type=rate, help="of encoder and heads (finetune default: the recipe's; pretrain: 1e-3)")
    result.add_argument("--hidden_dropout_prob", type=fraction, help="before every task's head (default: the recipe's)")
    result.add_argument("--encoder_dropout", type=fraction, help="in the encoder (default: its config.json's)")
    result.add_argument("--combine", metavar="NAME",
                        help=f"how the tasks' gradients become one: {', '.join(COMBINERS)}")
    result.add_argument("--precision", choices=PRECISIONS, help="of training (default: the fastest, by measurement)")
    result.add_argument("--engine", choices=ENGINES, default="engine",
                        help="plain: train with the text in minbert/ alone; engine: with its faster twin")
    result.add_argument("--use_gpu", action="store_true")
    result.add_argument("--no_progress", action="store_true", help="no progress bars")
    for name in USUAL_TASKS:
        for split in ("train", "dev", "test"):
            result.add_argument(f"--{name}_{split}", nargs="+", metavar="FILE", help=argparse.SUPPRESS
                                if name not in COURSE_TASKS else f"{split} file of task {name}")
        for split in ("dev", "test"):
            result.add_argument(f"--{name}_{split}_out", type=Path, metavar="FILE", help=argparse.SUPPRESS
                                if name not in COURSE_TASKS else f"predictions of task {name}, {split}")
    return result


def override(recipe: Recipe, flags: argparse.Namespace) -> Recipe:
    """Return the recipe with the flags' values in it. Dataclasses check themselves again."""
    stages = []
    for stage in recipe.stage:
        changes = {name: value for name in ("epochs", "batch_size", "steps_per_epoch", "combine")
                   if (value := getattr(flags, name)) is not None}
        if len(stage.tasks) == 1:
            changes.pop("combine", None)  # there is nothing to combine
        optimizer: dict[str, Any] = {}
        if flags.option == "pretrain":
            changes["trainable"] = "heads"
            optimizer = {"lr": 1e-3, "head_lr": 1e-3}
        if flags.lr is not None:
            optimizer = {"lr": flags.lr, "head_lr": flags.lr}
        stages.append(dataclasses.replace(stage, **changes,
                                          optimizer=dataclasses.replace(stage.optimizer, **optimizer)))
    tasks = {}
    for name, task in recipe.tasks.items():
        changes = {split: [str(Path(file).absolute()) for file in files] for split in ("train", "dev", "test")
                   if (files := getattr(flags, f"{name}_{split}", None))}
        if flags.train_size is not None:
            changes["limit"] = flags.train_size
        if flags.hidden_dropout_prob is not None:
            changes["options"] = dataclasses.replace(task.options, dropout=flags.hidden_dropout_prob)
        tasks[name] = dataclasses.replace(task, **changes)
    fields = {name: value for name in ("weights", "seed", "hidden_dropout_prob", "encoder_dropout", "precision")
              if (value := getattr(flags, name)) is not None}
    return dataclasses.replace(recipe, **fields, stage=stages, tasks=tasks)


def data_directory(flags: argparse.Namespace, recipe: Recipe) -> Path:
    """Return --data; else data/ if it has the recipe's files; else the generated corpus, with a line that says so."""
    from corpora.toy import write_course_files, write_glue_files

    if flags.data is not None:
        if not flags.data.is_dir():
            raise ValueError(f"{flags.data}: no such folder; expected one with the course's files")
        return flags.data
    files = [file for task in recipe.tasks.values() for file in (*task.train, *task.dev)]
    if all((Path("data") / file).exists() for file in files):
        return Path("data")
    print(f"No data given (--data): using a small GENERATED corpus, written to {GENERATED}. Its scores say that "
          "training works, and nothing about language.")
    write_course_files(GENERATED)
    if any(task.kind == "glue" for task in recipe.tasks.values()):
        write_glue_files(GENERATED)
    return GENERATED


def main(arguments: list[str] | None = None) -> int:
    """Run the program. Returns the exit status."""
    return guarded(run, parser().parse_args(arguments))


def run(flags: argparse.Namespace) -> int:
    """Do what the flags say."""
    if flags.option == "evaluate":
        if flags.checkpoint is None:
            raise ValueError("--option evaluate needs --checkpoint, a run folder or its model.safetensors")
        folder = flags.checkpoint if flags.checkpoint.is_dir() else flags.checkpoint.parent
        if not flags.checkpoint.exists():
            raise ValueError(f"{flags.checkpoint}: no such file or folder; expected a run folder")
        recipe = load_recipe(flags.recipe or folder / "recipe.toml")
        weights = folder / "model.safetensors" if flags.checkpoint.is_dir() else flags.checkpoint
        flags.option = "finetune"  # the flags that follow change files and limits only
        recipe = override(recipe, flags)
        from training.program import Program  # late: a wrong flag or recipe should not wait for torch

        program = Program(recipe, data_directory(flags, recipe), flags.out or folder, flags.limit, flags.use_gpu,
                          not flags.no_progress, flags.engine)
        program.evaluate_checkpoint(weights, folder)
    else:
        recipe = override(load_recipe(flags.recipe or DEFAULT_RECIPE), flags)
        data = data_directory(flags, recipe)
        from training.program import Program

        text = Program.saved_recipe(recipe, data, flags.limit)
        program = Program(recipe, data, run_directory(flags, recipe, text), flags.limit, flags.use_gpu,
                          not flags.no_progress, flags.engine)
        program.train(text)
    outputs = {(name, split): getattr(flags, f"{name}_{split}_out", None) or (
                   None if flags.out or name not in COURSE_TASKS else
                   Path("predictions") / f"{name}-{split}-output.csv")
               for name in recipe.tasks for split in ("dev", "test")}
    program.finish(outputs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
