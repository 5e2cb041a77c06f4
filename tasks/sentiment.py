"""Sentiment: what does a sentence, usually of a film review, think of its subject?

SST-5 (Socher et al. 2013) asks for one of five classes, 0 very negative to 4 very positive; CFIMDB for one of two. One
vector a sentence, dropout, a classifier. Metric: accuracy.
"""
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from corpora.course import labelled_examples
from corpora.examples import Dataset
from corpora.tables import read_table
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks.heads import feature_head
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
        self.head = feature_head(options.head, self.hidden_size, self.classes, self.hidden_size, self.dropout.p)

    def read(self, path: Path, split: str) -> Dataset:
        """Read a file of the course. See Task.read."""
        labels = [str(label) for label in range(self.classes)]
        rows = read_table(path, ["id", "sentence"] + ([] if split == "test" else ["sentiment"]))
        return labelled_examples(path, rows, split, ("sentence",), "sentiment",
                                 lambda row: row.label("sentiment", labels))

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

    def metrics(self) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
        """Return accuracy and the mean F1 of the classes."""
        return {"accuracy": accuracy,
                "macro_f1": lambda predictions, labels: macro_f1(predictions, labels, self.classes)}
