"""Objectives: what a question about two sentences trains on. One class a loss; to add one is to add a class.

An objective says what it reads (scores, logits or the two sentence vectors), computes the loss, turns scores into
predictions, and compares two outputs for the same batch (for R-Drop and SMART).
"""
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasks import losses
from tasks.options import PairOptions


class Objective(nn.Module):
    """Train on one number a pair, a score that grows with similarity. Other objectives override what differs.

    Args:
        options: of the task.
        classes: how many classes the question has; None for a graded question.
        highest: the largest label. Divided by it, labels lie between 0 and 1.
    """

    reads: ClassVar[str] = "scores"  # scores [B], logits [B, outputs], or vectors [2B, H]

    def __init__(self, options: PairOptions, classes: int | None, highest: float):
        super().__init__()
        self.options, self.classes, self.highest = options, classes, highest
        self.low, self.high = options.target_range

    @property
    def outputs(self) -> int:
        """Return how many numbers the head gives for a pair."""
        return 1

    def loss(self, outputs: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
        """Compute the loss, a mean over the batch.

        Args:
            outputs: what this objective reads.
            labels: [B], classes or scores.
            groups: [sequences], equal numbers for equal sentences; first all first sentences, then all second ones.
        """
        raise NotImplementedError

    def target(self, labels: Tensor) -> Tensor:
        """Move labels [B] from 0..highest to the target range."""
        return self.low + (self.high - self.low) * labels / self.highest

    def label(self, scores: Tensor) -> Tensor:
        """Move scores [B] from the target range to 0..highest: the inverse of `target`."""
        return self.highest * (scores - self.low) / (self.high - self.low)

    def predict(self, scores: Tensor) -> Tensor:
        """Turn scores [B], or logits [B, outputs], into classes or labels [B] within the task's range."""
        if self.classes is None:
            return self.label(scores).clamp(0, self.highest)
        return self.label(scores).round().clamp(0, self.classes - 1).long()  # the nearest class

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Turn the same scores into probabilities of the classes, [B, C]. None where the loss gives none."""
        return None

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """Say how far apart two outputs for the same batch are."""
        return F.mse_loss(first, second)

    def observe(self, scores: Tensor, labels: Tensor):
        """Take note of a training batch's scores [B] and labels [B]."""


class SquaredError(Objective):
    """Bring the score to the label: (s - y)^2."""

    def loss(self, outputs: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
        """Compute the mean squared error. See Objective.loss."""
        return F.mse_loss(outputs, self.target(labels))


class AbsoluteError(Objective):
    """Bring the score to the label: |s - y|."""

    def loss(self, outputs: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
        """Compute the mean absolute error. See Objective.loss."""
        return F.l1_loss(outputs, self.target(labels))


class BinaryCrossEntropy(Objective):
    """Read one number as the probability of the label 1, or as a probability to bring to a graded label.

    A logit becomes a probability by a sigmoid. A cosine without a scale of its own becomes one by its place in the
    target range: (cos + 1) / 2 where the range is [-1, 1].
    """

    @property
    def of_logits(self) -> bool:
        """Tell whether scores are logits. Otherwise they are cosines."""
        return self.options.head != "cosine" or self.options.cosine_logit

    def loss(self, outputs: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
        """Compute the binary cross-entropy. See Objective.loss."""
        wanted = labels.to(outputs.dtype) / self.highest
        if self.of_logits:
            return F.binary_cross_entropy_with_logits(outputs, wanted)
        probability = (self.label(outputs) / self.highest).clamp(1e-6, 1 - 1e-6)
        return F.binary_cross_entropy(probability, wanted)

    def predict(self, scores: Tensor) -> Tensor:
        """Return the likelier class, or the probability as a label. scores: [B]."""
        return super().predict(scores.sigmoid() if self.of_logits else scores)

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Return the probabilities of the two classes, if there are classes. scores: [B]."""
        if self.classes is None:
            return None
        positive = scores.sigmoid() if self.of_logits else (self.label(scores) / self.highest).clamp(0, 1)
        return torch.stack([1 - positive, positive], dim=1)

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """Compute the Kullback-Leibler divergence of two classes, both ways. Cosines are compared by their squares."""
        if not self.of_logits:
            return F.mse_loss(first, second)
        return losses.symmetric_divergence(*(torch.stack([torch.zeros_like(logit), logit], dim=1)
                                             for logit in (first, second)))


class CrossEntropy(Objective):
    """Classify: one logit a class. With two classes, a threshold other than one half can be set."""

    reads = "logits"
    threshold: Tensor | None  # of the probability of class 1

    def __init__(self, options: PairOptions, classes: int | None, highest: float):
        super().__init__(options, classes, highest)
        self.register_buffer("threshold", None)

    @property
    def outputs(self) -> int:
        """Return the number of classes."""
        assert self.classes is not None
        return self.classes

    def loss(self, outputs: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
        """Compute the cross-entropy. See Objective.loss."""
        return F.cross_entropy(outputs, labels, label_smoothing=self.options.label_smoothing)

    def predict(self, scores: Tensor) -> Tensor:
        """Return the class of the largest logit, or by the threshold. scores: logits [B, C]."""
        if self.threshold is not None:
            return (scores.softmax(dim=1)[:, 1] > self.threshold).long()
        return scores.argmax(dim=1)

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Return the softmax of the logits [B, C]."""
        return scores.softmax(dim=1)

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """Compute the Kullback-Leibler divergence, both ways."""
        return losses.symmetric_divergence(first, second)


class Bins(CrossEntropy):
    """Classify a score into evenly spaced bins. The prediction is the expected bin."""

    @property
    def outputs(self) -> int:
        """Return the number of bins."""
        return self.options.bins

    def loss(self, outputs: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
        """Compute the cross-entropy with each score shared between two bins. See Objective.loss."""
        return F.cross_entropy(outputs, losses.score_bins(labels / self.highest, 0, 1, self.options.bins))

    def predict(self, scores: Tensor) -> Tensor:
        """Return the expected score. scores: logits [B, bins]."""
        return losses.bin_expectation(scores, 0, self.highest)

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Return nothing: bins are no classes."""
        return None


class Ranking(Objective):
    """Train the order of scores only. Their scale stays open.

    So a two-class decision needs a threshold. It is a running mean, over training batches, of the midpoint between the
    mean scores of the two classes.
    """

    threshold: Tensor

    def __init__(self, options: PairOptions, classes: int | None, highest: float):
        super().__init__(options, classes, highest)
        self.register_buffer("threshold", torch.tensor(0.5))

    def predict(self, scores: Tensor) -> Tensor:
        """Return the class by the threshold, or a score in the task's range: a cosine as it is, others by a sigmoid."""
        if self.classes is not None:
            return (scores > self.threshold).long()
        return super().predict(scores if self.options.head == "cosine" else scores.sigmoid())

    @torch.no_grad()
    def observe(self, scores: Tensor, labels: Tensor):
        """Move the threshold towards the midpoint of this batch."""
        positive = labels > 0.5
        if self.classes is not None and positive.any() and not positive.all():
            middle = (scores[positive].mean() + scores[~positive].mean()) / 2
            self.threshold.lerp_(middle.to(self.threshold.dtype), 0.02)


class CoSENT(Ranking):
    """Rank pairs by their gold scores, smoothly (Su 2022)."""

    def loss(self, outputs: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
        """Compute CoSENT. See Objective.loss."""
        return losses.cosent(outputs, labels / self.highest)


class Hinge(Ranking):
    """Separate two classes at 0 by a margin, or rank pairs by a margin."""

    def loss(self, outputs: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
        """Compute the hinge. See Objective.loss."""
        if self.classes is not None:
            return losses.pair_hinge(outputs, labels, self.options.margin)
        return losses.ranking_hinge(outputs, labels / self.highest, self.options.margin)

    def observe(self, scores: Tensor, labels: Tensor):
        """Keep the threshold at 0, the hinge's own boundary."""
        self.threshold.zero_()


class InfoNCE(Ranking):
    """Draw the two sentences of a similar pair together, and apart from every other sentence of the batch."""

    reads = "vectors"

    def loss(self, outputs: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
        """Compute InfoNCE both ways round, over the pairs that are alike. outputs: [2B, H]. See Objective.loss."""
        u, v = outputs.chunk(2)
        first, second = groups.chunk(2)
        alike = labels / self.highest >= self.options.positive_from
        if not alike.any():
            return outputs.sum() * 0
        order = torch.argsort(alike.logical_not().long(), stable=True)  # positives first: candidate i belongs to i
        temperature = self.options.temperature
        forward = losses.info_nce(u[alike], v[order], first[alike], second[order], temperature)
        backward = losses.info_nce(v[alike], u[order], second[alike], first[order], temperature)
        return (forward + backward) / 2

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """Compare sentence vectors [2B, H] by their directions, the only thing that a cosine sees."""
        return direction_divergence(first, second)


def direction_divergence(first: Tensor, second: Tensor) -> Tensor:
    """Compute the mean squared distance of unit vectors, [B, H] each."""
    return (F.normalize(first, dim=-1) - F.normalize(second, dim=-1)).square().sum(dim=-1).mean()


OBJECTIVES: dict[str, type[Objective]] = {
    "cross_entropy": CrossEntropy,
    "mse": SquaredError,
    "l1": AbsoluteError,
    "bce": BinaryCrossEntropy,
    "bins": Bins,
    "hinge": Hinge,
    "cosent": CoSENT,
    "info_nce": InfoNCE,
}
