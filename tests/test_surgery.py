"""Gradient surgery by Gram matrix, against computations on the gradients themselves."""
import itertools

import numpy as np
import pytest
import torch
from conftest import cases
from scipy import optimize
from torch.testing import assert_close

from training import surgery
from training.choices import COMBINERS
from training.surgery import SurgeryState, combine_weights, conflict_cosines

SCALES = [1e-10, 1.0, 1e10]


def random_gradients(tasks=3, size=5, seed=0, scale=1.0):
    return scale * torch.randn(tasks, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def combined(method, gradients, seed=0, state=None):
    names = [f"t{k}" for k in range(len(gradients))]
    weights = combine_weights(method, gradients @ gradients.T, names, torch.Generator().manual_seed(seed),
                              state or SurgeryState())
    return weights @ gradients


def direct_pcgrad(gradients, seed):
    """Algorithm 1 of Yu et al. (2020) on the vectors, projecting pair by pair."""
    generator = torch.Generator().manual_seed(seed)
    projected = []
    for i in range(len(gradients)):
        gradient = gradients[i].clone()
        for j in torch.randperm(len(gradients), generator=generator).tolist():
            if j != i and gradient @ gradients[j] < 0:
                gradient = gradient - (gradient @ gradients[j]) / (gradients[j] @ gradients[j]) * gradients[j]
        projected.append(gradient)
    return torch.stack(projected).sum(dim=0)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("seed", range(20))
def test_pcgrad_equals_direct_projection(seed, scale):
    gradients = random_gradients(4, 6, seed, scale)
    assert_close(combined("pcgrad", gradients, seed), direct_pcgrad(gradients, seed), rtol=1e-9, atol=1e-12 * scale)


def direct_gradvac(gradients, seed, targets, beta=0.01):
    """Wang et al. (2021), algorithm 1, on the vectors."""
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros_like(gradients[0])
    for i in range(len(gradients)):
        gradient = gradients[i].clone()
        for j in torch.randperm(len(gradients), generator=generator).tolist():
            if j == i:
                continue
            phi = torch.nn.functional.cosine_similarity(gradient, gradients[j], dim=0)
            if phi < targets[i][j]:
                goal = targets[i][j]
                factor = gradient.norm() * (goal * (1 - phi**2).sqrt() - phi * (1 - goal**2).sqrt())
                gradient = gradient + factor / (gradients[j].norm() * (1 - goal**2).sqrt()) * gradients[j]
            targets[i][j] = (1 - beta) * targets[i][j] + beta * phi
        total += gradient
    return total


def test_gradvac_equals_the_direct_computation_over_steps_with_memory():
    state, targets = SurgeryState(), torch.zeros(3, 3, dtype=torch.float64)
    for seed in range(10):
        gradients = random_gradients(3, 6, seed)
        assert_close(combined("gradvac", gradients, seed, state), direct_gradvac(gradients, seed, targets))
    assert state.targets["t0>t1"] == pytest.approx(float(targets[0, 1]))


# Two tasks, derived by hand. g1 = (1, 0), g2 = (-1, 2): inner product -1, |g2|^2 = 5.
PAIR = torch.tensor([[1.0, 0.0], [-1.0, 2.0]], dtype=torch.float64)


@pytest.mark.parametrize(("method", "expected"), [
    ("sum", [0.0, 2.0]), ("mean", [0.0, 1.0]),
    # g1 + g2 / 5 = (0.8, 0.4); g2 + g1 = (0, 2)
    ("pcgrad", [0.8, 2.4]), ("upgrad", [0.4, 1.2]),
    # min |t g1 + (1 - t) g2|: t = (5 + 1) / (1 + 5 + 2) = 3/4
    ("mgda", [0.5, 0.5]),
    # equal projections onto both directions, weights summing to one: a = b <=> w1 (1 + 1/s) = w2 (1/s + 1) s, s = |g2|
    ("imtl_g", [(5**0.5 - 1) / (1 + 5**0.5), 2 / (1 + 5**0.5)]),
])
def test_two_tasks_by_hand(method, expected):
    assert_close(combined(method, PAIR), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("seed", range(10))
def test_upgrad_never_conflicts_with_any_task(seed, scale):
    gradients = random_gradients(5, 8, seed, scale)
    update = combined("upgrad", gradients)
    cosines = torch.nn.functional.cosine_similarity(update[None], gradients)
    assert (cosines >= -1e-7).all()


@pytest.mark.parametrize("seed", range(5))
def test_upgrad_projects_onto_the_cone_as_a_general_solver_does(seed):
    gradients = random_gradients(3, 6, seed)
    expected = torch.zeros(6, dtype=torch.float64)
    for gradient in gradients:
        found = optimize.minimize(lambda x, g: ((x - g) ** 2).sum(), gradient.numpy(), args=(gradient.numpy(),),
                                  constraints={"type": "ineq", "fun": lambda x: gradients.numpy() @ x},
                                  options={"ftol": 1e-14, "maxiter": 500})
        expected += torch.from_numpy(found.x) / 3
    assert_close(combined("upgrad", gradients), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("seed", range(10))
def test_mgda_is_the_minimum_norm_point_of_the_hull(seed, scale):
    gradients = random_gradients(3, 6, seed, scale)
    update = combined("mgda", gradients)
    # Optimality: no vertex of the hull lies on the near side of the plane through the point.
    assert (gradients @ update >= update @ update - 1e-7 * scale**2).all()
    for weights in itertools.product(np.linspace(0, 1, 21), repeat=2):
        if sum(weights) <= 1:
            point = torch.tensor([*weights, 1 - sum(weights)], dtype=torch.float64) @ gradients
            assert update.norm() <= point.norm() + 1e-7 * scale


@pytest.mark.parametrize("seed", range(10))
def test_cagrad_has_the_best_worst_case_in_its_ball(seed):
    gradients = random_gradients(3, 6, seed)
    mean = gradients.mean(dim=0)
    update = combined("cagrad", gradients)
    radius = 0.4 * mean.norm()
    assert (update - mean).norm() <= radius * (1 + 1e-6)
    worst = (gradients @ update).min()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(500):
        direction = torch.randn(6, dtype=torch.float64, generator=generator)
        other = mean + radius * direction / direction.norm()
        assert (gradients @ other).min() <= worst + 1e-6


@pytest.mark.parametrize("seed", range(10))
def test_imtl_g_projects_equally_onto_all_tasks(seed):
    gradients = random_gradients(4, 6, seed)
    update = combined("imtl_g", gradients)
    projections = gradients @ update / gradients.norm(dim=1)
    assert_close(projections, projections[:1].expand(4), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_nash_weights_solve_the_bargain(seed):
    gradients = random_gradients(4, 6, seed)
    gram = gradients @ gradients.T
    weights = surgery.nash_weights(gram)
    assert (weights > 0).all()
    assert_close(gram @ weights, 1 / weights, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_aligned_gradients_are_orthogonal_and_equally_long(seed):
    gradients = random_gradients(3, 6, seed)
    u, s, vh = torch.linalg.svd(gradients, full_matrices=False)
    balanced = s.min() * u @ vh  # all singular values set to the smallest
    assert_close(combined("aligned", gradients), balanced.mean(dim=0), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("method", ["sum", "pcgrad", "gradvac"])
def test_without_conflict_these_are_the_sum(method, scale):
    gradients = scale * torch.eye(3, 5, dtype=torch.float64)  # orthogonal: no inner product is negative
    assert_close(combined(method, gradients), gradients.sum(dim=0), rtol=1e-12, atol=0)


@pytest.mark.parametrize("method", COMBINERS)
def test_degenerate_gradients_have_defined_results(method):
    one = random_gradients(1, 5)
    assert_close(combined(method, one), one[0])
    zeros = torch.zeros(3, 5, dtype=torch.float64)
    assert torch.equal(combined(method, zeros), zeros[0])
    with_zero = torch.stack([one[0], zeros[0]])
    assert_close(combined(method, with_zero), one[0])
    for pair in (torch.stack([one[0], -one[0]]), torch.stack([one[0], one[0]]), torch.cat([random_gradients(3, 2)])):
        assert combined(method, pair).isfinite().all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("method", COMBINERS)
def test_a_gradient_that_is_not_finite_is_named(method, value):
    gradients = random_gradients(3, 5)
    gradients[1, 2] = value
    with pytest.raises(FloatingPointError, match="task t1 is not finite"):
        combined(method, gradients)


def test_conflict_cosines_are_cosines():
    gradients = random_gradients(3, 5)
    found = conflict_cosines(gradients @ gradients.T, ["a", "b", "c"])
    assert found["a/c"] == pytest.approx(float(torch.nn.functional.cosine_similarity(gradients[0], gradients[2], 0)))
    assert conflict_cosines(torch.zeros(2, 2), ["a", "b"]) == {"a/b": 0.0}


@pytest.mark.parametrize("case", cases("gradient surgery"))
def test_cases(case):
    given, expected = case["input"]["shared_grads"], case["expected"]
    gradients = torch.tensor(list(given.values()) if isinstance(given, dict) else given, dtype=torch.float64)
    if "shared" in expected:
        assert combined("pcgrad", gradients).tolist() == expected["shared"]
        return
    found = [combined("pcgrad", gradients, seed) for seed in range(50)]
    allowed = torch.tensor(expected["allowed"], dtype=torch.float64)
    which = {int((allowed - update).abs().amax(dim=1).argmin()) for update in found}
    assert all((allowed - update).abs().amax(dim=1).min() < 1e-6 for update in found) and len(which) > 1
    assert all(torch.equal(combined("pcgrad", gradients, 7), combined("pcgrad", gradients, 7)) for _ in range(3))
    assert_close(combined("sum", gradients), torch.tensor(expected["plain_sum"], dtype=torch.float64))


def test_pcgrad_never_projects_a_gradient_off_its_own_original():
    gradients = torch.tensor([[1.0, 0.0], [-1.0, 0.2], [-1.0, -1.0]], dtype=torch.float64)
    opposed = 0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        expected = torch.zeros(2, dtype=torch.float64)
        for i, projected in enumerate(gradients.clone()):
            for j in torch.randperm(3, generator=generator).tolist():
                inner = projected @ gradients[j]
                opposed += int(j == i and inner < 0)
                if j != i and inner < 0:
                    projected = projected - inner / (gradients[j] @ gradients[j]) * gradients[j]
            expected += projected
        weights = combine_weights("pcgrad", gradients @ gradients.T, ["a", "b", "c"],
                                  torch.Generator().manual_seed(seed), SurgeryState())
        torch.testing.assert_close(weights @ gradients, expected)
    assert opposed > 0  # the case is one where it matters
