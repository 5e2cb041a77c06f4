"""Paraphrase corpora in the layouts that they are distributed in, each with its mistakes."""
import json

import pytest

import pretrain_tft
from corpora.pairs import LAYOUTS, main, write_pairs

FILES = {
    "para-nmt": [("p.txt", "so, what 's half an hour ?\thalf an hour won't kill you .\t0.885\na\ta\t1\n\tb\t0.5\n")],
    "twitter-url": [("t.txt", "A dog ran\tThe dog  was running\t(5, 6)\thttp://x\na\tb\t(2, 6)\thttp://y\n")],
    "simple-wikipedia": [("normal", "Dog\t1\tA dog is a domestic animal .\nCat\t0\tA b .\n"),
                         ("simple", "Dog\t0\tDogs live with people .\nCat\t0\tA b .\n")],
    "references": [("r1", "one\nfour\n"), ("r2", "two\n\n"), ("r3", "three\nfour\n")],
}
EXPECTED = {
    "para-nmt": ("so, what 's half an hour ?\thalf an hour won't kill you .\n",
                 "1 pairs; left out: 1 of equal sentences, 1 without a sentence"),
    "twitter-url": ("A dog ran\tThe dog was running\n", "1 pairs; left out: 1 with fewer than 4 votes"),
    "simple-wikipedia": ("A dog is a domestic animal .\tDogs live with people .\n",
                         "1 pairs; left out: 1 of equal sentences"),
    "references": ("one\ttwo\none\tthree\ntwo\tthree\n",
                   "3 pairs; left out: 2 without a sentence, 1 of equal sentences"),
}


def files_of(layout, folder):
    for name, content in FILES[layout]:
        (folder / name).write_text(content)
    return [folder / name for name, _ in FILES[layout]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_becomes_two_sentences_a_line(layout, tmp_path, capsys):
    out = tmp_path / "pairs.tsv"
    assert main([layout, *map(str, files_of(layout, tmp_path)), "--out", str(out)]) == 0
    content, report = EXPECTED[layout]
    assert out.read_text() == content and capsys.readouterr().out == f"{out}: {report}\n"
    assert main([layout, *map(str, files_of(layout, tmp_path)), "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(("layout", "contents", "message"), [
    ("para-nmt", ["a\tb\n"], "f0:1: found 2 columns separated by tabs; expected 3: a sentence, its paraphrase, a"),
    ("para-nmt", ["a\tb\tgood\n"], "f0:1: the score is 'good'; expected a number"),
    ("twitter-url", ["a\tb\t(4, 6)\n"], "f0:1: found 3 columns separated by tabs; expected 4"),
    ("twitter-url", ["a\tb\tfour\tu\n"], "f0:1: the votes are 'four'; expected some of all, as in (4, 6)"),
    ("twitter-url", ["a\tb\t(7, 6)\tu\n"], "the votes are '(7, 6)'"),
    ("twitter-url", ["a\tb\t(1, 6)\tu\n"], "f0: has no usable pair"),
    ("simple-wikipedia", ["x\t0\ta\n"], "found 1 file ("),
    ("simple-wikipedia", ["x\t0\ta\n", "a\n"], "f1:1: found 1 columns separated by tabs; expected 3"),
    ("simple-wikipedia", ["x\t0\ta\nx\t0\tb\n", "x\t0\tc\n"], "f1: has 1 lines; expected as many as the others have"),
    ("references", ["a\n"], "expected 2 or more with parallel lines"),
    ("references", ["", ""], "f0: has no usable pair"),
])
def test_a_mistake_is_one_line(layout, contents, message, tmp_path):
    files = []
    for number, content in enumerate(contents):
        files.append(tmp_path / f"f{number}")
        files[-1].write_text(content)
    with pytest.raises(ValueError) as caught:
        write_pairs(layout, files, tmp_path / "out.tsv")
    assert message in str(caught.value) and "\n" not in str(caught.value) and not (tmp_path / "out.tsv").exists()


def test_pretrain_tft_reads_a_distributed_corpus(tmp_path, tiny_directory, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, words in (("r1", "the dog ran in the park with {}"), ("r2", "a hound was running in the park near {}")):
        (tmp_path / name).write_text("".join(words.format(f"friend {n}") + "\n" for n in range(40)))
    flags = ["--layout", "references", "--corpus", "r1", "r2", "--weights", str(tiny_directory), "--out", "run",
             "--epochs", "1", "--steps_per_epoch", "1", "--batch_size", "4", "--no_progress"]
    assert pretrain_tft.main(flags) == 0
    assert "pairs.tsv: 40 pairs" in capsys.readouterr().out
    assert json.loads((tmp_path / "run/results.json").read_text())["examples_seen"] == {"tft": 4}
    for changed, message in ((["--corpus", "r1", "r2"], "found 2 files; expected one, or --layout"),
                             (["--layout", "references"], "--layout has no effect without --corpus")):
        assert pretrain_tft.main([*changed, "--out", "other"]) == 2
        assert message in capsys.readouterr().err
