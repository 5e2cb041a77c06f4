"""The transfer fine-tuning program through its command line."""
import json

import pytest
import transformers
from conftest import ROOT

import pretrain_tft
import train_multitask
from corpora import toy
from tasks.options import PhraseOptions
from training.recipe import load_recipe

QUICK = ["--epochs", "1", "--steps_per_epoch", "2", "--batch_size", "8", "--no_progress"]


def corpus_file(tmp_path, count=60):
    path = tmp_path / "pairs.tsv"
    rows = toy.rows(toy.aligned_row, count, 5, "tft")
    path.write_text("".join(" ".join(r["source"]) + "\t" + " ".join(r["target"]) + "\n" for r in rows))
    return path


@pytest.fixture
def finished(tmp_path, monkeypatch, tiny_directory):
    monkeypatch.chdir(tmp_path)
    status = pretrain_tft.main(["--corpus", str(corpus_file(tmp_path)), "--weights", str(tiny_directory), "--out",
                                "run", *QUICK])
    assert status == 0
    return tmp_path / "run"


def test_it_aligns_trains_and_saves_an_encoder_that_others_load(finished, toy_directory, capsys):
    results = json.loads((finished / "results.json").read_text())
    for split in ("dev", "test"):
        assert set(results[split]["tft"]) == {"phrasal", "sentential"}
    assert (finished / "metrics.jsonl").read_text().count('"loss"') == 2
    transformers.AutoModel.from_pretrained(finished / "encoder")
    status = train_multitask.main(["--weights", str(finished / "encoder"), "--data", str(toy_directory), "--out",
                                   "after", "--epochs", "1", "--steps_per_epoch", "1", "--no_progress"])
    assert status == 0
    assert len((finished / "corpus" / "dev.jsonl").read_text().splitlines()) == 6


def test_pairs_aligned_elsewhere_and_the_recipes_and_flags(tmp_path, monkeypatch, tiny_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    for name in ("simple", "sentence_only", "three_way", "binary", "attentive"):
        status = pretrain_tft.main(["--corpus", str(toy_directory / "train.jsonl"), "--weights", str(tiny_directory),
                                    "--recipe", str(ROOT / "recipes" / "tft" / f"{name}.toml"), *QUICK])
        assert status == 0, name
    status = pretrain_tft.main(["--corpus", str(toy_directory / "train.jsonl"), "--weights", str(tiny_directory),
                                "--pooling", "mean", "--features", "simple", "--ablation", "three_way", "--held_out",
                                "5", "--seed", "3", "--lr", "1e-4", *QUICK])
    assert status == 0
    saved = (tmp_path / "runs" / "full" / "recipe.toml").read_text()
    options = load_recipe(tmp_path / "runs" / "full" / "recipe.toml").tasks["tft"].options
    assert options == PhraseOptions(dropout=0.2, ablation="three_way", features="simple", pooling="mean")
    assert "seed = 3" in saved


@pytest.mark.parametrize(("arguments", "message"), [
    (["--corpus", "none.tsv"], "none.tsv: no such file"),
    (["--corpus", "short.tsv"], "expected at least 20 pairs"),
    (["--corpus", "bad.tsv"], "bad.tsv:1: found 1 columns"),
    (["--corpus", "bad.jsonl"], "bad.jsonl:1: "),
    (["--pooling", "median"], "invalid choice: 'median'"),
    (["--recipe", str(ROOT / "recipes" / "default.toml")], "has no task tft"),
    (["--weights", "./none"], "no such directory")])
def test_mistakes_are_one_clear_line(tmp_path, monkeypatch, capsys, tiny_directory, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.tsv").write_text("the dog ran\tthe hound ran\n" * 3)
    (tmp_path / "bad.tsv").write_text("one column\n")
    (tmp_path / "bad.jsonl").write_text("{\n")
    try:
        status = pretrain_tft.main(["--weights", str(tiny_directory), *QUICK, *arguments])
    except SystemExit as stop:
        status = stop.code
    error = capsys.readouterr().err
    assert status == 2 and message in error and error.count("\n") == 1


@pytest.mark.slow
def test_with_no_data_it_learns_the_generated_corpus(tmp_path, monkeypatch):
    """A third of the default's pairs, in smaller steps. docs/transfer_fine_tuning.md has the whole run."""
    monkeypatch.chdir(tmp_path)
    short = ["--epochs", "2", "--steps_per_epoch", "60", "--batch_size", "16"]
    assert pretrain_tft.main(["--no_progress", *short]) == 0
    results = json.loads((tmp_path / "runs" / "generated" / "results.json").read_text())
    assert results["dev"]["tft"]["phrasal"]["value"] >= 0.9 and results["dev"]["tft"]["sentential"]["value"] >= 0.9
