"""The downloader against a hub on the loopback: format, checksums, resuming, and every failure one line."""
import hashlib
import http.server
import io
import json
import tarfile
import threading
import zipfile

import pytest
from test_pretrained import cache, hub  # noqa: F401  (fixtures)

from corpora import archives, download
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


# ---- sets that keep their own files ----------------------------------------------------------------------------------


class Files(http.server.BaseHTTPRequestHandler):
    """Serve `contents` by their last names, with ranges; a name in `cut` ends after half of its bytes."""

    contents, cut, asked = {}, set(), []

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        self.asked.append((name, self.headers.get("Range")))
        if name not in self.contents:
            self.send_error(404)
            return
        content = self.contents[name]
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:len(content) // 2 if name in self.cut else None])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def site(monkeypatch):
    """A server of archives, to which every address of the module points."""
    Files.contents, Files.cut, Files.asked = {}, set(), []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/"
    for archive in archives.ARCHIVES.values():
        monkeypatch.setattr(archive, "url", base + archive.url.rsplit("/", 1)[1])
    monkeypatch.setattr(archives, "MRPC", {name: base + url.rsplit("/", 1)[1] for name, url in archives.MRPC.items()})
    yield Files
    server.shutdown()


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


PAIR = json.dumps({"sentence1": "a dog ran", "sentence2": "a hound ran", "gold_label": "entailment"}) + "\n"


def test_nli_and_glue_archives_are_unpacked_as_the_tasks_read_them(site, tmp_path, tiny_tokenizer, capsys):
    from conftest import TINY, make_task

    rows = "\t".join(["index", "sentence1", "sentence2", "label"]) + "\n0\ta\tb\tentailment\n"
    site.contents["snli_1.0.zip"] = zipped({f"snli_1.0/snli_1.0_{split}.jsonl": PAIR
                                            for split in ("train", "dev", "test")} | {"snli_1.0/README.txt": "x"})
    site.contents["RTE.zip"] = zipped({f"RTE/{split}.tsv": rows for split in ("train", "dev", "test")})
    assert main(["--out", str(tmp_path), "--sets", "snli", "glue-rte"]) == 0
    nli = make_task("inference", "nli", tiny_tokenizer, TINY, {})
    assert nli.read(tmp_path / "snli_1.0_train.jsonl", "train").examples[0].label == 2
    assert make_task("glue", "rte", tiny_tokenizer, TINY, {"layout": "rte"}).read(
        tmp_path / "RTE/train.tsv", "train").examples[0].sentences == ("a", "b")
    assert not (tmp_path / "README.txt").exists()
    before = len(site.asked)
    assert main(["--out", str(tmp_path), "--sets", "snli", "glue-rte"]) == 0
    assert len(site.asked) == before and capsys.readouterr().out.count("already there") == 2


def test_a_broken_archive_goes_on_where_it_stopped(site, tmp_path, capsys):
    site.contents["multinli_1.0.zip"] = zipped({f"multinli_1.0/multinli_1.0_{split}.jsonl": PAIR * 50 for split in
                                                ("train", "dev_matched", "dev_mismatched")})
    site.cut.add("multinli_1.0.zip")
    assert main(["--out", str(tmp_path), "--sets", "multinli"]) == 2
    error = capsys.readouterr().err
    assert "run the same command again to go on" in error and error.count("\n") == 1
    site.cut.clear()
    assert main(["--out", str(tmp_path), "--sets", "multinli"]) == 0
    half = len(site.contents["multinli_1.0.zip"]) // 2
    assert site.asked == [("multinli_1.0.zip", None), ("multinli_1.0.zip", f"bytes={half}-")]
    assert (tmp_path / "multinli_1.0_train.jsonl").read_text() == PAIR * 50


def test_paws_is_a_tarball(site, tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for split in ("train", "dev", "test"):
            content = b"id\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n"
            member = tarfile.TarInfo(f"final/{split}.tsv")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    site.contents["paws_wiki_labeled_final.tar.gz"] = buffer.getvalue()
    assert main(["--out", str(tmp_path), "--sets", "paws"]) == 0
    assert (tmp_path / "PAWS/dev.tsv").read_text().endswith("1\ta\tb\t0\n")


def test_mrpc_gets_its_dev_set_by_ids(site, tmp_path, tiny_tokenizer):
    from conftest import TINY, make_task

    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    site.contents |= {"msr_paraphrase_train.txt": (header + "1\t10\t11\ta\tb\n0\t12\t13\tc\td\n").encode(),
                      "msr_paraphrase_test.txt": (header + "1\t14\t15\te\tf\n").encode(),
                      "mrpc_dev_ids.tsv": b"12\t13\n"}
    assert main(["--out", str(tmp_path), "--sets", "glue-mrpc"]) == 0
    task = make_task("glue", "mrpc", tiny_tokenizer, TINY, {"layout": "mrpc"})
    assert [(e.sentences, e.label) for split in ("train", "dev", "test")
            for e in task.read(tmp_path / f"MRPC/{split}.tsv", split).examples] == [
        (("a", "b"), 1), (("c", "d"), 0), (("e", "f"), None)]


@pytest.mark.parametrize(("content", "message"), [
    (b"no zip", "damaged, or without one of its files"), (None, "cannot be fetched"),
    (zipped({"snli_1.0/other.jsonl": "x"}), "without one of its files")])
def test_a_damaged_archive_is_one_line_and_fetched_anew(site, tmp_path, capsys, content, message):
    if content is not None:
        site.contents["snli_1.0.zip"] = content
    assert main(["--out", str(tmp_path), "--sets", "snli"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(tmp_path.glob("*.jsonl")) and not list(tmp_path.glob(".archives/*.zip"))


def test_glue_names_all_of_its_sets(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(download, "download_as_distributed", lambda name, out: asked.append(name))
    assert main(["--out", str(tmp_path), "--sets", "glue", "paws"]) == 0
    assert asked == [f"glue-{name}" for name in ("cola", "sst-2", "sts-b", "qqp", "qnli", "rte", "wnli", "mnli",
                                                 "mrpc")] + ["paws"]
