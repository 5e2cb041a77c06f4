"""Files of one's own: every format, columns by name and by place, words for labels, a drawn dev set, and mistakes."""
import json

import pytest
from conftest import TINY, make_task

import train_multitask
from corpora.layouts import FileLayout, split_off
from training.recipe import parse_recipe

PAIRS = [("Can I pay later?", "Is it possible to pay later?", "yes"), ("Who are you?", "How tall is it?", "no"),
         ("a, b; c", 'the "c"', "yes")]
COLUMNS = {"sentence1": "first", "sentence2": "second", "is_duplicate": "same"}
WORDS = {"yes": 1, "no": 0}


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


CONTENT = {
    "tsv": "first\tsecond\tsame\n" + "".join("\t".join(row) + "\n" for row in PAIRS),
    "csv": "first,second,same\n" + "".join(",".join(map(quoted, row)) + "\n" for row in PAIRS),
    "jsonl": "".join(json.dumps(dict(zip(("first", "second", "same"), row, strict=True))) + "\n" for row in PAIRS),
}


def read(tokenizer, path, split, layout, kind="paraphrase", **options):
    return make_task(kind, "task", tokenizer, TINY, options).read_own(path, split, layout)


@pytest.mark.parametrize("kind", CONTENT)
def test_every_format_gives_the_same_examples(kind, tmp_path, tiny_tokenizer):
    (tmp_path / "f").write_text(CONTENT[kind])
    layout = FileLayout(kind, columns=COLUMNS, labels=WORDS)
    dataset = read(tiny_tokenizer, tmp_path / "f", "train", layout)
    assert [(*e.sentences, e.label) for e in dataset.examples] == [(a, b, WORDS[word]) for a, b, word in PAIRS]
    assert [e.label for e in read(tiny_tokenizer, tmp_path / "f", "test", layout).examples] == [None] * 3
    line = 1 if kind == "jsonl" else 2  # the line stands for an id that is missing
    assert [e.id for e in dataset.examples] == [str(number) for number in range(line, line + 3)]


def test_columns_by_place_other_separators_and_ids(tmp_path, tiny_tokenizer):
    (tmp_path / "f").write_text("k1;yes;x;a b;c\nk2;no;x;d;e\n")
    places = {"id": "1", "sentence1": "4", "sentence2": "5", "is_duplicate": "2"}
    for kind in ("csv", "tsv"):
        found = read(tiny_tokenizer, tmp_path / "f", "train", FileLayout(kind, ";", False, places, WORDS)).examples
        assert [(e.id, *e.sentences, e.label) for e in found] == [("k1", "a b", "c", 1), ("k2", "d", "e", 0)]
    (tmp_path / "bars").write_text("sentence || sentiment\ngood || 4\nbad || 0\n")
    found = read(tiny_tokenizer, tmp_path / "bars", "dev", FileLayout("tsv", "||"), "sentiment").examples
    assert [(e.sentences, e.label) for e in found] == [(("good",), 4), (("bad",), 0)]


def test_parallel_lines(tmp_path, tiny_tokenizer):
    for name, lines in (("s1", "a\nb\n"), ("s2", "c\nd\n"), ("gold", "2.5\n4\n")):
        (tmp_path / f"{name}.train").write_text(lines)
    layout = FileLayout("lines", columns={"sentence1": "s1", "sentence2": "s2", "similarity": "gold"})
    found = read(tiny_tokenizer, tmp_path / "s1.train", "train", layout, "similarity").examples
    assert [(e.sentences, e.label) for e in found] == [(("a", "c"), 2.5), (("b", "d"), 4.0)]
    assert read(tiny_tokenizer, tmp_path / "s2.train", "test", layout, "similarity").examples[1].sentences == ("b", "d")
    (tmp_path / "s2.train").write_text("c\n")
    with pytest.raises(ValueError, match="different numbers of lines: s1.train 2, s2.train 1, gold.train 2"):
        read(tiny_tokenizer, tmp_path / "s1.train", "train", layout, "similarity")
    with pytest.raises(ValueError, match="its name has none of the columns s1, s2, gold"):
        read(tiny_tokenizer, tmp_path / "x.train", "train", layout, "similarity")


def test_cmus_files_in_and_out(tmp_path, tiny_tokenizer):
    (tmp_path / "sst.txt").write_text("3 ||| A Fine film ||| or not\n\n0 ||| bad\n")
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {})
    found = task.read_own(tmp_path / "sst.txt", "dev", FileLayout("cmu")).examples
    assert [(e.sentences, e.label) for e in found] == [(("A Fine film ||| or not",), 3), (("bad",), 0)]
    task.cmu_predictions = True
    assert task.prediction_file("dev") == "sst-dev-output.txt"
    task.write_predictions(tmp_path / "out.txt", found, [2, 4])
    assert (tmp_path / "out.txt").read_text() == "2 ||| a fine film ||| or not\n4 ||| bad\n"
    with pytest.raises(ValueError, match="holds one sentence a line; this task has 2"):
        read(tiny_tokenizer, tmp_path / "sst.txt", "dev", FileLayout("cmu"))


def test_cmus_own_files_are_the_courses(shared_data, tiny_tokenizer):
    task = make_task("sentiment", "sst", tiny_tokenizer, TINY, {})
    theirs = task.read_own(shared_data / "cmu-minbert/sst-dev.txt", "dev", FileLayout("cmu")).examples
    ours = task.read(shared_data / "cs224n/ids-sst-dev.csv", "dev").examples
    assert [e.label for e in theirs] == [e.label for e in ours] and len(theirs) == 1101


@pytest.mark.parametrize(("content", "layout", "message"), [
    ("first,second,same\na,b,yes\n", FileLayout("tsv", columns=COLUMNS),
     "f:1: no column first, second, same; found first,second,same; the columns seem to be separated by commas, "
     "expected tabs"),
    ("first\tother\tsame\n", FileLayout("tsv", columns=COLUMNS),
     "f:1: no column second; found first, other, same (separated by tabs)"),
    ("a,b\n", FileLayout("csv", columns=COLUMNS),
     "f:1: no column first, second, same; found a, b (separated by commas)"),
    ("first;second;same\n1;2;maybe\n", FileLayout("csv", ";", columns=COLUMNS, labels=WORDS),
     "f:2: same is 'maybe'; expected one of yes, no"),
    ("first;second;same\n1;2;2\n", FileLayout("csv", ";", columns=COLUMNS), "f:2: same is '2'; expected one of 0, 1"),
    ("a\tb\tyes\n", FileLayout("tsv", header=False, columns=COLUMNS),
     "f: column 'first' is no place; a file without a header needs places from 1"),
    ("a\tb\n", FileLayout("tsv", header=False, columns={"sentence1": "1", "sentence2": "2", "is_duplicate": "3"}),
     "f:1: found 2 columns; expected 3"),
    ('{"first": 3}\n', FileLayout("jsonl", columns=COLUMNS), "f:1: no field second, same; found first"),
    ('{"first": 3, "second": "x", "same": "yes"}\n', FileLayout("jsonl", columns=COLUMNS),
     "f:1: first is 3; expected a string"),
    ("first\tsecond\tsame\n", FileLayout("tsv", columns=COLUMNS), "f: has no usable row"),
    ("", FileLayout("csv", columns=COLUMNS), "f: empty; expected a header"),
    ("id\tfirst\tsecond\tsame\nk\ta\tb\t1\nk\tc\td\t0\n", FileLayout("tsv", columns=COLUMNS),
     "f:3: id 'k' stands on line 2 already"),
])
def test_a_mistake_in_a_file_is_one_line(content, layout, message, tmp_path, tiny_tokenizer):
    (tmp_path / "f").write_text(content)
    with pytest.raises(ValueError) as caught:
        read(tiny_tokenizer, tmp_path / "f", "train", layout)
    assert str(caught.value).startswith(str(tmp_path)) and message in str(caught.value)


@pytest.mark.parametrize(("task", "message"), [
    ({"format": "xls"}, "format is 'xls'; known: tsv, csv, jsonl, lines, cmu"),
    ({"columns": {"sentence": "x"}}, "columns has no effect without a format"),
    ({"format": "csv", "columns": {"sentense": "x"}}, r"columns has 'sentense'; known: id, sentence, sentiment"),
    ({"format": "jsonl", "separator": ";"}, "separator has no effect with format 'jsonl'"),
    ({"format": "csv", "separator": "||"}, "a csv file has one character"),
    ({"format": "jsonl", "header": False}, "header has no effect with format 'jsonl'"),
    ({"format": "cmu", "columns": {"sentence": "x"}}, "columns have no effect with format 'cmu'"),
    ({"dev_share": 1.0}, "dev_share is 1.0"), ({"dev_share": 0.1, "dev": "d.csv"}, "expected one of them"),
    ({"labels": {"a": "b"}, "format": "csv"}, "labels is"),
])
def test_a_mistake_in_a_recipe_is_one_line(task, message):
    with pytest.raises(ValueError, match=message):
        parse_recipe({"stage": [{"tasks": ["sst"]}], "tasks": {"sst": task}}, "r.toml")
    with pytest.raises(ValueError, match="tasks of kind 'glue' have formats of their own"):
        parse_recipe({"stage": [{"tasks": ["rte"]}], "tasks": {"rte": {"format": "csv"}}}, "r.toml")


def test_words_stand_for_labels_of_the_task(tmp_path, tiny_tokenizer):
    (tmp_path / "f").write_text("sentence\tsentiment\nx\thigh\n")
    with pytest.raises(ValueError, match="labels: high is 5; expected a class from 0 to 4"):
        read(tiny_tokenizer, tmp_path / "f", "train", FileLayout("tsv", labels={"high": 5}), "sentiment")
    (tmp_path / "g").write_text("sentence1\tsentence2\tgold_label\na\tb\tneutral\nc\td\tentailment\n")
    found = read(tiny_tokenizer, tmp_path / "g", "train", FileLayout("tsv"), "inference").examples
    assert [e.label for e in found] == [1, 2]


def test_a_drawn_dev_set_keeps_equal_sentences_together(tiny_tokenizer, toy_directory):
    examples = make_task("sentiment", "sst", tiny_tokenizer, TINY, {}).read(
        toy_directory / "ids-sst-train.csv", "train").examples
    train, dev = split_off([*examples, *examples], 0.25, "seed")
    assert len(train) + len(dev) == 2 * len(examples)
    assert not {e.sentences for e in train} & {e.sentences for e in dev}
    assert abs(len(dev) / (2 * len(examples)) - 0.25) < 0.05
    assert split_off(examples, 0.25, "seed")[1] == split_off(examples, 0.25, "seed")[1]
    assert split_off(examples, 0.25, "seed")[1] != split_off(examples, 0.25, "other")[1]


def test_flags_train_on_a_file_of_ones_own_and_its_checkpoint_is_scored_on_the_same_dev_set(
        tmp_path, monkeypatch, capsys, tiny_directory):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.csv").write_text("text;mood\n" + "".join(
        f"the word{number % 7} is nice{number};{'good' if number % 2 else 'bad'}\n" for number in range(40)))
    flags = ["--tasks", "sst", "--sst_train", "own.csv", "--format", "csv", "--separator", ";", "--columns",
             "sentence=text", "sentiment=mood", "--labels", "good=1", "bad=0", "--dev_share", "0.25"]
    assert train_multitask.main([*flags, "--weights", str(tiny_directory), "--out", "run", "--epochs", "1",
                                 "--no_progress"]) == 0
    printed = capsys.readouterr().out
    assert "10 of them for dev" in printed and "30 of them for train" in printed and "GENERATED" not in printed
    assert train_multitask.main(["--option", "evaluate", "--checkpoint", "run", "--out", "again", "--no_progress"]) == 0
    first, second = (json.loads((tmp_path / run / "results.json").read_text())["dev"] for run in ("run", "again"))
    assert first == second


@pytest.mark.parametrize(("flags", "message"), [
    (["--format", "csv"], "are for the files of one task; name it (--tasks)"),
    (["--tasks", "sst", "--columns", "sentence=x"], "--columns has no effect without --format"),
    (["--tasks", "sst", "--no_header"], "--no_header has no effect without --format"),
    (["--tasks", "sst", "--format", "csv", "--columns", "sentence"], "--columns sentence: expected NAME=VALUE"),
    (["--tasks", "sst", "--format", "csv", "--labels", "yes=one"], "--labels yes=one: expected a number"),
    (["--tasks", "sst", "--dev_share", "0.1", "--sst_dev", "x"], "--dev_share and --sst_dev: expected one of them"),
])
def test_a_mistake_in_the_flags_is_one_line(flags, message, capsys):
    assert train_multitask.main(flags) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
