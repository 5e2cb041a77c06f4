"""Who takes part in the training benchmarks: the same weights, the same examples, the same head; another way to train.

Each contestant trains one task of recipes/default.toml on a fixed set of examples, `train_all()` passing over all of
them once. Batches are made before the clock starts, but for sentence-transformers, whose own collator tokenizes each
batch anew, and for ours, whose batches are part of the step.
"""
import dataclasses
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.starter import StarterAdamW, StarterBert
from corpora.examples import Example
from engine.bert import FastBertModel
from minbert.batch import TokenBatch
from minbert.config import BertConfig
from minbert.pretrained import cache_directory, fetch
from minbert.tokenizer import BertTokenizer
from minbert.weights import load_encoder
from tasks.task import Task
from training.data import TaskData, load_data
from training.engines import make_engine
from training.model import MultitaskModel, build_model
from training.recipe import Recipe, Stage, load_recipe
from training.step import StageSteps, StepState

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "default.toml"
TASKS = ("sst", "para", "sts")
LR = 2e-5


def recipe_with(pooling: str) -> Recipe:
    """The default recipe, every task pooling like this: mean, its own choice, or cls, the course's."""
    recipe = load_recipe(RECIPE)
    for settings in recipe.tasks.values():
        settings.options = dataclasses.replace(settings.options, pooling=pooling)
    return recipe


def load(data: Path, weights: str, limit: int) -> dict[str, TaskData]:
    """Tokenized examples of the default recipe's tasks, at most `limit` of each file."""
    model, _ = build(weights)
    return load_data(model.tasks_by_name(), load_recipe(RECIPE), data, limit, say=lambda text: None,
                     splits=("train", "dev"))


def build(weights: str, pooling: str = "mean") -> tuple[MultitaskModel, BertTokenizer]:
    """Make a fresh model of the default recipe: every contestant trains its own."""
    encoder, tokenizer, _ = load_encoder(fetch(weights), FastBertModel)
    return build_model(recipe_with(pooling), encoder.config, encoder, tokenizer), tokenizer


class Ours:
    """Take the product's own steps: batching, encoder, backward, clipping, AdamW.

    Args:
        weights: of the encoder.
        data: tokenized examples.
        tasks: those that are trained together.
        batch_size: examples of each task in a step.
        pooling: of the sentence vectors.
        precision: of the steps; auto is decided by measurement.
        compile: AdamW in compiled code.
        stage: further fields of the stage.
    """

    def __init__(self, weights: str, data: dict[str, TaskData], tasks: Sequence[str], batch_size: int,
                 pooling: str = "mean", precision: str = "auto", compile: bool | str = "auto", **stage: Any):
        self.model, _ = build(weights, pooling)
        self.engine = make_engine("engine")
        optimizer = dataclasses.replace(load_recipe(RECIPE).stage[0].optimizer, compile=compile)
        self.stage = Stage(tasks=list(tasks), epochs=10**6, batch_size=batch_size, steps_per_epoch="longest",
                           schedule="constant", warmup=0.0, optimizer=optimizer, **stage)
        cpu = torch.device("cpu")
        self.steps = StageSteps(self.stage, self.model, list(tasks), data, "benchmark", self.engine, cpu)
        self.steps.training_mode()
        task = self.model.tasks_by_name()[tasks[0]]
        length = round(statistics.mean(task.length(example) for example in data[tasks[0]].train))
        self.precision, _ = self.engine.resolve(precision, self.model.encoder.config,
                                                batch_size * task.sequences_per_example, length, cpu, cache_directory())
        self.state = StepState()
        torch.set_float32_matmul_precision("highest")

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Compute at our precision inside, and at float32, the peers' precision, afterwards."""
        self.engine.use(self.precision, self.model.encoder)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision("highest")

    def step(self):
        """Take one step."""
        with self.computing():
            self.steps.take(self.state)

    def train_all(self):
        """Train on all examples once."""
        for _ in range(self.steps.per_epoch):
            self.step()


class PeerModel(nn.Module):
    """An encoder of another make under a head like ours. encode: padded (ids, mask) [B, T] -> vectors [B, H]."""

    def __init__(self, encoder: nn.Module, encode: Callable[[Tensor, Tensor], Tensor], task: str, config: BertConfig):
        super().__init__()
        self.encoder, self.encode, self.task = encoder, encode, task
        self.dropout = nn.Dropout(0.3)
        if task != "sts":
            size, classes = (config.hidden_size, 5) if task == "sst" else (3 * config.hidden_size, 2)
            self.head = nn.Linear(size, classes)

    def loss(self, sides: list[tuple[Tensor, Tensor]], labels: Tensor) -> Tensor:
        vectors = [self.encode(ids, mask) for ids, mask in sides]
        if self.task == "sst":
            return F.cross_entropy(self.head(self.dropout(vectors[0])), labels)
        u, v = vectors
        if self.task == "sts":
            return F.mse_loss(F.cosine_similarity(u, v), labels / 5)
        return F.cross_entropy(self.head(self.dropout(torch.cat([u, v, (u - v).abs()], dim=1))), labels)


def mean_of(hidden: Tensor, mask: Tensor) -> Tensor:
    """[B, T, H], [B, T] -> [B, H]"""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def first_of(hidden: Tensor, mask: Tensor) -> Tensor:
    """[B, T, H], [B, T] -> [B, H]: what stands at [CLS]"""
    return hidden[:, 0]


POOL = {"mean": mean_of, "cls": first_of}


def starter_model(weights: str, task: str, pooling: str = "mean") -> PeerModel:
    encoder, _, _ = load_encoder(fetch(weights), FastBertModel)
    starter = StarterBert.like(encoder)
    return PeerModel(starter, lambda ids, mask: POOL[pooling](starter(ids, mask), mask), task, encoder.config)


def transformers_model(weights: str, task: str, pooling: str = "mean") -> PeerModel:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    directory = fetch(weights)
    model = transformers.BertModel.from_pretrained(directory, attn_implementation="sdpa", add_pooling_layer=False)

    def encode(ids: Tensor, mask: Tensor) -> Tensor:
        return POOL[pooling](model(input_ids=ids, attention_mask=mask).last_hidden_state, mask)

    return PeerModel(model, encode, task, BertConfig.load(directory / "config.json"))


def padded(task: Task, examples: Sequence[Example]) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    """Make a peer's batch: (ids, mask) of each side, each padded to its longest, and the labels."""
    sides = []
    for side in range(len(examples[0].ids)):
        batch = TokenBatch.from_sequences(
            [task.tokenizer.build(example.ids[side], max_length=task.max_length) for example in examples], 0)
        sides.append((batch.input_ids, batch.attention_mask.long()))
    labels = torch.tensor([example.label for example in examples],
                          dtype=torch.float32 if task.classes is None else torch.int64)
    return sides, labels


class Padded:
    """A plain training loop over padded batches, in random order or sorted by length."""

    def __init__(self, model: PeerModel, task: Task, examples: list[Example], batch_size: int, by_length: bool,
                 optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer], bfloat16: bool = False):
        self.model, self.bfloat16 = model.train(), bfloat16
        order = sorted(examples, key=task.length) if by_length else random.Random(0).sample(examples, len(examples))
        self.batches = [padded(task, order[start:start + batch_size]) for start in range(0, len(order), batch_size)]
        self.optimizer = optimizer(list(model.parameters()))
        random.Random(1).shuffle(self.batches)

    def train_all(self):
        for sides, labels in self.batches:
            self.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
                loss = self.model.loss(sides, labels)
            loss.backward()
            self.optimizer.step()


def starter(weights: str, task: Task, examples: list[Example], batch_size: int, pooling: str = "mean") -> Padded:
    return Padded(starter_model(weights, task.name, pooling), task, examples, batch_size, False,
                  lambda parameters: StarterAdamW(parameters, lr=LR, weight_decay=0.01))


def transformers_peer(weights: str, task: Task, examples: list[Example], batch_size: int, pooling: str = "mean",
                      by_length: bool = False, bfloat16: bool = False) -> Padded:
    """With torch's fused AdamW, which is what transformers' Trainer takes. bfloat16: by autocast, as its bf16 does."""
    return Padded(transformers_model(weights, task.name, pooling), task, examples, batch_size, by_length,
                  lambda parameters: torch.optim.AdamW(parameters, lr=LR, fused=True), bfloat16)


class SentenceTransformers:
    """Its model and loss in the loop of its trainer: collate (which tokenizes), loss, backward, clip, fused AdamW."""

    def __init__(self, weights: str, task: Task, examples: list[Example], batch_size: int, pooling: str = "mean"):
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.losses import CosineSimilarityLoss, SoftmaxLoss
        from sentence_transformers.sentence_transformer.modules import Pooling

        self.model = SentenceTransformer(str(fetch(weights)), device="cpu")
        self.model[1] = Pooling(self.model.get_embedding_dimension(), pooling_mode=pooling)
        self.model.train()
        self.loss = CosineSimilarityLoss(self.model) if task.name == "sts" else SoftmaxLoss(
            self.model, self.model.get_embedding_dimension(), num_labels=2)
        self.kind = task.name
        order = random.Random(0).sample(examples, len(examples))
        self.batches = [order[start:start + batch_size] for start in range(0, len(order), batch_size)]
        self.optimizer = torch.optim.AdamW(self.loss.parameters(), lr=LR, fused=True)

    def train_all(self):
        for batch in self.batches:
            features = [self.model.preprocess([example.sentences[side] for example in batch]) for side in (0, 1)]
            labels = torch.tensor([(example.label or 0) / 5 if self.kind == "sts" else int(example.label or 0)
                                   for example in batch])
            self.optimizer.zero_grad()
            self.loss(features, labels).backward()
            torch.nn.utils.clip_grad_norm_(self.loss.parameters(), 1.0)
            self.optimizer.step()


def ours_encoder(weights: str) -> tuple[FastBertModel, BertTokenizer]:
    """Load our fast encoder."""
    encoder, tokenizer, _ = load_encoder(fetch(weights), FastBertModel)
    return encoder, tokenizer
