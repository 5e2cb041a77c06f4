"""GLUE (Wang et al. 2019) and PAWS (Zhang et al. 2019): ten layouts of files over one cross-encoded classifier.

[CLS] u [SEP] v [SEP], dropout and a linear layer on the pooled output, as BERT does (Devlin et al. 2019, section 4.1);
regression for STS-B. Official metrics, and the files that the GLUE server takes. A layout says which columns, which
labels, which metrics: to add a task is to add a row to LAYOUTS.
"""
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corpora.tables import Row, read_lines, read_table
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from minbert.weights import write_atomically
from tasks import metrics
from tasks.pair import SCORE_LOSSES, PairChoices, PairTask
from tasks.task import Dataset, Example, examples_of


@dataclass
class Layout:
    sentences: tuple[str, ...]  # columns, by their names in the header
    label: str
    names: tuple[str, ...]  # of the classes, class 0 first; empty for a regression
    metrics: tuple[str, ...]  # the first one decides
    submission: str  # file name the GLUE server expects
    bare: tuple[str, ...] = ()  # columns of a train or dev file without a header
    quoting: bool = False


_TWO, _ENTAIL = ("0", "1"), ("entailment", "not_entailment")
LAYOUTS = {
    "cola": Layout(("sentence",), "label", _TWO, ("matthews",), "CoLA.tsv", ("source", "label", "star", "sentence")),
    "sst2": Layout(("sentence",), "label", _TWO, ("accuracy",), "SST-2.tsv"),
    "mrpc": Layout(("#1 String", "#2 String"), "Quality", _TWO, ("f1", "accuracy"), "MRPC.tsv"),
    "stsb": Layout(("sentence1", "sentence2"), "score", (), ("pearson", "spearman"), "STS-B.tsv",
                   ("genre", "file", "year", "index", "score", "sentence1", "sentence2")),
    "qqp": Layout(("question1", "question2"), "is_duplicate", _TWO, ("f1", "accuracy"), "QQP.tsv"),
    "mnli": Layout(("sentence1", "sentence2"), "gold_label", ("contradiction", "neutral", "entailment"),
                   ("accuracy",), "MNLI-m.tsv"),
    "mnli_mm": Layout(("sentence1", "sentence2"), "gold_label", ("contradiction", "neutral", "entailment"),
                      ("accuracy",), "MNLI-mm.tsv"),
    "qnli": Layout(("question", "sentence"), "label", _ENTAIL, ("accuracy",), "QNLI.tsv"),
    "rte": Layout(("sentence1", "sentence2"), "label", _ENTAIL, ("accuracy",), "RTE.tsv"),
    "wnli": Layout(("sentence1", "sentence2"), "label", _TWO, ("accuracy",), "WNLI.tsv"),
    "paws": Layout(("sentence1", "sentence2"), "label", _TWO, ("accuracy", "f1"), "PAWS.tsv"),
}
MAX_SCORE = 5.0
UNKNOWN_LABELS = ("-", "")


class Glue(PairTask):
    known_losses = ("cross_entropy", *SCORE_LOSSES)
    default_choices = PairChoices(encoding="cross", head="linear")

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, layout: str = "mrpc", **options):
        if layout not in LAYOUTS:
            raise ValueError(f"task {name}: layout is {layout!r}; known: {', '.join(LAYOUTS)}")
        self.layout = LAYOUTS[layout]
        self.classes = len(self.layout.names) or None
        self.highest = MAX_SCORE if self.classes is None else 1.0
        self.metric = self.layout.metrics[0]
        if self.classes is None:
            options = {"loss": "mse", **options}
        super().__init__(name, tokenizer, config, **{"pooling": "pooler", "dropout": 0.1, **options})
        if len(self.layout.sentences) == 1 and self.siamese:
            raise ValueError(f"task {name}: {layout} has one sentence; use encoding 'cross'")

    # ---- file -> examples --------------------------------------------------------------------------------------------

    def read(self, path: Path, split: str) -> Dataset:
        """Train and dev files with labels, test files with an index; the header, or its absence, is recognised."""
        layout, labelled = self.layout, split != "test"
        header = next(read_lines(path), "").split("\t")
        wanted = [*layout.sentences, *([layout.label] if labelled else [])]
        if layout.bare and not set(wanted) <= set(header) and "index" not in header[:1]:
            rows = read_table(path, layout.bare, quoting=layout.quoting, header=False)
        else:
            rows = read_table(path, wanted, quoting=layout.quoting, optional=("index", "id"))
        examples, skipped = examples_of(path), []
        for number, row in enumerate(rows):
            value = None
            if labelled:
                if row.text(layout.label) in UNKNOWN_LABELS:
                    skipped.append((row.line, f"without {layout.label}"))
                    continue
                value = self._label(row)
            identifier = row.values.get("index") or row.values.get("id") or str(number)
            examples.append(Example(identifier, tuple(row.sentence(name) for name in layout.sentences), value))
        if not examples:
            raise ValueError(f"{path}: has no usable row; expected at least one")
        return Dataset(Path(path), examples, skipped)

    def _label(self, row: Row) -> float:
        if self.classes is None:
            return row.number(self.layout.label, 0, MAX_SCORE)
        return row.label(self.layout.label, self.layout.names)

    def sequences(self, examples: list[Example]) -> list[tuple[list[int], list[int]]]:
        if len(self.layout.sentences) == 1:
            return [self.tokenizer.build(example.ids[0], max_length=self.max_length) for example in examples]
        return super().sequences(examples)

    # ---- predictions -> score, file ----------------------------------------------------------------------------------

    def metrics(self) -> dict:
        return {name: getattr(metrics, name) for name in self.layout.metrics}

    def prediction_file(self, split: str) -> str:
        stem, _, suffix = self.layout.submission.partition(".")
        return self.layout.submission if split == "test" else f"{stem}-{split}.{suffix}"

    def write_predictions(self, path: Path, examples: list[Example], predictions: np.ndarray):
        """The GLUE server's file: index and prediction, classes by name where they have one."""
        lines = ["index\tprediction"]
        for index, prediction in enumerate(predictions):
            if self.classes is None:
                text = f"{min(MAX_SCORE, max(0.0, float(prediction))):.3f}"
            else:
                text = self.layout.names[int(prediction)]
            lines.append(f"{index}\t{text}")
        write_atomically(path, lambda temporary: temporary.write_text("\n".join(lines) + "\n", encoding="utf-8"))
