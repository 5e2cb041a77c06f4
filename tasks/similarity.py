"""Semantic textual similarity: how alike are two sentences, from 0 (unrelated) to 5 (same meaning)?

By default siamese regression: each sentence is embedded on its own, the cosine of the two mean-pooled vectors is the
prediction, and its target is the gold score moved to the cosine's range (Sentence-BERT, Reimers & Gurevych 2019,
section 3). That head has no parameters. Metric: Pearson correlation.
"""
from collections.abc import Callable
from pathlib import Path

import numpy as np

from corpora.course import labelled_examples
from corpora.examples import Dataset
from corpora.tables import read_table
from tasks.metrics import pearson, spearman
from tasks.pair import PairTask

MAX_SCORE = 5.0


class Similarity(PairTask):
    """Score how alike two sentences are."""

    metric = "pearson"
    highest = MAX_SCORE
    prediction_header = "id \t Predicted_Similiary "  # the course's spelling, which its grader reads

    def read(self, path: Path, split: str) -> Dataset:
        """Read a file of the course. See Task.read."""
        rows = read_table(path, ["id", "sentence1", "sentence2"] + ([] if split == "test" else ["similarity"]))
        return labelled_examples(path, rows, split, ("sentence1", "sentence2"), "similarity",
                                 lambda row: row.number("similarity", 0, MAX_SCORE))

    def metrics(self) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
        """Return both correlations."""
        return {"pearson": pearson, "spearman": spearman}
