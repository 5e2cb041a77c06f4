"""Two processes train as one does."""
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from training.distributed import ALONE, shards


@given(st.lists(st.integers(1, 100), max_size=40), st.integers(1, 5))
def test_shards_hold_every_example_once_and_are_alike(lengths, size):
    parts = shards(lengths, size)
    assert sorted(index for part in parts for index in part) == list(range(len(lengths)))
    loads = [sum(lengths[index] for index in part) for part in parts]
    assert max(loads) - min(loads) <= max(lengths, default=0)


def test_a_process_alone_exchanges_nothing():
    tensor = torch.ones(3)
    ALONE.add_up([tensor])
    ALONE.wait()
    assert ALONE.gather(7) == [7] and torch.equal(tensor, torch.ones(3)) and ALONE.first


RECIPES = {
    # 64 examples in batches of 7: the last batch has one example, so one of the processes has none.
    "sum": ("", 'batch_size = 7\nweighting = "famo"\n'),
    # Losses over the whole batch (negatives, rankings), a penalty over rows, surgery, a weight average.
    "surgery": ('[tasks.sst]\npooling = "attentive"\n[tasks.para]\nloss = "info_nce"\nhead = "cosine"\n'
                '[tasks.sts]\nloss = "cosent"\n', 'batch_size = 9\ncombine = "pcgrad"\naverage = "ema"\n'
                'weighting = "uncertainty"\n'),
    "rdrop": ("", 'batch_size = 8\ncombine = "gradvac"\nrdrop = 1.0\nmixing = "proportional"\ndraws = 3\n'
              'weighting = "gradnorm"\n'),
}


def assert_alike(one: Path, two: Path):
    """Assert that two prediction files have the same ids, and predictions that differ by rounding only."""
    for line, other in zip(*(path.read_text().splitlines() for path in (one, two)), strict=True):
        *begin, value = re.split(r"\s*,\s*", line.strip())
        *other_begin, other_value = re.split(r"\s*,\s*", other.strip())
        assert begin == other_begin, one.name
        if value != other_value:
            assert float(other_value) == pytest.approx(float(value), abs=1e-3), (one.name, line, other)


@pytest.mark.parametrize("name", ["sum", "surgery", pytest.param("rdrop", marks=pytest.mark.slow)])
def test_two_processes_come_to_the_parameters_of_one(tmp_path, tiny_directory, toy_directory, name):
    tasks, stage = RECIPES[name]
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('precision = "float32"\nhidden_dropout_prob = 0.0\nencoder_dropout = 0.0\n' + tasks
                      + '[[stage]]\ntasks = ["sst", "para", "sts"]\nepochs = 1\nsteps_per_epoch = 12\nkeep = "last"\n'
                      + stage + 'optimizer = { lr = 1e-4, head_lr = 1e-3 }\n')
    results = {}
    for processes, launcher in ((1, []), (2, ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"])):
        result = subprocess.run(
            [sys.executable, *launcher, str(ROOT / "train_multitask.py"), "--no_progress", "--recipe", str(recipe),
             "--weights", str(tiny_directory), "--data", str(toy_directory), "--out", f"run-{processes}"],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        results[processes] = json.loads((tmp_path / f"run-{processes}" / "results.json").read_text())["dev"]
    one, two = (safetensors.torch.load_file(tmp_path / f"run-{count}" / "model.safetensors") for count in (1, 2))
    assert one.keys() == two.keys()
    for key, tensor in one.items():
        torch.testing.assert_close(two[key], tensor, rtol=0, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")
    # Sums over two processes round otherwise than sums over one, so scores are alike and not equal: a rank correlation
    # moves as soon as two predictions that nearly tie change places.
    assert results[1].keys() == results[2].keys() == {"sst", "para", "sts"}
    for task, metrics in results[1].items():
        for metric, value in metrics.items():
            assert results[2][task][metric] == pytest.approx(value, abs=0.01), (task, metric)
    for file in (tmp_path / "run-1" / "predictions").iterdir():
        if file.suffix == ".csv":
            assert_alike(file, tmp_path / "run-2" / "predictions" / file.name)
    lines = [len((tmp_path / f"run-{count}" / "metrics.jsonl").read_text().splitlines()) for count in (1, 2)]
    assert lines == [13, 13]


def test_transfer_fine_tuning_says_that_it_runs_alone(tmp_path, tiny_directory):
    corpus = tmp_path / "pairs.tsv"
    corpus.write_text("a friend\ta friend of\n" * 30)
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
         str(ROOT / "pretrain_tft.py"), "--corpus", str(corpus), "--weights", str(tiny_directory)],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode != 0 and "pretrain_tft.py runs as one process" in result.stderr
