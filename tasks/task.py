"""The Task contract: what the trainer may ask of a task, whatever the task is.

A task reads its files, turns examples into batches, a batch into outputs, outputs into a loss and into predictions,
and writes predictions. It owns its head. The trainer never asks which task it has.
"""
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from corpora.disklist import DiskList
from minbert.bert import BertModel, BertOutput, Layer, initialize
from minbert.config import BertConfig
from minbert.dropout import Dropout
from minbert.packing import Packing
from minbert.tokenizer import BertTokenizer
from minbert.weights import write_atomically
from tasks.losses import symmetric_divergence
from tasks.pooling import CLS_POOLINGS, AttentivePooling, pool

TOKENIZED_TOGETHER = 10_000  # examples
LARGE_FILE = 64 << 20  # bytes; the examples of a larger file stay on disk
TOKENS_PER_BATCH = 4096  # of an evaluation batch, padding included: its activations should fit a processor's cache


@dataclass(slots=True)  # there may be a million of them
class Example:
    id: str
    sentences: tuple[str, ...]
    label: float | None = None  # a class (whole number) or a score; None where the file has none
    ids: tuple[Sequence[int], ...] = ()  # each sentence's token ids, without [CLS] and [SEP]; `tokenize` fills them in

    def to_list(self) -> list:
        return [self.id, self.sentences, self.label, [list(ids) for ids in self.ids]]

    @classmethod
    def from_list(cls, values: list) -> "Example":
        identifier, sentences, label, ids = values
        return cls(identifier, tuple(sentences), label, tuple(array("i", numbers) for numbers in ids))


def example_list(on_disk: bool) -> list[Example] | DiskList:
    """An empty list for examples to be appended to."""
    return DiskList(Example.to_list, Example.from_list) if on_disk else []


def examples_of(path: Path) -> list[Example] | DiskList:
    """The same for the examples of a file: on disk if they may be many."""
    path = Path(path)
    return example_list(path.is_file() and path.stat().st_size > LARGE_FILE)


def joined(parts: list[Sequence[Example]]) -> Sequence[Example]:
    """Several files' examples in one list: on disk where one of them is."""
    if len(parts) == 1:
        return parts[0]
    together = example_list(any(isinstance(part, DiskList) for part in parts))
    for part in parts:
        for example in part:
            together.append(example)
    return together


@dataclass
class Dataset:
    """One file: its usable examples, and what was left out and why."""

    path: Path
    examples: Sequence[Example]
    skipped: list[tuple[int, str]] = field(default_factory=list)  # (line, reason)

    def report(self) -> str:
        text = f"{self.path}: {len(self.examples):,} examples"
        if self.skipped:
            reasons = Counter(reason for _, reason in self.skipped)
            where = ", ".join(str(line) for line, _ in self.skipped[:5]) + (", ..." if len(self.skipped) > 5 else "")
            text += (f"; {len(self.skipped):,} rows left out ("
                     + ", ".join(f"{count} {reason}" for reason, count in reasons.items()) + f"; lines {where})")
        return text


@dataclass
class TokenBatch:
    """Sequences padded to the longest, with the indices that pack them."""

    input_ids: Tensor  # [B, T]
    attention_mask: Tensor  # bool [B, T]
    token_type_ids: Tensor  # [B, T]
    packing: Packing

    @classmethod
    def from_sequences(cls, sequences: Sequence[tuple[list[int], list[int]]], pad_id: int) -> "TokenBatch":
        """sequences: (input_ids, token_type_ids) each."""
        lengths = np.array([len(ids) for ids, _ in sequences])
        mask = np.arange(lengths.max(initial=1)) < lengths[:, None]
        input_ids = np.full(mask.shape, pad_id, dtype=np.int64)
        types = np.zeros(mask.shape, dtype=np.int64)
        input_ids[mask] = np.concatenate([ids for ids, _ in sequences])
        types[mask] = np.concatenate([segment for _, segment in sequences])
        attention_mask = torch.from_numpy(mask)
        return cls(torch.from_numpy(input_ids), attention_mask, torch.from_numpy(types),
                   Packing.from_mask(attention_mask))

    def to(self, device: torch.device) -> "TokenBatch":
        return TokenBatch(*(t.to(device, non_blocking=True)
                            for t in (self.input_ids, self.attention_mask, self.token_type_ids)),
                          packing=self.packing.to(device))

    @property
    def tokens(self) -> int:
        return len(self.packing.positions)


@dataclass
class Batch:
    tokens: TokenBatch  # a pair's two sentences, where each is a sequence: first all first ones, then all second ones
    labels: Tensor | None  # [B]
    groups: Tensor  # [sequences]: equal numbers for equal sequences

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.tokens.to(device), None if self.labels is None else self.labels.to(device),
                     self.groups.to(device))


def cut(order: Sequence[int], lengths: Sequence[int], batch_size: int, token_budget: int | None) -> list[list[int]]:
    """Cuts an order into batches of batch_size or, with a budget, of at most that many tokens, padding included."""
    if token_budget is None:
        return [list(order[i:i + batch_size]) for i in range(0, len(order), batch_size)]
    batches: list[list[int]] = []
    longest = 0
    for index in order:
        longest = max(longest, lengths[index]) if batches else lengths[index]
        if not batches or longest * (len(batches[-1]) + 1) > token_budget:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return batches


class NewLayers(nn.Module):
    """Transformer layers of a task's own, on top of the shared encoder (which may be frozen below them)."""

    def __init__(self, config: BertConfig, count: int):
        super().__init__()
        self.layer = nn.ModuleList(Layer(config) for _ in range(count))
        initialize(self, config)

    def forward(self, output: BertOutput, packing: Packing) -> BertOutput:
        hidden = packing.pack(output.last_hidden_state)
        for layer in self.layer:
            hidden, _ = layer(hidden, packing)
        # The pooler's tanh layer belongs to the encoder below; over new layers its input is the first token itself.
        return BertOutput(packing.unpack(hidden), packing.first(hidden))


class Task(nn.Module):
    """Subclasses set `metric` and `classes`, and define `read`, `outputs`, `criterion`, `predict_from`, `metrics`."""

    metric: str  # the one that decides which epoch was best; higher is better
    classes: int | None = None  # None for a regression
    sequences_per_example = 1

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, max_length: int = 128,
                 dropout: float = 0.3, pooling: str = "mean", new_layers: int = 0):
        super().__init__()
        self.name = name
        self.tokenizer = tokenizer
        self.max_length = min(max_length, config.max_position_embeddings)
        self.hidden_size = config.hidden_size
        self.pooling = pooling
        self.dropout = Dropout(dropout)
        self.attentive = AttentivePooling(config.hidden_size) if pooling == "attentive" else None
        self.new_layers = NewLayers(config, new_layers) if new_layers else None

    # ---- file -> examples -> batch -----------------------------------------------------------------------------------

    def read(self, path: Path, split: str) -> Dataset:
        """split: train, dev or test; labels of a test file are not read. Raises ValueError with file and line."""
        raise NotImplementedError

    def tokenize(self, examples: list[Example] | DiskList) -> int:
        """Fills in each example's token ids, once for all epochs. Returns how many max_length will cut."""
        too_long = 0
        # Some at a time, and into arrays: four bytes a token, where a list of numbers takes ten times as many.
        for start in range(0, len(examples), TOKENIZED_TOGETHER):
            some = examples[start:start + TOKENIZED_TOGETHER]
            ids = iter(self.tokenizer.ids([sentence for example in some for sentence in example.sentences]))
            for example in some:
                example.ids = tuple(array("i", next(ids)) for _ in example.sentences)
                too_long += self.full_length(example) > self.max_length
            examples[start:start + TOKENIZED_TOGETHER] = some  # a list on disk gave us copies
        return too_long

    def sequences(self, examples: list[Example]) -> list[tuple[list[int], list[int]]]:
        """The sequences of a batch. Here: one an example, of its only sentence."""
        return [self.tokenizer.build(example.ids[0], max_length=self.max_length) for example in examples]

    def note(self) -> str:
        """What else there is to say of the split that was just tokenized."""
        return ""

    def full_length(self, example: Example) -> int:
        """Tokens of the example's longest sequence, before truncation."""
        return max(len(ids) for ids in example.ids) + 2

    def length(self, example: Example) -> int:
        """Tokens of the example's longest sequence: what batches are sorted by."""
        return min(self.max_length, self.full_length(example))

    def collate(self, examples: list[Example]) -> Batch:
        sequences = self.sequences(examples)
        numbers: dict[tuple, int] = {}
        groups = [numbers.setdefault(tuple(ids), len(numbers)) for ids, _ in sequences]
        labels = None
        if examples[0].label is not None:
            labels = torch.tensor([example.label for example in examples],
                                  dtype=torch.float32 if self.classes is None else torch.int64)
        return Batch(TokenBatch.from_sequences(sequences, self.tokenizer.pad_id), labels, torch.tensor(groups))

    # ---- batch -> outputs -> loss, predictions -----------------------------------------------------------------------

    def encode(self, encoder: BertModel, tokens: TokenBatch) -> Tensor:
        """One vector a sequence, [B, H]."""
        output = encoder(tokens.input_ids, tokens.attention_mask, tokens.token_type_ids, packing=tokens.packing,
                         cls_only=self.pooling in CLS_POOLINGS and self.new_layers is None)
        if self.new_layers is not None:
            output = self.new_layers(output, tokens.packing)
        return pool(output, tokens.attention_mask, self.pooling, self.attentive)

    def outputs(self, encoder: BertModel, batch: Batch) -> Tensor:
        """What the loss and the prediction are made of: logits [B, C], scores [B], or sentence vectors."""
        raise NotImplementedError

    def criterion(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The loss, a mean over this batch's own rows."""
        raise NotImplementedError

    def loss(self, encoder: BertModel, batch: Batch) -> Tensor:
        return self.regularized(self.criterion(self.outputs(encoder, batch), batch))

    def regularized(self, loss: Tensor) -> Tensor:
        """Adds what the task's own parts ask for: the penalty of attentive pooling (its weight is ours)."""
        return loss if self.attentive is None else loss + 0.03 * self.attentive.last_penalty

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """How far apart two outputs for the same batch are (for R-Drop and SMART)."""
        return symmetric_divergence(first, second)

    def predict_from(self, outputs: Tensor) -> Tensor:
        raise NotImplementedError

    def predict(self, encoder: BertModel, batch: Batch) -> Tensor:
        """[B]: classes or scores, as the prediction file writes them."""
        return self.predict_from(self.outputs(encoder, batch))

    # ---- predictions -> score, file ----------------------------------------------------------------------------------

    def metrics(self) -> dict:
        """Metric name -> function of (predictions, labels)."""
        raise NotImplementedError

    prediction_header: str | None = "id \t Prediction "  # None: this task's predictions are no one's answer

    def prediction_file(self, split: str) -> str:
        """The file's name in the run's predictions/."""
        return f"{self.name}-{split}-output.csv"

    def format_prediction(self, prediction: float) -> str:
        return str(int(prediction)) if self.classes is not None else repr(float(prediction))

    def write_predictions(self, path: Path, examples: list[Example], predictions: np.ndarray):
        """The course's file: a header, then `{id} , {prediction} ` a row, in file order."""
        lines = [self.prediction_header] + [
            f"{example.id} , {self.format_prediction(prediction)} "
            for example, prediction in zip(examples, predictions, strict=True)]
        write_atomically(path, lambda temporary: temporary.write_text("\n".join(lines) + "\n", encoding="utf-8"))
