"""Sentiment: what does a sentence, usually of a film review, think of its subject?

SST-5 (Socher et al. 2013) asks for one of five classes, 0 very negative to 4 very positive; CFIMDB for one of two. One
vector a sentence, dropout, a classifier. Metric: accuracy.
"""
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpora.course import labelled_examples
from corpora.examples import Dataset, Example
from corpora.tables import read_table
from minbert.batch import by_length
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks.encoding import TOKENS_PER_BATCH, evaluating
from tasks.heads import ExemplarClassifier, Exemplars, NearestExemplar, feature_head
from tasks.metrics import accuracy, macro_f1
from tasks.options import SentimentOptions
from tasks.task import Batch, Outputs, Task


class Sentiment(Task):
    """Classify sentences."""

    metric = "accuracy"
    prediction_header = "id \t Predicted_Sentiment "  # spelled and spaced as the course's grader reads it

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, options: SentimentOptions):
        super().__init__(name, tokenizer, config, options)
        self.classes: int = options.classes
        self.label_smoothing = options.label_smoothing
        self.exemplars = options.exemplars
        count = options.exemplars * self.classes
        self.head: nn.Module
        if options.head == "exemplars":
            self.head = ExemplarClassifier(count, self.hidden_size, self.classes)
        elif options.head == "nearest":
            self.head = NearestExemplar(count, self.hidden_size, self.classes)
        else:
            self.head = feature_head(options.head, self.hidden_size, self.classes, self.hidden_size, self.dropout.p)

    def read(self, path: Path, split: str) -> Dataset:
        """Read a file of the course. See Task.read."""
        labels = [str(label) for label in range(self.classes)]
        rows = read_table(path, ["id", "sentence"] + ([] if split == "test" else ["sentiment"]))
        return labelled_examples(path, rows, split, ("sentence",), "sentiment",
                                 lambda row: row.label("sentiment", labels))

    @torch.no_grad()
    def prepare(self, encoder: BertModel, examples: Sequence[Example], seed: str, device: torch.device):
        """Embed the exemplars, where the head has some. See Task.prepare."""
        if not isinstance(self.head, Exemplars):
            return
        chosen = list(examples)
        if self.exemplars:
            chosen = []
            for label in range(self.classes):
                candidates = [example for example in examples if example.label == label]
                if len(candidates) < self.exemplars:
                    raise ValueError(f"task {self.name}: {len(candidates)} training sentences of class {label}; "
                                     f"expected the {self.exemplars} that the option exemplars asks for")
                chosen += random.Random(f"{seed}/{label}").sample(candidates, self.exemplars)
        vectors = torch.zeros(len(chosen), self.hidden_size)
        with evaluating(encoder, self):
            for indices in by_length([self.length(example) for example in chosen], TOKENS_PER_BATCH):
                batch = self.collate([chosen[index] for index in indices]).to(device)
                vectors[indices] = self.encode(encoder, batch.tokens)[0].float().cpu()
        self.head.hold(vectors, torch.tensor([int(example.label or 0) for example in chosen]))

    def outputs(self, encoder: BertModel, batch: Batch) -> Outputs:
        """Return logits [B, classes]."""
        vectors, penalty = self.encode(encoder, batch.tokens)
        return Outputs(self.head(vectors), penalty)

    def criterion(self, outputs: Outputs, batch: Batch) -> Tensor:
        """Compute the cross-entropy."""
        assert batch.labels is not None
        return F.cross_entropy(outputs.values, batch.labels, label_smoothing=self.label_smoothing) + outputs.penalty

    def predict_from(self, outputs: Outputs) -> Tensor:
        """Return the class of the largest logit, [B]."""
        return outputs.values.argmax(dim=1)

    def answers(self, encoder: BertModel, batch: Batch) -> dict[str, Tensor]:
        """Return the predictions and the probabilities of the classes."""
        outputs = self.outputs(encoder, batch)
        return {"prediction": self.predict_from(outputs), "probabilities": outputs.values.softmax(dim=1)}

    def metrics(self) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
        """Return accuracy and the mean F1 of the classes."""
        return {"accuracy": accuracy,
                "macro_f1": lambda predictions, labels: macro_f1(predictions, labels, self.classes)}
