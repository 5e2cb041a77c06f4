"""Natural language inference: does the premise entail the hypothesis, contradict it, or neither? SNLI and MultiNLI.

Four ways to learn from it. As classification (Conneau et al. 2017); as regression of the cosine to 0 contradiction,
0.5 neutral, 1 entailment; as contrast, the entailed sentence against all others of the batch, the contradicted one
among them (supervised SimCSE, Gao et al. 2021, eq. 5); as triplets with a margin (Reimers & Gurevych 2019, section 3).
The last two read triplets (premise, entailed, contradicted), or make them of labelled pairs.
"""
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from corpora.tables import Row, read_csv, read_json_lines, read_lines, read_table
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks import losses
from tasks.metrics import accuracy, macro_f1, pearson, spearman
from tasks.pair import PairTask
from tasks.task import Batch, Dataset, Example, Task, examples_of

CONTRADICTION, NEUTRAL, ENTAILMENT = 0, 1, 2  # ordered as the regression's targets are
LABELS = {"contradiction": CONTRADICTION, "neutral": NEUTRAL, "entailment": ENTAILMENT}
NO_GOLD_LABEL = ("-", "")  # SNLI's mark where its annotators disagreed

# Column names of the layouts about: (premise, hypothesis, label, names of the classes)
_NUMBERED = {"0": NEUTRAL, "1": CONTRADICTION, "2": ENTAILMENT}
LAYOUTS = (("sentence1", "sentence2", "gold_label", LABELS), ("premise", "hypothesis", "label", LABELS),
           ("document", "query", "label", _NUMBERED))


def _pair_rows(path: Path) -> tuple[Iterable[Row], tuple]:
    """Rows of a file in any of the layouts, and the layout. Parallel lines (s1.*, s2.*, labels.*) are one, too."""
    path = Path(path)
    if path.name.startswith("labels."):
        columns = [list(read_lines(path.with_name(path.name.replace("labels", stem, 1)))) for stem in ("s1", "s2")]
        columns.append(list(read_lines(path)))
        if len({len(column) for column in columns}) != 1:
            raise ValueError(f"{path}: {len(columns[2])} labels for {len(columns[0])} and {len(columns[1])} sentences")
        rows = [Row(path, number, {"sentence1": first, "sentence2": second, "gold_label": label})
                for number, (first, second, label) in enumerate(zip(*columns, strict=True), start=1)]
        return rows, LAYOUTS[0]
    first = next(read_lines(path), None)
    is_json = path.suffix in (".jsonl", ".json")
    if first is None:
        raise ValueError(f"{path}: empty; expected premises, hypotheses and labels")
    if is_json:
        try:
            names = json.loads(first).keys()
        except (json.JSONDecodeError, AttributeError):
            raise ValueError(f"{path}:1: expected one JSON object a line") from None
    else:
        names = [name.strip() for name in first.split("\t")]
    for layout in LAYOUTS:
        if set(layout[:3]) <= set(names):
            rows = read_json_lines(path, layout[:3]) if is_json else read_table(path, layout[:3], quoting=False)
            return rows, layout
    expected = " or ".join(", ".join(layout[:3]) for layout in LAYOUTS)
    raise ValueError(f"{path}:1: columns are {', '.join(list(names)[:8])}; expected {expected}")


def read_pairs(path: Path, split: str) -> Dataset:
    """Labelled pairs; rows with the label "-" are counted and left out (of a test file nothing is)."""
    rows, (premise, hypothesis, label, names) = _pair_rows(path)
    examples, skipped = examples_of(path), []
    for row in rows:
        if split != "test" and row.text(label) in NO_GOLD_LABEL:
            skipped.append((row.line, "without an agreed label"))
            continue
        value = None if split == "test" else row.label(label, names)
        examples.append(Example(str(row.line), (row.sentence(premise), row.sentence(hypothesis)), value))
    if not examples:
        raise ValueError(f"{path}: has no usable row; expected at least one")
    return Dataset(Path(path), examples, skipped)


def build_triplets(pairs: Iterable[Example]) -> list[Example]:
    """(premise, entailed, contradicted) for each premise that has both, in the order the premises come.

    The i-th entailed hypothesis of a premise meets its i-th contradicted one; where one list is shorter it starts over,
    so that no hypothesis is lost. Neutral pairs and premises with only one kind make none.
    """
    by_premise: dict[str, tuple[list[str], list[str]]] = {}
    for pair in pairs:
        entailed, contradicted = by_premise.setdefault(pair.sentences[0], ([], []))
        if pair.label == ENTAILMENT:
            entailed.append(pair.sentences[1])
        elif pair.label == CONTRADICTION:
            contradicted.append(pair.sentences[1])
    triplets = []
    for premise, (entailed, contradicted) in by_premise.items():
        count = max(len(entailed), len(contradicted)) if entailed and contradicted else 0
        for i in range(count):
            sentences = (premise, entailed[i % len(entailed)], contradicted[i % len(contradicted)])
            triplets.append(Example(str(len(triplets)), sentences, 1))
    return triplets


class Inference(PairTask):
    """Pairs -> one of three classes, by logits or (loss mse or l1) by a score at 0, 0.5 and 1."""

    metric = "accuracy"
    classes = 3
    highest = float(ENTAILMENT)
    known_losses = ("cross_entropy", "mse", "l1")

    def read(self, path: Path, split: str) -> Dataset:
        return read_pairs(path, split)

    def predict_from(self, outputs: Tensor) -> Tensor:
        if self.choices.loss == "cross_entropy":
            return outputs.argmax(dim=1)
        return (2 * outputs).round().clamp(CONTRADICTION, ENTAILMENT).long()  # the nearest of 0, 0.5 and 1

    def metrics(self) -> dict:
        def mean_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
            return macro_f1(predictions, labels, 3)

        return {"accuracy": accuracy, "macro_f1": mean_f1, "pearson": pearson, "spearman": spearman}


class InferenceTriplets(Task):
    """Triplets -> sentence vectors with the entailed sentence nearer than the contradicted one. Metric: how often."""

    metric = "accuracy"
    classes = 2
    sequences_per_example = 3

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, objective: str = "triplet",
                 margin: float = 1.0, temperature: float = 0.05, **options):
        super().__init__(name, tokenizer, config, **options)
        if objective not in ("triplet", "contrastive"):
            raise ValueError(f"task {name}: objective is {objective!r}; known: triplet, contrastive")
        self.objective, self.margin, self.temperature = objective, margin, temperature

    def read(self, path: Path, split: str) -> Dataset:
        path = Path(path)
        if path.suffix != ".csv":
            pairs = read_pairs(path, "train")
            triplets = build_triplets(pairs.examples)
            if not triplets:
                raise ValueError(f"{path}: no premise has both an entailed and a contradicted hypothesis")
            return Dataset(path, triplets, pairs.skipped)
        names = ("sent0", "sent1", "hard_neg")
        rows = read_csv(path, names)
        return Dataset(path, [Example(str(row.line), tuple(row.sentence(name) for name in names), 1) for row in rows])

    def sequences(self, examples: list[Example]) -> list[tuple[list[int], list[int]]]:
        return [self.tokenizer.build(example.ids[side], max_length=self.max_length)
                for side in range(3) for example in examples]

    def outputs(self, encoder: BertModel, batch: Batch) -> Tensor:
        """Sentence vectors [3B, H]: first all premises, then all entailed, then all contradicted sentences."""
        return self.encode(encoder, batch.tokens)

    def criterion(self, outputs: Tensor, batch: Batch) -> Tensor:
        premises, entailed, contradicted = outputs.chunk(3)
        if self.objective == "triplet":
            return losses.triplet(premises, entailed, contradicted, self.margin)
        groups = batch.groups.chunk(3)
        return losses.info_nce(premises, torch.cat([entailed, contradicted]), groups[0], torch.cat(groups[1:]),
                               self.temperature)

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        return F.mse_loss(F.normalize(first, dim=-1), F.normalize(second, dim=-1))

    def predict_from(self, outputs: Tensor) -> Tensor:
        premises, entailed, contradicted = outputs.chunk(3)
        return (F.cosine_similarity(premises, entailed) > F.cosine_similarity(premises, contradicted)).long()

    def metrics(self) -> dict:
        return {"accuracy": accuracy}
