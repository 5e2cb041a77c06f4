"""The rows hold what autograd would, and combining them is a weighted sum."""
import pytest
import torch
from torch.testing import assert_close

from training.gradients import SharedGradients


def two_losses(parameters, x):
    w, b = parameters
    return (x @ w + b).square().sum(), (x @ w).sin().sum()


def setup():
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(4))], torch.randn(5, 3)


def flat(gradients, like):
    return torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten()
                      for g, p in zip(gradients, like, strict=True)])


def test_each_row_is_one_tasks_gradient_and_the_gram_matrix_theirs():
    """The second task does not reach the bias: a missing gradient counts as zero."""
    parameters, x = setup()
    shared = SharedGradients(parameters, 2)
    expected = []
    shared.start()
    for row in range(2):
        loss = two_losses(parameters, x)[row]
        expected.append(flat(torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True), parameters))
        shared.receive(row)
        loss.backward()
        shared.keep(row)
    shared.finish()
    expected = torch.stack(expected)
    assert_close(torch.stack([flat([row.get(p) for p in parameters], parameters) for row in shared.rows]), expected)
    assert_close(shared.gram(), (expected.double() @ expected.double().T), rtol=1e-6, atol=1e-6)
    shared.combine(torch.tensor([0.5, -2.0]))
    assert_close(flat([p.grad for p in parameters], parameters), 0.5 * expected[0] - 2 * expected[1])


def test_one_row_adds_the_tasks_up_and_is_cleared_for_the_next_step():
    parameters, x = setup()
    shared = SharedGradients(parameters, 1)
    for _ in range(2):
        shared.start()
        for position in range(2):
            shared.receive(0)
            two_losses(parameters, x)[position].backward()
            shared.keep(0)
        shared.finish()
        norm = shared.norm()
        shared.combine(torch.ones(1))
    expected = torch.autograd.grad(sum(two_losses(parameters, x)), parameters)
    for parameter, gradient in zip(parameters, expected, strict=True):
        assert_close(parameter.grad, gradient)
    assert norm == pytest.approx(flat(expected, parameters).norm().item())


@pytest.mark.parametrize("draws", [1, 2])
def test_a_look_up_tables_gradient_is_kept_by_its_rows_and_is_the_dense_one(draws):
    """draws: how often each task adds to its row in a step."""
    torch.manual_seed(0)
    table, weight = torch.nn.Parameter(torch.randn(10, 4)), torch.nn.Parameter(torch.randn(4))
    shared = SharedGradients([table, weight], 2, table)
    for step in range(3):  # rows of earlier steps must be cleared
        expected = torch.zeros(2, 44)
        shared.start()
        for row in range(2):
            for draw in range(draws):
                generator = torch.Generator().manual_seed(100 * step + 10 * row + draw)
                ids = torch.randint(0, 10, (2, 2), generator=generator)
                dense = (torch.nn.functional.embedding(ids, table) * weight).sin().sum()
                expected[row] += flat(torch.autograd.grad(dense, [table, weight]), [table, weight])
                shared.receive(row)
                (torch.nn.functional.embedding(ids, table, sparse=True) * weight).sin().sum().backward()
                shared.keep(row)
        shared.finish()
        assert_close(shared.gram(), expected.double() @ expected.double().T, rtol=1e-5, atol=1e-6)
        first = shared.norm()
        assert first == pytest.approx(expected[0].norm().item(), rel=1e-5)
        shared.combine(torch.tensor([0.5, -2.0]))
        assert_close(flat([table.grad, weight.grad], [table, weight]), 0.5 * expected[0] - 2 * expected[1])


def test_a_task_that_never_reads_the_table():
    table, weight = torch.nn.Parameter(torch.randn(10, 4)), torch.nn.Parameter(torch.randn(4))
    shared = SharedGradients([table, weight], 2, table)
    for step in range(2):
        shared.start()
        for row in range(2):
            shared.receive(row)
            loss = weight.square().sum()
            if row == 0 and step == 0:
                loss = loss + torch.nn.functional.embedding(torch.tensor([3]), table, sparse=True).sum()
            loss.backward()
            shared.keep(row)
        shared.finish()
        shared.combine(torch.ones(2))
        assert table.grad.sum() == (4 if step == 0 else 0)
        assert_close(weight.grad, 4 * weight.detach())


def test_nothing_shared_is_nothing():
    shared = SharedGradients([], 3)
    shared.start()
    shared.receive(1)
    shared.keep(1)
    shared.finish()
    assert shared.norm() == 0
