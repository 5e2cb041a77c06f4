"""The pages that a reader follows, run word for word."""
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

ROOMS = ("alignment", "corpora", "engine", "minbert", "tasks", "training", "report", "recipes")


def blocks(page, language):
    """The fenced blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL)


@pytest.fixture
def checkout(tmp_path):
    """The programs and their rooms, where a page may write its files."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    for program in ("train_multitask.py", "pretrain_tft.py"):
        shutil.copy(ROOT / program, tmp_path)
    return tmp_path


@pytest.mark.slow
def test_own_data_goes_from_a_csv_to_a_trained_model(checkout, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    printed = ""
    for script in blocks("own-data.md", "sh"):
        result = subprocess.run(["bash", "-e", "-c", script], cwd=checkout, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        printed += result.stdout
    assert "4 of them for dev" in printed and "GENERATED" not in printed
    for run in ("support", "recipe"):
        results = json.loads((checkout / "runs" / run / "results.json").read_text())
        (task,) = results["dev"]
        assert results["rows"] == {task: 4} and results["examples_seen"] == {task: 48}
    assert printed.strip().splitlines()[-1] == "Do you ship abroad?"
    # The error at the end of the page is the program's own.
    told = next(line.strip() for line in (ROOT / "docs/own-data.md").read_text().splitlines() if "error: " in line)
    wrong = blocks("own-data.md", "sh")[1].replace("--format csv", "--format tsv").replace("runs/support", "runs/wrong")
    result = subprocess.run(["bash", "-c", wrong], cwd=checkout, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and result.stderr.strip().replace(f"{checkout}/", "") == told


def test_extending_shows_a_part_of_each_kind(checkout, tiny_directory, toy_directory):
    python = blocks("extending.md", "python")
    assert all(block.count("\n") < 20 for block in python)
    (checkout / "mine.py").write_text("\n".join([python[0] + "\n" + python[1], *python[2:]]))
    (checkout / "mine.toml").write_text(blocks("extending.md", "toml")[0])
    for path in toy_directory.glob("quora-*.csv"):
        shutil.copy(path, checkout)
    for split in ("train", "dev"):
        (checkout / f"hard-{split}.tsv").write_text("sentence\tscore\n" + "".join(
            f"the dog{' and the cat' * (n % 5)}\t{n % 5 / 4}\n" for n in range(30)))
    result = subprocess.run([sys.executable, "mine.py", "--recipe", "mine.toml", "--data", ".", "--weights",
                             str(tiny_directory), "--out", "run", "--no_progress"], cwd=checkout, capture_output=True,
                            text=True, check=False)
    assert result.returncode == 0, result.stderr
    results = json.loads((checkout / "run" / "results.json").read_text())
    assert list(results["dev"]["hard"]) == ["pearson"] and results["examples_seen"]["hard"] > 30
    recipe = (checkout / "run" / "recipe.toml").read_text()
    assert all(f'"{name}"' in recipe for name in ("gated", "focal", "logarithmic", "unit", "score", "inverse"))
    *_, before, last = [line for text in (checkout / "run" / "metrics.jsonl").read_text().splitlines()
                        if (line := json.loads(text)).get("stage") == 1 and "loss" in line]
    assert last["weight"] == pytest.approx({name: 1 / loss for name, loss in before["loss"].items()}, rel=1e-3)
    # What the others compute: a focal loss, equal lengths, logarithmic shares.
    check = ("import mine, torch, math\n"
             "from training.mixing import probabilities\n"
             "gram = torch.tensor([[4.0, 1.0], [1.0, 9.0]], dtype=torch.float64)\n"
             "assert mine.GRAM_METHODS['unit'](gram).tolist() == [1 / 2, 1 / 3]\n"
             "shares = probabilities({'a': 9, 'b': 99}, 'logarithmic')\n"
             "assert abs(shares['b'] / shares['a'] - 2) < 1e-12\n"
             "loss = mine.Focal.loss(None, torch.zeros(1, 2), torch.tensor([1]), None)\n"
             "assert abs(loss.item() - 0.25 * math.log(2)) < 1e-6\n")
    subprocess.run([sys.executable, "-c", check], cwd=checkout, check=True)
