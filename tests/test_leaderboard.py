"""The leaderboard: scores by id, places by intervals, a page in a browser, and a server that loses nothing."""
import concurrent.futures
import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from browser import needs_chromium, opened, violations
from conftest import ROOT

from course.leaderboard import page
from course.leaderboard.__main__ import main
from course.leaderboard.scoring import FILES, TASKS, Hidden, load_hidden, parse, score
from course.leaderboard.store import DAY, Entry, Store, TooMany, checked_name
from tasks.leaderboard import overall_score
from tasks.metrics import accuracy, pearson

LABELS = {"sst": "sentiment", "para": "is_duplicate", "sts": "similarity"}


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grader")
    rng = np.random.default_rng(0)
    for task, count in (("sst", 60), ("para", 80), ("sts", 50)):
        rows = [f"id\t{LABELS[task]}\tpart"]
        for index in range(count):
            label = {"sst": int(rng.integers(5)), "para": float(rng.integers(2)),
                     "sts": round(float(rng.uniform(0, 5)), 2)}
            rows.append(f"{task}{index:04d}\t{label[task]}\t{'public' if index % 3 == 0 else 'private'}")
        (folder / f"{task}-labels.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def hidden(labels):
    return load_hidden(labels)


def predictions(hidden, seed, noise=0.3):
    """Files of predictions, right but for some noise, in a shuffled order."""
    rng = np.random.default_rng(seed)
    texts = {}
    for task, one in hidden.items():
        values = one.labels + rng.normal(0, 2 * noise, len(one.labels)) if task == "sts" else np.where(
            rng.random(len(one.labels)) < noise, 0, one.labels)
        rows = [f"{identifier} , {value} " for identifier, value in zip(one.ids, values, strict=True)]
        rng.shuffle(rows)
        texts[task] = "\n".join(["id \t Predicted ", *rows]) + "\n"
    return texts


def write(folder, texts):
    folder.mkdir(parents=True, exist_ok=True)
    for task, text in texts.items():
        (folder / FILES[task]).write_text(text)
    return folder


# ---- scores ----------------------------------------------------------------------------------------------------------


def test_scores_are_those_of_the_rows_of_each_part(hidden):
    texts = predictions(hidden, 1)
    scores = score(texts, hidden)
    for part in ("public", "private"):
        values = []
        for task, metric in (("sst", accuracy), ("para", accuracy), ("sts", pearson)):
            rows = dict(line.split(" , ") for line in texts[task].strip().split("\n")[1:])
            chosen = hidden[task].public == (part == "public")
            own = np.array([float(rows[identifier]) for identifier in np.array(hidden[task].ids)[chosen]])
            values.append(metric(own, hidden[task].labels[chosen]))
            assert scores[part][task][0] == pytest.approx(values[-1], abs=1e-12)
            assert scores[part][task][1] <= values[-1] <= scores[part][task][2]
        assert scores[part]["overall"][0] == pytest.approx(overall_score(*values), abs=1e-12)
        assert scores[part]["overall"][1] <= scores[part]["overall"][0] <= scores[part]["overall"][2]


@pytest.mark.parametrize(("change", "message"), [
    (lambda text: text + "sst9999 , 1\n", "with an id of the test file"),
    (lambda text: "id\n", "60 of 60 ids are missing"),
    (lambda text: text + text.split("\n")[1], "stands there twice"),
    (lambda text: text.replace(" , ", " , x"), "row 2 is"),
    (lambda text: "x" * (5 << 20), "expected at most"),
    (lambda text: text.replace(" , 1", " , nan"), "expected <id>")])
def test_what_cannot_be_scored_is_one_error(hidden, change, message):
    texts = predictions(hidden, 1)
    with pytest.raises(ValueError, match=message) as caught:
        parse(change(texts["sst"]), "sst", hidden["sst"])
    assert "\n" not in str(caught.value) and str(caught.value).startswith("sst: ")


def test_labels_that_are_missing_or_double_are_one_error(labels, tmp_path):
    with pytest.raises(ValueError, match="has no labels of sst, para, sts"):
        load_hidden(tmp_path)
    (tmp_path / "a-labels.csv").write_text("id\tsentiment\tpart\na\t1\tpublic\n")
    (tmp_path / "b-labels.csv").write_text("id\tsentiment\tpart\nb\t1\tpublic\n")
    with pytest.raises(ValueError, match="a second file with labels of sst"):
        load_hidden(tmp_path)
    (tmp_path / "b-labels.csv").write_text("id\tother\n")
    with pytest.raises(ValueError, match="has no column"):
        load_hidden(tmp_path)


# ---- the store -------------------------------------------------------------------------------------------------------


def scores_of(value, width=0.01):
    numbers = {name: [value, value - width, value + width] for name in ("overall", *TASKS)}
    return {"public": numbers, "private": {name: [1 - value, 0, 1] for name in numbers}}


def test_tokens_names_and_the_limit_of_a_day(tmp_path):
    store = Store(tmp_path / "b.sqlite", a_day=2)
    token = store.add_team("One")
    number, name = store.team_of(token)
    assert name == "One" and store.team_of(token + "x") is None and store.team_of("") is None
    assert token.encode() not in (tmp_path / "b.sqlite").read_bytes()  # only its hash is kept
    with pytest.raises(ValueError, match="is taken"):
        store.add_team("One")
    for now in (1000.0, 2000.0):
        store.add_submission(number, scores_of(0.5), {}, now=now)
    with pytest.raises(TooMany, match="the next is free in 23.7 hours"):
        store.add_submission(number, scores_of(0.6), {}, now=2000.0 + 0.01)
    store.add_submission(number, scores_of(0.6), {}, now=1000.0 + DAY + 1)
    assert len(store.history(number)) == 3
    assert "private" not in json.dumps(store.history(number))


def test_the_best_by_the_public_score_is_shown_in_both_rankings(tmp_path):
    store = Store(tmp_path / "b.sqlite", a_day=9)
    team, _ = store.team_of(store.add_team("One"))
    for value in (0.5, 0.8, 0.6):
        last = store.add_submission(team, scores_of(value), {}, note=f"note {value}")
    (entry,) = store.entries("private")
    assert entry.scores["overall"][0] == pytest.approx(0.2) and entry.entries == 3 and entry.note == "note 0.8"
    assert not store.entries()[0].verified
    store.verify(last - 1)
    assert store.entries()[0].verified
    with pytest.raises(ValueError, match="there is no submission 99"):
        store.verify(99)


@pytest.mark.parametrize("name", ["", "  ", "x" * 41, "a\nb", "a\x00b", "\u202egnp"])
def test_names_that_are_none_are_refused(name):
    with pytest.raises(ValueError, match="1 to 40 printable characters"):
        checked_name(name)


# ---- the page --------------------------------------------------------------------------------------------------------


def entry(name, value, width=0.01, when=0.0):
    return Entry(name, scores_of(value, width)["public"], when, 1)


def test_places_are_shared_where_intervals_overlap():
    entries = [entry("a", 0.70), entry("b", 0.78), entry("c", 0.775), entry("d", 0.60, 0.2), entry("e", 0.10)]
    assert [(place, one.team) for place, one in page.ranked(entries)] == [
        ("1-2", "b"), ("1-2", "c"), ("3-4", "a"), ("3-4", "d"), ("5", "e")]


def test_a_spreadsheet_never_takes_a_name_for_a_formula():
    names = ["=HYPERLINK(\"x\")", "+1", "-1", "@a", "plain, with \"quotes\""]
    entries = [entry(name, 0.5 + 0.05 * n, 0.001) for n, name in enumerate(names)]
    rows = list(csv.reader(io.StringIO(page.as_csv(entries))))
    assert [row[1][0] for row in rows[1:]] == ["p", "'", "'", "'", "'"]
    assert all(len(row) == len(rows[0]) for row in rows)


def test_other_services_forms():
    one = entry("a", 0.7)
    assert page.as_gradescope(one)[0] == {"name": "Overall", "value": 0.7}
    assert page.as_evalai(one)["result"][0]["public"]["sst"] == 0.7
    assert page.as_codabench(one).startswith("overall: 0.700000\n")


@needs_chromium
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_page_in_a_browser(tmp_path, scheme, width):
    names = ["<script>window.hacked=1</script>", "\"><img src=x onerror=window.hacked=1>", "plain"]
    path = tmp_path / "page.html"
    path.write_text(page.render([entry(name, 0.5 + 0.1 * n, when=1.7e9) for n, name in enumerate(names)], "A & B"))
    with opened(path.as_uri(), width, scheme) as browser:
        assert violations(browser) == [] and browser.complaints == [] and browser.evaluate("window.hacked") is None
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        teams = lambda: browser.locator("#board tbody th").all_inner_texts()  # noqa: E731
        assert teams()[:3] == names[::-1] and "published" in teams()[3]
        button = browser.locator("#board thead button").nth(1)  # overall
        button.focus()
        browser.keyboard.press("Enter")
        cells = browser.locator("#board tbody td:nth-child(3)").all_inner_texts()
        first = [float(text.split("\n")[0]) for text in cells]
        assert first == sorted(first, reverse=True)
        browser.keyboard.press("Enter")
        assert browser.locator("#board thead th").nth(2).get_attribute("aria-sort") == "ascending"


def test_the_page_without_a_server(hidden, labels, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        write(tmp_path / f"p{seed}", predictions(hidden, seed, 0.1 * seed))
        assert main(["score", f"p{seed}", "--labels", str(labels), "--team", f"team {seed}", "--out",
                     f"scores/{seed}.json"]) == 0
    assert main(["build", "scores/1.json", "scores/2.json", "--out", "page.html", "--csv", "page.csv"]) == 0
    text = Path("page.html").read_text()
    assert text.index("team 1") < text.index("team 2") and "http" not in text
    Path("scores/3.json").write_text('{"team": "x", "scores": {}}')
    assert main(["build", "scores/3.json", "--out", "other.html"]) == 2
    assert "no file of scores" in capsys.readouterr().err and not Path("other.html").exists()


# ---- the server ------------------------------------------------------------------------------------------------------


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def start(tmp_path, labels, *flags):
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "course.leaderboard", "serve", "--db", str(tmp_path / "b.sqlite"),
                                "--labels", str(labels), "--port", str(port), *flags], cwd=ROOT)
    url = f"http://127.0.0.1:{port}"
    for _ in range(200):
        try:
            httpx.get(url)
            return process, url
        except httpx.TransportError:
            time.sleep(0.1)
    process.kill()
    raise AssertionError("the server did not start")


@pytest.fixture
def server(tmp_path, labels):
    process, url = start(tmp_path, labels, "--a_day", "3")
    yield url, Store(tmp_path / "b.sqlite", 3)
    process.kill()
    process.wait()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_a_submission_is_scored_kept_and_shown(server, hidden, tmp_path, capsys):
    url, store = server
    token = store.add_team("<b>One</b>")
    texts = predictions(hidden, 3)
    write(tmp_path / "p", texts)
    assert main(["submit", str(tmp_path / "p"), "--url", url, "--token", token, "--note", "first"]) == 0
    answer = json.loads(capsys.readouterr().out)
    expected = score(texts, hidden)["public"]
    assert answer["scores"]["overall"][0] == pytest.approx(expected["overall"][0], abs=1e-12)
    assert "private" not in json.dumps(answer)
    shown = httpx.get(url).text
    assert f"{expected['overall'][0]:.4f}" in shown and "&lt;b&gt;One&lt;/b&gt;" in shown and "<b>One</b>" not in shown
    assert httpx.get(url + "/me", headers=bearer(token)).json()["submissions"][0]["note"] == "first"
    assert httpx.post(url + "/name", headers=bearer(token), json={"name": "x" * 41}).status_code == 422
    assert httpx.post(url + "/name", headers=bearer(token), json={"name": "=1"}).status_code == 200
    assert "'=1" in httpx.get(url + "/table.csv").text
    for _ in range(2):
        assert main(["submit", str(tmp_path / "p"), "--url", url, "--token", token]) == 0
    assert main(["submit", str(tmp_path / "p"), "--url", url, "--token", token]) == 2
    assert "answered 429" in capsys.readouterr().err


def test_hostile_requests_are_refused_in_one_line(server, hidden):
    url, store = server
    token = store.add_team("One")
    texts = predictions(hidden, 3)
    assert httpx.post(url + "/submit", json=texts).status_code == 401
    assert httpx.post(url + "/submit", json=texts, headers=bearer("wrong")).status_code == 401
    for body, status in ((b"{", 422), (b"[]", 422), (b"[" * 100_000, 422), (b"{}", 422),
                         (json.dumps({**texts, "sst": 3}).encode(), 422), (b"x" * (14 << 20), 413),
                         (json.dumps({**texts, "sst": "id\nnope"}).encode(), 422)):
        answer = httpx.post(url + "/submit", content=body, headers=bearer(token), timeout=60)
        assert answer.status_code == status, body[:20]
        assert "Traceback" not in answer.text
    assert httpx.get(url + "/labels").status_code == 404 and store.history(store.team_of(token)[0]) == []


@pytest.mark.slow
def test_200_submissions_at_once_are_all_answered_and_kept(tmp_path, labels, hidden):
    process, url = start(tmp_path, labels, "--a_day", "2")
    try:
        store = Store(tmp_path / "b.sqlite", 2)
        tokens = [store.add_team(f"team {number}") for number in range(50)]
        texts = predictions(hidden, 4)

        def submit(number):
            return httpx.post(url + "/submit", json=texts, headers=bearer(tokens[number % 50]), timeout=300).status_code

        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(submit, range(200)))
        # Four of each team come at once, and two are allowed: exactly two are kept, whatever the order.
        assert sorted(answers) == [200] * 100 + [429] * 100
        assert all(len(store.history(store.team_of(token)[0])) == 2 for token in tokens)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_killed_server_loses_nothing_that_it_acknowledged(tmp_path, labels, hidden):
    texts = predictions(hidden, 5)
    store = Store(tmp_path / "b.sqlite", 1000)
    token = store.add_team("One")
    acknowledged = []
    for _ in range(3):
        process, url = start(tmp_path, labels, "--a_day", "1000")

        def submit(_, url=url):
            try:
                answer = httpx.post(url + "/submit", json=texts, headers=bearer(token), timeout=60)
                return answer.json()["submission"] if answer.status_code == 200 else None
            except httpx.TransportError:
                return None

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(submit, number) for number in range(60)]
            while sum(one.done() for one in waiting) < 10:  # some are answered, some are under way
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            acknowledged += [number for one in waiting if (number := one.result()) is not None]
        process.wait()
    kept = [row["id"] for row in store.history(store.team_of(token)[0])]
    assert acknowledged and set(acknowledged) <= set(kept) and len(set(kept)) == len(kept)


def test_without_its_packages_the_server_says_what_to_install(tmp_path, labels, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "--db", str(tmp_path / "b"), "--labels", str(labels)]) == 2
    assert "pip install fastapi uvicorn" in capsys.readouterr().err


def test_hidden_labels_are_as_the_split_wrote_them(hidden):
    for one in hidden.values():
        assert isinstance(one, Hidden) and len(one.ids) == len(one.labels) == len(one.public)
