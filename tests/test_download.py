"""The downloader against a hub on the loopback: format, checksums, resuming, and every failure one line."""
import hashlib
import json

import pytest
from test_pretrained import cache, hub  # noqa: F401  (fixtures)

from corpora import download
from corpora.download import SETS, checksum_matches, main


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


PAIRS = [{"text1": "One\ttab?", "text2": 'A "quote"', "label": 1, "idx": 0}, {"text1": "b", "text2": "c", "label": 0}]
FILES = {"train.jsonl": jsonl(PAIRS), "validation.jsonl": jsonl(PAIRS), "test.jsonl": jsonl(PAIRS)}


def test_files_come_in_the_courses_format_and_only_once(cache, hub, tmp_path, tiny_tokenizer, capsys):  # noqa: F811
    from conftest import TINY, make_task

    server = hub(FILES)
    assert main(["--out", str(tmp_path / "data"), "--sets", "quora"]) == 0
    task = make_task("paraphrase", "para", tiny_tokenizer, TINY, {})
    examples = task.read(tmp_path / "data" / "quora-train.csv", "train").examples
    assert [(e.sentences, e.label) for e in examples] == [(("One tab?", 'A "quote"'), 1), (("b", "c"), 0)]
    assert task.read(tmp_path / "data" / "quora-test-student.csv", "test").examples[0].label is None
    before = len(server.requests)
    assert main(["--out", str(tmp_path / "data"), "--sets", "quora"]) == 0
    assert len(server.requests) == before and "already there" in capsys.readouterr().out
    (tmp_path / "data" / "quora-dev.csv").write_text("damaged")
    assert main(["--out", str(tmp_path / "data"), "--sets", "quora"]) == 0
    assert task.read(tmp_path / "data" / "quora-dev.csv", "dev").examples


def test_a_file_with_another_checksum_is_refused(cache, hub, tmp_path, capsys):  # noqa: F811
    hub({"train.jsonl": b"{}", "dev.jsonl": b"{}", "test.jsonl": b"{}"})  # SST's checksums are written in the project
    assert main(["--out", str(tmp_path), "--sets", "sst"]) == 2
    error = capsys.readouterr().err
    assert "checksum" in error and error.count("\n") == 1
    assert not (tmp_path / "ids-sst-train.csv").exists()


def test_an_interrupted_fetch_goes_on(cache, hub, tmp_path, capsys):  # noqa: F811
    server = hub({"train.jsonl": FILES["train.jsonl"]})
    assert main(["--out", str(tmp_path), "--sets", "quora"]) == 2
    assert "run the same command again" in capsys.readouterr().err
    assert (tmp_path / "quora-train.csv").exists()
    server.RequestHandlerClass.files = FILES
    assert main(["--out", str(tmp_path), "--sets", "quora"]) == 0
    assert (tmp_path / "quora-dev.csv").exists()


def test_no_server_is_one_clear_line(cache, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert main(["--out", str(tmp_path), "--sets", "sts"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1


def test_both_kinds_of_checksum(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    assert checksum_matches(path, hashlib.sha256(b"abc").hexdigest())
    assert checksum_matches(path, "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f")  # git hash-object of "abc"
    assert not checksum_matches(path, "0" * 64) and not checksum_matches(path, "0" * 40)


@pytest.mark.parametrize("name", SETS)
def test_every_set_has_three_splits(name):
    assert set(SETS[name].files) == {"train", "dev", "test"} and download.SETS[name].label
