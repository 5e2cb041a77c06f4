"""Hard negatives: near pairs that no chain of duplicates joins, against a search of all pairs."""
import itertools

import numpy as np
import pytest

import train_multitask
from minbert.weights import load_encoder
from tasks.encoding import embed
from training import mining


def closure(questions, pairs):
    """Groups by repeated passes over the pairs."""
    group = {question: index for index, question in enumerate(questions)}
    for _ in questions:
        for first, second, label in pairs:
            if label:
                group[first] = group[second] = min(group[first], group[second])
    return [group[question] for question in questions]


@pytest.mark.parametrize("seed", range(5))
def test_chains_are_the_transitive_closure_of_duplicates(seed):
    random = np.random.default_rng(seed)
    questions = [f"q{index}" for index in range(30)]
    pairs = [(*random.choice(questions, 2, replace=False), int(random.integers(2))) for _ in range(30)]
    ours, direct = mining.chains(questions, pairs), closure(questions, pairs)
    for i, j in itertools.combinations(range(30), 2):
        assert (ours[i] == ours[j]) == (direct[i] == direct[j])


@pytest.mark.parametrize("block", [4, 1024])
def test_neighbours_are_those_of_a_search_of_all_pairs(monkeypatch, block):
    monkeypatch.setattr(mining, "BLOCK", block)
    random = np.random.default_rng(0)
    vectors = random.normal(size=(40, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    groups = random.integers(25, size=40)
    expected = set()
    for i in range(40):
        possible = [(float(vectors[i] @ vectors[j]), j) for j in range(40)
                    if groups[i] != groups[j] and 0.3 <= vectors[i] @ vectors[j] < 0.9]
        expected |= {(min(i, j), max(i, j)) for _, j in sorted(possible, reverse=True)[:2]}
    pairs = list(mining.nearest(vectors, groups, 0.3, 0.9, 2))
    assert set(pairs) == expected and len(pairs) == len(expected) > 20


@pytest.fixture
def place(tmp_path, monkeypatch, tiny_directory, toy_directory):
    monkeypatch.chdir(tmp_path)
    return [str(toy_directory / "quora-train.csv"), "--weights", str(tiny_directory), "--low", "-1", "--high", "0.999",
            "--each", "2", "--out", "mined.csv"]


def test_the_command_writes_a_file_that_a_recipe_reads(place, tmp_path, capsys, tiny_directory, toy_directory):
    assert mining.main(place) == 0
    known = mining.read_labelled(toy_directory / "quora-train.csv")
    mined = mining.read_labelled(tmp_path / "mined.csv")
    questions = list(dict.fromkeys(question for first, second, _ in known for question in (first, second)))
    group = dict(zip(questions, closure(questions, known), strict=True))
    encoder, tokenizer, _ = load_encoder(tiny_directory)
    vector = dict(zip(questions, embed(encoder, tokenizer, questions, normalize=True), strict=True))
    assert len(mined) > 20 and f"{len(mined):,} negatives" in capsys.readouterr().out
    for first, second, label in mined:
        assert label == 0 and group[first] != group[second] and vector[first] @ vector[second] < 0.9991
        assert not {(first, second), (second, first)} & {pair[:2] for pair in known}
    (tmp_path / "r.toml").write_text(f'[tasks.para]\ntrain = ["quora-train.csv", "{tmp_path / "mined.csv"}"]\n'
                                     '[[stage]]\ntasks = ["para"]\nepochs = 1\nsteps_per_epoch = 1\n')
    assert train_multitask.main(["--recipe", "r.toml", "--weights", str(tiny_directory), "--data", str(toy_directory),
                                 "--out", "judge", "--no_progress"]) == 0


def test_a_judge_keeps_what_it_holds_for_no_duplicate(place, tmp_path, capsys, tiny_directory, toy_directory):
    assert mining.main(place) == 0
    everything = [pair[:2] for pair in mining.read_labelled(tmp_path / "mined.csv")]
    assert train_multitask.main(["--tasks", "para", "--weights", str(tiny_directory), "--data", str(toy_directory),
                                 "--epochs", "1", "--steps_per_epoch", "3", "--out", "judge", "--no_progress"]) == 0
    probabilities = mining.judged(tmp_path / "judge", "para", everything)
    middle = float(np.median(probabilities))
    place[-1] = "judged.csv"
    assert mining.main([*place, "--judge", "judge", "--below", str(middle)]) == 0
    kept = [pair[:2] for pair in mining.read_labelled(tmp_path / "judged.csv")]
    assert kept == [pair for pair, value in zip(everything, probabilities, strict=True) if value < middle]
    assert 0 < len(kept) < len(everything)
    place[-1] = "other.csv"
    capsys.readouterr()
    assert mining.main([*place, "--judge", "judge", "--task", "sst"]) == 2
    assert "has no task 'sst' with two classes; its tasks: para" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['"quoted"', '"', '""', 'a "b" c', '"a" or "b"', "plain"])
def test_a_field_is_read_as_it_was(tmp_path, text):
    (tmp_path / "x.csv").write_text(mining.HEADER + "\n" + mining.line("m", text, "y", 0) + "\n")
    assert mining.read_labelled(tmp_path / "x.csv") == [(text, "y", 0)]


@pytest.mark.parametrize(("flags", "message"), [
    (["--low", "0.9", "--high", "0.5"], "expected -1 <= low < high <= 1"),
    (["--below", "0.3"], "expected --judge RUN"), (["--task", "para"], "expected --judge RUN"),
    (["--low", "0.99999", "--high", "1"], "nothing was mined"), (["--judge", "nowhere"], "nowhere"),
    (["--weights", "/nowhere"], "no such directory")])
def test_what_makes_no_sense_is_one_line(place, capsys, tmp_path, flags, message):
    assert mining.main([*place, *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error and not (tmp_path / "mined.csv").exists()


def test_no_file_is_overwritten_and_a_wrong_one_is_one_line(place, capsys, tmp_path):
    (tmp_path / "mined.csv").write_text("mine")
    assert mining.main(place) == 2 and (tmp_path / "mined.csv").read_text() == "mine"
    (tmp_path / "x.csv").write_text("\tid\tsentence1\tsentence2\tis_duplicate\n0\ta\tx\ty\t7\n")
    assert mining.main([str(tmp_path / "x.csv"), *place[1:-1], "new.csv"]) == 2
    error = capsys.readouterr().err
    assert "mined.csv: exists" in error and "x.csv:2" in error and "'7'" in error
