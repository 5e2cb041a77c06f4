"""Benchmarks run, compare like with like, and say ratios; no time is asserted."""
import torch

from benchmarks import __main__ as program
from benchmarks import surgery
from benchmarks.measure import Comparison, compare, table
from minbert.pretrained import fetch
from minbert.weights import load_encoder
from training.batching import TaskBatches
from training.data import load_data
from training.program import build_model
from training.recipe import load_recipe


def test_ratios_are_round_by_round():
    comparison = Comparison("x", {"a": [2.0, 40.0, 6.0], "b": [1.0, 10.0, 2.0]})
    assert comparison.ratio("a", "b")[0] == 3.0
    assert "| x | a | 3.00 |" in table([comparison], "b")


def test_contestants_take_turns():
    order = []
    compare("x", {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2)
    assert order == ["a", "b"] * 3


def test_the_program_prints_and_saves_ratios(tmp_path, tiny_directory, capsys):
    assert program.main(["--weights", str(tiny_directory), "--repeats", "2", "--batch_size", "4", "--out",
                         str(tmp_path / "b.md")]) == 0
    printed = capsys.readouterr().out
    assert "| PCGrad | " in printed and (tmp_path / "b.md").read_text() == printed


def test_both_forms_of_pcgrad_take_the_same_step(tiny_directory, toy_directory):
    recipe = load_recipe(surgery.RECIPE)
    encoder, tokenizer, _ = load_encoder(fetch(str(tiny_directory)))
    model = build_model(recipe, encoder.config, encoder, tokenizer)
    data = load_data(dict(model.tasks.items()), recipe, toy_directory, say=lambda text: None)
    batches = {name: [TaskBatches(task, data[name].train, 8, name).batch(0)] for name, task in model.tasks.items()}
    contestants = [surgery.Contestant(recipe, str(tiny_directory), batches, rows) for rows in (3, 0)]
    for contestant in contestants:
        contestant.model.eval()  # without dropout, so that both see the same gradients
    contestants[0].pcgrad_step()
    contestants[1].pairwise_step()
    for first, second in zip(*(c.encoder.parameters() for c in contestants), strict=True):
        assert torch.allclose(first, second, rtol=1e-4, atol=1e-6)


def test_an_absent_folder_is_one_clear_line(tmp_path, tiny_directory, capsys):
    assert program.main(["--data", str(tmp_path / "none"), "--weights", str(tiny_directory)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
