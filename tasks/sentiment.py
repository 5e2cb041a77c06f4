"""Sentiment: what does a sentence, usually of a film review, think of its subject?

SST-5 (Socher et al. 2013) asks for one of five classes, 0 very negative to 4 very positive; CFIMDB for one of two. One
vector a sentence, dropout, a classifier. Metric: accuracy.
"""
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from corpora.tables import Row, read_table
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks.heads import feature_head
from tasks.metrics import accuracy, macro_f1
from tasks.pooling import POOLINGS
from tasks.task import Batch, Dataset, Example, Task, examples_of

SST_CLASSES = 5


def labelled_examples(path: Path, rows: Iterable[Row], split: str, sentences: tuple[str, ...], label: str, read_label
                      ) -> Dataset:
    """Rows of the course's files -> examples. In train and dev, a row without a sentence or a label is left out and
    reported; of a test file every row is kept, since a prediction is owed for each."""
    examples, skipped = examples_of(path), []
    for row in rows:
        texts = tuple(row.sentence(name) for name in sentences)
        value = None
        if split != "test":
            blank = [name for name in (label, *sentences) if not row.text(name)]
            if blank:
                skipped.append((row.line, f"without {blank[0]}"))
                continue
            value = read_label(row)
        examples.append(Example(row.text("id"), texts, value))
    if not examples:
        raise ValueError(f"{path}: has no usable row; expected at least one")
    return Dataset(Path(path), examples, skipped)


class Sentiment(Task):
    metric = "accuracy"
    prediction_header = "id \t Predicted_Sentiment "  # spelled and spaced as the course's grader reads it

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, classes: int = SST_CLASSES,
                 head: str = "linear", label_smoothing: float = 0.0, **options):
        super().__init__(name, tokenizer, config, **{"pooling": "pooler", **options})
        if self.pooling not in POOLINGS:
            raise ValueError(f"task {name}: pooling is {self.pooling!r}; known: {', '.join(POOLINGS)}")
        if head not in ("linear", "mlp"):
            raise ValueError(f"task {name}: head is {head!r}; known: linear, mlp")
        self.classes = classes
        self.label_smoothing = label_smoothing
        self.head = feature_head(head, self.hidden_size, classes, self.hidden_size, self.dropout.p)

    def read(self, path: Path, split: str) -> Dataset:
        labels = [str(label) for label in range(self.classes)]
        rows = read_table(path, ["id", "sentence"] + ([] if split == "test" else ["sentiment"]))
        return labelled_examples(path, rows, split, ("sentence",), "sentiment",
                                 lambda row: row.label("sentiment", labels))

    def outputs(self, encoder: BertModel, batch: Batch) -> Tensor:
        """Logits [B, classes]."""
        return self.head(self.encode(encoder, batch.tokens))

    def criterion(self, outputs: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(outputs, batch.labels, label_smoothing=self.label_smoothing)

    def predict_from(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(dim=1)

    def metrics(self) -> dict:
        def mean_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
            return macro_f1(predictions, labels, self.classes)

        return {"accuracy": accuracy, "macro_f1": mean_f1}
