"""Semantic textual similarity: how alike are two sentences, from 0 (unrelated) to 5 (same meaning)?

By default siamese regression: each sentence is embedded on its own, the cosine of the two mean-pooled vectors is the
prediction, and its target is the gold score moved to the cosine's range (Sentence-BERT, Reimers & Gurevych 2019,
section 3). That head has no parameters. Metric: Pearson correlation.
"""
from pathlib import Path

from corpora.tables import read_table
from tasks.metrics import pearson, spearman
from tasks.pair import SCORE_LOSSES, PairChoices, PairTask
from tasks.sentiment import labelled_examples
from tasks.task import Dataset

MAX_SCORE = 5.0


class Similarity(PairTask):
    metric = "pearson"
    highest = MAX_SCORE
    known_losses = SCORE_LOSSES
    default_choices = PairChoices(head="cosine", loss="mse")
    prediction_header = "id \t Predicted_Similiary "  # the course's spelling, which its grader reads

    def read(self, path: Path, split: str) -> Dataset:
        rows = read_table(path, ["id", "sentence1", "sentence2"] + ([] if split == "test" else ["similarity"]))
        return labelled_examples(path, rows, split, ("sentence1", "sentence2"), "similarity",
                                 lambda row: row.number("similarity", 0, MAX_SCORE))

    def metrics(self) -> dict:
        return {"pearson": pearson, "spearman": spearman}
