"""Precision: what is measured decides, and a stage computes as the recipe says."""
import json

import pytest
import torch
from conftest import TINY
from test_trainer import make_trainer

import engine.precision
from engine.precision import BFLOAT16, BY_NAME, FLOAT32, choose, fastest, measure, set_products
from training.choices import PRECISIONS
from training.engines import FastEngine

CPU = torch.device("cpu")


def test_recipes_know_the_precisions_by_name():
    assert ("auto", *BY_NAME) == PRECISIONS


@pytest.mark.parametrize(("seconds", "expected"), [
    ((1.0, 0.9, 0.6), "bfloat16"), ((1.0, 0.5, 0.6), "medium"), ((1.0, 1.1, 1.2), "float32"),
    ((1.0, 0.97, 0.96), "float32"), ((1.0, 0.9, 0.87), "medium")])
def test_the_fastest_is_taken_and_a_coarser_one_must_gain_five_percent(seconds, expected):
    assert choose(dict(zip(BY_NAME, seconds, strict=True))).name == expected


def test_a_measurement_times_the_right_work():
    """Each precision computes one layer, forward and backward, at the given shape."""
    seconds = measure(TINY, 4, 8, CPU)
    assert set(seconds) == set(BY_NAME) and all(0 < value < 1 for value in seconds.values())


def test_a_hopeless_precision_is_timed_on_a_few_sequences_only(monkeypatch):
    """Without bfloat16 products a processor would spend half a minute on what cannot win."""
    calls = []

    def pretend(layer, config, precision, batch, length, device):
        calls.append((precision.name, batch))
        return batch * (24.0 if precision is BFLOAT16 else 1.0)

    monkeypatch.setattr(engine.precision, "_time", pretend)
    assert measure(TINY, 64, 32, CPU) == {"float32": 64.0, "medium": 64.0, "bfloat16": 64 * 24.0}
    assert {batch for name, batch in calls if name == "bfloat16"} == {8}
    assert {batch for name, batch in calls if name != "bfloat16"} == {8, 64}


@pytest.mark.parametrize(("name", "said"), [
    ("float32", "precision float32"), ("medium", "precision medium"),
    ("bfloat16", "precision bfloat16, as asked; here medium is 24 times as fast, and --precision auto takes it "
                 "(measured, one layer at 4 x 4 tokens: float32 1100.0 ms, medium 1000.0 ms, bfloat16 24000.0 ms)")])
def test_a_precision_that_is_asked_for_is_taken_and_a_much_faster_one_named(tmp_path, monkeypatch, name, said):
    monkeypatch.setattr(engine.precision, "measure", lambda *a: {"float32": 1.1, "medium": 1.0, "bfloat16": 24.0})
    assert FastEngine().resolve(name, TINY, 4, 4, CPU, tmp_path) == (name, said)


def test_a_measurement_is_made_once_and_remembered(tmp_path, monkeypatch):
    calls = []

    def pretend(config, batch, length, device):
        calls.append((batch, length))
        return {"float32": 3.0, "medium": 2.0, "bfloat16": 1.0}

    monkeypatch.setattr(engine.precision, "measure", pretend)
    first, message = fastest(TINY, 30, 20, CPU, tmp_path)
    assert first is BFLOAT16 and "measured, one layer at 32 x 32 tokens" in message and "1000.0 ms" in message
    again, message = fastest(TINY, 32, 32, CPU, tmp_path)  # the same powers of two
    assert again is BFLOAT16 and "measured before" in message and calls == [(32, 32)]
    fastest(TINY, 1000, 512, CPU, tmp_path)
    assert calls[-1] == (4, 512)  # no more tokens than take a second
    for damage in ("", "{", "[]", json.dumps({key: {} for key in json.loads(
            (tmp_path / "precision.json").read_text())})):
        (tmp_path / "precision.json").write_text(damage)
        assert fastest(TINY, 32, 32, CPU, tmp_path)[0] is BFLOAT16
    assert len(calls) == 6


def test_a_cache_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(engine.precision, "measure", lambda *a: {"float32": 1.0, "medium": 2.0, "bfloat16": 3.0})
    (tmp_path / "file").write_text("")
    chosen, message = fastest(TINY, 4, 4, CPU, tmp_path / "file" / "folder")
    assert chosen is FLOAT32 and "not remembered" in message


@pytest.mark.parametrize(("name", "products"), [("float32", "highest"), ("medium", "medium"), ("bfloat16", "medium")])
def test_the_engine_sets_the_encoder_and_the_process(fast_model, name, products):
    FastEngine().use(name, fast_model)
    assert fast_model.precision is BY_NAME[name]
    assert torch.get_float32_matmul_precision() == products
    set_products(FLOAT32)


@pytest.mark.parametrize(("smart", "expected"), [(0.0, "bfloat16"), (0.5, "float32")])
def test_a_stage_computes_so_but_smart_always_in_float32(tmp_path, toy_directory, tiny_tokenizer, smart, expected):
    """SMART's push is 1e-5 long: bfloat16 would round it away. What is reported is computed in float32."""
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sst"], "smart": smart, "epochs": 1, "steps_per_epoch": 1}], precision="bfloat16")
    seen = []
    trainer.model.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(module.precision.name))
    trainer.train()
    assert set(seen) == {expected}
    assert trainer.model.encoder.precision is FLOAT32 and torch.get_float32_matmul_precision() == "highest"
    assert trainer.state.precision == "bfloat16"


def test_a_resumed_run_keeps_the_precision_it_began_with(tmp_path, toy_directory, tiny_tokenizer):
    stages = [{"tasks": ["sst"], "epochs": 1, "steps_per_epoch": 1}]
    make_trainer(tmp_path, toy_directory, tiny_tokenizer, stages, precision="medium").train()
    again = make_trainer(tmp_path, toy_directory, tiny_tokenizer, stages, precision="bfloat16")
    again.train()
    assert again.state.precision == "medium"
