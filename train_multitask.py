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

from corpora.flags import Parser, fraction, positive, rate
from corpora.layouts import FORMATS
from corpora.near import near
from corpora.tables import decimal
from training.choices import COMBINERS, COURSE_TASKS
from training.commandline import add_machine_flags, guarded, require_writable, run_directory
from training.recipe import USUAL_TASKS, Recipe, load_recipe
from training.runs import recorded, saved_recipe

HERE = Path(__file__).parent
DEFAULT_RECIPE = HERE / "recipes" / "default.toml"
GENERATED = Path("data") / "generated"
GENERATED_EPOCHS = 3
OWN = ("format", "separator", "columns", "labels", "dev_share")  # flags for files of one's own


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    result = Parser(description=__doc__.splitlines()[0])
    result.add_argument("--option", choices=("pretrain", "finetune", "evaluate"), default="finetune",
                        help="pretrain: the encoder is frozen and only heads are trained; finetune: all is trained; "
                             "evaluate: a checkpoint is scored, nothing is trained")
    result.add_argument("--recipe", type=Path, default=None, help="TOML file (default: recipes/default.toml)")
    result.add_argument("--weights", help="encoder to start from: a directory, a hub id, or all-MiniLM-L6-v2")
    result.add_argument("--tasks", nargs="+", metavar="TASK", help="train these of the recipe's tasks only")
    result.add_argument("--data", type=Path, help="folder with the course's files (default: data/, else generated)")
    result.add_argument("--out", type=Path, help="run folder (default: runs/<recipe>)")
    result.add_argument("--checkpoint", type=Path, help="with --option evaluate: a run folder or its model.safetensors")
    result.add_argument("--limit", type=positive, help="at most so many examples of every file, for a quick look")
    result.add_argument("--train_size", type=positive, help="at most so many training examples of each task")
    result.add_argument("--seed", type=int, help="of everything that is drawn (default: the recipe's, 11711)")
    result.add_argument("--epochs", type=positive, help="of every stage (default of the default recipe: 10)")
    result.add_argument("--batch_size", type=positive, help="examples of each task in a step (default recipe: 8)")
    result.add_argument("--steps_per_epoch", type=positive, help="instead of one pass over a set")
    result.add_argument("--lr", type=rate, help="of encoder and heads (finetune default: the recipe's; pretrain: 1e-3)")
    result.add_argument("--hidden_dropout_prob", type=fraction, help="before every task's head (default: the recipe's)")
    result.add_argument("--encoder_dropout", type=fraction, help="in the encoder (default: its config.json's)")
    result.add_argument("--combine", metavar="NAME",
                        help=f"how the tasks' gradients become one: {', '.join(COMBINERS)}")
    add_machine_flags(result)
    own = result.add_argument_group("a file of your own, of one task (docs/own-data.md)")
    own.add_argument("--format", choices=FORMATS, help="of the task's files")
    own.add_argument("--separator", help="between columns, where it is no tab (tsv) or comma (csv)")
    own.add_argument("--no_header", action="store_true", help="--columns gives places: sentence=2")
    own.add_argument("--columns", nargs="+", metavar="OURS=THEIRS", help="what the files call the task's columns")
    own.add_argument("--labels", nargs="+", metavar="WORD=LABEL", help="words that stand for labels, as in yes=1 no=0")
    own.add_argument("--dev_share", type=fraction, help="draw this share of train for dev, instead of a dev file")
    for name in USUAL_TASKS:
        for split in ("train", "dev", "test"):
            result.add_argument(f"--{name}_{split}", nargs="+", metavar="FILE", help=argparse.SUPPRESS
                                if name not in COURSE_TASKS else f"{split} file of task {name}")
        for split in ("dev", "test"):
            result.add_argument(f"--{name}_{split}_out", type=Path, metavar="FILE", help=argparse.SUPPRESS
                                if name not in COURSE_TASKS else f"predictions of task {name}, {split}")
    return result


def pairs_of(texts: list[str], flag: str) -> dict[str, str]:
    """Read texts such as a=b. flag: named by an error."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value) or name in pairs:
            raise ValueError(f"--{flag} {text}: expected NAME=VALUE, each name once")
        pairs[name] = value
    return pairs


def own_files(flags: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return the fields of a task that the flags for one's own files set. name: of the task."""
    fields: dict[str, Any] = {}
    if flags.dev_share is not None:
        if getattr(flags, f"{name}_dev", None):
            raise ValueError(f"--dev_share and --{name}_dev: expected one of them")
        fields = {"dev_share": flags.dev_share, "dev": []}
    if flags.format is None:
        for flag in ("separator", "columns", "labels"):
            if getattr(flags, flag) is not None:
                raise ValueError(f"--{flag} has no effect without --format")
        if flags.no_header:
            raise ValueError("--no_header has no effect without --format")
        return fields
    labels = {}
    for word, value in pairs_of(flags.labels or [], "labels").items():
        number = decimal(value)
        if number is None:
            raise ValueError(f"--labels {word}={value}: expected a number after the =")
        labels[word] = int(number) if number == int(number) else number
    # Of files of one's own, there are those that one names.
    given: dict[str, Any] = {split: [] for split in ("train", "dev", "test")
                             if not getattr(flags, f"{name}_{split}", None)}
    return {**given, **fields, "format": flags.format, "separator": flags.separator or "",
            "header": not flags.no_header, "columns": pairs_of(flags.columns or [], "columns"), "labels": labels}


def only_tasks(recipe: Recipe, names: list[str]) -> Recipe:
    """Return the recipe with these of its tasks only. A stage that loses all its tasks is left out."""
    for name in names:
        if name not in recipe.tasks:
            raise ValueError(f"--tasks {name}: the recipe has no such task; its tasks: {', '.join(recipe.tasks)}"
                             f"{near(name, recipe.tasks)}")
    stages = []
    for stage in recipe.stage:
        kept = [name for name in stage.tasks if name in names]
        if not kept:
            continue
        tables: dict[str, Any] = {field: {name: value for name, value in getattr(stage, field).items() if name in kept}
                                  for field in ("loss_weights", "cap", "share")}
        if isinstance(stage.batch_size, dict):
            tables["batch_size"] = {name: stage.batch_size[name] for name in kept}
        if len(kept) == 1:
            tables["combine"] = "sum"
        stages.append(dataclasses.replace(stage, tasks=kept, balanced=[name for name in stage.balanced if name in kept],
                                          **tables))
    return dataclasses.replace(recipe, stage=stages, tasks={name: recipe.tasks[name] for name in recipe.tasks
                                                            if name in names})


def refuse_flags_without_effect(recipe: Recipe, flags: argparse.Namespace):
    """Raise ValueError for a flag that would change nothing."""
    for name in USUAL_TASKS:
        for suffix in ("train", "dev", "test", "dev_out", "test_out"):
            if name not in recipe.tasks and getattr(flags, f"{name}_{suffix}") is not None:
                raise ValueError(f"--{name}_{suffix}: there is no task {name}; tasks: {', '.join(recipe.tasks)}")
    if flags.option == "evaluate":
        idle = ["recipe", "weights", "train_size", "seed", "epochs", "batch_size", "steps_per_epoch", "lr",
                "hidden_dropout_prob", "encoder_dropout", "combine", "precision", *OWN,
                *(f"{name}_train" for name in recipe.tasks if name in USUAL_TASKS)]
    else:
        idle = ["checkpoint"]
        if flags.combine is not None and all(len(stage.tasks) == 1 for stage in recipe.stage):
            raise ValueError("--combine has no effect: no stage trains two tasks together")
    for name in idle:
        if getattr(flags, name) is not None:
            raise ValueError(f"--{name} has no effect with --option {flags.option}")


def override(recipe: Recipe, flags: argparse.Namespace) -> Recipe:
    """Return the recipe with the flags' values in it. Dataclasses check themselves again."""
    if flags.tasks is not None:
        recipe = only_tasks(recipe, flags.tasks)
    refuse_flags_without_effect(recipe, flags)
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
    if (any(getattr(flags, flag) is not None for flag in OWN) or flags.no_header) and len(recipe.tasks) != 1:
        raise ValueError("--format, --columns, --labels and --dev_share are for the files of one task; name it "
                         f"(--tasks); tasks: {', '.join(recipe.tasks)}")
    for name, task in recipe.tasks.items():
        changes = {split: [str(Path(file).absolute()) for file in files] for split in ("train", "dev", "test")
                   if (files := getattr(flags, f"{name}_{split}", None))}
        changes = {**own_files(flags, name), **changes}
        if flags.train_size is not None:
            changes["limit"] = flags.train_size
        if flags.hidden_dropout_prob is not None:
            changes["options"] = dataclasses.replace(task.options, dropout=flags.hidden_dropout_prob)
        tasks[name] = dataclasses.replace(task, **changes)
    fields = {name: value for name in ("weights", "seed", "hidden_dropout_prob", "encoder_dropout", "precision")
              if (value := getattr(flags, name)) is not None}
    return dataclasses.replace(recipe, **fields, stage=stages, tasks=tasks)


def data_directory(flags: argparse.Namespace, recipe: Recipe) -> Path:
    """Return --data; else data/ if it has the recipe's files; else the generated corpus, with a line that says so.

    Raises:
        ValueError: some of the files are there and others are not. Real and generated data never mix.
    """
    if flags.data is not None:
        if not flags.data.is_dir():
            raise ValueError(f"{flags.data}: no such folder; expected one with the course's files")
        return flags.data
    files = list(dict.fromkeys(file for task in recipe.tasks.values() for file in (*task.train, *task.dev)))
    there = [file for file in files if (Path("data") / file).exists()]
    missing = [file for file in files if file not in there]
    if not missing:
        return Path("data")
    named = [file for file in files if Path(file).is_absolute()]
    if named or there:
        raise ValueError(f"{Path('data') / missing[0]}: no such file, while {(named or there)[0]} is given; name a "
                         "folder (--data), the files of every task, or some tasks (--tasks)")
    from corpora.toy import write_course_files, write_glue_files

    print(f"No data given (--data): using a small GENERATED corpus, written to {GENERATED}. Its scores say that "
          "training works, and nothing about language. It takes about two minutes on two cores.")
    write_course_files(GENERATED)
    if any(task.kind == "glue" for task in recipe.tasks.values()):
        write_glue_files(GENERATED)
    return GENERATED


def evaluate(flags: argparse.Namespace):
    """Score a run's model on the data that it recorded, or on others. The results are written beside the run's own."""
    if flags.checkpoint is None:
        raise ValueError("--option evaluate needs --checkpoint, a run folder or its model.safetensors")
    if not flags.checkpoint.exists():
        raise ValueError(f"{flags.checkpoint}: no such file or folder; expected a run folder")
    folder = flags.checkpoint if flags.checkpoint.is_dir() else flags.checkpoint.parent
    weights = folder / "model.safetensors" if flags.checkpoint.is_dir() else flags.checkpoint
    recipe = override(load_recipe(folder / "recipe.toml"), flags)
    data, limit = recorded(folder) if flags.data is None else (flags.data, None)
    files = [file for task in recipe.tasks.values() for file in (*task.train, *task.dev)]
    if not data.is_dir() and not all(Path(file).is_absolute() for file in files):
        raise ValueError(f"{data}: no such folder; expected the run's data (name another with --data)")
    out = flags.out
    if out is None:
        number = 1
        while (folder / "evaluations" / str(number)).exists():
            number += 1
        out = folder / "evaluations" / str(number)
    elif (out / "recipe.toml").exists():
        raise ValueError(f"{out}: holds a run; an evaluation never overwrites its results (choose another --out)")
    from training.program import Program  # late: a wrong flag or recipe should not wait for torch

    program = Program(recipe, data, out, limit if flags.limit is None else flags.limit, flags.use_gpu,
                      not flags.no_progress, flags.engine)
    with program.alone():
        program.evaluate_checkpoint(weights, folder)
        program.finish(outputs_of(flags, recipe))


def outputs_of(flags: argparse.Namespace, recipe: Recipe) -> dict[tuple[str, str], Path]:
    """Return where the flags want further copies of prediction files: (task, split) -> file."""
    return {(name, split): path for name in recipe.tasks for split in ("dev", "test")
            if (path := getattr(flags, f"{name}_{split}_out", None)) is not None}


def train(flags: argparse.Namespace):
    """Train, or resume, the recipe."""
    recipe = override(load_recipe(flags.recipe or DEFAULT_RECIPE), flags)
    data = data_directory(flags, recipe)
    if data == GENERATED and flags.recipe is None and flags.epochs is None:
        # There is nothing more to learn from it after that.
        recipe = dataclasses.replace(recipe, stage=[dataclasses.replace(
            stage, epochs=min(stage.epochs, GENERATED_EPOCHS)) for stage in recipe.stage])
    for path in (flags.out, *outputs_of(flags, recipe).values()):
        if path is not None:
            require_writable(path)
    from training.program import Program

    text = saved_recipe(recipe, data, flags.limit)
    program = Program(recipe, data, run_directory(flags, recipe, text), flags.limit, flags.use_gpu,
                      not flags.no_progress, flags.engine, flags.log)
    if flags.dry_run:
        program.dry_run()
        return
    shared = Path("predictions") if flags.out is None and set(COURSE_TASKS) & recipe.tasks.keys() else None
    with program.alone():
        if not program.finished():
            program.train(text)
            program.finish(outputs_of(flags, recipe), shared)


def main(arguments: list[str] | None = None) -> int:
    """Run the program. Returns the exit status."""
    return guarded(run, parser().parse_args(arguments))


def run(flags: argparse.Namespace) -> int:
    """Do what the flags say."""
    evaluate(flags) if flags.option == "evaluate" else train(flags)
    return 0


if __name__ == "__main__":
    sys.exit(main())
