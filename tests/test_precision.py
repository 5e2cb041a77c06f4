"""Precision is what a recipe says while a step computes, and nothing of it stays behind."""
import pytest
import torch
from test_trainer import make_trainer

from training.precision import computing, resolve, set_products
from training.step import StageSteps, StepState

CPU = torch.device("cpu")


@pytest.mark.parametrize(("able", "expected"), [({"amx_bf16": True, "avx512_bf16": True}, "bfloat16"),
                                                ({"amx_bf16": False, "avx512_bf16": True}, "medium"), ({}, "float32")])
def test_auto_is_what_the_processor_is_good_at(monkeypatch, able, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert resolve("auto", CPU) == expected
    assert all(resolve(said, CPU) == said for said in ("float32", "medium", "bfloat16"))


@pytest.mark.parametrize(("precision", "products", "dtype"), [("float32", "highest", None), ("medium", "medium", None),
                                                              ("bfloat16", "medium", torch.bfloat16)])
def test_inside_and_after(tiny_model, precision, products, dtype):
    set_products("medium")
    with pytest.raises(KeyError), computing(tiny_model, precision):
        assert (torch.get_float32_matmul_precision(), tiny_model.compute_dtype) == (products, dtype)
        raise KeyError
    assert (torch.get_float32_matmul_precision(), tiny_model.compute_dtype) == ("medium", None)


@pytest.mark.parametrize(("smart", "expected"), [(0.0, torch.bfloat16), (0.5, None)])
def test_a_step_computes_so_but_smart_always_in_float32(tmp_path, toy_directory, tiny_tokenizer, smart, expected):
    """SMART's push is 1e-5 long: bfloat16 would round it away."""
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [{"tasks": ["sst"], "smart": smart}])
    model, stage = trainer.model, trainer.recipe.stage[0]
    steps = StageSteps(stage, model.encoder, dict(model.tasks.items()), ["sst"], trainer.data, model, "test", CPU,
                       precision="bfloat16")
    seen = []
    model.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(
        (module.compute_dtype, torch.get_float32_matmul_precision())))
    steps.take(StepState())
    assert set(seen) == {(expected, "highest" if smart else "medium")}
    assert all(parameter.dtype == torch.float32 and parameter.grad.dtype == torch.float32
               for name, parameter in model.encoder.named_parameters() if not name.startswith("pooler"))
