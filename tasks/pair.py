"""Two sentences, one question: what paraphrase, similarity and inference share.

Siamese: each sentence is encoded on its own and the two vectors are compared (Sentence-BERT, Reimers & Gurevych 2019).
Cross-encoded: both in one sequence, [CLS] u [SEP] v [SEP], as BERT does (Devlin et al. 2019). Or both ways, with the
features side by side: twice the work of one. This file encodes and compares. What is trained on is an objective
(objectives.py). A recipe makes the choices (options.py, PairOptions).
"""
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpora.examples import Example
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks.heads import CosineLogit, Trunk, combination_size, combine, feature_head
from tasks.objectives import OBJECTIVES
from tasks.options import PairOptions, parse_combination
from tasks.task import Batch, Outputs, Task


class PairTask(Task):
    """Ask one question about two sentences. Subclasses say what a label is: its range, and whether it is a class."""

    highest = 1.0  # the largest label: divides it to 0..1, where losses and cosines live

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, options: PairOptions):
        super().__init__(name, tokenizer, config, options)
        self.siamese, self.crossed = options.encoding != "cross", options.encoding != "siamese"
        self.sequences_per_example = 2 * self.siamese + self.crossed
        self.objective = OBJECTIVES[options.loss](options, self.classes, self.highest)
        self.parts = parse_combination(options.combination)
        size = combination_size(self.parts, self.hidden_size) * self.siamese + self.hidden_size * self.crossed
        self.features = size  # numbers of a pair's features
        self.trunk: Trunk | None = None  # shared with other tasks: see `share`
        if options.trunk:
            size = self.hidden_size
        self.dropped_vectors = options.dropout_on == "vectors"
        self.head: nn.Module | None = None
        if options.head != "cosine":
            self.head = (nn.Linear(size, self.objective.outputs) if self.dropped_vectors else feature_head(
                options.head, size, self.objective.outputs, self.hidden_size, self.dropout.p))
        elif options.cosine_logit:
            self.head = CosineLogit()

    def share(self, trunk: Trunk):
        """Compare pairs over a trunk from now on. It takes part in every task that has it, as the same module."""
        self.trunk = trunk

    # ---- examples -> batch -------------------------------------------------------------------------------------------

    def sequences(self, examples: Sequence[Example]) -> list[tuple[list[int], list[int]]]:
        """Return the sequences of a batch: all first sentences, all second ones, then all pairs, as far as needed."""
        result = []
        if self.siamese:
            result += [self.tokenizer.build(example.ids[side], max_length=self.max_length)
                       for side in (0, 1) for example in examples]
        if self.crossed:
            result += [self.tokenizer.build(example.ids[0], example.ids[1], self.max_length) for example in examples]
        return result

    def full_length(self, example: Any) -> int:
        """Return the tokens of the example's longest sequence, before truncation."""
        if not self.crossed or len(example.ids) == 1:
            return super().full_length(example)
        return sum(map(len, example.ids)) + self.tokenizer.special_of_pair

    # ---- batch -> outputs -> loss, prediction ------------------------------------------------------------------------

    def outputs(self, encoder: BertModel, batch: Batch) -> Outputs:
        """Return what the objective reads: logits [B, C], scores [B], or the sentence vectors [2B, H]."""
        vectors, penalty = self.encode(encoder, batch.tokens)
        return Outputs(vectors if self.objective.reads == "vectors" else self.compare(vectors), penalty)

    def compare(self, vectors: Tensor) -> Tensor:
        """Compare two sentences: [sequences, H], as `sequences` orders them -> logits [B, outputs] or scores [B]."""
        if self.crossed:
            assert self.head is not None
            features = vectors
            if self.siamese:
                u, v, pair = vectors.chunk(3)
                features = torch.cat([combine(u, v, self.parts), pair], dim=1)
            return self._shaped(self.head(features))
        u, v = vectors.chunk(2)
        if self.head is None:
            return F.cosine_similarity(u, v)
        if isinstance(self.head, CosineLogit):
            logit = self.head(F.cosine_similarity(u, v))
            if self.objective.reads == "scores":
                return logit
            return torch.stack([torch.zeros_like(logit), logit], dim=1)
        if self.dropped_vectors:
            u, v = self.dropout(u), self.dropout(v)
        features = combine(u, v, self.parts)
        return self._shaped(self.head(features if self.trunk is None else self.trunk(features)))

    def _shaped(self, outputs: Tensor) -> Tensor:
        """Drop the last dimension of scores, [B, 1] -> [B]."""
        return outputs if self.objective.reads == "logits" else outputs.squeeze(1)

    def criterion(self, outputs: Outputs, batch: Batch) -> Tensor:
        """Compute the objective's loss, and add the penalty."""
        assert batch.labels is not None
        return self.objective.loss(outputs.values, batch.labels, batch.groups) + outputs.penalty

    def divergence(self, first: Outputs, second: Outputs) -> Tensor:
        """Say how far apart two outputs for the same batch are."""
        return self.objective.divergence(first.values, second.values)

    def _compared(self, outputs: Outputs) -> Tensor:
        """Return scores or logits, whatever the objective reads."""
        return self.compare(outputs.values) if self.objective.reads == "vectors" else outputs.values

    @torch.no_grad()
    def observe(self, outputs: Outputs, batch: Batch):
        """Let the objective take note of a training batch's scores, if there are labels."""
        if batch.labels is not None:
            self.objective.observe(self._compared(outputs), batch.labels)

    def predict_from(self, outputs: Outputs) -> Tensor:
        """Turn outputs into classes or scores [B]."""
        return self.objective.predict(self._compared(outputs))

    def answers(self, encoder: BertModel, batch: Batch) -> dict[str, Tensor]:
        """Return the predictions, and the probabilities or else the scores that they were made from."""
        compared = self._compared(self.outputs(encoder, batch))
        probabilities = self.objective.probabilities(compared)
        answers = {"prediction": self.objective.predict(compared)}
        if probabilities is not None:
            answers["probabilities"] = probabilities
        elif compared.ndim == 1:
            answers["score"] = compared
        return answers
