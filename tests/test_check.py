"""corpora.check: the quirks of real and of made files, leaks between files, and files that end early."""
import json
import subprocess
import sys

import pytest
from conftest import ROOT

from corpora.check import check_file, files_of, main, normalised, overlaps

HEADER = "\tid\tsentence1\tsentence2\tis_duplicate\n"


def write(path, text, **options):
    path.write_text(text, encoding="utf-8", **options)
    return path


def by_name(capsys, directory, *flags):
    assert main([str(directory), "--json", *flags]) == 0
    result = json.loads(capsys.readouterr().out)
    return {file["path"].rsplit("/", 1)[-1]: file for file in result["files"]}, {
        (leak["first"], leak["second"]): leak["shared"] for leak in result["overlaps"]}


def test_the_known_quirks_of_the_course_files_are_found(capsys, shared_data):
    """The counts are those of shared/data/README.md."""
    files, leaks = by_name(capsys, shared_data / "cs224n")
    train, dev = files["quora-train.csv"], files["quora-dev.csv"]
    assert (train["examples"], train["labels"]) == (14_137, {"0": 8838, "1": 5299})
    assert (dev["examples"], dev["labels"]) == (20_212, {"0": 12_627, "1": 7585})
    assert train["blank"]["count"] == dev["blank"]["count"] == 2 and dev["repeated"] == 6
    sts = files["sts-train.csv"]
    assert (sts["examples"], sts["repeated"], sts["contradictory"]) == (6040, 45, 15)
    sst = files["ids-sst-train.csv"]
    assert sst["labels"] == {"0": 1092, "1": 2218, "2": 1624, "3": 2322, "4": 1288} and sst["repeated"] == 11
    assert files["ids-sst-dev.csv"]["labels"] == {"0": 139, "1": 289, "2": 229, "3": 279, "4": 165}
    assert not files["ids-sst-test-student.csv"]["labels"] and files["ids-sst-test-student.csv"]["examples"] == 2210
    assert leaks == {("quora-dev.csv", "quora-train.csv"): 7, ("sts-dev.csv", "sts-train.csv"): 17,
                     ("sts-test-student.csv", "sts-train.csv"): 20, ("sts-dev.csv", "sts-test-student.csv"): 2,
                     ("ids-sst-dev.csv", "ids-sst-train.csv"): 2, ("ids-sst-test-student.csv", "ids-sst-train.csv"): 2}


def test_other_corpora_are_read_too(capsys, shared_data):
    files, _ = by_name(capsys, shared_data / "glue" / "MRPC")
    assert files["train.tsv"]["labels"] == {"0": 1194, "1": 2474}
    assert files["train.tsv"]["encoding"] == "UTF-8 with a byte order mark"
    files, _ = by_name(capsys, shared_data / "cmu-minbert")
    assert files["sst-train.txt"]["labels"] == {"0": 1092, "1": 2218, "2": 1624, "3": 2322, "4": 1288}
    files, _ = by_name(capsys, shared_data / "nli" / "mnli")
    assert files["dev.jsonl"]["examples"] == 9815


def test_every_count_on_a_small_file(tmp_path):
    path = write(tmp_path / "a.csv", HEADER + (
        "0\ta\tA dog!\tA cat.\t1.0\n"
        "1\tb\ta CAT\ta dog\t0.0\n"      # the same pair the other way round, with another label
        "2\tc\tx y z\tw\t0\n"
        "3\td\tx y z\tw\t0.0\n"          # repeated, with the same label in other digits
        "4\te\t\tw\t0\n"                 # no sentence
        "5\tf\tonly\tthis\t\n"))         # no label
    check = check_file(path)
    assert (check.examples, check.repeated, check.contradictory, check.blank) == (4, 2, 1, [6, 7])
    assert check.labels == {"0": 3, "1": 1} and check.kind == "sentence1, sentence2" and not check.problem
    assert check.lengths == {"1-8": 4} and check.longest == 3 and check.cut is None


def test_lengths_and_what_is_cut(tmp_path):
    rows = "".join(f"{n}\t{n}\t{'w ' * n}\tx{n}\t0\n" for n in (1, 8, 9, 14, 15, 40))
    check = check_file(write(tmp_path / "a.csv", HEADER + rows), lambda texts: [len(t.split()) for t in texts], 16)
    assert check.lengths == {"1-8": 2, "9-16": 3, "33-64": 1} and check.longest == 40 and check.unit == "tokens"
    assert check.cut == pytest.approx(2 / 6)  # with two special tokens, 15 and 40 are above 16


def test_pairs_are_compared_whatever_case_order_and_punctuation():
    assert normalised(["A dog!", "a CAT"]) == normalised(["a cat", "A, dog"])
    assert normalised(["a dog"]) != normalised(["a dogs"])
    assert normalised(["what does ∆ mean"]) == normalised(["What does mean?"])
    assert normalised(["他是谁"]) != normalised(["你是谁"])  # a sentence of other letters keeps them
    assert normalised(["ab", "c"]) != normalised(["a", "bc"])


def test_leaks_between_files(tmp_path):
    first = write(tmp_path / "train.csv", HEADER + "0\ta\tone\ttwo\t1\n1\tb\tthree\tfour\t0\n")
    second = write(tmp_path / "dev.csv", HEADER + "0\tc\tTwo!\tone\t1\n")
    (leak,) = overlaps([check_file(first), check_file(second)])
    assert (leak.shared, leak.of_first, leak.of_second) == (1, 0.5, 1.0)
    third = write(tmp_path / "other.csv", HEADER + "0\ta\tnine\tten\t1\n")
    assert not overlaps([check_file(first), check_file(third)])


@pytest.mark.parametrize(("content", "problem"), [
    (HEADER.encode() + b"0\ta\tx\ty\t1\n1\tb\tx\xff\ty\t1\n", "a.csv:3: found the byte 0xff"),
    (b"", ""), (b"\n\n", ""), (b"no header here\n1\t2\n", "")])
def test_a_file_that_ends_early_says_where(tmp_path, capsys, content, problem):
    (tmp_path / "a.csv").write_bytes(content)
    status = main([str(tmp_path)])
    out = capsys.readouterr().out
    assert status == int(bool(problem)) and (problem in out if problem else "left out" in out)
    if problem:
        assert "1 example" in out and "not UTF-8" in out


def test_hostile_lines_do_not_end_the_check(tmp_path, capsys):
    write(tmp_path / "b.jsonl", '{"sentence1": "a", "sentence2": "b", "label": 1}\n[1]\n')
    write(tmp_path / "c.jsonl", "[" * 100_000)
    write(tmp_path / "d.csv", 'sentence1,sentence2,label\n"a,b\n')
    write(tmp_path / "e.csv", HEADER + "0\ta\t\x1b[31mred\tx\tweird\x1b[31m\n")
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "b.jsonl:2" in out and "c.jsonl:1" in out and "d.csv" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("make", [lambda path: path / "missing", lambda path: path])
def test_a_folder_without_data_is_one_error(tmp_path, capsys, make):
    assert main([str(make(tmp_path))]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(ValueError):
        files_of(make(tmp_path))


def test_the_command_line_counts_pieces_of_a_model(tmp_path, tiny_directory):
    write(tmp_path / "a.csv", HEADER + "0\ta\tzzzz\ty\t1\n")
    command = [sys.executable, "-m", "corpora.check", str(tmp_path), "--weights", str(tiny_directory)]
    command += ["--max_length", "5"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert "tokens: 1-8: 1; at most 4; 100.0 % are cut" in done.stdout
