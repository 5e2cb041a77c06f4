"""Losses against their formulas, one pair at a time in float64."""
import math

import pytest
import torch
import torch.nn.functional as F
from conftest import TINY, cases, make_task
from torch.testing import assert_close

from tasks import losses
from tasks.task import Batch, Outputs


def random_scores(count=9):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(count, dtype=torch.float64, generator=generator) * 2 - 1
    labels = torch.randint(0, 6, (count,), generator=generator).double()
    return scores, labels


def ordered_pairs(scores, labels):
    return [(s.item(), t.item()) for s, a in zip(scores, labels, strict=True)
            for t, b in zip(scores, labels, strict=True) if a > b]


def test_cosent_is_its_formula():
    scores, labels = random_scores()
    expected = math.log(1 + sum(math.exp(20 * (low - high)) for high, low in ordered_pairs(scores, labels)))
    assert losses.cosent(scores, labels).item() == pytest.approx(expected, rel=1e-12)


def test_ranking_hinge_is_its_formula():
    scores, labels = random_scores()
    terms = [max(0.0, 0.1 - (high - low)) for high, low in ordered_pairs(scores, labels)]
    assert losses.ranking_hinge(scores, labels).item() == pytest.approx(sum(terms) / len(terms), rel=1e-12)


@pytest.mark.parametrize("loss", [losses.cosent, losses.ranking_hinge])
def test_ranking_losses_of_equal_labels_are_zero_with_a_gradient(loss):
    scores = torch.randn(4, requires_grad=True)
    value = loss(scores, torch.full((4,), 3.0))
    value.backward()
    assert value.item() == 0 and torch.equal(scores.grad, torch.zeros(4))


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
def test_cosent_is_finite_at_any_scale(scale):
    scores, labels = random_scores()
    scores = (scores * scale).requires_grad_()
    value = losses.cosent(scores, labels)
    value.backward()
    assert value.isfinite() and scores.grad.isfinite().all()


def test_pair_hinge_equals_torch():
    scores, _ = random_scores()
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 1])
    signs = (2 * labels - 1).double()
    # torch's margin ranking loss of a score against zero is the same hinge.
    expected = F.margin_ranking_loss(scores, torch.zeros_like(scores), signs, margin=1.0)
    assert_close(losses.pair_hinge(scores, labels), expected)


def test_bins_share_a_score_between_neighbours_and_give_it_back():
    labels = torch.tensor([0.0, 0.1, 2.5, 4.99, 5.0], dtype=torch.float64)
    weights = losses.score_bins(labels, 0, 5, 6)
    assert_close(weights.sum(dim=1), torch.ones(5, dtype=torch.float64))
    assert (weights >= 0).all() and ((weights > 0).sum(dim=1) <= 2).all()
    assert_close(weights @ torch.arange(6.0, dtype=torch.float64), labels)
    assert_close(losses.bin_expectation(weights.clamp_min(1e-300).log(), 0, 5), labels, rtol=1e-9, atol=1e-9)


def test_info_nce_is_cross_entropy_over_cosines_when_no_sentence_repeats():
    torch.manual_seed(0)
    anchors, candidates = torch.randn(4, 8, dtype=torch.float64), torch.randn(7, 8, dtype=torch.float64)
    cosines = F.cosine_similarity(anchors[:, None], candidates[None], dim=2)
    expected = F.cross_entropy(cosines / 0.05, torch.arange(4))
    found = losses.info_nce(anchors, candidates, torch.arange(4), torch.arange(4, 11))
    assert_close(found, expected)


def test_info_nce_masks_duplicates():
    """A candidate that repeats an anchor's text, or its positive's, leaves the sum as if it were not there."""
    torch.manual_seed(0)
    anchors, candidates = torch.randn(2, 8), torch.randn(4, 8)
    groups = torch.tensor([0, 1])
    candidate_groups = torch.tensor([2, 3, 2, 0])  # the third is anchor 0's positive again, the fourth anchor 0 itself
    rows = F.cosine_similarity(anchors[:, None], candidates[None], dim=2) / 0.05
    expected = (F.cross_entropy(rows[:1, :2], torch.tensor([0])) + F.cross_entropy(rows[1:], torch.tensor([1]))) / 2
    assert_close(losses.info_nce(anchors, candidates, groups, candidate_groups), expected)


def test_no_positive_of_an_anchor_is_its_negative_in_either_direction():
    """Pairs (a, b), (a, c), (d, a), (e, f): b, c and d all say what a says; e and f are negatives of all of them."""
    torch.manual_seed(0)
    vectors = dict(zip("abcdef", torch.randn(6, 8, dtype=torch.float64), strict=True))
    pairs = ["ab", "ac", "da", "ef"]
    anchors = torch.stack([vectors[pair[0]] for pair in pairs])
    candidates = torch.stack([vectors[pair[1]] for pair in pairs])
    groups = [torch.tensor(["abcdef".index(pair[side]) for pair in pairs]) for side in (0, 1)]
    cosine = {(x, y): F.cosine_similarity(vectors[x], vectors[y], dim=0).item() / 0.05
              for x in "abcdef" for y in "abcdef"}
    total = 0.0
    for x, y in ("ab", "ac", "da", "ef"):
        positives = {"a": "bcd", "d": "a", "e": "f"}[x]
        others = [z for z in "bcaf" if z not in positives and z != x]
        total -= cosine[x, y] - math.log(sum(math.exp(cosine[x, z]) for z in [y, *others]))
    assert losses.info_nce(anchors, candidates, *groups).item() == pytest.approx(total / 4)


def test_triplet_equals_the_euclidean_definition():
    torch.manual_seed(0)
    a, p, n = torch.randn(3, 5, 8, dtype=torch.float64)
    expected = ((a - p).norm(dim=1) - (a - n).norm(dim=1) + 1).clamp_min(0).mean()
    assert_close(losses.triplet(a, p, n), expected, rtol=1e-5, atol=1e-5)  # torch adds 1e-6 inside the norm


def test_divergence_is_symmetric_and_zero_for_equals():
    torch.manual_seed(0)
    first, second = torch.randn(2, 6, 4, dtype=torch.float64)
    p, q = first.softmax(1), second.softmax(1)
    expected = ((p * (p / q).log()).sum(1) + (q * (q / p).log()).sum(1)).mean()
    assert_close(losses.symmetric_divergence(first, second), expected)
    assert losses.symmetric_divergence(first, first).abs() < 1e-12


@pytest.mark.parametrize("case", cases("loss"))
def test_a_short_batch_weighs_its_own_rows(case, tiny_tokenizer):
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {})
    batch = Batch(None, torch.tensor(case["input"]["labels"]), None)
    found = task.criterion(Outputs(torch.tensor(case["input"]["logits"]), torch.zeros(())), batch).item()
    assert found == pytest.approx(case["expected"]["loss"], abs=1e-6)
