"""Natural language inference: does the premise entail the hypothesis, contradict it, or neither? SNLI and MultiNLI.

Four ways to learn from it. As classification (Conneau et al. 2017); as regression of the cosine to 0 contradiction,
0.5 neutral, 1 entailment; as contrast, the entailed sentence against all others of the batch, the contradicted one
among them (supervised SimCSE, Gao et al. 2021, eq. 5); as triplets with a margin (Reimers & Gurevych 2019, section 3).
The last two read triplets (premise, entailed, contradicted), or make them of labelled pairs.
"""
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from corpora.examples import Dataset, Example, examples_of
from corpora.tables import Row, parse_object, read_csv, read_json_lines, read_lines, read_table
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks import losses
from tasks.metrics import accuracy, macro_f1, pearson, spearman
from tasks.objectives import direction_divergence
from tasks.options import TripletOptions
from tasks.pair import PairTask
from tasks.task import Batch, Outputs, Task

CONTRADICTION, NEUTRAL, ENTAILMENT = 0, 1, 2  # ordered as the regression's targets are
LABELS = {"contradiction": CONTRADICTION, "neutral": NEUTRAL, "entailment": ENTAILMENT}
NO_GOLD_LABEL = ("-", "")  # SNLI's mark where its annotators disagreed

# Column names of the layouts about: (premise, hypothesis, label, names of the classes)
_NUMBERED = {"0": NEUTRAL, "1": CONTRADICTION, "2": ENTAILMENT}
LAYOUTS = (("sentence1", "sentence2", "gold_label", LABELS), ("premise", "hypothesis", "label", LABELS),
           ("document", "query", "label", _NUMBERED))


def _pair_rows(path: Path) -> tuple[Iterable[Row], tuple]:
    """Return the rows of a file in any of the layouts, and the layout.

    Parallel lines (s1.*, s2.*, labels.*) are one.
    """
    path = Path(path)
    if path.name.startswith("labels."):
        columns = [list(read_lines(path.with_name(path.name.replace("labels", stem, 1)))) for stem in ("s1", "s2")]
        columns.append(list(read_lines(path)))
        if len({len(column) for column in columns}) != 1:
            raise ValueError(f"{path}: {len(columns[2])} labels for {len(columns[0])} and {len(columns[1])} sentences")
        rows: Iterable[Row] = [Row(path, number, {"sentence1": first, "sentence2": second, "gold_label": label})
                for number, (first, second, label) in enumerate(zip(*columns, strict=True), start=1)]
        return rows, LAYOUTS[0]
    first = next(read_lines(path), None)
    is_json = path.suffix in (".jsonl", ".json")
    if first is None:
        raise ValueError(f"{path}: empty; expected premises, hypotheses and labels")
    if is_json:
        names = list(parse_object(first, f"{path}:1"))
    else:
        names = [name.strip() for name in first.split("\t")]
    for layout in LAYOUTS:
        if set(layout[:3]) <= set(names):
            rows = (read_json_lines(path, layout[:3], strings=layout[:2]) if is_json
                    else read_table(path, layout[:3], quoting=False))
            return rows, layout
    expected = " or ".join(", ".join(layout[:3]) for layout in LAYOUTS)
    raise ValueError(f"{path}:1: columns are {', '.join(list(names)[:8])}; expected {expected}")


def read_pairs(path: Path, split: str) -> Dataset:
    """Read labelled pairs. Rows without an agreed label or without a sentence are counted and left out, but not of a
    test file. split: train, dev or test."""
    rows, (premise, hypothesis, label, names) = _pair_rows(path)
    examples, skipped = examples_of(path), []
    for row in rows:
        if split != "test" and row.text(label) in NO_GOLD_LABEL:
            skipped.append((row.line, "without an agreed label"))
            continue
        if split != "test" and (blank := row.first_blank((premise, hypothesis))):
            skipped.append((row.line, f"without {blank}"))
            continue
        value = None if split == "test" else row.label(label, names)
        examples.append(Example(str(row.line), (row.sentence(premise), row.sentence(hypothesis)), value))
    return Dataset(Path(path), examples, skipped)


def build_triplets(pairs: Sequence[Example]) -> tuple[list[Example], list[tuple[int, str]]]:
    """Make triplets (premise, entailed, contradicted) of each premise that has both kinds of hypotheses.

    The i-th entailed hypothesis of a premise meets its i-th contradicted one. Where one list is shorter, it starts
    over, so that no hypothesis is lost.

    Returns:
        The triplets in the order in which the premises come, and (line, reason) of each pair that makes none.
    """
    by_premise: dict[str, tuple[list[Example], list[Example]]] = {}
    unused: list[tuple[int, str]] = []
    for pair in pairs:
        entailed, contradicted = by_premise.setdefault(pair.sentences[0], ([], []))
        if pair.label == ENTAILMENT:
            entailed.append(pair)
        elif pair.label == CONTRADICTION:
            contradicted.append(pair)
        else:
            unused.append((int(pair.id or 0), "neutral"))
    triplets: list[Example] = []
    for premise, (entailed, contradicted) in by_premise.items():
        if not (entailed and contradicted):
            unused += [(int(pair.id or 0), "of a premise without an opposite") for pair in entailed + contradicted]
            continue
        for i in range(max(len(entailed), len(contradicted))):
            sentences = (premise, entailed[i % len(entailed)].sentences[1],
                         contradicted[i % len(contradicted)].sentences[1])
            triplets.append(Example(str(len(triplets)), sentences, 1))
    return triplets, sorted(unused)


class Inference(PairTask):
    """Classify pairs into three classes: by logits or, with loss mse or l1, by a score at 0, 0.5 and 1."""

    metric = "accuracy"
    classes = 3
    highest = float(ENTAILMENT)

    def read(self, path: Path, split: str) -> Dataset:
        """Read labelled pairs. See Task.read."""
        return read_pairs(path, split)

    def read_label(self, row: Row, column: str) -> float:
        """Read a class by its name: contradiction, neutral or entailment."""
        return row.label(column, LABELS)

    def metrics(self) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
        """Return accuracy, the mean F1 of the classes, and both correlations."""
        return {"accuracy": accuracy, "macro_f1": lambda predictions, labels: macro_f1(predictions, labels, 3),
                "pearson": pearson, "spearman": spearman}


class InferenceTriplets(Task):
    """Bring the entailed sentence nearer to the premise than the contradicted one. The metric says how often it is."""

    metric = "accuracy"
    classes = 2
    answers_labels = False  # the entailed sentence is always the right one
    sequences_per_example = 3

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, options: TripletOptions):
        super().__init__(name, tokenizer, config, options)
        self.objective, self.margin, self.temperature = options.objective, options.margin, options.temperature

    def read(self, path: Path, split: str) -> Dataset:
        """Read triplets from a CSV file, or make them of labelled pairs. See Task.read."""
        path = Path(path)
        if path.suffix != ".csv":
            pairs = read_pairs(path, "train")
            triplets, unused = build_triplets(pairs.examples)
            if not triplets:
                raise ValueError(f"{path}: no premise has both an entailed and a contradicted hypothesis")
            return Dataset(path, triplets, pairs.skipped + unused)
        names = ("sent0", "sent1", "hard_neg")
        examples, skipped = examples_of(path), []
        for row in read_csv(path, names):
            if blank := row.first_blank(names):
                skipped.append((row.line, f"without {blank}"))
                continue
            examples.append(Example(str(row.line), tuple(row.sentence(name) for name in names), 1))
        return Dataset(path, examples, skipped)

    def sequences(self, examples: Sequence[Example]) -> list[tuple[list[int], list[int]]]:
        """Return the sequences of a batch: all premises, then all entailed, then all contradicted sentences."""
        return [self.tokenizer.build(example.ids[side], max_length=self.max_length)
                for side in range(3) for example in examples]

    def outputs(self, encoder: BertModel, batch: Batch) -> Outputs:
        """Return the sentence vectors [3B, H], in the order of `sequences`."""
        return Outputs(*self.encode(encoder, batch.tokens))

    def criterion(self, outputs: Outputs, batch: Batch) -> Tensor:
        """Compute the triplet loss, or InfoNCE with the contradicted sentences among the negatives."""
        premises, entailed, contradicted = outputs.values.chunk(3)
        if self.objective == "triplet":
            return losses.triplet(premises, entailed, contradicted, self.margin) + outputs.penalty
        groups = batch.groups.chunk(3)
        return losses.info_nce(premises, torch.cat([entailed, contradicted]), groups[0], torch.cat(groups[1:]),
                               self.temperature) + outputs.penalty

    def divergence(self, first: Outputs, second: Outputs) -> Tensor:
        """Compare sentence vectors by their directions."""
        return direction_divergence(first.values, second.values)

    def predict_from(self, outputs: Outputs) -> Tensor:
        """Return 1 where the entailed sentence has the larger cosine, [B]."""
        return (self._advantage(outputs) > 0).long()

    def answers(self, encoder: BertModel, batch: Batch) -> dict[str, Tensor]:
        """Return the predictions, and how much larger the entailed sentence's cosine is."""
        outputs = self.outputs(encoder, batch)
        return {"prediction": self.predict_from(outputs), "score": self._advantage(outputs)}

    @staticmethod
    def _advantage(outputs: Outputs) -> Tensor:
        premises, entailed, contradicted = outputs.values.chunk(3)
        return F.cosine_similarity(premises, entailed) - F.cosine_similarity(premises, contradicted)

    def metrics(self) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
        """Return accuracy."""
        return {"accuracy": accuracy}
