"""Losses that torch does not have. Each is a mean over the rows, or pairs, of its own batch.

A score is any number that grows with similarity. Labels are classes, or gold similarities in any unit: the ranking
losses look at their order only.
"""
import torch
import torch.nn.functional as F
from torch import Tensor


def pair_hinge(scores: Tensor, labels: Tensor, margin: float = 1.0) -> Tensor:
    """Hinge of a two-class score: max(0, margin - y s) with y = 1 for label 1 and -1 for label 0. Both [B]."""
    return (margin - (2 * labels - 1) * scores).clamp_min(0).mean()


def _ordered_differences(scores: Tensor, labels: Tensor) -> Tensor:
    """s_j - s_i of every pair whose gold order is label_i > label_j; what training should make negative. [M]"""
    differences = scores[None, :] - scores[:, None]  # [i, j] = s_j - s_i
    return differences[labels[:, None] > labels[None, :]]


def ranking_hinge(scores: Tensor, labels: Tensor, margin: float = 0.1) -> Tensor:
    """max(0, margin - (s_i - s_j)) over all pairs with label_i > label_j; zero where no two labels differ."""
    differences = _ordered_differences(scores, labels)
    return (margin + differences).clamp_min(0).mean() if len(differences) else scores.sum() * 0


def cosent(scores: Tensor, labels: Tensor, scale: float = 20.0) -> Tensor:
    """CoSENT (Su 2022): log(1 + sum of exp(scale (s_j - s_i)) over label_i > label_j). scores: cosines [B]."""
    differences = scale * _ordered_differences(scores, labels)
    return torch.cat([differences.new_zeros(1), differences]).logsumexp(dim=0)


def score_bins(labels: Tensor, low: float, high: float, bins: int) -> Tensor:
    """A score's weights over evenly spaced bins, shared between its two neighbours: [B] -> [B, bins].

    The expected bin value of these weights is the score itself, so nothing is lost to rounding.
    """
    position = (labels - low) / (high - low) * (bins - 1)
    centers = torch.arange(bins, device=labels.device, dtype=position.dtype)
    return (1 - (position[:, None] - centers).abs()).clamp_min(0)


def bin_expectation(logits: Tensor, low: float, high: float) -> Tensor:
    """The expected score of a distribution over bins: [B, bins] -> [B]."""
    return logits.softmax(dim=1) @ torch.linspace(low, high, logits.shape[1], device=logits.device, dtype=logits.dtype)


def info_nce(anchors: Tensor, candidates: Tensor, anchor_groups: Tensor, candidate_groups: Tensor,
             temperature: float = 0.05) -> Tensor:
    """InfoNCE with in-batch negatives (van den Oord et al. 2018; SimCSE, Gao et al. 2021, eq. 5).

    anchors: [B, H]. candidates: [M, H], M >= B; candidate i is anchor i's positive, all others its negatives.
    groups: [B] and [M], equal numbers for equal sentences: a candidate with the text of the anchor or of its positive
    is no negative, and is masked.
    """
    logits = F.normalize(anchors, dim=1) @ F.normalize(candidates, dim=1).T / temperature  # [B, M]
    rows = torch.arange(len(anchors), device=anchors.device)
    positives = candidate_groups[: len(anchors)]
    same = (candidate_groups[None, :] == positives[:, None]) | (candidate_groups[None, :] == anchor_groups[:, None])
    same[rows, rows] = False
    return F.cross_entropy(logits.masked_fill(same, torch.finfo(logits.dtype).min), rows)


def triplet(anchors: Tensor, positives: Tensor, negatives: Tensor, margin: float = 1.0) -> Tensor:
    """max(0, |a - p| - |a - n| + margin), Euclidean (Sentence-BERT, Reimers & Gurevych 2019, section 3). All [B, H]."""
    return F.triplet_margin_loss(anchors, positives, negatives, margin=margin, p=2)


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """How far apart two outputs for the same rows are: KL both ways for logits [B, C], squared for scores [B]."""
    if first.ndim == 1:
        return F.mse_loss(first, second)
    p, q = first.log_softmax(dim=1), second.log_softmax(dim=1)
    return (F.kl_div(p, q, log_target=True, reduction="batchmean")
            + F.kl_div(q, p, log_target=True, reduction="batchmean"))
