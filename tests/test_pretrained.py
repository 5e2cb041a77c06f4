"""A name -> verified files: every source, a damaged cache, and no source at all. Servers are on the loopback only."""
import hashlib
import http.server
import socket
import threading
import time

import huggingface_hub.constants
import pytest

from minbert import pretrained


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # read once, when it was imported
    return tmp_path / "cache"


class HubHandler(http.server.BaseHTTPRequestHandler):
    """As much of the hub as downloading needs: resolve URLs with a commit and an ETag."""

    files: dict[str, bytes]

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body: bool):
        name = self.path.split("?")[0].split("/resolve/")[-1].partition("/")[2]
        content = self.files.get(name) if "/resolve/" in self.path else None
        self.server.requests.append((self.command, self.path))
        if content is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = 0
        if body and self.headers.get("Range", "").startswith("bytes="):
            start = int(self.headers["Range"][6:].split("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("ETag", '"' + hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() + '"')
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if body:
            self.wfile.write(content[start:])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def hub(monkeypatch):
    """Starts a hub with the given files; HF_ENDPOINT leads to it."""
    servers = []

    def start(files: dict[str, bytes]):
        handler = type("Handler", (HubHandler,), {"files": files})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.requests = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def model_files(directory, names=("config.json", "vocab.txt", "model.safetensors")):
    return {name: (directory / name).read_bytes() for name in names}


def test_a_directory_is_itself(tiny_directory):
    assert pretrained.fetch(str(tiny_directory)) == tiny_directory


def test_any_model_id_comes_from_the_hub_once(cache, hub, tiny_directory):
    server = hub(model_files(tiny_directory))
    found = pretrained.fetch("someone/tiny-bert")
    assert found == cache / "someone--tiny-bert"
    for name, content in model_files(tiny_directory).items():
        assert (found / name).read_bytes() == content
    before = len(server.requests)
    assert pretrained.fetch("someone/tiny-bert") == found
    assert len(server.requests) == before  # from the cache


def test_an_older_model_with_pickled_weights_comes_too(cache, hub):
    hub({"config.json": b"{}", "vocab.txt": b"a\n", "pytorch_model.bin": b"weights"})
    assert (pretrained.fetch("google/bert-old") / "pytorch_model.bin").read_bytes() == b"weights"


@pytest.mark.parametrize("damage", ["changed", "deleted", "checksums"])
def test_a_damaged_cache_is_noticed_and_fetched_anew(cache, hub, tiny_directory, damage, capsys):
    hub(model_files(tiny_directory))
    found = pretrained.fetch("someone/tiny-bert")
    weights = found / "model.safetensors"
    if damage == "changed":
        weights.write_bytes(b"x" + weights.read_bytes()[1:])
    elif damage == "deleted":
        weights.unlink()
    else:
        (found / pretrained.CHECKSUMS).write_text("[]")
    assert pretrained.fetch("someone/tiny-bert") == found
    assert weights.read_bytes() == (tiny_directory / "model.safetensors").read_bytes()
    assert "fetching it anew" in capsys.readouterr().err


def test_a_hub_that_accepts_and_says_nothing_is_given_up_on(cache, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setattr(pretrained, "HUB_PATIENCE", 1.0)
        before = time.monotonic()
        with pytest.raises(ValueError, match="Pass --weights DIRECTORY"):
            pretrained.fetch("someone/tiny-bert")
        assert time.monotonic() - before < 5
    assert pretrained.HUB_PATIENCE <= 5


def test_with_no_source_there_is_one_error_that_says_what_to_do(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(pretrained.sys, "executable", "/bin/false")  # no pip either
    with pytest.raises(ValueError) as caught:
        pretrained.fetch()
    message = str(caught.value)
    assert "\n" not in message and "pip could not fetch" in message and "cannot be reached" in message
    assert "Pass --weights DIRECTORY" in message
    assert not list(cache.glob("*"))  # nothing half fetched stays


def test_a_hub_with_another_default_model_is_not_believed(cache, hub, monkeypatch, tiny_directory):
    hub(model_files(tiny_directory))
    monkeypatch.setattr(pretrained.sys, "executable", "/bin/false")
    with pytest.raises(ValueError, match="another checksum"):
        pretrained.fetch()


def test_offline_is_respected(cache, hub, monkeypatch, tiny_directory):
    server = hub(model_files(tiny_directory))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE"):
        pretrained.fetch("someone/tiny-bert")
    assert not server.requests


def test_the_default_model_has_the_stated_checksum(model_directory):
    assert pretrained.sha256(model_directory / "model.safetensors") == pretrained.KNOWN[pretrained.DEFAULT].sha256


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "", "a/b/c"])
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(cache, name):
    with pytest.raises(ValueError, match="no such directory"):
        pretrained.fetch(name)
