"""Learned loss weights, against their papers' formulas written with autograd and numpy."""
import json
import math

import numpy as np
import pytest
import torch

from training.choices import WEIGHTINGS
from training.recipe import Stage, load_recipe
from training.weighting import RULES, Seen


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
        rule.observe(state, Seen(dict(zip(("sst", "sts"), losses.tolist(), strict=True))))


def test_a_large_loss_moves_its_factor_by_a_bounded_step():
    rule, state = RULES["uncertainty"], {}
    rule.observe(state, Seen({"sst": 1e6}))
    assert rule.factors(state, ["sst"])["sst"] == pytest.approx(math.exp(-1))


def test_dwa_follows_the_papers_formula():
    rule, state = RULES["dwa"], {}
    random = np.random.default_rng(1)
    means = []
    for _ in range(5):
        losses = random.uniform(0.1, 3, size=(4, 3))  # four steps an epoch, three tasks
        for step, row in enumerate(losses):
            rule.observe(state, Seen(dict(zip("abc", row.tolist(), strict=True)), step == 3))
        means.append(losses.mean(axis=0))
        expected = np.ones(3)
        if len(means) > 1:
            powers = np.exp(means[-1] / means[-2] / 2)
            expected = 3 * powers / powers.sum()
        assert list(rule.factors(state, list("abc")).values()) == pytest.approx(expected.tolist(), rel=1e-12)


def test_dwa_keeps_the_factor_of_a_task_without_a_step_in_an_epoch():
    rule, state = RULES["dwa"], {}
    for losses in ({"a": 2.0, "b": 2.0}, {"a": 1.0, "b": 2.0}):
        rule.observe(state, Seen(losses, True))
    before = rule.factors(state, ["a", "b"])
    rule.observe(state, Seen({"a": 1.0}, True))
    assert rule.factors(state, ["b"])["b"] == before["b"] and rule.factors(state, ["a"])["a"] == 1.0


def test_gradnorm_follows_the_gradient_of_the_papers_loss():
    """Weights by autograd of sum |G - target|, with the targets held constant, as the paper says."""
    rule, state = RULES["gradnorm"], {}
    random = np.random.default_rng(2)
    weights, first = torch.ones(3, dtype=torch.float64), None
    for _ in range(40):
        losses, lengths = (torch.from_numpy(random.uniform(0.1, 3, size=3)) for _ in range(2))  # lengths: of grad L
        first = losses if first is None else first
        weights.requires_grad_()
        weighed = weights * lengths
        ratios = losses / first
        target = (weighed.mean() * (ratios / ratios.mean()) ** rule.alpha).detach()
        gradient = torch.autograd.grad((weighed - target).abs().sum(), weights)[0]
        weights = (weights.detach() - rule.rate * gradient / lengths.mean()).clamp_min(rule.lowest)
        weights = 3 * weights / weights.sum()
        rule.observe(state, Seen(dict(zip("abc", losses.tolist(), strict=True)),
                                 norms=dict(zip("abc", weighed.tolist(), strict=True))))
        assert list(rule.factors(state, list("abc")).values()) == pytest.approx(weights.tolist(), rel=1e-9)
    assert (weights - 1).abs().max() > 0.05


def test_gradnorm_waits_for_a_step_with_two_tasks_and_bears_zeros():
    rule, state = RULES["gradnorm"], {}
    rule.observe(state, Seen({"a": 1.0}, norms={"a": 3.0}))
    rule.observe(state, Seen({"a": 1.0, "b": 1.0}))  # a skipped step has no lengths
    assert rule.factors(state, ["a", "b"]) == {"a": 1.0, "b": 1.0}
    rule.observe(state, Seen({"a": 0.0, "b": 1.0}, norms={"a": 1.0, "b": 1.0}))
    rule.observe(state, Seen({"a": 3.0, "b": 1.0}, norms={"a": 1.0, "b": 1.0}))
    assert rule.factors(state, ["a", "b"]) == {"a": 1.0, "b": 1.0}  # a starts at its first loss above zero
    for _ in range(500):
        rule.observe(state, Seen({"a": 0.0, "b": 0.0}, norms={"a": 0.0, "b": 2.0}))
    assert min(rule.factors(state, ["a", "b"]).values()) > 0
    assert sum(rule.factors(state, ["a", "b"]).values()) == pytest.approx(2)


def test_famo_follows_the_papers_formula_with_torchs_adam():
    rule, state = RULES["famo"], {}
    random = np.random.default_rng(3)
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([logits], lr=0.025, weight_decay=0.01)
    for _ in range(40):
        before, after = (torch.from_numpy(random.uniform(0.1, 3, size=3)) for _ in range(2))
        expected = 3 * logits.detach().softmax(0)
        assert list(rule.factors(state, list("abc")).values()) == pytest.approx(expected.tolist(), rel=1e-9)
        falls = (before + 1e-8).log() - (after + 1e-8).log()
        logits.grad = torch.autograd.grad(logits.softmax(0), logits, falls)[0]
        adam.step()
        rule.observe(state, Seen(dict(zip("abc", before.tolist(), strict=True)),
                                 after=dict(zip("abc", after.tolist(), strict=True))))
    assert (expected - 1).abs().max() > 0.05


def test_famo_learns_nothing_of_a_step_that_was_skipped():
    state = {}
    RULES["famo"].observe(state, Seen({"a": 1.0, "b": 2.0}))
    assert state == {}


def test_famo_bears_losses_of_zero():
    state = {}
    RULES["famo"].observe(state, Seen({"a": 0.0, "b": 2.0}, after={"a": 0.0, "b": 0.0}))
    factors = RULES["famo"].factors(state, ["a", "b"])
    assert factors["b"] < 1 < factors["a"] and all(map(math.isfinite, state.values()))


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_remembers_is_json(rule):
    state = {}
    losses = {"a": 1.0, "b": 2.0}
    RULES[rule].observe(state, Seen(losses, True, after=losses, norms=losses))
    assert state and json.loads(json.dumps(state)) == state


def test_a_wrong_rule_is_one_line(tmp_path):
    assert set(RULES) | {"none"} == set(WEIGHTINGS) and Stage(tasks=["sst"], weighting="dwa").weighting == "dwa"
    (tmp_path / "r.toml").write_text('[[stage]]\ntasks = ["sst"]\nweighting = "uncertain"\n')
    with pytest.raises(ValueError, match="weighting is 'gradnorm', which needs two tasks in a step"):
        Stage(tasks=["sst", "sts"], weighting="gradnorm", mixing="proportional")
    with pytest.raises(ValueError, match="weighting is 'uncertain'; expected one of none, uncertainty, dwa, gradn"):
        load_recipe(tmp_path / "r.toml")
