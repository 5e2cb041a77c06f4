"""Batches: everything once an epoch, alike in length, different every epoch, the same for the same number."""
from collections import Counter

import pytest
from conftest import TINY, make_task
from hypothesis import given
from hypothesis import strategies as st

from corpora.examples import Example
from minbert.batch import by_size, by_tokens
from training.batching import TaskBatches, balancing_weights, epoch_batches

lengths = st.lists(st.integers(3, 60), min_size=1, max_size=200)


@given(lengths, st.integers(1, 20), st.one_of(st.none(), st.integers(60, 500)))
def test_an_epoch_has_every_example_once(sizes, batch_size, budget):
    batches = epoch_batches(sizes, batch_size, "seed", budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(sizes)))
    for batch in batches:
        if budget is None:
            assert len(batch) <= batch_size
        else:
            assert len(batch) * max(sizes[index] for index in batch) <= budget


def test_padding_is_small_and_epochs_differ():
    sizes = [3 + (7 * index) % 60 for index in range(4000)]
    first, second = (epoch_batches(sizes, 32, f"seed/{epoch}") for epoch in range(2))
    assert first != second and first == epoch_batches(sizes, 32, "seed/0")
    padded = sum(len(batch) * max(sizes[i] for i in batch) for batch in first)
    assert padded / sum(sizes) < 1.05
    longest = [max(sizes[i] for i in batch) for batch in first]
    assert longest != sorted(longest)  # shuffled, so that training does not go from short to long


def test_one_too_long_example_makes_its_own_batch():
    assert by_tokens([0, 1, 2], [5, 100, 5], 20) == [[0], [1], [2]]


def test_batches_of_a_size():
    assert by_size([4, 2, 0, 1, 3], 2) == [[4, 2], [0, 1], [3]] and by_size([], 2) == by_tokens([], [], 5) == []


@pytest.mark.parametrize("budget", [None, 60])
def test_batch_number_n_is_always_the_same_batch(tiny_tokenizer, budget):
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {})
    examples = [Example(str(i), ("the dog " * (i % 7 + 1),), i % 5) for i in range(50)]
    task.tokenize(examples)
    straight = TaskBatches(task, examples, 8, "seed", budget)
    forward = [straight.indices(number) for number in range(30)]
    jumping = TaskBatches(task, examples, 8, "seed", budget)
    for number in (29, 3, 17, 0, 29, 8):
        assert jumping.indices(number) == forward[number]
    epoch = straight.per_epoch
    assert sorted(i for part in forward[:epoch] for i in part) == list(range(50))


def test_balancing_draws_every_class_equally_often():
    examples = [Example(str(i), ("x",), 0 if i < 90 else 1) for i in range(100)]
    drawn = Counter()
    for epoch in range(50):
        for batch in epoch_batches([3] * 100, 10, f"s/{epoch}", weights=balancing_weights(examples)):
            drawn.update(examples[i].label for i in batch)
    assert abs(drawn[0] / sum(drawn.values()) - 0.5) < 0.05
