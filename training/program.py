"""What both programs do around the trainer: build model and data of a recipe, train, score, write the run's folder.

runs/<name>/ holds recipe.toml (resolved), metrics.jsonl, results.json, model.safetensors (encoder and heads),
encoder/ (a directory that transformers and sentence-transformers load) and predictions/.
"""
import ctypes
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import torch

from minbert.attention import SelfAttention
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.dropout import Dropout
from minbert.pretrained import fetch
from minbert.tokenizer import BertTokenizer
from minbert.weights import export, load_encoder, write_atomically
from tasks import make_task
from training import checkpoint
from training.data import load_data
from training.distributed import join
from training.evaluate import leaderboard_score, measure, predict, table
from training.precision import resolve, set_products
from training.recipe import Recipe, recipe_to_toml
from training.step import seed_of
from training.trainer import MultitaskModel, Trainer


def build_model(recipe: Recipe, config: BertConfig, encoder, tokenizer: BertTokenizer) -> MultitaskModel:
    """The recipe's tasks on an encoder; heads are drawn from the recipe's seed."""
    torch.manual_seed(seed_of(recipe.seed, "heads"))
    tasks = {}
    for name, settings in recipe.tasks.items():
        options = {"max_length": recipe.max_length, "dropout": recipe.hidden_dropout_prob, **settings.options}
        tasks[name] = make_task(settings.kind, name, tokenizer, config, options)
    return MultitaskModel(encoder, tasks)


def set_encoder_dropout(encoder: BertModel, p: float):
    """Both of the encoder's rates: of hidden states and of attention weights."""
    encoder.config.hidden_dropout_prob = encoder.config.attention_probs_dropout_prob = p
    for module in encoder.modules():
        if isinstance(module, SelfAttention):
            module.dropout_p = p
        elif isinstance(module, Dropout):
            module.p = p


def keep_freed_memory():
    """Asks the C library to reuse large blocks instead of returning each to the system (glibc; elsewhere nothing).

    Every activation of a step is as large as in the last one: fetching its pages anew costs a fifth of an evaluation.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        m_trim_threshold, m_top_pad, m_mmap_threshold = -1, -2, -3
        mallopt(m_mmap_threshold, 1 << 30)
        mallopt(m_trim_threshold, (1 << 31) - 1)
        mallopt(m_top_pad, 1 << 26)


class Program:
    def __init__(self, recipe: Recipe, data: Path, directory: Path, limit: int | None, use_gpu: bool, progress: bool):
        self.recipe, self.data_directory, self.directory = recipe, data, Path(directory)
        self.limit, self.progress = limit, progress
        self.started = time.monotonic()
        if use_gpu and not torch.cuda.is_available():
            raise ValueError("--use_gpu: torch finds no GPU here; leave the flag out to run on the CPU")
        self.world = join(use_gpu)
        self.device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if use_gpu else "cpu")
        if use_gpu:
            torch.cuda.set_device(self.device)
        set_products(resolve(recipe.precision, self.device))
        keep_freed_memory()

    @staticmethod
    def saved_recipe(recipe: Recipe, data: Path, limit: int | None) -> str:
        """The text that says what a run was: its resolved recipe, and the command's part that is no recipe field."""
        return f"# --data {data.absolute()}" + (f" --limit {limit}" if limit else "") + "\n" + recipe_to_toml(recipe)

    def train(self, text: str):
        say = self.say
        if not self.world.first:
            self.world.wait()  # the first process fetches, the others find it there
        model_directory = fetch(self.recipe.weights)
        if self.world.first:
            self.world.wait()
        encoder, tokenizer, report = load_encoder(model_directory)
        if report.missing or report.unexpected:
            say(f"{model_directory}: {report}")
        if self.recipe.encoder_dropout is not None:
            set_encoder_dropout(encoder, self.recipe.encoder_dropout)
        self.tokenizer = tokenizer
        self.model = build_model(self.recipe, encoder.config, encoder, tokenizer)
        self.data = load_data(dict(self.model.tasks.items()), self.recipe, self.data_directory, self.limit, say)
        self._write(self.directory / "recipe.toml", text)
        self.trainer = Trainer(self.model, self.recipe, self.data, self.directory, self.device, say, self.progress,
                               self.world)
        before = time.monotonic()
        self.trainer.train()
        self.training_seconds = time.monotonic() - before
        if self.trainer.state.skipped_steps:
            say(f"{self.trainer.state.skipped_steps} steps were skipped: a gradient was not finite")
        if self.world.first:
            checkpoint.save_model(self.directory / "model.safetensors", self.model)
            export(self.model.encoder, tokenizer, self.directory / "encoder")

    def evaluate_checkpoint(self, weights: Path, folder: Path):
        """Loads a run's weights instead of training. The folder's encoder/ gives shape and vocabulary."""
        config = BertConfig.load(folder / "encoder" / "config.json")
        self.tokenizer = BertTokenizer.load(folder / "encoder")
        self.model = build_model(self.recipe, config, BertModel(config), self.tokenizer)
        checkpoint.load_model(weights, self.model)
        self.data = load_data(dict(self.model.tasks.items()), self.recipe, self.data_directory, self.limit, self.say,
                              splits=("dev", "test"))
        self.trainer = Trainer(self.model, self.recipe, self.data, self.directory, self.device, self.say,
                               self.progress, self.world)
        self.training_seconds = 0.0

    def say(self, text: str):
        if self.world.first:
            print(text, flush=True)

    def _write(self, path: Path, text: str):
        if self.world.first:
            write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))

    def finish(self, outputs: dict[tuple[str, str], Path | None]):
        """Scores every task on its whole dev set, writes results.json and the prediction files.

        outputs: (task, "dev" or "test") -> a second place for that file, or None.
        """
        results, counts, tested, written = {}, {}, {}, []
        for name, task in self.model.tasks.items():
            for split in ("dev", "test"):
                examples = getattr(self.data[name], split)
                if not examples:
                    continue
                predictions = predict(task, self.model.encoder, examples, self.device, self.world)
                if split == "dev":
                    results[name] = measure(task, predictions, examples)
                    counts[name] = (len(examples), len(examples))
                    # With the gold labels, so that two runs can be tested against each other without the data.
                    both = json.dumps({"gold": [example.label for example in examples],
                                       "predictions": predictions.tolist()}) + "\n"
                    self._write(self.directory / "predictions" / f"{name}-dev.json", both)
                elif examples[0].label is not None:  # a test set of our own making
                    tested[name] = measure(task, predictions, examples)
                places = [self.directory / "predictions" / task.prediction_file(split), outputs.get((name, split))]
                if task.prediction_header is None or not self.world.first:
                    continue
                for place in filter(None, places):
                    task.write_predictions(place, examples, predictions)
                    written.append(place)
        self.say(f"final, dev\n{table(results, counts)}")
        if tested:
            self.say(f"final, test\n{table(tested, {name: (len(self.data[name].test),) * 2 for name in tested})}")

        def plain(measured: dict) -> dict:
            return {task: {name: dataclasses.asdict(metric) for name, metric in metrics.items()}
                    for task, metrics in measured.items()}

        summary = {
            "recipe": self.recipe.name, "seed": self.recipe.seed, "weights": self.recipe.weights,
            "overall": leaderboard_score(results), "training_seconds": round(self.training_seconds, 1),
            "rows": {name: count for name, (count, _) in counts.items()},
            "dev": plain(results), "test": plain(tested),
            "published": self.recipe.published}
        self._write(self.directory / "results.json", json.dumps(summary, indent=1) + "\n")
        if self.recipe.published:
            self.say("published: " + ", ".join(f"{name} {value:g}" for name, value in self.recipe.published.items()))
        self.say(f"training took {self.training_seconds:,.0f} s; {len(written)} prediction files, "
                 f"the last {written[-1]}; run folder {self.directory}" if written else f"run folder {self.directory}")
        sys.stdout.flush()
