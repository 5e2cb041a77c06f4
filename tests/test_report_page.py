"""The report in a real browser: both themes, two widths, twelve planted errors, hostile text, the keyboard."""
import json

import numpy as np
import pytest
from browser import needs_chromium, opened, violations

from corpora.predictions import Prediction, save_predictions
from report.page import render, render_comparison
from report.run import load_run

pytestmark = needs_chromium
HOSTILE = ["<script>window.hacked = 1</script>", "<img src=x onerror=\"window.hacked = 1\">", "</script><b>bold</b>",
           "\" onmouseover=\"window.hacked=1", "{{ 7 * 7 }}", "&lt;tag&gt;", "\u202ereversed", "a" * 400]


def planted():
    """300 right examples and twelve that are surely wrong, scattered among them."""
    rng = np.random.default_rng(0)
    rows = []
    for index in range(300):
        gold = int(rng.integers(5))
        probabilities = np.full(5, 0.05)
        probabilities[gold] = 0.8
        rows.append(Prediction(f"right{index}", [f"a plain sentence, number {index}"], gold, gold,
                               probabilities=probabilities.tolist()))
    for number, place in enumerate(rng.choice(300, 12, replace=False)):
        wrong = np.full(5, (1 - 0.9 - 0.001 * number) / 4)
        wrong[(number + 2) % 5] = 0.9 + 0.001 * number
        rows.insert(int(place), Prediction(f"planted{number}", [f"planted error {number}: "
                                                                f"{HOSTILE[number % len(HOSTILE)]}"],
                                           number % 5, (number + 2) % 5, probabilities=wrong.tolist()))
    return rows


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "<b>run</b>"
    metric = {"value": 300 / 312, "low": 0.93, "high": 0.98}
    graded = [Prediction(str(n), [f"first {n}", HOSTILE[n % 8]], n % 6 * 0.9, (n * 7) % 5.1, score=0.1)
              for n in range(80)]
    pearson = {"value": 0.5, "low": 0.4, "high": 0.6}
    (folder / "predictions").mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({
        "recipe": HOSTILE[0], "seed": 1, "dev": {"sst": {"accuracy": metric}, "sts": {"pearson": pearson}},
        "warnings": [HOSTILE[1]], "training_seconds": 12.0, "weights": HOSTILE[2], "commit": None,
        "examples_seen": {"sst": 100}, "rows_train": {"sst": 50}, "published": {"dev": {"sst": 0.9}},
        "conflicts": {"sst/sts": {"steps": 3, "rate": 0.5, "mean_cosine": 0.1}}}))
    (folder / "recipe.toml").write_text(f'about = "{HOSTILE[0]}"\n')
    (folder / "metrics.jsonl").write_text("".join(
        json.dumps({"stage": stage, "step": step, "lr": 0.1, "gradient_norm": 1.0, "loss": {"sst": 1 / (1 + step)},
                    "conflict": {"sst/sts": 0.5 - step / 40}}) + "\n"
        + (json.dumps({"stage": stage, "step": step + 1, "epoch": 1, "score": 0.5,
                       "dev": {"sst": {"accuracy": metric}}}) + "\n") * (step == 39)
        for stage in range(2) for step in range(40)))
    (folder / "attention.json").write_text(json.dumps([{
        "task": "sst", "tokens": ["[CLS]", HOSTILE[0], "[SEP]"],
        "weights": [[[[10 * layer + head, q, k] for q, k in ((0, 1), (2, 3), (4, 5))] for head in range(2)]
                    for layer in range(2)]}]))
    save_predictions(folder / "predictions" / "sst-dev.jsonl", planted())
    save_predictions(folder / "predictions" / "sts-dev.jsonl", graded)
    path = folder / "report.html"
    path.write_text(render(load_run(folder)), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(page_file, scheme, width):
    with opened(page_file.as_uri(), width, scheme) as page:
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.complaints == []
        assert page.evaluate("window.hacked") is None
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")
        small = page.evaluate("""() => [...document.querySelectorAll("figure svg text")].filter(
            (text) => text.getBoundingClientRect().height < 6).length""")
        assert small == 0  # figures can be read on a phone


def test_the_twelve_planted_errors_are_the_ones_shown(page_file):
    with opened(page_file.as_uri()) as page:
        rows = page.locator("#worst-sst tbody tr")
        assert rows.count() == 12
        shown = [rows.nth(index).locator("td").last.inner_text() for index in range(12)]
        assert shown == [f"planted{number}" for number in range(11, -1, -1)]  # the surest error first
        for index, number in enumerate(range(11, -1, -1)):
            text = rows.nth(index).inner_text()
            assert HOSTILE[number % len(HOSTILE)] in text  # as text, every character of it
            cells = rows.nth(index).locator("td")
            assert (cells.nth(1).inner_text(), cells.nth(2).inner_text()) == (str(number % 5), str((number + 2) % 5))
        assert "12 of 312 dev examples are wrong" in page.locator("#errors-sst").inner_text()


def test_the_filter_works_with_the_keyboard_alone(page_file):
    with opened(page_file.as_uri()) as page:
        box = page.locator("[data-filter=worst-sst] input")
        box.focus()
        page.keyboard.type("error 11")
        assert page.locator("#worst-sst tbody tr:visible").count() == 1
        assert page.locator("#worst-sst-status").inner_text() == "1 of 12 shown"
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        page.keyboard.press("Tab")
        page.keyboard.type("3")  # chooses gold 3
        assert page.locator("#worst-sst tbody tr:visible").count() == 2


def test_every_control_can_be_reached_by_tab(page_file):
    with opened(page_file.as_uri()) as page:
        wanted = page.evaluate("document.querySelectorAll('a, input, select, summary').length")
        reached = set()
        for _ in range(wanted * 3):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("[...document.querySelectorAll('a, input, select, summary')].indexOf("
                                      "document.activeElement)"))
        assert set(range(wanted)) <= reached


def test_attention_shows_the_layer_and_head_that_are_chosen(page_file):
    with opened(page_file.as_uri()) as page:
        page.select_option("#attention-layer", "1")
        page.select_option("#attention-head", "1")
        cells = page.locator("#attention-table tbody tr").first.locator("td").all_inner_texts()
        assert cells == ["11", "", "1"]
        assert page.locator("#attention-table thead th").all_inner_texts() == ["[CLS]", HOSTILE[0], "[SEP]"]


def test_without_scripts_everything_but_the_controls_is_there(page_file):
    with opened(page_file.as_uri(), scripts=False) as page:
        assert page.locator("#worst-sst tbody tr:visible").count() == 12
        assert page.locator("[data-filter=worst-sst]").is_hidden()
        assert page.locator("#attention-controls").is_hidden()
        assert page.locator("#attention-table tbody td").count() == 9


def test_print_hides_the_controls(page_file):
    with opened(page_file.as_uri()) as page:
        page.emulate_media(media="print")
        assert page.locator("nav").is_hidden() and page.locator("#worst-sst").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_comparison_page_passes_axe(page_file, tmp_path, scheme):
    run = load_run(page_file.parent)
    path = tmp_path / "comparison.html"
    path.write_text(render_comparison([run, run, run]), encoding="utf-8")
    for width in (390, 1280):
        with opened(path.as_uri(), width, scheme) as page:
            assert violations(page) == [] and page.complaints == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate("window.hacked") is None
