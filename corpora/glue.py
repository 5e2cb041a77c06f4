"""GLUE's and PAWS's files: which columns, which labels, which metrics. To add a task is to add a row to LAYOUTS."""
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Describe the files of one GLUE task.

    >>> LAYOUTS["rte"].names
    ('entailment', 'not_entailment')
    """

    sentences: tuple[str, ...]  # columns, by their names in the header
    label: str
    names: tuple[str, ...]  # of the classes, class 0 first; empty for a regression
    metrics: tuple[str, ...]  # the first one decides
    submission: str  # file name the GLUE server expects
    bare: tuple[str, ...] = ()  # columns of a train or dev file without a header
    quoting: bool = False


_TWO, _ENTAIL, _NLI = ("0", "1"), ("entailment", "not_entailment"), ("contradiction", "neutral", "entailment")
LAYOUTS = {
    "cola": Layout(("sentence",), "label", _TWO, ("matthews",), "CoLA.tsv", ("source", "label", "star", "sentence")),
    "sst2": Layout(("sentence",), "label", _TWO, ("accuracy",), "SST-2.tsv"),
    "mrpc": Layout(("#1 String", "#2 String"), "Quality", _TWO, ("f1", "accuracy"), "MRPC.tsv"),
    "stsb": Layout(("sentence1", "sentence2"), "score", (), ("pearson", "spearman"), "STS-B.tsv",
                   ("genre", "file", "year", "index", "score", "sentence1", "sentence2")),
    "qqp": Layout(("question1", "question2"), "is_duplicate", _TWO, ("f1", "accuracy"), "QQP.tsv"),
    "mnli": Layout(("sentence1", "sentence2"), "gold_label", _NLI, ("accuracy",), "MNLI-m.tsv"),
    "mnli_mm": Layout(("sentence1", "sentence2"), "gold_label", _NLI, ("accuracy",), "MNLI-mm.tsv"),
    "qnli": Layout(("question", "sentence"), "label", _ENTAIL, ("accuracy",), "QNLI.tsv"),
    "rte": Layout(("sentence1", "sentence2"), "label", _ENTAIL, ("accuracy",), "RTE.tsv"),
    "wnli": Layout(("sentence1", "sentence2"), "label", _TWO, ("accuracy",), "WNLI.tsv"),
    "paws": Layout(("sentence1", "sentence2"), "label", _TWO, ("accuracy", "f1"), "PAWS.tsv"),
}
MAX_SCORE = 5.0  # of STS-B
UNKNOWN_LABELS = ("-", "")
