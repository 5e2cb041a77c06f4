"""The Task contract: what the trainer may ask of a task, whatever the task is.

A task reads its files, turns examples into batches, a batch into outputs, outputs into a loss and into predictions, and
writes predictions. It owns its head. The trainer never asks which task it has.
"""
import copy
import dataclasses
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from corpora.disklist import DiskList
from corpora.examples import Dataset, Example
from corpora.files import write_text
from corpora.layouts import CMU_SEPARATOR, FileLayout, read_own
from corpora.tables import Row
from minbert.batch import TokenBatch
from minbert.bert import BertModel, BertOutput, Layer, initialize
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks.adapters import Adapters
from tasks.encoding import encode
from tasks.losses import symmetric_divergence
from tasks.lowrank import LowRank
from tasks.options import TaskOptions
from tasks.pooling import CLS_POOLINGS, PENALTY_WEIGHT, AttentivePooling, pool
from tasks.views import view_with

TOKENIZED_TOGETHER = 10_000  # examples


@dataclass
class Batch:
    """Hold a batch of examples."""

    tokens: TokenBatch  # where each sentence is a sequence: first all first sentences, then all second ones, ...
    labels: Tensor | None  # [B]
    groups: Tensor  # [sequences]: equal numbers for equal sequences
    answers: Tensor | None = None  # of a teacher: probabilities [B, C], or scores [B]

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to a device."""
        return Batch(self.tokens.to(device), None if self.labels is None else self.labels.to(device),
                     self.groups.to(device), None if self.answers is None else self.answers.to(device))


@dataclass
class Outputs:
    """Hold what the loss and the prediction are made of."""

    values: Tensor  # logits [B, C], scores [B], or sentence vectors [sequences, H]
    penalty: Tensor  # a number that the loss adds: of attentive pooling, else 0

    def detach(self) -> "Outputs":
        """Cut the outputs off from the graph."""
        return Outputs(self.values.detach(), self.penalty.detach())


class TrainerTask(Protocol):
    """List what training asks of a task at a step. A Task satisfies it, and so does distributed.ShardedTask."""

    def length(self, example: Any) -> int:
        """Return the tokens of the example's longest sequence."""

    def collate(self, examples: Sequence[Any]) -> Any:
        """Turn examples into a batch."""

    def outputs(self, encoder: BertModel, batch: Any) -> Any:
        """Run encoder and head."""

    def training_loss(self, outputs: Any, batch: Any) -> Tensor:
        """Compute the loss of outputs, penalties included."""

    def divergence(self, first: Any, second: Any) -> Tensor:
        """Say how far apart two outputs for the same batch are."""

    def observe(self, outputs: Any, batch: Any):
        """Take note of a training batch's outputs."""


class NewLayers(nn.Module):
    """Hold transformer layers of a task's own, for the top of the shared encoder (which may be frozen below them).

    >>> layers = NewLayers(BertConfig(vocab_size=9, hidden_size=8, num_attention_heads=2), count=1)
    >>> sorted(name for name, _ in layers.named_parameters())[0]
    'layer.0.attention.output.LayerNorm.bias'
    """

    def __init__(self, config: BertConfig, count: int):
        super().__init__()
        self.layer = nn.ModuleList(Layer(config) for _ in range(count))
        initialize(self, config)

    def forward(self, encoder: BertModel, output: BertOutput, mask: Tensor) -> BertOutput:
        """Run the layers on an encoder's output.

        Args:
            encoder: knows how to run layers.
            output: of the encoder.
            mask: bool [B, T].
        """
        hidden = encoder.run_layers(self.layer, output.last_hidden_state, mask)[0][-1]
        # The pooler's tanh layer belongs to the encoder below. Over new layers its input, the first token, is used.
        return BertOutput(hidden, hidden[:, 0])


class OwnLayers(nn.Module):
    """Hold a task's own copies of the encoder's top layers and of its pooler. The layers below stay shared.

    The tasks then disagree about fewer parameters (the branches of Stickland & Murray 2019, section 3, go as far as a
    whole copy). A layer's copy costs as many parameters as the layer.

    Args:
        encoder: is copied from, as it is now.
        count: how many layers.
    """

    def __init__(self, encoder: BertModel, count: int):
        super().__init__()
        layers = encoder.layers()
        if count > len(layers):
            raise ValueError(f"own_layers is {count}; the encoder has {len(layers)} layers")
        # What a layer only refers to, as MPNet's layers do to their common bias, stays the encoder's.
        outside = {id(module): module for name, module in encoder.named_modules()
                   if not name.startswith(("encoder.layer.", "pooler"))}
        self.layer = nn.ModuleList(copy.deepcopy(layer, dict(outside)) for layer in layers[-count:])
        self.pooler = copy.deepcopy(encoder.pooler)

    def on(self, encoder: BertModel) -> BertModel:
        """Return an encoder with these layers at its top. Everything else is the given encoder's."""
        return view_with(encoder, [*encoder.layers()[:-len(self.layer)], *self.layer], pooler=self.pooler)


class Task(nn.Module):
    """Do what all tasks do alike.

    Subclasses set `metric` and `classes`, and define `read`, `outputs`, `criterion`, `predict_from` and `metrics`.

    Args:
        name: the task's name in the recipe.
        tokenizer: of the encoder.
        config: of the encoder.
        options: of the task; fields that are None take the defaults of tasks/options.py.
    """

    metric: str  # the one that decides which epoch was best; higher is better
    classes: int | None = None  # None for a regression
    highest = 1.0  # the largest label of a regression
    sequences_per_example = 1
    answers_labels = True  # a prediction is compared with the example's label
    reads_word_embeddings = False  # the head reads the whole table of word embeddings

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, options: TaskOptions):
        super().__init__()
        options = options.filled()
        assert options.max_length is not None and options.dropout is not None
        self.name = name
        self.options = options
        self.tokenizer = tokenizer
        self.max_length = min(options.max_length, config.max_position_embeddings)
        self.hidden_size = config.hidden_size
        self.pooling = options.pooling
        self.dropout = nn.Dropout(options.dropout)
        self.attentive = AttentivePooling(config.hidden_size) if options.pooling == "attentive" else None
        self.new_layers = NewLayers(config, options.new_layers) if options.new_layers else None
        self.own_layers: OwnLayers | None = None
        self.low_rank: LowRank | None = None
        self.adapters: Adapters | None = None

    def take_layers(self, encoder: BertModel):
        """Make what the task has of the encoder for itself. Raise ValueError if the encoder is too small for it."""
        if self.options.own_layers:
            self.own_layers = OwnLayers(encoder, self.options.own_layers)
        if self.options.low_rank:
            self.low_rank = LowRank(encoder, self.options.low_rank)
        if self.options.adapter:
            self.adapters = Adapters(encoder, self.options.adapter)

    def view(self, encoder: BertModel) -> BertModel:
        """Return the encoder as this task has it: with layers, changes of projections, or adapters of its own."""
        own = self.own_layers or self.low_rank or self.adapters
        return encoder if own is None else own.on(encoder)

    # ---- file -> examples -> batch -----------------------------------------------------------------------------------

    def read(self, path: Path, split: str) -> Dataset:
        """Read a file. split: train, dev or test; labels of a test file are not read.

        Raises:
            ValueError: with file and line, where the file makes no sense.
        """
        raise NotImplementedError

    def read_own(self, path: Path, split: str, layout: FileLayout) -> Dataset:
        """Read a file of the user's own. See `read`, and corpora.layouts."""
        for word, value in layout.labels.items():
            self._require_label(value, f"{path}: labels: {word}")
        return read_own(path, split, layout, self.options.sentences, self.options.label, self.read_label)

    def read_label(self, row: Row, column: str) -> float:
        """Read the label in a column of a row: a class from 0, or a score."""
        if self.classes is None:
            return row.number(column, 0, self.highest)
        return row.label(column, [str(label) for label in range(self.classes)])

    def _require_label(self, value: float, where: str):
        """Raise ValueError for a number that is no label of this task."""
        if self.classes is None:
            if not 0 <= value <= self.highest:
                raise ValueError(f"{where} is {value!r}; expected a number from 0 to {self.highest:g}")
        elif value not in range(self.classes):
            raise ValueError(f"{where} is {value!r}; expected a class from 0 to {self.classes - 1}")

    def tokenize(self, examples: Any) -> int:
        """Fill in each example's token ids, once for all epochs. Returns how many examples max_length will cut.

        examples: a list or a DiskList.
        """
        too_long = 0
        # Some at a time, and into arrays: four bytes a token, where a list of numbers takes ten times as many.
        for start in range(0, len(examples), TOKENIZED_TOGETHER):
            some = examples[start:start + TOKENIZED_TOGETHER]
            ids = iter(self.tokenizer.ids([sentence for example in some for sentence in example.sentences]))
            for example in some:
                example.ids = tuple(array("i", next(ids)) for _ in example.sentences)
                too_long += self.full_length(example) > self.max_length
            if isinstance(examples, DiskList):  # it gave us copies
                examples[start:start + TOKENIZED_TOGETHER] = some
        return too_long

    def sequences(self, examples: Sequence[Example]) -> list[tuple[list[int], list[int]]]:
        """Return the sequences of a batch, (input_ids, token_type_ids) each: here one an example, of its sentence."""
        return [self.tokenizer.build(example.ids[0], max_length=self.max_length) for example in examples]

    def note(self) -> str:
        """Say what else there is to say of the split that was just tokenized."""
        return ""

    def full_length(self, example: Any) -> int:
        """Return the tokens of the example's longest sequence, before truncation."""
        return max(len(ids) for ids in example.ids) + 2

    def length(self, example: Any) -> int:
        """Return the tokens of the example's longest sequence. Batches are sorted by it."""
        return min(self.max_length, self.full_length(example))

    def collate(self, examples: Sequence[Any]) -> Any:
        """Turn examples into a Batch."""
        sequences = self.sequences(examples)
        numbers: dict[tuple, int] = {}
        groups = [numbers.setdefault(tuple(ids), len(numbers)) for ids, _ in sequences]
        labels = None
        if examples[0].label is not None:
            labels = torch.tensor([example.label for example in examples],
                                  dtype=torch.float32 if self.classes is None else torch.int64)
        answers = None
        if len(examples[0].answer):
            answers = torch.tensor([list(example.answer) for example in examples])
            answers = answers.squeeze(1) if self.classes is None else answers
        return Batch(TokenBatch.from_sequences(sequences, self.tokenizer.pad_id), labels, torch.tensor(groups), answers)

    # ---- batch -> outputs -> loss, predictions -----------------------------------------------------------------------

    def encode(self, encoder: BertModel, tokens: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return one vector a sequence, [sequences, H], and the penalty that pooling asks for."""
        encoder = self.view(encoder)
        output = encode(encoder, tokens, cls_only=self.pooling in CLS_POOLINGS and self.new_layers is None)
        if self.new_layers is not None:
            output = self.new_layers(encoder, output, tokens.attention_mask)
        if self.attentive is not None:
            vectors, penalty = self.attentive(output.last_hidden_state, tokens.attention_mask)
            return vectors, PENALTY_WEIGHT * penalty
        vectors = pool(output, tokens.attention_mask, self.pooling)
        return vectors, vectors.new_zeros(())

    def outputs(self, encoder: BertModel, batch: Any) -> Any:
        """Run encoder and head."""
        raise NotImplementedError

    def criterion(self, outputs: Any, batch: Any) -> Tensor:
        """Compute the loss, a mean over this batch's own rows, and add the penalty."""
        raise NotImplementedError

    def training_loss(self, outputs: Any, batch: Any) -> Tensor:
        """Compute the loss against the labels or, where a teacher answered, the mean of it and of that against answers.

        This is knowledge distillation (Hinton et al. 2015, section 2, at temperature 1). Without labels the answers
        count alone.
        """
        if batch.labels is None:
            return self.criterion(outputs, dataclasses.replace(batch, labels=batch.answers))
        loss = self.criterion(outputs, batch)
        if getattr(batch, "answers", None) is None:
            return loss
        weight = self.options.teacher_weight
        against_answers = self.criterion(outputs, dataclasses.replace(batch, labels=batch.answers))
        return (1 - weight) * loss + weight * against_answers

    def loss(self, encoder: BertModel, batch: Any) -> Tensor:
        """Compute the loss of a batch."""
        return self.training_loss(self.outputs(encoder, batch), batch)

    def divergence(self, first: Any, second: Any) -> Tensor:
        """Say how far apart two outputs for the same batch are (for R-Drop and SMART). Here they are logits."""
        return symmetric_divergence(first.values, second.values)

    def observe(self, outputs: Any, batch: Any):
        """Take note of a training batch's outputs. Most tasks need not."""

    def prepare(self, encoder: BertModel, examples: Sequence[Any], seed: str, device: torch.device):
        """Get ready for a stage whose encoder is frozen. Most tasks need not.

        Args:
            encoder: as it will stay.
            examples: of the training set, tokenized.
            seed: of what is drawn.
            device: where.
        """

    def predict_from(self, outputs: Any) -> Tensor:
        """Turn outputs into predictions [B]: classes or scores, as the prediction file writes them."""
        raise NotImplementedError

    def predict(self, encoder: BertModel, batch: Any) -> Tensor:
        """Predict a batch, [B]."""
        return self.predict_from(self.outputs(encoder, batch))

    def answers(self, encoder: BertModel, batch: Any) -> dict[str, Tensor]:
        """Return all that can be said of each example of a batch, [B, ...] each.

        `prediction` is what `predict` returns. Tasks add `probabilities`, of the classes, or the `score` that the
        prediction was made from.
        """
        return {"prediction": self.predict(encoder, batch)}

    # ---- predictions -> score, file ----------------------------------------------------------------------------------

    def metrics(self) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
        """Return the metrics by name: functions of (predictions, labels)."""
        raise NotImplementedError

    cmu_predictions = False  # write CMU's prediction files instead of the course's
    prediction_header: str | None = "id \t Prediction "  # None: nobody hands in this task's predictions

    def prediction_file(self, split: str) -> str:
        """Return the file's name in the run's predictions/."""
        return f"{self.name}-{split}-output.{'txt' if self.cmu_predictions else 'csv'}"

    def format_prediction(self, prediction: float) -> str:
        """Write a prediction as the course does."""
        return str(int(prediction)) if self.classes is not None else repr(float(prediction))

    def write_predictions(self, path: Path, examples: Sequence[Example], predictions: np.ndarray):
        """Write the course's file: a header, then `{id} , {prediction} ` a row, in file order.

        CMU's file has no header and no ids: `{prediction} ||| {sentence, in lower case}` a row.

        Args:
            path: the file.
            examples: give the ids.
            predictions: [B], in the order of the examples.
        """
        written = [(example, self.format_prediction(prediction))
                   for example, prediction in zip(examples, predictions, strict=True)]
        if self.cmu_predictions:
            lines = [f"{prediction} {CMU_SEPARATOR} {example.sentences[0].lower()}" for example, prediction in written]
        else:
            lines = [self.prediction_header or ""]
            lines += [f"{example.id} , {prediction} " for example, prediction in written]
        write_text(path, "\n".join(lines) + "\n")
