"""Paraphrase: do two questions ask the same? Quora question pairs, label 1 for duplicates.

By default a siamese classifier over (u, v, |u-v|) of mean-pooled sentence vectors (Sentence-BERT, Reimers & Gurevych
2019, section 3, classification objective). Metric: accuracy.
"""
from collections.abc import Callable
from pathlib import Path

import numpy as np

from corpora.course import labelled_examples
from corpora.examples import Dataset
from corpora.tables import read_table
from tasks.metrics import accuracy, f1
from tasks.pair import PairTask


class Paraphrase(PairTask):
    """Classify sentence pairs as paraphrases or not."""

    metric = "accuracy"
    classes = 2
    prediction_header = "id \t Predicted_Is_Paraphrase "  # spelled and spaced as the course's grader reads it

    def read(self, path: Path, split: str) -> Dataset:
        """Read a file of the course. See Task.read."""
        rows = read_table(path, ["id", "sentence1", "sentence2"] + ([] if split == "test" else ["is_duplicate"]))
        return labelled_examples(path, rows, split, ("sentence1", "sentence2"), "is_duplicate",
                                 lambda row: row.label("is_duplicate", ["0", "1"]))

    def metrics(self) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
        """Return accuracy, and F1 of the duplicates."""
        return {"accuracy": accuracy, "f1": f1}
