"""Two sentences, one question: what paraphrase, similarity and inference share.

Siamese: each sentence is encoded on its own and the two vectors are compared (Sentence-BERT, Reimers & Gurevych 2019).
Cross-encoded: both in one sequence, [CLS] u [SEP] v [SEP], as BERT does (Devlin et al. 2019). Pooling, combination,
head and loss are choices a recipe makes; see PairChoices.
"""
import dataclasses
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks import losses
from tasks.heads import HEADS, CosineLogit, combination_size, combine, feature_head, parse_combination
from tasks.pooling import POOLINGS
from tasks.task import Batch, Example, Task

ENCODINGS = ("siamese", "cross")
CLASS_LOSSES = ("cross_entropy", "hinge", "mse", "l1", "cosent", "info_nce")  # of a two-class question
SCORE_LOSSES = ("mse", "l1", "bins", "hinge", "cosent", "info_nce")  # of a graded question


@dataclass
class PairChoices:
    encoding: str = "siamese"
    combination: str = "u,v,|u-v|"  # parts of the features, for heads other than cosine
    head: str = "linear"  # cosine: the cosine itself; linear, mlp: layers over the combination
    loss: str = "cross_entropy"
    bins: int = 6  # of the loss "bins": evenly spaced from the lowest score to the highest
    margin: float = 1.0  # of the hinge and triplet losses
    temperature: float = 0.05  # of info_nce
    positive_from: float = 0.8  # info_nce: pairs whose normalised label is at least this are positives
    label_smoothing: float = 0.0  # of cross_entropy

    def check(self, task: str, known_losses: tuple[str, ...], pooling: str):
        for field, value, known in (("encoding", self.encoding, ENCODINGS), ("head", self.head, HEADS),
                                    ("loss", self.loss, known_losses), ("pooling", pooling, POOLINGS)):
            if value not in known:
                raise ValueError(f"task {task}: {field} is {value!r}; known: {', '.join(known)}")
        if self.encoding == "cross" and self.head == "cosine":
            raise ValueError(f"task {task}: head 'cosine' compares two vectors; a cross-encoded pair has one")
        if self.loss == "info_nce" and self.encoding == "cross":
            raise ValueError(f"task {task}: loss 'info_nce' compares vectors across pairs; use encoding 'siamese'")
        try:
            parse_combination(self.combination)
        except ValueError as error:
            raise ValueError(f"task {task}: {error}") from None


class PairTask(Task):
    """Subclasses say what a label is: its range, whether it is a class, and which losses make sense of it.

    options: fields of PairChoices, and what Task takes.
    """

    highest = 1.0  # the largest label: divides it to 0..1, where losses and cosines live
    known_losses: tuple[str, ...]
    default_choices = PairChoices()

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, **options):
        chosen = {field.name: options.pop(field.name) for field in dataclasses.fields(PairChoices)
                  if field.name in options}
        super().__init__(name, tokenizer, config, **options)
        self.choices = choices = dataclasses.replace(self.default_choices, **chosen)
        choices.check(name, self.known_losses, self.pooling)
        classes = self.classes
        self.siamese = choices.encoding == "siamese"
        self.sequences_per_example = 2 if self.siamese else 1
        self.parts = parse_combination(choices.combination)
        size = combination_size(self.parts, self.hidden_size) if self.siamese else self.hidden_size
        outputs = {"cross_entropy": classes, "bins": choices.bins}.get(choices.loss, 1)
        if choices.head != "cosine":
            self.head = feature_head(choices.head, size, outputs, self.hidden_size, self.dropout.p)
        elif choices.loss == "cross_entropy" and classes == 2:
            self.head = CosineLogit()
        elif choices.loss in ("cross_entropy", "bins"):
            raise ValueError(f"task {name}: a cosine is one number; the loss '{choices.loss}' here needs several")
        else:
            self.head = None
        # Where a ranking loss leaves the scale of scores open, a class is decided half-way between the two classes'
        # scores, followed during training.
        self.register_buffer("threshold", torch.tensor(0.5))

    # ---- examples -> batch -------------------------------------------------------------------------------------------

    def sequences(self, examples: list[Example]) -> list[tuple[list[int], list[int]]]:
        if self.siamese:
            # Both sides in one encoder call: first all first sentences, then all second ones.
            return [self.tokenizer.build(example.ids[side], max_length=self.max_length)
                    for side in (0, 1) for example in examples]
        return [self.tokenizer.build(*example.ids, max_length=self.max_length) for example in examples]

    def full_length(self, example: Example) -> int:
        return super().full_length(example) if self.siamese else sum(map(len, example.ids)) + 3

    # ---- batch -> outputs --------------------------------------------------------------------------------------------

    def outputs(self, encoder: BertModel, batch: Batch) -> Tensor:
        """Logits [B, C], scores [B], or for info_nce the sentence vectors [2B, H]."""
        vectors = self.encode(encoder, batch.tokens)
        if self.choices.loss == "info_nce" and self.training:
            return vectors
        return self.compare(vectors)

    def compare(self, vectors: Tensor) -> Tensor:
        """[2B, H] (or [B, H] cross-encoded) -> logits [B, C] or scores [B]."""
        if not self.siamese:
            return self._shaped(self.head(vectors))
        u, v = vectors.chunk(2)
        if self.choices.head != "cosine":
            return self._shaped(self.head(combine(u, v, self.parts)))
        cosine = F.cosine_similarity(u, v)
        if isinstance(self.head, CosineLogit):
            logit = self.head(cosine)
            return torch.stack([torch.zeros_like(logit), logit], dim=1)
        return cosine

    def _shaped(self, outputs: Tensor) -> Tensor:
        return outputs.squeeze(1) if self.choices.loss not in ("cross_entropy", "bins") else outputs

    # ---- outputs -> loss, prediction ---------------------------------------------------------------------------------

    def criterion(self, outputs: Tensor, batch: Batch) -> Tensor:
        choices, labels = self.choices, batch.labels
        if choices.loss == "cross_entropy":
            return F.cross_entropy(outputs, labels, label_smoothing=choices.label_smoothing)
        target = labels / self.highest
        if choices.loss == "info_nce" and len(outputs) == 2 * len(labels):
            self._follow_threshold(self.compare(outputs), target)
            return self._info_nce(outputs, batch.groups, target)
        if choices.loss == "bins":
            return F.cross_entropy(outputs, losses.score_bins(target, 0, 1, choices.bins))
        if choices.loss == "mse":
            return F.mse_loss(outputs, target)
        if choices.loss == "l1":
            return F.l1_loss(outputs, target)
        self._follow_threshold(outputs, target)
        if choices.loss == "cosent":
            return losses.cosent(outputs, target)
        if self.classes == 2:
            return losses.pair_hinge(outputs, labels, choices.margin)
        return losses.ranking_hinge(outputs, target, choices.margin)

    def _info_nce(self, vectors: Tensor, groups: Tensor, target: Tensor) -> Tensor:
        """Both ways round, over the pairs of this batch that are alike; every other sentence is a negative."""
        u, v = vectors.chunk(2)
        first, second = groups.chunk(2)
        alike = target >= self.choices.positive_from
        if not alike.any():
            return vectors.sum() * 0
        order = torch.argsort(alike.logical_not().long(), stable=True)  # positives first: candidate i is i's own
        forward = losses.info_nce(u[alike], v[order], first[alike], second[order], self.choices.temperature)
        backward = losses.info_nce(v[alike], u[order], second[alike], first[order], self.choices.temperature)
        return (forward + backward) / 2

    @torch.no_grad()
    def _follow_threshold(self, scores: Tensor, target: Tensor):
        if not self.training or self.classes is None:
            return
        if self.choices.loss == "hinge":
            self.threshold.zero_()  # the hinge's own boundary
            return
        positive = target > 0.5
        if positive.any() and not positive.all():
            middle = (scores[positive].mean() + scores[~positive].mean()) / 2
            self.threshold.lerp_(middle.to(self.threshold.dtype), 0.02)

    def predict_from(self, outputs: Tensor) -> Tensor:
        if self.choices.loss == "cross_entropy":
            return outputs.argmax(dim=1)
        if self.choices.loss == "bins":
            return losses.bin_expectation(outputs, 0, self.highest)
        if self.classes is not None:
            return (outputs > self.threshold).long()
        return self.highest * outputs
