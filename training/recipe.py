"""A recipe: everything that decides how a run comes out, as dataclasses read from TOML and written back.

A recipe names its tasks and an ordered list of stages. Every mistake in a file gets one error that says where it is,
what was found and what was expected. The resolved recipe is saved with a run; running it again gives the same bits on a
CPU.
"""
import dataclasses
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from corpora.layouts import FileLayout
from corpora.near import near
from tasks.leaderboard import OVERALL
from tasks.options import DROPOUT, EXEMPLAR_HEADS, MAX_LENGTH, OPTIONS, PairOptions, TaskOptions
from training.choices import COMBINERS, PRECISIONS, WEIGHTINGS
from training.mixing import MIXINGS, SHARES, WHOLE
from training.schedules import SCHEDULES

Built = TypeVar("Built")
NAME = re.compile(r"[A-Za-z0-9_-]+")  # of a task: it becomes part of file names
TRAINABLE = re.compile(r"all|heads|top-[1-9][0-9]{0,3}")


def _require(condition: bool, message: str):
    if not condition:
        raise ValueError(message)


def _finite(**numbers: float):
    """Raise ValueError unless each number is finite and not negative."""
    for name, value in numbers.items():
        _require(0 <= value < math.inf, f"{name} is {value!r}; expected 0 or more")


@dataclass
class OptimizerRecipe:
    """Say how AdamW is set.

    >>> OptimizerRecipe(lr=2e-5).head_lr is None  # the heads then have the encoder's rate
    True
    """

    lr: float = 3e-5  # of the encoder
    head_lr: float | None = None  # of the tasks' own parameters; lr where absent
    weight_decay: float = 0.01  # of matrices; biases and LayerNorm are never decayed
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-6  # added to the root of the second moment
    correct_bias: bool = True
    efficient: bool = False  # the course's form of bias correction
    layer_decay: float = 1.0  # factor on lr from each layer to the one below
    compile: bool | str = "auto"  # AdamW in compiled code; auto: where that pays and there is a C++ compiler

    def __post_init__(self):
        _require(self.compile in (True, False, "auto"), f"compile is {self.compile!r}; expected true, false or auto")
        _finite(lr=self.lr, head_lr=self.head_lr or 0.0, weight_decay=self.weight_decay, eps=self.eps)
        _require(len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas),
                 f"betas are {self.betas!r}; expected two numbers from 0 to below 1")
        _require(0 < self.layer_decay <= 1, f"layer_decay is {self.layer_decay!r}; expected above 0, at most 1")


@dataclass
class Stage:
    """Say what one stage of training does.

    >>> Stage(tasks=["sst"], batch_size=32).batch_size_of("sst")
    32
    """

    tasks: list[str] = field(default_factory=list)
    name: str = ""
    epochs: int = 10
    steps_per_epoch: int | str = "longest"  # a number, or until the longest, or shortest, set has been seen once
    batch_size: int | dict[str, int] = 8  # examples of one task in a step; a table gives each task its own
    token_budget: int | None = None  # tokens a batch, padding included, instead of batch_size
    trainable: str = "all"  # all | heads | top-K layers
    mixing: str = "cycle"  # which tasks take part in a step
    temperature: float = 2.0  # of mixing "temperature"
    cap: dict[str, int] = field(default_factory=dict)  # a task's size counts as at most this when tasks are drawn
    draws: int = 1  # tasks a step, where they are drawn
    balanced: list[str] = field(default_factory=list)  # tasks whose classes are drawn equally often
    share: dict[str, float] = field(default_factory=dict)  # fraction of a task's set in an epoch, drawn anew for each
    loss_weights: dict[str, float] = field(default_factory=dict)  # factor on a task's loss; 1 where absent
    weighting: str = "none"  # a rule that learns a further factor on each loss (training/weighting.py)
    combine: str = "sum"  # how the tasks' gradients become one
    log_conflicts: bool = False  # keep the tasks' gradients apart, and log their cosines, for combine = "sum" too
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    schedule: str = "linear"
    warmup: float = 0.1  # fraction of all steps
    clip: float = 1.0  # largest norm of the whole gradient; 0 for none
    patience: int = 0  # stop after so many epochs without a better dev score; 0 for never
    stop_after_decreases: int = 0  # stop when the dev score has fallen so often, not necessarily in a row; 0 for never
    keep: str = "best"  # weights at the end of the stage: of the best epoch by dev score, or of the last
    smart: float = 0.0  # weight of SMART's adversarial smoothness (Jiang et al. 2020)
    rdrop: float = 0.0  # weight of R-Drop's agreement of two dropout masks (Liang et al. 2021)
    average: str = "none"  # none | ema | swa: average the weights over steps (training/averaging.py)
    ema_decay: float = 0.999

    def __post_init__(self):
        _require(bool(self.tasks), "no tasks; expected a list such as tasks = [\"sst\"]")
        _require(len(set(self.tasks)) == len(self.tasks), f"tasks are {self.tasks}; one is named twice")
        _require(self.epochs >= 1, f"epochs is {self.epochs!r}; expected 1 or more")
        _require(self.steps_per_epoch in ("longest", "shortest")
                 or (isinstance(self.steps_per_epoch, int) and self.steps_per_epoch >= 1),
                 f"steps_per_epoch is {self.steps_per_epoch!r}; expected a number, longest or shortest")
        sizes = self.batch_size.values() if isinstance(self.batch_size, dict) else [self.batch_size]
        _require(all(size >= 1 for size in sizes), f"batch_size is {self.batch_size!r}; expected 1 or more")
        _require(self.token_budget is None or self.token_budget >= 1,
                 f"token_budget is {self.token_budget!r}; expected 1 or more")
        _require(TRAINABLE.fullmatch(self.trainable) is not None,
                 f"trainable is {self.trainable!r}; expected all, heads or top-K with K layers, as in top-4")
        for name, known in (("mixing", MIXINGS), ("combine", COMBINERS), ("weighting", WEIGHTINGS),
                            ("schedule", SCHEDULES),
                            ("keep", ("best", "last")), ("average", ("none", "ema", "swa"))):
            value = getattr(self, name)
            _require(value in known, f"{name} is {value!r}; expected one of {', '.join(known)}{near(value, known)}")
        _require(0 < self.temperature < math.inf, f"temperature is {self.temperature!r}; expected above 0")
        _require(self.draws >= 1, f"draws is {self.draws!r}; expected 1 or more")
        _require(0 <= self.warmup < 1, f"warmup is {self.warmup!r}; expected a fraction from 0 to below 1")
        _finite(clip=self.clip, smart=self.smart, rdrop=self.rdrop, patience=self.patience,
                stop_after_decreases=self.stop_after_decreases)
        _require(0 < self.ema_decay < 1, f"ema_decay is {self.ema_decay!r}; expected between 0 and 1")
        for name in ("cap", "balanced", "loss_weights", "share"):
            unknown = [task for task in getattr(self, name) if task not in self.tasks]
            _require(not unknown, f"{name} names task '{', '.join(unknown)}', which is not of this stage")
        for task, weight in self.loss_weights.items():
            _require(0 <= weight < math.inf, f"loss_weights: {task} is {weight!r}; expected 0 or more")
        for task, part in self.share.items():
            _require(0 < part <= 1, f"share: {task} is {part!r}; expected above 0, at most 1")
        for task, size in self.cap.items():
            _require(size >= 1, f"cap: {task} is {size!r}; expected 1 or more")
        _require(self.mixing not in WHOLE or self.steps_per_epoch != "shortest",
                 f"steps_per_epoch is 'shortest'; mixing {self.mixing!r} takes every example once an epoch")
        alone = (len(self.tasks) == 1 or self.mixing in ("sequential", "in_turn")
                 or (self.mixing in (*SHARES, "shuffled") and self.draws == 1))
        for name, compares in (("combine", self.combine not in ("sum", "mean")),
                               ("weighting", self.weighting == "gradnorm")):
            _require(not (compares and alone), f"{name} is {getattr(self, name)!r}, which needs two tasks in a step; "
                                               "here a step has one (see mixing, draws and tasks)")
        if isinstance(self.batch_size, dict):
            unknown = [task for task in self.batch_size if task not in self.tasks]
            _require(not unknown, f"batch_size names task '{', '.join(unknown)}', which is not of this stage")
            missing = [task for task in self.tasks if task not in self.batch_size]
            _require(not missing, f"batch_size has no entry for {', '.join(missing)}")

    def batch_size_of(self, task: str) -> int:
        """Return how many examples of a task are in a step."""
        return self.batch_size[task] if isinstance(self.batch_size, dict) else self.batch_size


@dataclass
class TaskRecipe:
    """Say where a task's examples are, and what kind of task it is."""

    kind: str  # a key of tasks.options.OPTIONS
    train: list[str] = field(default_factory=list)  # files, relative to the data directory
    dev: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)
    limit: int | None = None  # at most so many training examples, drawn with the recipe's seed
    model_of: str = ""  # the task whose head and options this one has: it is more training data for that task
    held_out: list[str] = field(default_factory=list)  # files whose rows decide the threshold (training/threshold.py)
    held_out_rows: int = 2000  # as many are drawn, at most half of them, and left out of train
    unlabelled: bool = False  # further training data whose labels are not read: the teacher's answers alone count
    dev_share: float = 0.0  # without a dev file: this share of train is drawn for dev, with the recipe's seed
    # Files of one's own (corpora/layouts.py). Empty: the task's usual format.
    format: str = ""
    separator: str = ""
    header: bool = True
    columns: dict[str, str] = field(default_factory=dict)
    labels: dict[str, float] = field(default_factory=dict)
    options: TaskOptions = field(default_factory=TaskOptions)  # of the class that OPTIONS names for the kind

    def __post_init__(self):
        _require(self.limit is None or self.limit >= 1, f"limit is {self.limit!r}; expected 1 or more")
        _require(0 <= self.dev_share < 1, f"dev_share is {self.dev_share!r}; expected 0 to below 1")
        _require(not (self.dev and self.dev_share), "dev and dev_share: expected one of them")
        _require(not self.unlabelled or (bool(self.model_of) and bool(self.options.teacher)),
                 "unlabelled: is for further training data (model_of) of a task that has a teacher")
        _require(self.held_out_rows >= 1, f"held_out_rows is {self.held_out_rows!r}; expected 1 or more")
        _require(not self.held_out or self.options.has_threshold,
                 "held_out: needs a pair task with two classes and the loss cross_entropy; others have no threshold")
        for name in ("separator", "columns", "labels"):
            _require(self.format != "" or not getattr(self, name), f"{name} has no effect without a format")
        _require(self.format != "" or self.header, "header has no effect without a format")
        if self.format:
            _require(bool(self.options.sentences), f"format: tasks of kind '{self.kind}' have formats of their own")
            known = ["id", *self.options.sentences, self.options.label]
            for name in self.columns:
                _require(name in known, f"columns has '{name}'; known: {', '.join(known)}{near(name, known)}")
            self.layout()

    def layout(self) -> FileLayout | None:
        """Return the layout of the task's files. None: the task's usual format."""
        if not self.format:
            return None
        return FileLayout(self.format, self.separator, self.header, self.columns, self.labels)

    @property
    def prepared(self) -> bool:
        """Tell whether the task's head is made of vectors of the frozen encoder."""
        return getattr(self.options, "head", "") in EXEMPLAR_HEADS


# The fields of a task that say where its examples are. The others say what its model is.
DATA_FIELDS = ("train", "dev", "test", "limit", "held_out", "held_out_rows", "unlabelled", "dev_share", "format",
               "separator", "header", "columns", "labels")

# What a recipe need not say: kind and files of the tasks by their usual names.
USUAL_TASKS: dict[str, dict[str, Any]] = {
    "sst": {"kind": "sentiment", "train": ["ids-sst-train.csv"], "dev": ["ids-sst-dev.csv"],
            "test": ["ids-sst-test-student.csv"]},
    "cfimdb": {"kind": "sentiment", "train": ["ids-cfimdb-train.csv"], "dev": ["ids-cfimdb-dev.csv"],
               "test": ["ids-cfimdb-test-student.csv"], "classes": 2, "max_length": 256},
    "para": {"kind": "paraphrase", "train": ["quora-train.csv"], "dev": ["quora-dev.csv"],
             "test": ["quora-test-student.csv"]},
    "sts": {"kind": "similarity", "train": ["sts-train.csv"], "dev": ["sts-dev.csv"],
            "test": ["sts-test-student.csv"]},
    "nli": {"kind": "inference", "train": ["nli-train.jsonl"], "dev": ["nli-dev.jsonl"]},
    "nli_triplets": {"kind": "inference_triplets", "train": ["nli-train.jsonl"], "dev": ["nli-dev.jsonl"]},
    **{f"{name}{suffix}": {"kind": kind, "train": [f"{name}_1.0_train.jsonl"], "dev": [f"{name}_1.0_{dev}.jsonl"]}
       for name, dev in (("snli", "dev"), ("multinli", "dev_matched"))
       for suffix, kind in (("", "inference"), ("_triplets", "inference_triplets"))},
    "tft": {"kind": "phrases", "train": ["train.jsonl"], "dev": ["dev.jsonl"], "test": ["test.jsonl"]},
    **{name: {"kind": "glue", "layout": name, "train": [f"{folder}/train.tsv"], "dev": [f"{folder}/{dev}"],
              "test": [f"{folder}/{test}"]}
       for name, folder, dev, test in (
           ("cola", "CoLA", "dev.tsv", "test.tsv"), ("sst2", "SST-2", "dev.tsv", "test.tsv"),
           ("mrpc", "MRPC", "dev.tsv", "test.tsv"), ("stsb", "STS-B", "dev.tsv", "test.tsv"),
           ("qqp", "QQP", "dev.tsv", "test.tsv"), ("mnli", "MNLI", "dev_matched.tsv", "test_matched.tsv"),
           ("mnli_mm", "MNLI", "dev_mismatched.tsv", "test_mismatched.tsv"), ("qnli", "QNLI", "dev.tsv", "test.tsv"),
           ("rte", "RTE", "dev.tsv", "test.tsv"), ("wnli", "WNLI", "dev.tsv", "test.tsv"),
           ("paws", "PAWS", "dev.tsv", "test.tsv"))},
}


@dataclass
class Recipe:
    """Hold everything that decides how a run comes out. `load_recipe` reads one from a file."""

    name: str
    about: str = ""
    source: str = ""  # what is reproduced, and where it was published
    published: dict[str, dict[str, float]] = field(default_factory=dict)  # split -> sst, para, sts, overall, ...
    overall: str = "course"  # the formula of the one score over sst, para and sts: course, or mean (of the three)
    weights: str = "all-MiniLM-L6-v2"  # a directory, a hub id, or the default model
    seed: int = 11711
    # What a task's options leave open. Longer sequences are cut, and counted.
    max_length: int = MAX_LENGTH  # tokens of a sequence
    hidden_dropout_prob: float = DROPOUT  # before the heads; the encoder's own dropout is in its config.json
    encoder_dropout: float | None = None  # overrides the encoder's two dropout rates
    precision: str = "auto"  # of training: float32, medium, bfloat16, or the fastest by measurement
    dev_limit: int | None = 2000  # dev examples of a task after each epoch; at the end all are used
    train_scored: int = 1000  # training examples of a task that are scored at the end: is it overfitted?
    tasks: dict[str, TaskRecipe] = field(default_factory=dict)
    stage: list[Stage] = field(default_factory=list)

    def __post_init__(self):
        _require(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", self.name) is not None,
                 f"name is {self.name!r}; expected letters, digits, -, _ and dots inside: it becomes a folder's name")
        for name in self.tasks:
            _require(NAME.fullmatch(name) is not None,
                     f"a task is called {name!r}; expected letters, digits, - and _: it becomes part of file names")
        _require(bool(self.stage), "no stage; expected at least one [[stage]]")
        _require(0 <= self.hidden_dropout_prob < 1,
                 f"hidden_dropout_prob is {self.hidden_dropout_prob!r}; expected 0 <= p < 1")
        _require(self.encoder_dropout is None or 0 <= self.encoder_dropout < 1,
                 f"encoder_dropout is {self.encoder_dropout!r}; expected 0 <= p < 1")
        _require(self.max_length >= 3, f"max_length is {self.max_length!r}; expected 3 or more")
        _require(self.precision in PRECISIONS, f"precision is {self.precision!r}; expected {', '.join(PRECISIONS)}"
                                               f"{near(self.precision, PRECISIONS)}")
        _require(self.dev_limit is None or self.dev_limit >= 1,
                 f"dev_limit is {self.dev_limit!r}; expected 1 or more")
        _require(self.overall in OVERALL, f"overall is {self.overall!r}; expected {' or '.join(OVERALL)}"
                                          f"{near(self.overall, OVERALL)}")
        _require(self.train_scored >= 0, f"train_scored is {self.train_scored!r}; expected 0 or more")
        for split in self.published:
            _require(split in ("train", "dev", "test"),
                     f"published has the split '{split}'; expected train, dev or test")
        for stage in self.stage:
            for task in stage.tasks:
                _require(task in self.tasks, f"unknown task '{task}'; known: {', '.join(self.tasks)}"
                                             f"{near(task, self.tasks)}")
                _require(not (self.tasks[task].unlabelled and task in stage.balanced),
                         f"balanced names task '{task}', whose classes are not known: it is unlabelled")
                _require(not self.tasks[task].prepared or stage.trainable == "heads",
                         f"task '{task}' compares vectors of the frozen encoder; its stage needs trainable = 'heads'")
        for name, settings in self.tasks.items():
            if settings.model_of:
                self._require_model(name, settings)
        for trunk, tasks in self.trunks().items():
            combinations = {options.combination for options in tasks.values()}
            _require(len(combinations) == 1, f"the tasks of trunk '{trunk}' ({', '.join(tasks)}) have the combinations "
                                             f"{' and '.join(sorted(combinations))}; expected one")

    def _require_model(self, name: str, task: TaskRecipe):
        """Raise ValueError if a task cannot have the model that it asks for.

        name, task: it and its settings.
        """
        others = [other for other, settings in self.tasks.items() if not settings.model_of]
        _require(task.model_of in others, f"task '{name}': model_of is '{task.model_of}'; expected a task that has a "
                                          f"model of its own: {', '.join(others)}{near(task.model_of, others)}")
        target = self.tasks[task.model_of]
        _require(task.kind == target.kind and task.options == target.options,
                 f"task '{name}' has the model of '{task.model_of}', but other options; leave them out")
        _require(not task.prepared, f"task '{name}' has the model of '{task.model_of}', whose head is made of training "
                                    "sentences; there is nothing to train")
        _require(not task.dev and not task.test and task.dev_share == 0,
                 f"task '{name}' is training data for '{task.model_of}', which has its own dev and test; leave them "
                 "out")

    def scored(self, names: Iterable[str]) -> list[str]:
        """Return the tasks whose dev sets say how good the named tasks' models are."""
        return list(dict.fromkeys(self.tasks[name].model_of or name for name in names))

    def trunks(self) -> dict[str, dict[str, PairOptions]]:
        """Return each trunk's tasks with their options: trunk -> task -> options."""
        result: dict[str, dict[str, PairOptions]] = {}
        for name, task in self.tasks.items():
            if isinstance(task.options, PairOptions) and task.options.trunk:
                result.setdefault(task.options.trunk, {})[name] = task.options
        return result


def _matches(value: Any, annotation: Any) -> bool:
    """Tell whether a value from TOML has a field's type."""
    if isinstance(annotation, types.UnionType):
        return any(_matches(value, option) for option in typing.get_args(annotation))
    if annotation is None or annotation is types.NoneType:
        return value is None
    origin = typing.get_origin(annotation)
    if origin is list:
        return isinstance(value, list) and all(_matches(item, typing.get_args(annotation)[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_matches(item, typing.get_args(annotation)[1])
                                               for item in value.values())
    if annotation is float:
        return type(value) in (int, float)
    return type(value) is annotation


def _shown(annotation: Any) -> str:
    return str(annotation) if typing.get_args(annotation) else getattr(annotation, "__name__", str(annotation))


def _build(kind: type[Built], values: dict[str, Any], where: str, noun: str = "field") -> Built:
    """Make a dataclass of a table.

    Args:
        kind: the dataclass.
        values: the table.
        where: errors begin with it.
        noun: what errors call a field.
    """
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items()
             if typing.get_origin(hint) is not typing.ClassVar}
    for name, value in values.items():
        if name not in hints:
            raise ValueError(f"{where}: unknown {noun} '{name}'; known: {', '.join(hints)}{near(name, hints)}")
        if not dataclasses.is_dataclass(value) and not _holds_dataclass(value) and not _matches(value, hints[name]):
            raise ValueError(f"{where}: {name} is {value!r}; expected {_shown(hints[name])}")
    missing = [f.name for f in dataclasses.fields(kind)  # type: ignore[arg-type]
               if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
               and f.name not in values]
    if missing:
        raise ValueError(f"{where}: no {', '.join(missing)}")
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _holds_dataclass(value: Any) -> bool:
    items = value if isinstance(value, list) else value.values() if isinstance(value, dict) else []
    return any(dataclasses.is_dataclass(item) for item in items)


def _task(name: str, tables: dict, where: str) -> TaskRecipe:
    values = tables.get(name, {})
    if not isinstance(values, dict):
        raise ValueError(f"{where}: [tasks.{name}] is {values!r}; expected a table")
    usual = USUAL_TASKS.get(name, {})
    if values.get("kind", usual.get("kind")) != usual.get("kind"):
        usual = {}  # another kind of task than the usual one of this name: its files and options do not fit
    merged = {**usual, **values}
    target = values.get("model_of")
    if isinstance(target, str) and target:
        common = {**USUAL_TASKS.get(target, {}), **tables.get(target, {})}
        if not common or common.get("model_of"):  # Recipe says what is wrong; it needs a kind to get there
            common = {"kind": "sentiment"}
        merged = {**{key: value for key, value in common.items() if key not in DATA_FIELDS}, **values}
    for split in ("dev", "test"):  # of files of one's own, there are those that one names
        if (values.get("format") or (split == "dev" and values.get("dev_share"))) and split not in values:
            merged.pop(split, None)
    place = f"{where}: [tasks.{name}]"
    own = {f.name for f in dataclasses.fields(TaskRecipe)}
    fields = {key: value for key, value in merged.items() if key in own}
    kind = merged.get("kind")
    if kind is None:
        raise ValueError(f"{place}: no kind; known: {', '.join(OPTIONS)}")
    if not isinstance(kind, str) or kind not in OPTIONS:
        raise ValueError(f"{place}: unknown kind {kind!r}; known: {', '.join(OPTIONS)}{near(str(kind), OPTIONS)}")
    # Options stand beside the other fields in a recipe; in a saved one, in a table of their own.
    saved = merged.get("options", {})
    if not isinstance(saved, dict):
        raise ValueError(f"{place}: options is {saved!r}; expected a table")
    options = {**{key: value for key, value in merged.items() if key not in own}, **saved}
    fields["options"] = _build(OPTIONS[kind], options, place, "option")
    for split in ("train", "dev", "test"):
        if isinstance(fields.get(split), str):
            fields[split] = [fields[split]]
    return _build(TaskRecipe, fields, place)


def parse_recipe(values: dict, where: str) -> Recipe:
    """Make a recipe of a file's tables. where: the file, for errors. Raises ValueError for every mistake."""
    values = dict(values)
    stages = values.get("stage", [])
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        raise ValueError(f"{where}: stage is {stages!r}; expected tables [[stage]]")
    built = []
    for number, stage in enumerate(stages, start=1):
        stage = dict(stage)
        place = f"{where}: stage {number}"
        if isinstance(stage.get("optimizer"), dict):
            stage["optimizer"] = _build(OptimizerRecipe, stage["optimizer"], f"{place}: optimizer")
        built.append(_build(Stage, stage, place))
    tables = values.get("tasks", {})
    if not isinstance(tables, dict):
        raise ValueError(f"{where}: tasks is {tables!r}; expected tables [tasks.NAME]")
    used = dict.fromkeys(task for stage in built for task in stage.tasks)
    names = [*used, *(name for name in tables if name not in used)]
    known = {name: _task(name, tables, where) for name in names if name in USUAL_TASKS or name in tables}
    for number, stage in enumerate(built, start=1):
        for task in stage.tasks:
            if task not in known:
                everything = [*USUAL_TASKS, *tables]
                raise ValueError(f"{where}: stage {number}: unknown task '{task}'; known: "
                                 f"{', '.join(dict.fromkeys(everything))}{near(task, everything)}")
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(where).stem).lstrip(".") or "recipe"
    return _build(Recipe, {"name": stem, **values, "stage": built, "tasks": known}, where)


def load_recipe(path: Path) -> Recipe:
    """Read a recipe. Raises ValueError, in one line, for a file that is none."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}); "
                         "expected a recipe (a TOML file, see recipes/)") from None
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not TOML: {error}") from None
    return parse_recipe(values, str(path))


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match.group()):04x}", escaped) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    pairs = (f"{_toml_value(str(name))} = {_toml_value(item)}" for name, item in value.items() if item is not None)
    return "{ " + ", ".join(pairs) + " }"


def recipe_to_toml(recipe: Recipe) -> str:
    """Write the resolved recipe with every field, so that load_recipe reads the same recipe."""
    values = dataclasses.asdict(recipe)
    tasks, stages = values.pop("tasks"), values.pop("stage")
    sections = [("", values)] + [(f"[tasks.{name}]", task) for name, task in tasks.items()]
    sections += [("[[stage]]", stage) for stage in stages]
    lines = []
    for title, table in sections:
        lines += ([title] if title else []) + [
            f"{name} = {_toml_value(value)}" for name, value in table.items() if value is not None] + [""]
    return "\n".join(lines)
