"""Losses that torch does not have, as functions. Each is a mean over the rows, or pairs, of its own batch.

A score is any number that grows with similarity. Labels are classes, or gold similarities in any unit: the ranking
losses look at their order only.
"""
import torch
import torch.nn.functional as F
from torch import Tensor


def pair_hinge(scores: Tensor, labels: Tensor, margin: float = 1.0) -> Tensor:
    """Compute the hinge of a two-class score, max(0, margin - y s), with y = 1 for label 1 and -1 for label 0.

    Args:
        scores, labels: [B].
        margin: the score that is enough.
    """
    return (margin - (2 * labels - 1) * scores).clamp_min(0).mean()


def _ordered_differences(scores: Tensor, labels: Tensor) -> Tensor:
    """Return s_j - s_i of every pair with label_i > label_j, [M]. Training should make them negative."""
    differences = scores[None, :] - scores[:, None]  # [i, j] = s_j - s_i
    return differences[labels[:, None] > labels[None, :]]


def ranking_hinge(scores: Tensor, labels: Tensor, margin: float = 0.1) -> Tensor:
    """Compute max(0, margin - (s_i - s_j)), the mean over all pairs with label_i > label_j.

    It is 0 if no labels differ.

    Args:
        scores, labels: [B].
        margin: the difference that is enough.
    """
    differences = _ordered_differences(scores, labels)
    return (margin + differences).clamp_min(0).mean() if len(differences) else scores.sum() * 0


def cosent(scores: Tensor, labels: Tensor, scale: float = 20.0) -> Tensor:
    """Compute CoSENT (Su 2022): log(1 + sum of exp(scale (s_j - s_i)) over label_i > label_j).

    Args:
        scores: cosines [B].
        labels: [B].
        scale: makes differences of cosines count.
    """
    differences = scale * _ordered_differences(scores, labels)
    return torch.cat([differences.new_zeros(1), differences]).logsumexp(dim=0)


def score_bins(labels: Tensor, low: float, high: float, bins: int) -> Tensor:
    """Share each score between its two neighbours among evenly spaced bins: [B] -> [B, bins].

    The expected bin value of these weights is the score itself, so nothing is lost to rounding.

    Args:
        labels: scores [B].
        low, high: the values of the first and the last bin.
        bins: how many there are.
    """
    position = (labels - low) / (high - low) * (bins - 1)
    centers = torch.arange(bins, device=labels.device, dtype=position.dtype)
    return (1 - (position[:, None] - centers).abs()).clamp_min(0)


def bin_expectation(logits: Tensor, low: float, high: float) -> Tensor:
    """Return the expected score of logits over bins, [B, bins] -> [B].

    Args:
        logits: [B, bins].
        low, high: the values of the first and the last bin.
    """
    return logits.softmax(dim=1) @ torch.linspace(low, high, logits.shape[1], device=logits.device, dtype=logits.dtype)


def info_nce(anchors: Tensor, candidates: Tensor, anchor_groups: Tensor, candidate_groups: Tensor,
             temperature: float = 0.05) -> Tensor:
    """Compute InfoNCE with in-batch negatives (van den Oord et al. 2018; SimCSE, Gao et al. 2021, eq. 5).

    A candidate is no negative of an anchor, and is masked, if it has the anchor's own text, or if it is a positive of
    the same text anywhere in the batch, in either direction.

    Args:
        anchors: [B, H].
        candidates: [M, H], M >= B. Candidate i is the positive of anchor i. All others are its negatives.
        anchor_groups, candidate_groups: [B] and [M], equal numbers for equal sentences.
        temperature: divides the cosines.
    """
    logits = F.normalize(anchors, dim=1) @ F.normalize(candidates, dim=1).T / temperature  # [B, M]
    own = torch.arange(len(anchors), device=anchors.device)
    left = torch.cat([anchor_groups, candidate_groups[: len(anchors)]])  # each positive pair, in both directions
    right = torch.cat([candidate_groups[: len(anchors)], anchor_groups])
    starts = (anchor_groups[:, None] == left[None, :]).to(logits.dtype)  # [B, 2B] pairs that begin with the anchor
    ends = (right[:, None] == candidate_groups[None, :]).to(logits.dtype)  # [2B, M] pairs that end with the candidate
    no_negative = (starts @ ends > 0) | (anchor_groups[:, None] == candidate_groups[None, :])
    no_negative[own, own] = False
    return F.cross_entropy(logits.masked_fill(no_negative, torch.finfo(logits.dtype).min), own)


def triplet(anchors: Tensor, positives: Tensor, negatives: Tensor, margin: float = 1.0) -> Tensor:
    """Compute max(0, |a - p| - |a - n| + margin), Euclidean (Sentence-BERT, Reimers & Gurevych 2019, section 3).

    Args:
        anchors, positives, negatives: [B, H].
        margin: by how much a negative should be farther away.
    """
    return F.triplet_margin_loss(anchors, positives, negatives, margin=margin, p=2)


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """Compute KL(p || q) + KL(q || p) of two outputs for the same rows, both logits [B, C]. The mean over rows."""
    p, q = first.log_softmax(dim=1), second.log_softmax(dim=1)
    return (F.kl_div(p, q, log_target=True, reduction="batchmean")
            + F.kl_div(q, p, log_target=True, reduction="batchmean"))
