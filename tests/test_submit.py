"""course.submit: one bad file a rule, the real starter's form, plausibility, zips and part one."""
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import train_multitask
from corpora import toy
from course import submit
from course.submit import CS224N, main

HEADERS = {"sst": "id \t Predicted_Sentiment ", "para": "id \t Predicted_Is_Paraphrase ",
           "sts": "id \t Predicted_Similiary "}
STEMS = {"sst": "ids-sst", "para": "quora", "sts": "sts"}
LABELS = {"sst": "sentiment", "para": "is_duplicate", "sts": "similarity"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    toy.write_course_files(folder, train=60, dev=40, test=20)
    return folder


@pytest.fixture
def good(tmp_path, data):
    """Right predictions for every file, in the starter's own form: shuffled, with its headers and spaces."""
    folder = tmp_path / "predictions"
    folder.mkdir()
    for task in HEADERS:
        for split in ("dev", "test"):
            gold = submit.read_gold(data / CS224N[task].data.format(split="test-student" if split == "test" else split),
                                    LABELS[task])
            rng = random.Random(0)
            rows = []
            for number, identifier in enumerate(gold.ids):
                label = gold.labels.get(identifier, number % 2)
                rows.append(f"{identifier} , {int(label) if task == 'sst' else float(label)} ")
            rng.shuffle(rows)
            (folder / f"{task}-{split}-output.csv").write_text("\n".join([HEADERS[task], *rows]) + "\n")
    return folder


def lines_of(path):
    return path.read_text().rstrip("\n").split("\n")


def check(folder, data, capsys, *flags):
    status = main([str(folder), "--data", str(data), *map(str, flags)])
    return status, capsys.readouterr().out


def test_right_files_in_any_order_are_valid(good, data, capsys):
    status, out = check(good, data, capsys)
    assert status == 0 and "0 errors, 0 warnings" in out
    assert check(good.parent, data, capsys)[0] == 0  # the folder above predictions/ does as well


# (file, change of its lines, what is said). None: the file is deleted.
RULES = [
    ("sst-dev-output.csv", None, "sst-dev-output.csv: is missing"),
    ("sst-dev-output.csv", lambda lines: [], "is empty"),
    ("sst-dev-output.csv", lambda lines: ["id,sentiment", *lines[1:]], "csv:1: the header is id,sentiment$; the course "
                                                                       "writes id ^I Predicted_Sentiment $"),
    ("sts-dev-output.csv", lambda lines: ["id \t Predicted_Similarity ", *lines[1:]], "Predicted_Similiary"),
    ("sst-dev-output.csv", lambda lines: lines[:5], "36 of 40 ids of the dev data are missing"),
    ("sst-dev-output.csv", lambda lines: [*lines, "ffff , 1 "], "1 ids are not in the dev data (ffff)"),
    ("sst-dev-output.csv", lambda lines: [*lines, lines[3]], "csv:42: the id"),
    ("para-dev-output.csv", lambda lines: [lines[0], "nonsense", *lines[1:]], "csv:2: found nonsense$; expected <id>"),
    ("para-dev-output.csv", lambda lines: [lines[0], " , 1.0 ", *lines[1:]], "expected <id> , <value>"),
    ("sst-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", 5 "], "prediction is 5; expected a "
                                                                                          "class from 0 to 4"),
    ("sst-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", -1 "], "prediction is -1"),
    ("sst-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", 2.5 "],
     "2.5 (a probability or a logit, it seems); expected a class"),
    ("para-dev-output.csv", lambda lines: [lines[0], *(line.split(",")[0] + f", 0.{n}7 " for n, line in
                                                       enumerate(lines[1:]))], "37 more rows like that"),
    ("sts-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", nan "], "expected a finite number"),
    ("sts-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", inf "], "expected a finite number"),
    ("sts-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", 1e999 "], "expected a finite"),
    ("sst-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", good "], "prediction is 'good'"),
    ("sst-dev-output.csv", lambda lines: lines[1:], "csv:1: the header is ids-sst-dev-00000 , 2 $; the course writes"),
    ("sst-dev-output.csv", lambda lines: [lines[0], *lines], "csv:2: prediction is 'Predicted_Sentiment'"),
    ("sst-dev-output.csv", lambda lines: [line.replace(",", ";") for line in lines], "csv:2: found ids-sst-dev-0000"),
    ("sst-dev-output.csv", lambda lines: [*lines[:3], "", *lines[3:]], "csv:4: found $; expected <id> , <value>"),
    ("sst-dev-output.csv", lambda lines: [*lines[:4], "<<<<<<< HEAD", *lines[4:]], "csv:5: found <<<<<<< HEAD$"),
    ("sst-dev-output.csv", lambda lines: ["<!DOCTYPE html>", "<html>"], "csv:1: the header is <!DOCTYPE html>$"),
    ("sst-dev-output.csv", lambda lines: [line.split(",")[0] for line in lines], "csv:2: found ids-sst-dev-00000 $"),
    ("sst-dev-output.csv", lambda lines: [lines[0], *(f"{n} , {line}" for n, line in enumerate(lines[1:]))],
     "40 ids are not in the dev data (0 , ids-sst-dev-00000, "),
    ("sst-dev-output.csv", lambda lines: [lines[0], *(f'"{line.split(" ,")[0]}" ,{line.split(",")[1]}'
                                                      for line in lines[1:])], "40 ids are not in the dev data"),
    ("sst-dev-output.csv", lambda lines: [lines[0], *(" , ".join(line.strip().split(" , ")[::-1])
                                                      for line in lines[1:])], "csv:2: prediction is 'ids-sst-"),
    ("sst-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ",  "], "csv:41: found ids-sst-dev-"),
    ("sst-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", tensor(1) "],
     "csv:41: prediction is 'tensor(1)'; expected a finite number"),
    ("para-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", True "],
     "csv:41: prediction is 'True'; expected a finite number"),
    ("para-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", 2 "],
     "csv:41: prediction is 2; expected a class from 0 to 1"),
    ("sts-dev-output.csv", lambda lines: [*lines[:-1], lines[-1].split(",")[0] + ", 2,5 "],
     "1 ids are not in the dev data (sts-dev-00024 , 2)"),
]


@pytest.mark.parametrize(("file", "change", "message"), RULES, ids=range(len(RULES)))
def test_each_rule_names_file_and_line(good, data, capsys, file, change, message):
    path = good / file
    if change is None:
        path.unlink()
    else:
        path.write_text("\n".join(change(lines_of(path))) + "\n")
    status, out = check(good, data, capsys)
    assert status == 1 and message in out and file in out
    assert all(line.count("\n") == 0 for line in out.splitlines())


def test_exchanged_splits_are_recognised(good, data, capsys):
    dev, test = good / "sst-dev-output.csv", good / "sst-test-output.csv"
    text = dev.read_text()
    dev.write_text(test.read_text())
    test.write_text(text)
    status, out = check(good, data, capsys)
    assert status == 1 and "they are ids of the dev file" in out and "they are ids of the test file" in out


@pytest.mark.parametrize(("file", "value", "message"), [
    ("para-dev-output.csv", lambda n: "1.0", "every prediction is 1"),
    ("para-dev-output.csv", lambda n: "0.0" if n == 0 else "1.0", "% predicted 1, train has"),
    ("sts-dev-output.csv", lambda n: "2.5", "every score is 2.5: the Pearson correlation is undefined"),
    ("sts-dev-output.csv", lambda n: str(n * 10), "outside 0 to 5: harmless for Pearson")])
def test_implausible_predictions_are_warned_of(good, data, capsys, file, value, message):
    lines = lines_of(good / file)
    rows = [f"{line.split(' ,')[0]} , {value(n)} " for n, line in enumerate(lines[1:])]
    (good / file).write_text("\n".join([lines[0], *rows]) + "\n")
    status, out = check(good, data, capsys)
    assert status == 0 and f"warning: {file}: " in out and message in out


def test_scores_below_majority_and_negative_correlations_are_warned_of(good, data, capsys):
    lines = lines_of(good / "sst-dev-output.csv")
    rows = [f"{line.split(' ,')[0]} , {(int(line.split(',')[1]) + 1) % 5} " for line in lines[1:]]
    (good / "sst-dev-output.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    lines = lines_of(good / "sts-dev-output.csv")
    rows = [f"{line.split(' ,')[0]} , {5 - float(line.split(',')[1])} " for line in lines[1:]]
    (good / "sts-dev-output.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    status, out = check(good, data, capsys)
    assert status == 0 and "0.0 % of dev right; the majority class alone has" in out
    assert "paired after a shuffle?" in out and "-1.000, negative: a distance instead of a similarity?" in out


def test_commas_and_tabs_are_both_read(good, data, capsys):
    path = good / "sst-dev-output.csv"
    lines = lines_of(path)
    path.write_text("\n".join([lines[0], *(line.replace(" , ", "\t") for line in lines[1:])]) + "\n")
    status, out = check(good, data, capsys)
    assert status == 0 and "in 40 rows a tab divides id and value" in out


def test_the_two_quora_rows_without_a_label_may_be_absent(shared_data, tmp_path, capsys):
    gold = submit.read_gold(shared_data / "cs224n" / "quora-dev.csv", "is_duplicate")
    assert len(gold.ids) == 20_214 and len(gold.unlabelled) == 2
    rows = [f"{identifier} , {float(label)} " for identifier, label in gold.labels.items()]
    (tmp_path / "para-dev-output.csv").write_text("\n".join([HEADERS["para"], *rows]) + "\n")
    _, out = check(tmp_path, shared_data / "cs224n", capsys)
    assert "error: para-dev" not in out and "warning: para-dev" not in out


def test_our_own_runs_files_are_valid(tmp_path, monkeypatch, tiny_directory, data, capsys):
    monkeypatch.chdir(tmp_path)
    assert train_multitask.main(["--weights", str(tiny_directory), "--data", str(data), "--epochs", "1", "--out", "run",
                                 "--no_progress"]) == 0
    capsys.readouterr()
    status, out = check("run", data, capsys, "--zip", "--code", ROOT)
    assert status == 0 and "0 errors" in out
    with zipfile.ZipFile("cs224n_default_final_project_submission.zip") as archive:
        names = archive.namelist()
    assert {"train_multitask.py", "predictions/sst-dev-output.csv", "predictions/sts-test-output.csv"} <= set(names)
    first = Path("cs224n_default_final_project_submission.zip").read_bytes()
    assert check("run", data, capsys, "--zip", "--code", ROOT)[0] == 0
    assert Path("cs224n_default_final_project_submission.zip").read_bytes() == first


@pytest.mark.parametrize(("year", "modes"), [(2023, ("pretrain", "finetune")),
                                             (2024, ("last-linear-layer", "full-model"))])
def test_part_one_is_written_from_two_runs(tmp_path, monkeypatch, tiny_directory, data, capsys, year, modes):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text('[[stage]]\ntasks = ["sst", "cfimdb"]\nepochs = 1\nsteps_per_epoch = 2\n')
    for option in ("pretrain", "finetune"):
        assert train_multitask.main(["--recipe", "r.toml", "--option", option, "--weights", str(tiny_directory),
                                     "--data", str(data), "--out", option, "--no_progress"]) == 0
    status, out = check("part1", data, capsys, "--pretrain", "pretrain", "--finetune", "finetune", "--year", year)
    assert status == 0, out
    assert sorted(path.name for path in Path("part1").iterdir()) == sorted(
        f"{mode}-{task}-{split}-out.csv" for mode in modes for task in ("sst", "cfimdb") for split in ("dev", "test"))
    assert check("part1", data, capsys, "--part", 1, "--year", year)[0] == 0


def test_goettingens_names_work_from_training_to_the_check(tmp_path, monkeypatch, tiny_directory, data, capsys):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "data"
    own.mkdir()
    flags = []
    for task, stem in submit.GOETTINGEN.items():
        for split in ("train", "dev", "test"):
            name = "test-student" if split == "test" else split
            (own / f"{stem}-{name}.csv").write_bytes((data / f"{STEMS[task]}-{name}.csv").read_bytes())
            flags += [f"--{task}_{split}", str(own / f"{stem}-{name}.csv")]
        for split in ("dev", "test"):
            flags += [f"--{task}_{split}_out", f"predictions/bert/{stem}-{split}-output.csv"]
    assert train_multitask.main(["--weights", str(tiny_directory), "--epochs", "1", "--out", "run", "--no_progress",
                                 *flags]) == 0
    capsys.readouterr()
    status, out = check(".", own, capsys, "--course", "goettingen")
    assert status == 0 and "0 errors" in out, out
    assert check(".", own, capsys, "--course", "goettingen", "--zip")[0] == 2
    Path("predictions/bert/sts-similarity-dev-output.csv").unlink()
    status, out = check(".", own, capsys, "--course", "goettingen")
    assert status == 1 and "sts-similarity-dev-output.csv: is missing" in out


# ---- CMU and GLUE ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cmu(tmp_path):
    data, folder = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    folder.mkdir()
    rng = np.random.default_rng(0)
    for task, classes in (("sst", 5), ("cfimdb", 2)):
        for split in ("dev", "test"):
            rows = [(int(rng.integers(classes)), f"Sentence {n} of {task}") for n in range(12)]
            (data / f"{task}-{split}.txt").write_text("".join(f"{label} ||| {text}\n" for label, text in rows))
            (folder / f"{task}-{split}-output.txt").write_text(
                "".join(f"{label} ||| {text.lower()}\n" for label, text in rows))
    return folder, data


def run_cmu(cmu, capsys, *flags):
    status = main([str(cmu[0]), "--course", "cmu", "--data", str(cmu[1]), *map(str, flags)])
    return status, capsys.readouterr().out


def test_both_of_cmus_forms_are_read(cmu, capsys):
    assert run_cmu(cmu, capsys)[0] == 0
    path = cmu[0] / "sst-dev-output.txt"
    rows = [line.split(" ||| ") for line in lines_of(path)]
    path.write_text("".join(f"{text} ||| {(int(label) + 1) % 5} ||| {label}\n" for label, text in rows))
    status, out = run_cmu(cmu, capsys)
    assert status == 0 and "its gold column differs from the data's; it is ignored" in out


@pytest.mark.parametrize(("change", "message"), [
    (lambda lines: lines[:-1], "has 11 rows; the data have 12"), (lambda lines: [lines[1], lines[0], *lines[2:]],
                                                                  "txt:1: the sentence is not that of row 1"),
    (lambda lines: ["7 ||| x", *lines[1:]], "txt:1: prediction is '7'; expected a class from 0 to 4"),
    (lambda lines: ["no bars", *lines[1:]], "txt:1: found no bars$; expected <prediction> ||| <sentence>")])
def test_cmus_rules(cmu, capsys, change, message):
    path = cmu[0] / "sst-test-output.txt"
    path.write_text("\n".join(change(lines_of(path))) + "\n")
    status, out = run_cmu(cmu, capsys)
    assert status == 1 and message in out


def test_cmus_zip_has_one_folder(cmu, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([str(cmu[0]), "--course", "cmu", "--zip"]) == 2  # no Andrew id
    assert run_cmu(cmu, capsys, "--zip", "--andrew_id", "me", "--code", tmp_path)[0] == 2  # no code
    for name in submit.CMU_CODE:
        (tmp_path / name).write_text("")
    assert run_cmu(cmu, capsys, "--zip", "--andrew_id", "me", "--code", tmp_path)[0] == 0
    with zipfile.ZipFile("me.zip") as archive:
        assert all(name.startswith("me/") for name in archive.namelist()) and len(archive.namelist()) == 7


def glue_file(folder, name, values):
    (folder / name).write_text("index\tprediction\n" + "".join(f"{n}\t{value}\n" for n, value in enumerate(values)))


def test_glues_zip_holds_all_eleven(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "glue"
    folder.mkdir()
    glue_file(folder, "RTE.tsv", ["entailment", "not_entailment"] * 1500)
    glue_file(folder, "STS-B.tsv", [2.5] * 1379)
    assert main([str(folder), "--course", "glue", "--zip"]) == 0
    assert "MRPC.tsv: is missing; --zip fills it in" in capsys.readouterr().out
    with zipfile.ZipFile("glue_submission.zip") as archive:
        assert sorted(archive.namelist()) == sorted(submit.GLUE)
        for name, (rows, _) in submit.GLUE.items():
            assert archive.read(name).decode().count("\n") == rows + 1


@pytest.mark.parametrize(("values", "message"), [
    (["entailment"] * 2999, "has 2,999 rows; expected 3,000"), (["1"] * 3000, "the server wants words"),
    (["contradiction"] * 3000, "expected entailment or not_entailment")])
def test_glues_rules(tmp_path, capsys, values, message):
    glue_file(tmp_path, "RTE.tsv", values)
    assert main([str(tmp_path), "--course", "glue"]) == 1
    assert message in capsys.readouterr().out


def test_glues_order_and_header_matter(tmp_path, capsys):
    (tmp_path / "WNLI.tsv").write_text("IDs\tlabels\n" + "".join(f"{n}\t0\n" for n in range(145, -1, -1)))
    assert main([str(tmp_path), "--course", "glue"]) == 1
    out = capsys.readouterr().out
    assert "the header is IDs^Ilabels$" in out and "WNLI.tsv:2: the index is '145'; expected 0" in out


@pytest.mark.parametrize(("arguments", "message"), [
    (["nowhere"], "nowhere: no such folder"), ([".", "--data", "nowhere"], "nowhere: no such folder"),
    ([".", "--pretrain", "x"], "expected both"), (["out", "--pretrain", "x", "--finetune", "y"], "no such file")])
def test_usage_errors_are_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_hostile_bytes_are_one_error(tmp_path, capsys):
    (tmp_path / "sst-dev-output.csv").write_bytes(b"id \t Predicted_Sentiment \nab\xff , 1 \n")
    assert main([str(tmp_path)]) == 2
    assert "found the byte 0xff" in capsys.readouterr().err
