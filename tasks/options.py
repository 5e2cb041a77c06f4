"""What a recipe may say of a task: one dataclass a kind of task, with its defaults and its checks.

A field that is None takes the recipe's value (`filled`). A class of options that has a default of its own keeps it.
This file imports no torch: a wrong recipe is answered at once.
"""
import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from corpora.glue import LAYOUTS
from corpora.near import near

MAX_LENGTH = 128  # tokens of a sequence
DROPOUT = 0.3  # before the heads

POOLINGS = ("pooler", "cls", "mean", "max", "attentive")  # of a sentence: tasks/pooling.py has the functions
SPAN_POOLINGS = ("max", "mean", "attentive")  # of a phrase's tokens
PARTS = ("u", "v", "|u-v|", "u*v", "cos")  # of the features of a pair: tasks/heads.py has the functions
ENCODINGS = ("siamese", "cross", "both")
# A list can be added to (docs/extending.md).
HEADS = ["cosine", "linear", "mlp"]
CLASS_LOSSES = ["cross_entropy", "bce", "hinge", "mse", "l1", "cosent", "info_nce"]  # of a two-class question
SCORE_LOSSES = ["mse", "l1", "bce", "bins", "hinge", "cosent", "info_nce"]  # of a graded question
TARGET_LOSSES = ("mse", "l1", "bce")  # losses that bring a score to the label, wherever target_range puts it
SEVERAL_OUTPUTS = ("cross_entropy", "bins")  # losses whose head gives more than one number
TRIPLET_OBJECTIVES = ("triplet", "contrastive")
ABLATIONS = ("full", "sentence_only", "three_way", "binary")
FEATURES = ("full", "simple")
TEACHER_WEIGHT = 0.5
EXEMPLAR_HEADS = ("exemplars", "nearest")
RANDOM_SOURCES = ("all", "aligned")

Options = TypeVar("Options", bound="TaskOptions")


def require(condition: bool, message: str):
    """Raise ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)


def require_one_of(name: str, value: str, known: Iterable[str]):
    """Raise ValueError that lists the known values unless `value` is one of them.

    Args:
        name: of the field.
        value: what it is.
        known: what it may be.
    """
    known = list(known)
    require(value in known, f"{name} is {value!r}; known: {', '.join(known)}{near(value, known)}")


def require_between(name: str, value: float, low: float, high: float = math.inf):
    """Raise ValueError unless low <= value <= high and value is finite.

    Args:
        name: of the field.
        value: what it is.
        low, high: the range.
    """
    expected = f"{low:g} or more" if high == math.inf else f"{low:g} to {high:g}"
    require(math.isfinite(value) and low <= value <= high, f"{name} is {value!r}; expected {expected}")


def parse_combination(text: str) -> tuple[str, ...]:
    """Split a combination into its parts. Raise ValueError for an unknown part.

    >>> parse_combination("u,v,|u-v|")
    ('u', 'v', '|u-v|')
    """
    parts = tuple(part.strip() for part in text.strip("() ").split(","))
    for part in parts:
        require(part in PARTS, f"combination '{text}': unknown part '{part}'; known: {', '.join(PARTS)}")
    return parts


@dataclass
class TaskOptions:
    """Hold what every task can be told.

    >>> options = TaskOptions(pooling="max").filled(max_length=64, dropout=0.1)
    >>> options.pooling, options.max_length, options.dropout
    ('max', 64, 0.1)
    """

    sentences: ClassVar[tuple[str, ...]] = ()  # columns of a file of one's own; empty: the task has formats of its own
    label: ClassVar[str] = ""

    max_length: int | None = None  # tokens of a sequence; None: the recipe's
    dropout: float | None = None  # before the head; None: the recipe's hidden_dropout_prob
    pooling: str = "mean"  # token vectors -> sentence vector
    new_layers: int = 0  # transformer layers of the task's own on top of the encoder
    own_layers: int = 0  # how many of the encoder's top layers the task has copies of; they learn at the encoder's rate
    low_rank: int = 0  # LoRA: the rank of the task's own change of the encoder's projections; 0 for none
    adapter: int = 0  # the width of the task's own adapters in the encoder's layers; 0 for none
    teacher: str = ""  # folder of a finished run: its answers are labels too (knowledge distillation)
    teacher_weight: float = TEACHER_WEIGHT  # their share of the loss

    def __post_init__(self):
        require_one_of("pooling", self.pooling, self.poolings())
        if self.max_length is not None:
            require_between("max_length", self.max_length, 3)
        if self.dropout is not None:
            require(0 <= self.dropout < 1, f"dropout is {self.dropout!r}; expected 0 <= p < 1")
        require_between("new_layers", self.new_layers, 0, 100)
        require_between("own_layers", self.own_layers, 0, 100)
        require_between("low_rank", self.low_rank, 0, 1000)
        require_between("adapter", self.adapter, 0, 10_000)
        changes = [name for name in ("own_layers", "low_rank", "adapter") if getattr(self, name)]
        require(len(changes) < 2, f"{' and '.join(changes)}: expected one of them")
        require(not self.teacher or self.learns_from_answers,
                "teacher: needs a loss against answers: cross_entropy, or mse and l1 of a similarity")
        require(0 < self.teacher_weight <= 1, f"teacher_weight is {self.teacher_weight!r}; expected above 0, at most 1")
        require(bool(self.teacher) or self.teacher_weight == TEACHER_WEIGHT,
                "teacher_weight has no effect without a teacher")

    def refuse_own_parts(self, why: str):
        """Raise ValueError if the task has a part of the encoder of its own. why: it may not."""
        own = [name for name in ("new_layers", "own_layers", "low_rank", "adapter") if getattr(self, name)]
        require(not own, f"{', '.join(own)}: {why}; expected 0")

    @property
    def learns_from_answers(self) -> bool:
        """Tell whether the loss can compare with a teacher's answers in place of labels."""
        return False

    @property
    def has_threshold(self) -> bool:
        """Tell whether predictions are made from the probability of one of two classes."""
        return False

    @classmethod
    def poolings(cls) -> tuple[str, ...]:
        """Return the poolings that make sense for this task."""
        return POOLINGS

    def filled(self: Options, max_length: int = MAX_LENGTH, dropout: float = DROPOUT) -> Options:
        """Return a copy in which fields that are None have these values."""
        values: dict[str, Any] = {"max_length": max_length, "dropout": dropout}
        return dataclasses.replace(self, **{name: value for name, value in values.items()
                                            if getattr(self, name) is None})


@dataclass
class SentimentOptions(TaskOptions):
    """Hold the options of a sentence classifier."""

    sentences: ClassVar[tuple[str, ...]] = ("sentence",)
    label: ClassVar[str] = "sentiment"

    pooling: str = "pooler"
    classes: int = 5
    head: str = "linear"  # linear, mlp; exemplars: the cosines to training sentences; nearest: the nearest one's class
    exemplars: int = 100  # training sentences of each class, for the last two heads; 0 (nearest only): all of them
    label_smoothing: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        require_between("classes", self.classes, 2, 1000)
        require_one_of("head", self.head, (*(head for head in HEADS if head != "cosine"), *EXEMPLAR_HEADS))
        require_between("exemplars", self.exemplars, 0 if self.head == "nearest" else 1, 1_000_000)
        if self.head in EXEMPLAR_HEADS:
            why = f"would change the vectors of the frozen encoder, which head '{self.head}' compares"
            self.refuse_own_parts(why)
            require(self.pooling != "attentive", f"pooling 'attentive' {why}")
        require(0 <= self.label_smoothing < 1, f"label_smoothing is {self.label_smoothing!r}; expected 0 to below 1")

    @property
    def learns_from_answers(self) -> bool:
        """Tell whether the loss can compare with a teacher's probabilities."""
        return self.head not in EXEMPLAR_HEADS


@dataclass
class PairOptions(TaskOptions):
    """Hold the options of a question about two sentences."""

    losses: ClassVar[Sequence[str]] = ()  # those that make sense for the task
    classes: ClassVar[int | None] = 2  # None: a graded question

    encoding: str = "siamese"  # each sentence on its own; cross: both in one sequence; both: the two side by side
    combination: str = "u,v,|u-v|"  # the features of a siamese pair, for heads other than cosine
    head: str = "linear"  # cosine: the cosine itself; linear, mlp: layers over the combination
    dropout_on: str = "features"  # of the pair, or vectors: of each sentence, before they are combined
    trunk: str = ""  # tasks that name the same trunk share two layers below their own last one
    loss: str = "cross_entropy"
    target_range: list[float] = field(default_factory=lambda: [0.0, 1.0])  # where mse, l1 and bce put the labels
    bins: int = 6  # of the loss "bins": evenly spaced from the lowest score to the highest
    margin: float = 1.0  # of the hinge loss
    temperature: float = 0.05  # of info_nce
    positive_from: float = 0.8  # info_nce: pairs whose normalised label is at least this are positives
    label_smoothing: float = 0.0  # of cross_entropy

    def __post_init__(self):
        super().__post_init__()
        require_one_of("encoding", self.encoding, ENCODINGS)
        require_one_of("head", self.head, HEADS)
        require_one_of("loss", self.loss, self.losses)
        parse_combination(self.combination)
        require_one_of("dropout_on", self.dropout_on, ("features", "vectors"))
        require(self.dropout_on == "features" or (self.head == "linear" and self.encoding == "siamese"
                                                  and not self.trunk),
                "dropout_on 'vectors' is for siamese pairs with the head 'linear' and no trunk")
        require(self.encoding == "siamese" or self.head != "cosine",
                "head 'cosine' compares two vectors; a cross-encoded pair has one")
        require(self.encoding == "siamese" or self.loss != "info_nce",
                "loss 'info_nce' compares vectors across pairs; use encoding 'siamese'")
        require(not self.trunk or (self.head == "linear" and self.encoding == "siamese"),
                "trunk: its tasks are siamese and have the head 'linear'")
        low, high = self.target_range if len(self.target_range) == 2 else (0.0, 0.0)
        require(-math.inf < low < high < math.inf,
                f"target_range is {self.target_range!r}; expected two numbers, the lower first")
        require([low, high] == [0, 1] or self.loss in TARGET_LOSSES,
                f"target_range has no effect with loss '{self.loss}'; it is for {', '.join(TARGET_LOSSES)}")
        require(self.head != "cosine" or -1 <= low < high <= 1,
                f"target_range is {self.target_range!r}; a cosine lies between -1 and 1")
        require(not (self.loss == "bce" and self.head != "cosine" and [low, high] != [0, 1]),
                f"target_range is {self.target_range!r}; the sigmoid of a logit lies between 0 and 1")
        require(not (self.head == "cosine" and self.loss in SEVERAL_OUTPUTS and not self.cosine_logit),
                f"a cosine is one number; the loss '{self.loss}' here needs several")
        require_between("bins", self.bins, 2, 1000)
        require(0 < self.margin < math.inf, f"margin is {self.margin!r}; expected above 0")
        require(not (self.head == "cosine" and self.loss == "hinge" and self.margin > 2),
                f"margin is {self.margin!r}; two cosines differ by at most 2, so the hinge would never be content")
        require(0 < self.temperature < math.inf, f"temperature is {self.temperature!r}; expected above 0")
        require_between("positive_from", self.positive_from, 0, 1)
        require(0 <= self.label_smoothing < 1, f"label_smoothing is {self.label_smoothing!r}; expected 0 to below 1")

    @property
    def two_classes(self) -> bool:
        """Tell whether the question has two classes."""
        return self.classes == 2

    @property
    def has_threshold(self) -> bool:
        """Tell whether predictions are made from the probability of one of two classes."""
        return self.two_classes and self.loss == "cross_entropy"

    @property
    def learns_from_answers(self) -> bool:
        """Tell whether the loss can compare with a teacher's probabilities, or scores."""
        return self.loss == "cross_entropy" or (self.classes is None and self.loss in ("mse", "l1"))

    @property
    def cosine_logit(self) -> bool:
        """Tell whether a cosine becomes the logit of a two-class question."""
        return self.head == "cosine" and self.loss in ("cross_entropy", "bce") and self.two_classes


@dataclass
class ParaphraseOptions(PairOptions):
    """Hold the options of a yes-or-no question about two sentences."""

    losses: ClassVar[Sequence[str]] = CLASS_LOSSES
    sentences: ClassVar[tuple[str, ...]] = ("sentence1", "sentence2")
    label: ClassVar[str] = "is_duplicate"


@dataclass
class SimilarityOptions(PairOptions):
    """Hold the options of a graded question about two sentences. The hinge ranks pairs, so its margin is small."""

    losses: ClassVar[Sequence[str]] = SCORE_LOSSES
    sentences: ClassVar[tuple[str, ...]] = ("sentence1", "sentence2")
    label: ClassVar[str] = "similarity"
    classes: ClassVar[int | None] = None

    head: str = "cosine"
    loss: str = "mse"
    margin: float = 0.1


@dataclass
class InferenceOptions(PairOptions):
    """Hold the options of the three-class question of natural language inference."""

    losses: ClassVar[Sequence[str]] = ("cross_entropy", "mse", "l1")
    sentences: ClassVar[tuple[str, ...]] = ("sentence1", "sentence2")
    label: ClassVar[str] = "gold_label"
    classes: ClassVar[int | None] = 3


@dataclass
class TripletOptions(TaskOptions):
    """Hold the options of NLI triplets."""

    objective: str = "triplet"
    margin: float = 1.0  # of the triplet objective
    temperature: float = 0.05  # of the contrastive objective

    def __post_init__(self):
        super().__post_init__()
        require_one_of("objective", self.objective, TRIPLET_OBJECTIVES)
        require(0 < self.margin < math.inf, f"margin is {self.margin!r}; expected above 0")
        require(0 < self.temperature < math.inf, f"temperature is {self.temperature!r}; expected above 0")


@dataclass
class MaskedOptions(TaskOptions):
    """Hold the options of masked words."""

    share: float = 0.15  # of the words, that is hidden

    def __post_init__(self):
        super().__post_init__()
        require(0 < self.share < 1, f"share is {self.share!r}; expected between 0 and 1")
        self.refuse_own_parts("masked words train the encoder")


@dataclass
class GlueOptions(PairOptions):
    """Hold the options of a GLUE task: cross-encoded, with BERT's dropout of 0.1, unless told otherwise."""

    losses: ClassVar[Sequence[str]] = ("cross_entropy", *SCORE_LOSSES)

    layout: str = "mrpc"
    dropout: float | None = 0.1
    pooling: str = "pooler"
    encoding: str = "cross"
    loss: str = ""  # empty: cross_entropy for classes, mse for scores

    def __post_init__(self):
        require_one_of("layout", self.layout, LAYOUTS)
        layout = LAYOUTS[self.layout]
        if not self.loss:
            self.loss = "cross_entropy" if layout.names else "mse"
        super().__post_init__()
        require(self.loss != "cross_entropy" or bool(layout.names),
                f"loss 'cross_entropy' needs classes; {self.layout} has scores")
        require(self.loss != "bins" or not layout.names, f"loss 'bins' needs scores; {self.layout} has classes")
        require(len(layout.names) < 3 or self.loss in InferenceOptions.losses,
                f"loss '{self.loss}' does not fit the three classes of {self.layout}; known: "
                f"{', '.join(InferenceOptions.losses)}")
        require(len(layout.sentences) == 2 or self.encoding == "cross",
                f"{self.layout} has one sentence; use encoding 'cross'")

    @property
    def two_classes(self) -> bool:
        """Tell whether the question has two classes."""
        return len(LAYOUTS[self.layout].names) == 2


@dataclass
class PhraseOptions(TaskOptions):
    """Hold the options of transfer fine-tuning. Here `pooling` is of a phrase's tokens."""

    dropout: float | None = 0.2  # Arase & Tsujii (2019), section 4
    pooling: str = "max"
    ablation: str = "full"
    features: str = "full"  # [hs; ht; hs*ht; |hs-ht|], or simple: [hs; ht]
    random_sources: str = "all"  # phrases of s that random pairs take: all (the paper), or the aligned ones
    looks: int = 4  # of pooling "attentive": how many vectors a phrase has, side by side

    def __post_init__(self):
        super().__post_init__()
        require_one_of("ablation", self.ablation, ABLATIONS)
        require_one_of("features", self.features, FEATURES)
        require_one_of("random_sources", self.random_sources, RANDOM_SOURCES)
        require_between("looks", self.looks, 1, 100)
        self.refuse_own_parts("transfer fine-tuning trains the encoder")

    @classmethod
    def poolings(cls) -> tuple[str, ...]:
        """Return the poolings of a phrase."""
        return SPAN_POOLINGS


OPTIONS: dict[str, type[TaskOptions]] = {
    "sentiment": SentimentOptions,
    "paraphrase": ParaphraseOptions,
    "similarity": SimilarityOptions,
    "inference": InferenceOptions,
    "inference_triplets": TripletOptions,
    "phrases": PhraseOptions,
    "masked_words": MaskedOptions,
    "glue": GlueOptions,
}
