"""Benchmarks run, compare like with like, and say ratios; no time is asserted."""
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from conftest import TINY

import train_multitask
from benchmarks import __main__ as program
from benchmarks import comparison_data, frontier, overhead, surgery
from benchmarks.contestants import Ours, Padded, build, load, padded, starter_model, transformers_model
from benchmarks.measure import Comparison, compare, table
from benchmarks.starter import StarterAdamW
from minbert.adamw import AdamW


def test_ratios_are_round_by_round():
    comparison = Comparison("x", {"b": [1.0, 10.0, 2.0], "a": [2.0, 40.0, 6.0]})
    assert comparison.ratio("a", "b")[0] == 3.0
    assert comparison.record()["ratios"]["a"]["median"] == 3.0
    assert "| x | a | 3.00 |" in table([comparison])


def test_contestants_take_turns():
    order = []
    compare("x", {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2)
    assert order == ["a", "b"] * 3


SLOW = ("overhead", "memory", "scaling", "training")


@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.slow] * (part in SLOW))
                                  for part in program.PARTS])
def test_every_part_prints_and_saves_ratios(tmp_path, tiny_directory, capsys, part):
    small = ["--repeats", "1", "--batch_sizes", "4", "--batches", "2", "--tasks", "sts", "--pooling", "mean",
             "--sentences", "50", "--lengths", "8", "--tokens", "64", "--rows", "50", "100"]
    assert program.main([part, "--weights", str(tiny_directory), *small, "--out", str(tmp_path / "b")]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "b.md").read_text() in printed
    records = json.loads((tmp_path / "b.json").read_text())
    assert records and all("|" in printed for _ in records)


@pytest.mark.parametrize("make", [starter_model, transformers_model])
@pytest.mark.parametrize("name", ["sst", "para", "sts"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_peers_compute_our_loss(tiny_directory, toy_directory, make, name, pooling):
    """The same weights and examples give every contestant the same loss: they race over the same work."""
    data = load(toy_directory, str(tiny_directory), 8)
    model, _ = build(str(tiny_directory), pooling)
    task = model.tasks[name].eval()
    model.encoder.eval()
    peer = make(str(tiny_directory), name, pooling).eval()
    if name != "sts":
        peer.head.load_state_dict(task.head[-1].state_dict())
    sides, labels = padded(task, data[name].train)
    ours = task.loss(model.encoder, task.collate(data[name].train))
    torch.testing.assert_close(peer.loss(sides, labels), ours, rtol=1e-4, atol=1e-5)


def test_a_padded_loop_sees_every_example_once(tiny_directory, toy_directory):
    data = load(toy_directory, str(tiny_directory), 30)
    task = build(str(tiny_directory))[0].tasks["sts"]
    loop = Padded(starter_model(str(tiny_directory), "sts"), task, data["sts"].train, 8, True,
                  lambda parameters: StarterAdamW(parameters, 1e-3, 0.0))
    labels = torch.cat([labels for _, labels in loop.batches])
    assert sorted(labels.tolist()) == pytest.approx(sorted(example.label for example in data["sts"].train))
    before = [parameter.clone() for parameter in loop.model.encoder.layers.parameters()]
    loop.train_all()
    assert all(not torch.equal(a, b) for a, b in zip(before, loop.model.encoder.layers.parameters(), strict=True))


def test_the_starters_optimizer_is_adamw():
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.ones(5)) for _ in range(2))
    first = AdamW([ours], lr=1e-2, weight_decay=0.01, eps=1e-6, efficient=True)
    second = StarterAdamW([theirs], lr=1e-2, weight_decay=0.01)
    for _ in range(20):
        ours.grad = theirs.grad = torch.randn(5, generator=generator)
        first.step()
        second.step()
    # The starter decays after the step and not before it: the difference is of second order in the rate.
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_both_forms_of_pcgrad_take_the_same_step(tiny_directory, toy_directory):
    data = load(toy_directory, str(tiny_directory), 64)
    options = (str(tiny_directory), data, surgery.TASKS, 8)
    ours, pairwise = Ours(*options, combine="pcgrad"), surgery.Pairwise(*options)
    for contestant in (ours, pairwise):
        contestant.model.eval()  # without dropout, so that both see the same gradients
        contestant.step()
    for first, second in zip(ours.model.parameters(), pairwise.model.parameters(), strict=True):
        assert torch.allclose(first, second, rtol=1e-4, atol=1e-6)


def test_the_gpu_script_runs_on_a_cpu(tmp_path, tiny_directory, capsys):
    from benchmarks import gpu

    assert gpu.main(["--device", "cpu", "--shape", "small", "--examples", "0.001", "--steps", "1", "--weights",
                     str(tiny_directory), "--out", str(tmp_path / "g.json")]) == 0
    found = json.loads((tmp_path / "g.json").read_text())
    assert all(found[name]["tokens_per_second"] > 0 for name in found if name != "device")
    assert "ours, PCGrad" in capsys.readouterr().out
    if not torch.cuda.is_available():
        assert gpu.main(["--out", str(tmp_path / "g.json")]) == 2


def test_flops_of_a_sequence_are_those_of_its_matrix_products(tiny_model):
    """Forward once, counted by torch; forward and backward are three times that."""
    from torch.utils.flop_counter import FlopCounterMode

    from benchmarks.floor import flops

    ids = torch.ones(1, 10, dtype=torch.int64)
    tiny_model.fused = False
    with FlopCounterMode(display=False) as counter:
        tiny_model(ids)
    pooler = 2 * tiny_model.config.hidden_size ** 2
    assert flops(tiny_model.config, [10]) == 3 * (counter.get_total_flops() - pooler)


def test_linear_layers_see_no_padding(tiny_directory, toy_directory):
    ours, theirs = overhead.padding(toy_directory, str(tiny_directory), 8, "float32", steps=3)
    assert ours == 0 and 0 < theirs < 1
    rounded, _ = overhead.padding(toy_directory, str(tiny_directory), 8, "bfloat16", steps=3)
    assert 0 < rounded < theirs


def test_sentences_for_encoding_differ(toy_directory):
    found = program.sentences_of(toy_directory, 30)
    assert len(found) == len(set(found)) == 30 and np.all([len(text) > 0 for text in found])


@pytest.mark.parametrize("arguments", [["--data", "none"], ["juggling"]])
def test_a_mistake_is_said(tmp_path, tiny_directory, capsys, arguments, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        status = program.main([*arguments, "--weights", str(tiny_directory)])
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    assert arguments[-1] in capsys.readouterr().err


def test_the_comparisons_folder_has_the_published_ratio(tmp_path, shared_data, capsys):
    assert comparison_data.main([str(shared_data), "--out", str(tmp_path), "--fraction", "64"]) == 0
    lines = {path.name: path.read_text().count("\n") for path in tmp_path.iterdir()}
    assert (lines["ids-sst-train.csv"], lines["quora-train.csv"], lines["sts-train.csv"]) == (
        1 + round(8544 / 64), 1 + round(141_507 / 64), 1 + round(6041 / 64))
    assert lines["snli_1.0_train.jsonl"] == round(550_152 / 64) and lines["ids-sst-dev.csv"] == 1102
    capsys.readouterr()
    assert comparison_data.main([str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_frontier_counts_parameters_and_sentences(tmp_path, tiny_directory, toy_directory, monkeypatch, capsys):
    monkeypatch.setattr(frontier, "BERT_BASE", TINY)
    monkeypatch.setattr(frontier, "fetch", lambda name: tiny_directory)
    runs = []
    for seed in (1, 2):
        runs.append(str(tmp_path / f"run-{seed}"))
        assert train_multitask.main([
            "--weights", str(tiny_directory), "--data", str(toy_directory), "--seed", str(seed), "--epochs", "1",
            "--steps_per_epoch", "2", "--no_progress", "--out", runs[-1]]) == 0
    capsys.readouterr()
    assert frontier.main([*runs, "--data", str(toy_directory), "--repeats", "1", "--out", str(tmp_path / "f")]) == 0
    ours, published = json.loads((tmp_path / "f.json").read_text())["rows"]
    results = [json.loads((Path(run) / "results.json").read_text()) for run in runs]
    assert ours["seeds"] == 2 and ours["scores"]["overall"] == pytest.approx(np.mean([r["overall"] for r in results]))
    assert ours["spread"] == pytest.approx(np.std([r["overall"] for r in results], ddof=1))
    assert ours["scores"]["sts"] == pytest.approx(np.mean([r["dev"]["sts"]["pearson"]["value"] for r in results]))
    saved = safetensors.torch.load_file(Path(runs[0]) / "model.safetensors")
    assert ours["encoder"] + ours["own"] == sum(tensor.numel() for tensor in saved.values())
    seconds = json.loads((tmp_path / "f.json").read_text())["seconds"]["default"]
    assert ours["speed"] == pytest.approx((24 + 2 * 24 + 2 * 24) / seconds[0])  # dev of sst, para and sts
    assert published["scores"]["overall"] == 0.784 and published["minutes"] is None
    assert capsys.readouterr().out == (tmp_path / "f.md").read_text()
    assert "default, 0 M" in (tmp_path / "f.svg").read_text()
    assert frontier.main([str(tmp_path), "--data", str(toy_directory)]) == 2
    assert "has no results.json" in capsys.readouterr().err
