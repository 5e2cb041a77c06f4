"""The collected gradients are what autograd would give, and combining them is a weighted sum."""
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


def test_each_tasks_gradient_is_kept_and_the_gram_matrix_is_theirs():
    """The second task does not reach the bias: a missing gradient counts as zero."""
    parameters, x = setup()
    shared = SharedGradients(parameters, 2)
    expected = []
    with shared.collecting():
        for task in range(2):
            loss = two_losses(parameters, x)[task]
            expected.append(flat(torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True),
                                 parameters))
            with shared.of(task):
                loss.backward()
    expected = torch.stack(expected)
    assert_close(torch.stack([flat([row.get(p) for p in parameters], parameters) for row in shared.rows]), expected)
    assert_close(shared.gram(), (expected.double() @ expected.double().T), rtol=1e-6, atol=1e-6)
    shared.combine(torch.tensor([0.5, -2.0]))
    assert_close(flat([p.grad for p in parameters], parameters), 0.5 * expected[0] - 2 * expected[1])


def test_one_collection_adds_the_tasks_up_and_is_cleared_for_the_next_step():
    parameters, x = setup()
    shared = SharedGradients(parameters, 1)
    for _ in range(2):
        with shared.collecting():
            for position in range(2):
                with shared.of(0):
                    two_losses(parameters, x)[position].backward()
        norm = shared.norm()
        shared.combine(torch.ones(1))
    expected = torch.autograd.grad(sum(two_losses(parameters, x)), parameters)
    for parameter, gradient in zip(parameters, expected, strict=True):
        assert_close(parameter.grad, gradient)
    assert norm == pytest.approx(flat(expected, parameters).norm().item())


def table_and_weight():
    torch.manual_seed(0)
    return torch.nn.Embedding(10, 4), torch.nn.Parameter(torch.randn(4))


@pytest.mark.parametrize("draws", [1, 2])
def test_a_look_up_tables_gradient_is_kept_by_its_rows_and_is_the_dense_one(draws):
    """draws: how often each task adds to its gradients in a step."""
    table, weight = table_and_weight()
    shared = SharedGradients([table.weight, weight], 2, table)
    for step in range(3):  # rows of earlier steps must be cleared
        expected = torch.zeros(2, 44)
        with shared.collecting():
            for task in range(2):
                for draw in range(draws):
                    generator = torch.Generator().manual_seed(100 * step + 10 * task + draw)
                    ids = torch.randint(0, 10, (2, 2), generator=generator)
                    dense = (torch.nn.functional.embedding(ids, table.weight) * weight).sin().sum()
                    expected[task] += flat(torch.autograd.grad(dense, [table.weight, weight]), [table.weight, weight])
                    with shared.of(task):
                        (table(ids) * weight).sin().sum().backward()
        assert_close(shared.gram(), expected.double() @ expected.double().T, rtol=1e-5, atol=1e-6)
        assert shared.norm() == pytest.approx(expected[0].norm().item(), rel=1e-5)
        shared.combine(torch.tensor([0.5, -2.0]))
        assert_close(flat([table.weight.grad, weight.grad], [table.weight, weight]),
                     0.5 * expected[0] - 2 * expected[1])


def test_a_task_that_never_reads_the_table():
    table, weight = table_and_weight()
    shared = SharedGradients([table.weight, weight], 2, table)
    for step in range(2):
        with shared.collecting():
            for task in range(2):
                with shared.of(task):
                    loss = weight.square().sum()
                    if task == 0 and step == 0:
                        loss = loss + table(torch.tensor([3])).sum()
                    loss.backward()
        shared.combine(torch.ones(2))
        assert table.weight.grad.sum() == (4 if step == 0 else 0)
        assert_close(weight.grad, 4 * weight.detach())


@pytest.mark.parametrize("before", [True, False])
def test_the_table_is_left_as_it_was_also_after_an_error(before):
    """A trained encoder must work with torch's own optimizers, which refuse sparse gradients."""
    table, weight = table_and_weight()
    table.sparse = before
    shared = SharedGradients([table.weight, weight], 1, table)
    with pytest.raises(KeyError), shared.collecting():
        assert table.sparse
        raise KeyError
    assert table.sparse == before


def test_nothing_shared_is_nothing():
    shared = SharedGradients([], 3)
    with shared.collecting(), shared.of(1):
        pass
    assert shared.norm() == 0 and torch.equal(shared.gram(), torch.zeros(3, 3, dtype=torch.float64))
