"""Flat gradient buffers hold what autograd would, and combining them is a weighted sum."""
import pytest
import torch
from torch.testing import assert_close

from training.gradients import SLICE, SharedGradients


def two_losses(parameters, x):
    w, b = parameters
    return (x @ w + b).square().sum(), (x @ w).sin().sum()


def setup():
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(4))], torch.randn(5, 3)


def test_each_row_is_one_tasks_gradient_and_the_gram_matrix_theirs():
    parameters, x = setup()
    shared = SharedGradients(parameters, 2)
    expected = []
    for row in range(2):
        loss = two_losses(parameters, x)[row]
        expected.append(torch.cat([g.flatten() if g is not None else torch.zeros(4) for g in torch.autograd.grad(
            loss, parameters, allow_unused=True, retain_graph=True)]))
        shared.receive(row)
        loss.backward()
    expected = torch.stack(expected)
    assert_close(shared.flat, expected)
    assert_close(shared.gram(2), (expected.double() @ expected.double().T), rtol=1e-6, atol=1e-6)
    shared.combine(torch.tensor([0.5, -2.0]))
    assert_close(torch.cat([p.grad.flatten() for p in parameters]), 0.5 * expected[0] - 2 * expected[1])
    assert shared.norm() == pytest.approx((0.5 * expected[0] - 2 * expected[1]).norm().item())


def test_one_row_adds_the_tasks_up_and_is_cleared_for_the_next_step():
    parameters, x = setup()
    shared = SharedGradients(parameters, 1)
    for _ in range(2):
        for position in range(2):
            shared.receive(0, clear=position == 0)
            two_losses(parameters, x)[position].backward()
    total = sum(two_losses(parameters, x))
    expected = torch.autograd.grad(total, parameters)
    for parameter, gradient in zip(parameters, expected, strict=True):
        assert_close(parameter.grad, gradient)


def test_a_sparse_gradient_of_a_look_up_lands_in_the_dense_buffer():
    torch.manual_seed(0)
    table = torch.nn.Parameter(torch.randn(10, 4))
    ids = torch.tensor([1, 3, 1, 9])
    weights = torch.randn(4, 4)
    (torch.nn.functional.embedding(ids, table) * weights).sum().backward()
    expected = table.grad
    shared = SharedGradients([table], 1)
    shared.receive(0)
    (torch.nn.functional.embedding(ids, table, sparse=True) * weights).sum().backward()
    assert_close(shared.flat[0].view(10, 4), expected)


def test_gradients_longer_than_a_slice():
    table = torch.nn.Parameter(torch.randn(SLICE + 3))
    shared = SharedGradients([table], 2)
    shared.flat.normal_()
    rows = shared.flat.double().clone()
    assert_close(shared.gram(2), rows @ rows.T, rtol=1e-4, atol=1e-2)
    shared.combine(torch.tensor([2.0, 3.0]))
    assert_close(table.grad.double(), 2 * rows[0] + 3 * rows[1], rtol=1e-5, atol=1e-5)


def test_nothing_shared_is_nothing():
    shared = SharedGradients([], 3)
    shared.receive(1)
    assert shared.norm() == 0
