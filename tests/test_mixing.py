"""Mixing: the shares of the formulas, the drawn frequencies, and a step that depends on its number alone."""
from collections import Counter

import pytest
from conftest import cases

from training.mixing import MIXINGS, WHOLE, probabilities, tasks_at

SIZES = {"sst": 8544, "para": 283003, "sts": 6040}
BATCHES = {name: size // 8 for name, size in SIZES.items()}


@pytest.mark.parametrize("case", cases("task mixing"))
def test_cases(case):
    for kind, expected in case["expected"].items():
        found = probabilities(case["input"]["sizes"], kind.split("_2")[0], temperature=2.0)
        assert found == pytest.approx(expected, abs=1e-12)


def test_annealing_goes_from_proportional_towards_uniform():
    start, end = probabilities(SIZES, "annealed", progress=0), probabilities(SIZES, "annealed", progress=1)
    assert start == pytest.approx(probabilities(SIZES, "proportional"))
    assert end == pytest.approx(probabilities(SIZES, "temperature", temperature=5))
    assert end["sts"] > start["sts"]


def test_a_cap_bounds_a_tasks_size():
    capped = probabilities(SIZES, "proportional", cap={"para": 10_000})
    assert capped == pytest.approx(probabilities({**SIZES, "para": 10_000}, "proportional"))


@pytest.mark.parametrize("kind", ["proportional", "square_root", "temperature", "uniform"])
def test_drawn_frequencies_are_the_probabilities(kind):
    expected = probabilities(SIZES, kind, 3.0)
    count = 20_000
    drawn = Counter(tasks_at(step, count, BATCHES, SIZES, kind, "seed", temperature=3.0)[0] for step in range(count))
    for name, share in expected.items():
        assert abs(drawn[name] / count - share) < 6 * (share * (1 - share) / count) ** 0.5 + 1e-9


@pytest.mark.parametrize("kind", MIXINGS)
def test_a_step_is_a_function_of_its_number_and_the_seed(kind):
    steps = [tasks_at(step, 50, BATCHES, SIZES, kind, "a", draws=3) for step in range(50)]
    assert steps[20:] == [tasks_at(step, 50, BATCHES, SIZES, kind, "a", draws=3) for step in range(20, 50)]
    if kind not in ("cycle", "sequential", "in_turn"):
        assert steps != [tasks_at(step, 50, BATCHES, SIZES, kind, "b", draws=3) for step in range(50)]
        assert all(len(step) == 3 for step in steps)


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("draws", [1, 3])
def test_an_epoch_is_every_batch_once(kind, draws):
    batches = {"a": 4, "b": 7, "c": 2}
    per_epoch = 13 if kind == "in_turn" else -(-13 // draws)
    epochs = [[task for step in range(epoch * per_epoch, (epoch + 1) * per_epoch)
               for task in tasks_at(step, 3 * per_epoch, batches, batches, kind, "a", draws, per_epoch=per_epoch)]
              for epoch in range(3)]
    assert all(Counter(epoch) == batches for epoch in epochs)
    assert (epochs[0] == epochs[1]) == (kind == "in_turn")
    if kind == "in_turn":
        assert epochs[0] == ["a"] * 4 + ["b"] * 7 + ["c"] * 2


def test_cycle_takes_all_and_sequential_one_after_another_by_size():
    assert tasks_at(7, 50, BATCHES, SIZES, "cycle", "a") == ["sst", "para", "sts"]
    batches = {"a": 10, "b": 30, "c": 20}
    order = [tasks_at(step, 120, batches, batches, "sequential", "a")[0] for step in range(120)]
    assert order == ["a"] * 20 + ["b"] * 60 + ["c"] * 40
