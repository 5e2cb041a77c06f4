"""AdamW against torch's, against the paper's formulas in float64, and against its own saved state."""
import copy
import math
import os
import shutil
import subprocess
import sys

import pytest
import torch
from conftest import cases
from torch.testing import assert_close

from engine.adamw import COMPILE_FROM, FastAdamW, compiles
from minbert.adamw import AdamW
from training.parameters import parameter_groups

needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")


def walk(optimizer_of, steps, dtype=torch.float64, size=(7, 3), scale=1.0):
    """Trains a parameter on a fixed row of random gradients; returns it after every step."""
    generator = torch.Generator().manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(size, dtype=dtype, generator=generator))
    optimizer = optimizer_of([parameter])
    history = []
    for _ in range(steps):
        parameter.grad = scale * torch.randn(size, dtype=dtype, generator=generator)
        optimizer.step()
        history.append(parameter.detach().clone())
    return torch.stack(history)


FORMS = {"lesson": lambda p, *a, **k: AdamW(p, *a, **k),
         "slices": lambda p, *a, **k: FastAdamW(p, *a, **k, foreach=False),
         "foreach": lambda p, *a, **k: FastAdamW(p, *a, **k, foreach=True),
         "compiled": lambda p, *a, **k: FastAdamW(p, *a, **k, foreach=False, compile=True)}
EVERY_FORM = [pytest.param(form, marks=needs_compiler) if form == "compiled" else form for form in FORMS]


@pytest.mark.parametrize("form", ["lesson", "slices", "foreach"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
def test_equals_torch_over_1000_steps_in_float64(form, weight_decay, scale):
    settings = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": weight_decay}
    ours = walk(lambda p: FORMS[form](p, **settings), 1000, scale=scale)
    theirs = walk(lambda p: torch.optim.AdamW(p, **settings), 1000, scale=scale)
    assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("settings", [{"foreach": True}, {"foreach": False},
                                      pytest.param({"foreach": False, "compile": True}, marks=needs_compiler)])
def test_a_scale_is_the_same_as_scaled_gradients(settings):
    """And it leaves the gradients as they are."""
    results = []
    for inside in (True, False):
        generator = torch.Generator().manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(size, dtype=torch.float64, generator=generator))
                      for size in ((5,), (301, 1001))]
        optimizer = FastAdamW(parameters, lr=1e-2, weight_decay=0.1, **settings)
        for scale in (1.0, 0.3, 1e-4, 0.7):
            given = [torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
                     for parameter in parameters]
            for parameter, gradient in zip(parameters, given, strict=True):
                parameter.grad = gradient.clone() if inside else scale * gradient
            optimizer.step(scale=scale if inside else 1.0)
            assert not inside or all(torch.equal(p.grad, g) for p, g in zip(parameters, given, strict=True))
        results.append(parameters)
    for first, second in zip(*results, strict=True):
        assert_close(first, second, rtol=1e-12, atol=1e-12)


def test_tensors_longer_than_a_slice_equal_torch():
    settings = {"lr": 1e-2, "weight_decay": 0.1}
    ours = walk(lambda p: FastAdamW(p, **settings), 3, torch.float64, (300_001,))
    theirs = walk(lambda p: torch.optim.AdamW(p, **settings), 3, torch.float64, (300_001,))
    assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", ["lesson", "slices", "foreach"])
@pytest.mark.parametrize(("correct_bias", "efficient"), [(True, True), (False, False)])
def test_other_variants_equal_their_formula(correct_bias, efficient, form):
    """Kingma & Ba 2015, algorithm 1, and the reordering at the end of section 2, one number at a time."""
    lr, beta1, beta2, eps, decay = 0.01, 0.9, 0.999, 1e-6, 0.2
    found = walk(lambda p: FORMS[form](p, lr, (beta1, beta2), eps, decay, correct_bias, efficient), 50)
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(7, 3, dtype=torch.float64, generator=generator)
    m, v = torch.zeros_like(value), torch.zeros_like(value)
    for t in range(1, 51):
        gradient = torch.randn(7, 3, dtype=torch.float64, generator=generator)
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        step = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t) if correct_bias else lr
        value = value - lr * decay * value - step * m / (v.sqrt() + eps)
        assert_close(found[t - 1], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", [form for form in EVERY_FORM if form != "lesson"])
@pytest.mark.parametrize("variant", [{}, {"correct_bias": True, "efficient": True}, {"correct_bias": False}])
def test_every_form_equals_the_lesson(variant, form):
    """Also while the rate changes from step to step, and for tensors of any length and layout."""
    settings = {"lr": 1e-2, "weight_decay": 0.1, **variant}
    results = []
    for make in (FORMS["lesson"], FORMS[form]):
        generator = torch.Generator().manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(size, dtype=torch.float64, generator=generator))
                      for size in ((5,), (301, 1001), (1,))]
        parameters.append(torch.nn.Parameter(torch.randn(30, 20, dtype=torch.float64, generator=generator).t()))
        optimizer = make(parameters, **settings)
        for step in range(20):
            optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)
            for parameter in parameters:
                parameter.grad = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            optimizer.step()
        results.append(parameters)
    for first, second in zip(*results, strict=True):
        assert_close(first, second, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", EVERY_FORM)
@pytest.mark.parametrize("gradient", [1e-30, 1e-5, 1e20, 3e38])
def test_every_form_survives_any_finite_gradient(form, gradient):
    """The square of 1e20 overflows. torch's AdamW and the closed form of three equal steps say what follows."""
    found, expected = [], []
    for make, results in ((FORMS[form], found), (lambda p, **k: torch.optim.AdamW(p, **k), expected)):
        parameter = torch.nn.Parameter(torch.ones(100_000))
        optimizer = make([parameter], lr=1e-3, weight_decay=0.0)
        for _ in range(3):
            parameter.grad = torch.full_like(parameter, gradient)
            optimizer.step()
        results.append(parameter.detach())
    assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_adamw_is_compiled_where_that_pays_and_can_be(monkeypatch):
    cpu, gpu, many = torch.device("cpu"), torch.device("cuda"), COMPILE_FROM
    tried = []
    monkeypatch.setattr("engine.adamw.compiled_update", lambda: tried.append(True))
    assert compiles("auto", many, cpu) == (True, "AdamW compiled") and tried
    assert compiles("auto", many - 1, cpu) == compiles(False, many, cpu) == (False, "AdamW in slices")
    assert compiles(True, 1, cpu) == (True, "AdamW compiled") and not compiles(True, many, gpu)[0] and len(tried) == 1

    def refuse():
        raise ValueError("no compiler here")

    monkeypatch.setattr("engine.adamw.compiled_update", refuse)
    assert compiles("auto", many, cpu) == (False, "AdamW in slices (no compiler here)")


def test_without_a_compiler_compile_is_one_clear_error(tmp_path):
    """In a process of its own: the compiler remembers what it found, and what it compiled before."""
    code = """
import torch
from engine.adamw import FastAdamW
parameter = torch.nn.Parameter(torch.ones(3))
parameter.grad = torch.ones(3)
try:
    FastAdamW([parameter], foreach=False, compile=True).step()
except ValueError as error:
    print(error)
"""
    environment = {**os.environ, "CXX": "no-such-compiler", "PATH": str(tmp_path),
                   "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "no-such-compiler" in done.stdout and "expected a C++ compiler" in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_parameters_of_different_ages_are_updated_together():
    settings = {"lr": 0.1, "weight_decay": 0.1}
    results = []
    for foreach in (True, False):
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(3)) for _ in range(4)]
        optimizer = FastAdamW(parameters, **settings, foreach=foreach)
        for step in range(5):
            for index, parameter in enumerate(parameters):
                parameter.grad = torch.randn(3) if step >= index else None
            optimizer.step()
        results.append(torch.stack([parameter.detach() for parameter in parameters]))
    assert_close(results[0], results[1])


@pytest.mark.parametrize("form", ["lesson", "slices", "foreach"])
def test_state_dict_round_trip_goes_on_alike(form):
    torch.manual_seed(0)
    first = torch.nn.Parameter(torch.randn(5))
    optimizer = FORMS[form]([first], lr=0.1)
    gradients = torch.randn(6, 5)
    for gradient in gradients[:3]:
        first.grad = gradient
        optimizer.step()
    second = torch.nn.Parameter(first.detach().clone())
    resumed = FORMS[form]([second], lr=0.7)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # as from a file: load_state_dict shares tensors
    for gradient in gradients[3:]:
        first.grad, second.grad = gradient, gradient.clone()
        optimizer.step()
        resumed.step()
    assert torch.equal(first, second)


@pytest.mark.parametrize("form", ["lesson", "slices", "foreach"])
def test_a_zero_gradient_decays_and_a_missing_one_does_not(form):
    moved, still = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    moved.grad = torch.zeros(3)
    FORMS[form]([moved, still], lr=0.1, weight_decay=0.5).step()
    assert_close(moved.detach(), torch.full((3,), 0.95))
    assert torch.equal(still.detach(), torch.ones(3))


def test_parameters_that_are_not_contiguous_are_updated_in_place():
    base = torch.randn(4, 6)
    settings = {"lr": 0.1, "weight_decay": 0.1}
    transposed = torch.nn.Parameter(base.clone().t())
    plain = torch.nn.Parameter(base.clone().t().contiguous())
    for parameter in (transposed, plain):
        parameter.grad = torch.ones(6, 4)
        FastAdamW([parameter], **settings).step()
    assert_close(transposed.detach(), plain.detach())


def test_biases_and_layer_norm_are_kept_out_of_decay(tiny_model):
    groups = parameter_groups(tiny_model.named_parameters(), 0.1)
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    for name, parameter in tiny_model.named_parameters():
        assert (id(parameter) in decayed) == (not name.endswith("bias") and "LayerNorm" not in name), name
    assert sum(len(group["params"]) for group in groups) == len(list(tiny_model.parameters()))


@pytest.mark.parametrize("wrong", [{"lr": -1}, {"betas": (1.0, 0.9)}, {"eps": -1e-8}, {"weight_decay": -0.1},
                                   {"lr": math.nan}, {"lr": math.inf}, {"eps": math.nan}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        AdamW([torch.nn.Parameter(torch.ones(1))], **wrong)


@pytest.mark.parametrize("case", cases("optimizer"))
@pytest.mark.parametrize("form", EVERY_FORM)
def test_cases(case, form):
    given, expected = case["input"], case["expected"]
    parameter = torch.nn.Parameter(torch.tensor(given["params"], dtype=torch.float64))
    optimizer = FORMS[form]([parameter], given["lr"], tuple(given["betas"]), given["eps"], given["weight_decay"],
                      given.get("correct_bias", True))
    history = []
    for gradient in given["grads"]:
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        history.append(parameter.detach().clone())
    reference = torch.tensor(expected.get("after_each_step") or [expected["after"]], dtype=torch.float64)
    assert_close(torch.stack(history)[-len(reference):], reference, rtol=0, atol=1e-12)
