"""What both programs do around the trainer: build model and data of a recipe, train, score, write the run's folder.

runs/<name>/ holds recipe.toml (resolved), metrics.jsonl, results.json, model.safetensors (encoder and heads),
encoder/ (a directory that transformers and sentence-transformers load) and predictions/.
"""
import ctypes
import dataclasses
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from corpora.examples import Example
from corpora.files import write_json, write_text
from corpora.predictions import Prediction, save_predictions
from minbert.bert import BertModel
from minbert.config import SentenceSettings
from minbert.pretrained import cache_directory, fetch
from minbert.tokenizer import BertTokenizer
from minbert.weights import export, load_encoder
from tasks.leaderboard import FORMULAS
from tasks.phrases import Phrases
from training import checkpoint
from training.attention import attention_of
from training.baselines import baselines
from training.choices import COURSE_TASKS
from training.data import SPLITS, load_data, sample
from training.distributed import join
from training.engines import make_engine
from training.evaluate import Metric, answers, conflicts, measure, one_score, predict, table
from training.memory import peak_memory
from training.model import build_model, load_run
from training.recipe import Recipe
from training.runs import WEIGHTS, check_identity, content_hash, environment, hashes_of, model_hashes, only_process
from training.teacher import teach, teachers_of
from training.threshold import tune
from training.trainer import Trainer


def _with_context(examples: Sequence[Example], answered: dict[str, np.ndarray]) -> list[Prediction]:
    """Put examples and what a task answered together.

    examples: with labels. answered: by training.evaluate.answers.
    """
    rounded = {name: np.round(values.astype(float), 6).tolist() for name, values in answered.items()
               if name != "prediction"}
    return [Prediction(example.id, list(example.sentences), example.label, prediction,
                       **{name: values[index] for name, values in rounded.items()})
            for index, (example, prediction) in enumerate(zip(examples, answered["prediction"].tolist(), strict=True))]


def set_encoder_dropout(encoder: BertModel, p: float):
    """Set both of the encoder's rates: of hidden states and of attention weights."""
    encoder.config.hidden_dropout_prob = encoder.config.attention_probs_dropout_prob = p
    for module in encoder.modules():
        if hasattr(module, "dropout_p"):
            module.dropout_p = p  # type: ignore[assignment]


def report_of(folder: Path) -> Path:
    """Write the report of a finished run. Returns the page's file."""
    from report.page import write_report  # late: matplotlib takes a second to start, and only a finished run needs it

    return write_report(folder)


def keep_freed_memory():
    """Ask the C library (glibc) to reuse large blocks instead of returning each to the system.

    Every activation of a step is as large as in the last one. Fetching its pages anew costs a fifth of an evaluation.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        m_trim_threshold, m_top_pad, m_mmap_threshold = -1, -2, -3
        mallopt(m_mmap_threshold, 1 << 30)
        mallopt(m_trim_threshold, (1 << 31) - 1)
        mallopt(m_top_pad, 1 << 26)


class SharedFolder:
    """Fill a folder that several runs share. It never holds files of two runs: a manifest says whose they are.

    Args:
        folder: of the files.
    """

    def __init__(self, folder: Path):
        self.folder, self.manifest = folder, folder / "manifest.json"
        self.names: list[str] = []
        with suppress(OSError, ValueError, TypeError, KeyError):
            for name in json.loads(self.manifest.read_text(encoding="utf-8"))["files"]:
                (folder / Path(name).name).unlink(missing_ok=True)
        for path in [*folder.glob("*-output.csv"), *folder.glob("*-output.txt")]:
            path.unlink()
        self.manifest.unlink(missing_ok=True)  # until all files are there, the folder says nothing

    def place(self, name: str) -> Path:
        """Return where a file goes."""
        self.names.append(name)
        return self.folder / name

    def close(self, run: Path):
        """Write down whose files these are."""
        write_json(self.manifest, {"run": str(run.absolute()), "files": hashes_of(
            [self.folder / name for name in self.names])})


class Program:
    """Run a recipe in a folder.

    Args:
        recipe: what to do.
        data: the folder of the recipe's files.
        directory: the run's folder.
        limit: at most so many examples of each file.
        use_gpu: train on a GPU.
        progress: show a bar.
        engine: "engine" or "plain".
        logs: further logs (training/logs.py).
    """

    def __init__(self, recipe: Recipe, data: Path, directory: Path, limit: int | None, use_gpu: bool, progress: bool,
                 engine: str = "engine", logs: Sequence[str] = ()):
        self.recipe, self.data_directory, self.directory = recipe, data, Path(directory)
        self.limit, self.progress, self.logs = limit, progress, logs
        self.engine = make_engine(engine)
        if use_gpu and not torch.cuda.is_available():
            raise ValueError("--use_gpu: torch finds no GPU here; leave the flag out to run on the CPU")
        self.world = join(use_gpu)
        self.device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if use_gpu else "cpu")
        if use_gpu:
            torch.cuda.set_device(self.device)
        keep_freed_memory()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the run's folder: a second process is refused. Of several processes of one run, the first holds it."""
        with only_process(self.directory) if self.world.first else nullcontext():
            yield

    def finished(self) -> bool:
        """Tell whether the run ended before, and say so."""
        results = self.directory / "results.json"
        if not results.exists():
            return False
        self.say(f"{self.directory}: this run is finished; its results are in {results}")
        return True

    def train(self, text: str):
        """Train the recipe and save the result. text: of training.runs.saved_recipe."""
        model_directory, encoder, tokenizer = self._start()
        self.identity = {"data": self._data_hashes(), "weights": model_hashes(model_directory)}
        if self.teachers:
            self.identity["teachers"] = self.teachers
        if self.world.first:
            check_identity(self.directory, self.identity)
            write_text(self.directory / "recipe.toml", text)
        self.trainer: Trainer | None = self._trainer()
        self.trainer.train()
        for name, task in self.model.tasks_by_name().items():
            if self.data[name].held_out:
                self.say(tune(task, self.model.encoder, self.data[name], self.device, self.world))
        self.training_seconds = self.trainer.state.seconds
        if self.trainer.state.skipped_steps:
            self.say(f"{self.trainer.state.skipped_steps} steps were skipped: a gradient was not finite")
        if self.world.first:
            checkpoint.save_model(self.directory / WEIGHTS, self.model)
            settings = self.sentence_settings()
            if settings.refused:
                self.say(settings.refused)
            export(encoder, tokenizer, self.directory / "encoder", settings)

    def dry_run(self):
        """Read everything that a run reads, try the largest batches and say what each stage would cost."""
        if self.world.size > 1:
            raise ValueError("--dry_run runs as one process; it was started as several (torchrun)")
        self._start(teachers_answer=False)
        self._trainer().dry_run()

    def _start(self, teachers_answer: bool = True) -> tuple[Path, BertModel, BertTokenizer]:
        """Load the starting weights, build the model and read the data. Returns the weights' folder and the encoder.

        teachers_answer: ask the recipe's teachers about the training examples.
        """
        if not self.world.first:
            self.world.wait()  # the first process fetches, the others find it there
        model_directory = fetch(self.recipe.weights)
        if self.world.first:
            self.world.wait()
        encoder, tokenizer, report = load_encoder(model_directory, self.engine.model)
        if report.missing or report.unexpected:
            self.say(f"{model_directory}: {report}")
        if self.recipe.encoder_dropout is not None:
            set_encoder_dropout(encoder, self.recipe.encoder_dropout)
        self.model = build_model(self.recipe, encoder.config, encoder, tokenizer)
        self.data = load_data(self.model.tasks_by_name(), self.recipe, self.data_directory, self.limit, self.say)
        self.teachers = {}
        if teachers_of(self.recipe):
            self.teachers = teach(self.model.tasks_by_name(), self.recipe, self.data, self.engine, self._precision()[0],
                                  self.device, self.world, self.say, teachers_answer)
        return model_directory, encoder, tokenizer

    def sentence_settings(self) -> SentenceSettings:
        """Say how the run makes sentence vectors: as its first siamese task, or else its first task, does."""
        tasks = list(self.model.tasks_by_name().values())
        task = next((task for task in tasks if getattr(task, "siamese", False)), tasks[0])
        own = (task.attentive, task.new_layers, task.own_layers, task.low_rank, task.adapters)
        if isinstance(task, Phrases) or any(module is not None for module in own):
            return SentenceSettings(refused=f"task {task.name} makes vectors with parameters of its own: the folder "
                                            "encoder/ has no settings of sentence-transformers")
        return SentenceSettings(task.pooling, True, task.max_length)

    def _data_hashes(self) -> dict[str, str]:
        """Map the recipe's files to the hashes of their contents."""
        return hashes_of([self.data_directory / file for task in self.recipe.tasks.values()
                          for split in (*SPLITS, "held_out") for file in getattr(task, split)])

    def _trainer(self) -> Trainer:
        return Trainer(self.model, self.recipe, self.data, self.directory, self.engine, self.device, self._precision,
                       self.say, self.progress, self.world, self.logs)

    def _precision(self) -> tuple[str, str]:
        """Decide the precision by the shapes of the first stage's largest batches."""
        shapes = []
        for name in self.recipe.stage[0].tasks:
            task, examples = self.model.tasks_by_name()[name], self.data[name].train
            some = [task.length(example) for example in examples[:1000]]
            batch = self.recipe.stage[0].batch_size_of(name) * task.sequences_per_example
            shapes.append((batch, round(statistics.mean(some))))
        batch, length = max(shapes, key=lambda shape: shape[0] * shape[1])
        return self.engine.resolve(self.recipe.precision, self.model.encoder.config, batch, length, self.device,
                                   cache_directory())

    def evaluate_checkpoint(self, weights: Path, folder: Path):
        """Load a run's weights instead of training. The folder's encoder/ gives shape and vocabulary."""
        self.model = load_run(self.recipe, folder, weights, self.engine.model).to(self.device)
        self.data = load_data(self.model.tasks_by_name(), self.recipe, self.data_directory, self.limit, self.say,
                              splits=("dev", "test"))
        self.engine.use("float32", self.model.encoder)
        self.training_seconds = 0.0
        self.identity = {"data": self._data_hashes(), "weights": {weights.name: content_hash(weights)}}
        self.trainer = None

    def say(self, text: str):
        """Print a line, from the first process only."""
        if self.world.first:
            print(text, flush=True)

    def finish(self, outputs: dict[tuple[str, str], Path], shared: Path | None = None):
        """Score every task on its whole dev set, and write results.json and the prediction files.

        outputs: (task, "dev" or "test") -> a second place for that file.
        shared: a folder for a third copy of the course's files. What another run left there is removed.
        """
        answered = {(name, split): answers(task, self.model.encoder, examples, self.device, self.world)
                    for name, task in self.model.tasks_by_name().items() for split in ("dev", "test")
                    if (examples := getattr(self.data[name], split))}
        predictions = {place: values["prediction"] for place, values in answered.items()}
        written = self._write_predictions(answered, outputs, shared) if self.world.first else []
        measured = {split: self._measured(predictions, split) for split in ("dev", "test")}
        measured["train"] = self._train_scores()
        warnings = [f"task {name}: every {split} prediction is {values[0]}; nothing was learned"
                    for (name, split), values in predictions.items()
                    if self.model.tasks_by_name()[name].classes is not None and values.ndim == 1
                    and len(set(values.tolist())) == 1 < len(values)]
        formula = self.recipe.overall
        for split, results in measured.items():
            if results:
                counts = {name: len(getattr(self.data[name], split)) for name in results}
                used = {name: (min(count, self.recipe.train_scored) if split == "train" else count, count)
                        for name, count in counts.items()}
                self.say(f"final, {split}\n{table(results, used, formula)}")
        state = self.trainer.state if self.trainer is not None else None
        summary = {
            "recipe": self.recipe.name, "seed": self.recipe.seed, "weights": self.recipe.weights,
            "warnings": warnings, "identity": self.identity, **environment(),
            "precision": state.precision if state is not None else "float32",
            "examples_seen": state.seen if state is not None else {},
            "conflicts": conflicts(self.trainer.log_path) if self.trainer is not None else {},
            "overall": one_score(measured["dev"], formula), "overall_formula": FORMULAS[formula],
            "training_seconds": round(self.training_seconds, 1), "engine": self.engine.name,
            "peak_memory_mb": round(peak_memory()),
            "baselines": {name: baselines(task, self.data[name].train, self.data[name].dev)
                          for name, task in self.model.tasks_by_name().items()},
            "rows_train": {name: len(self.data[name].train) for name in measured["dev"]},
            "max_length": {name: self.model.tasks_by_name()[name].max_length for name in measured["dev"]},
            "rows": {name: len(self.data[name].dev) for name in measured["dev"]},
            **{split: {task: {name: dataclasses.asdict(metric) for name, metric in metrics.items()}
                       for task, metrics in results.items()} for split, results in measured.items()},
            "published": self.recipe.published}
        if self.world.first:
            write_json(self.directory / "attention.json", self._attention(), None)
            write_json(self.directory / "results.json", summary)
            self.say(f"report: {report_of(self.directory)}")
        for warning in warnings:
            self.say(f"WARNING: {warning}")
        for split, figures in self.recipe.published.items():
            self.say(f"published, {split}: " + ", ".join(f"{name} {value:g}" for name, value in figures.items()))
        self.say(f"training took {self.training_seconds:,.0f} s; {len(written)} prediction files, "
                 f"the last {written[-1]}; run folder {self.directory}" if written else f"run folder {self.directory}")
        sys.stdout.flush()

    def _attention(self) -> list[dict[str, Any]]:
        """Return the attention weights of a few dev sentences, of three tasks at most."""
        shown: list[dict[str, Any]] = []
        for name, task in self.model.tasks_by_name().items():
            if self.data[name].dev and len(shown) < 3:
                shown += attention_of(task, self.model.encoder, self.data[name].dev, 1)
        return shown

    def _measured(self, predictions: dict[tuple[str, str], Any], split: str) -> dict[str, dict[str, Metric]]:
        """Measure a split of each task that has labels there. A test set of our own making has some."""
        results = {}
        for name, task in self.model.tasks_by_name().items():
            examples = getattr(self.data[name], split)
            if examples and examples[0].label is not None:
                results[name] = measure(task, predictions[name, split], examples)
        return results

    def _train_scores(self) -> dict[str, dict[str, Metric]]:
        """Measure a sample of each task's training set: beside the dev score it says how far the task is overfitted."""
        results = {}
        for name, task in self.model.tasks_by_name().items():
            everything = self.data[name].train
            if everything and self.recipe.train_scored and everything[0].label is not None:
                examples = sample(everything, self.recipe.train_scored, f"{self.recipe.seed}/{name}/train-sample")
                results[name] = measure(task, predict(task, self.model.encoder, examples, self.device, self.world),
                                        examples)
        return results

    def _write_predictions(self, answered: dict[tuple[str, str], dict[str, Any]], outputs: dict[tuple[str, str], Path],
                           shared: Path | None) -> list[Path]:
        """Write the prediction files. See `finish`. Returns the course's."""
        written: list[Path] = []
        share = SharedFolder(shared) if shared is not None else None
        folder = self.directory / "predictions"
        for (name, split), answer in answered.items():
            task, examples = self.model.tasks_by_name()[name], getattr(self.data[name], split)
            values = answer["prediction"]
            if split == "dev":  # for the report, and so that two runs can be compared without the data
                save_predictions(folder / f"{name}-dev.jsonl", _with_context(examples, answer))
            if task.prediction_header is None:
                continue
            places = [folder / task.prediction_file(split), outputs.get((name, split))]
            if share is not None and name in COURSE_TASKS:
                places.append(share.place(task.prediction_file(split)))
            for place in filter(None, places):
                task.write_predictions(place, examples, values)
                written.append(place)
        if share is not None:
            share.close(self.directory)
        return written
