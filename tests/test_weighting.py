"""Learned loss weights, against their papers' formulas written with autograd and numpy."""
import json
import math

import numpy as np
import pytest
import torch

from training.choices import WEIGHTINGS
from training.recipe import Stage, load_recipe
from training.weighting import RULES


def test_uncertainty_takes_gradient_steps_of_the_papers_loss():
    rule, state = RULES["uncertainty"], {}
    s = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    random = np.random.default_rng(0)
    for _ in range(50):
        losses = random.uniform(0.01, 3, size=2)
        expected = dict(zip(("sst", "sts"), torch.exp(-s).tolist(), strict=True))
        assert rule.factors(state, ["sst", "sts"]) == pytest.approx(expected, rel=1e-12)
        total = (torch.exp(-s) * torch.from_numpy(losses) + s / 2).sum()
        gradient = torch.autograd.grad(total, s)[0]
        s = (s - rule.rate * gradient).detach().requires_grad_()
        rule.observe(state, dict(zip(("sst", "sts"), losses.tolist(), strict=True)), False)


def test_a_large_loss_moves_its_factor_by_a_bounded_step():
    rule, state = RULES["uncertainty"], {}
    rule.observe(state, {"sst": 1e6}, False)
    assert rule.factors(state, ["sst"])["sst"] == pytest.approx(math.exp(-1))


def test_dwa_follows_the_papers_formula():
    rule, state = RULES["dwa"], {}
    random = np.random.default_rng(1)
    means = []
    for _ in range(5):
        losses = random.uniform(0.1, 3, size=(4, 3))  # four steps an epoch, three tasks
        for step, row in enumerate(losses):
            rule.observe(state, dict(zip("abc", row.tolist(), strict=True)), step == 3)
        means.append(losses.mean(axis=0))
        expected = np.ones(3)
        if len(means) > 1:
            powers = np.exp(means[-1] / means[-2] / 2)
            expected = 3 * powers / powers.sum()
        assert list(rule.factors(state, list("abc")).values()) == pytest.approx(expected.tolist(), rel=1e-12)


def test_dwa_keeps_the_factor_of_a_task_without_a_step_in_an_epoch():
    rule, state = RULES["dwa"], {}
    for losses in ({"a": 2.0, "b": 2.0}, {"a": 1.0, "b": 2.0}):
        rule.observe(state, losses, True)
    before = rule.factors(state, ["a", "b"])
    rule.observe(state, {"a": 1.0}, True)
    assert rule.factors(state, ["b"])["b"] == before["b"] and rule.factors(state, ["a"])["a"] == 1.0


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_remembers_is_json(rule):
    state = {}
    RULES[rule].observe(state, {"a": 1.0}, True)
    assert json.loads(json.dumps(state)) == state


def test_a_wrong_rule_is_one_line(tmp_path):
    assert set(RULES) | {"none"} == set(WEIGHTINGS) and Stage(tasks=["sst"], weighting="dwa").weighting == "dwa"
    (tmp_path / "r.toml").write_text('[[stage]]\ntasks = ["sst"]\nweighting = "uncertain"\n')
    with pytest.raises(ValueError, match="weighting is 'uncertain'; expected one of none, uncertainty, dwa"):
        load_recipe(tmp_path / "r.toml")
