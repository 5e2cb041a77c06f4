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
    assert_close(shared.flat, expected)  # no table: all parameters are in the flat buffers
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


def test_a_look_up_tables_gradient_is_kept_by_its_rows_and_is_the_dense_one():
    torch.manual_seed(0)
    table, weight = torch.nn.Parameter(torch.randn(10, 4)), torch.nn.Parameter(torch.randn(4))
    shared = SharedGradients([table, weight], 2, table)
    for step in range(3):  # rows of earlier steps must be cleared
        expected = []
        for row in range(2):
            ids = torch.randint(0, 10, (2, 2), generator=torch.Generator().manual_seed(10 * step + row))
            dense = (torch.nn.functional.embedding(ids, table) * weight).sin().sum()
            expected.append(torch.cat([g.flatten() for g in torch.autograd.grad(dense, [table, weight])]))
            shared.receive(row)
            shared.read_ids(row, ids)
            (torch.nn.functional.embedding(ids, table, sparse=True) * weight).sin().sum().backward()
        expected = torch.stack(expected)
        assert_close(shared.gram(2), expected.double() @ expected.double().T, rtol=1e-5, atol=1e-6)
        shared.combine(torch.tensor([0.5, -2.0]))
        found = torch.cat([table.grad.flatten(), weight.grad])
        assert_close(found, 0.5 * expected[0] - 2 * expected[1])
        assert shared.norm() == pytest.approx(found.norm().item(), rel=1e-5)


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
