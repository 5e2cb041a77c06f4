"""Entries -> one HTML page that needs nothing else, a CSV file, and other services' forms."""
import csv
import datetime
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from course.leaderboard.store import Entry

_TEMPLATES = Path(__file__).parent / "templates"
COLUMNS = ("overall", "sst", "para", "sts")
# Published systems and a trivial rule, on the dev sets of the course, or test. Sources: recipes/README.md.
PUBLISHED = (
    ("Lee et al.", {"overall": .784, "sst": .532, "para": .881, "sts": .880}, "published, dev"),
    ("Ma, Peng, Zhang", {"overall": .652, "sst": .528, "para": .730, "sts": .394}, "published, test"),
    ("Yi", {"overall": .613, "sst": .525, "para": .591, "sts": .443}, "published, dev"),
    ("majority class", {"overall": .462, "sst": .2625, "para": .6247, "sts": 0.0}, "measured, dev"))


def published() -> list[Entry]:
    """Return the rows of published systems. They have no intervals."""
    return [Entry(name, {key: [value, value, value] for key, value in scores.items()}, 0.0, 0, published=source)
            for name, scores, source in PUBLISHED]


def ranked(entries: Sequence[Entry]) -> list[tuple[str, Entry]]:
    """Put entries in order, each with its place.

    Who cannot be told from the best of a group, because the intervals overlap, shares its place: "1-3".
    """
    order = sorted(entries, key=lambda entry: (-entry.scores["overall"][0], entry.time))
    groups: list[list[Entry]] = []
    for entry in order:
        if groups and entry.scores["overall"][2] >= groups[-1][0].scores["overall"][1]:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    result, first = [], 1
    for group in groups:
        last = first + len(group) - 1
        result += [(str(first) if first == last else f"{first}-{last}", entry) for entry in group]
        first = last + 1
    return result


def render(entries: Sequence[Entry], title: str, note: str = "") -> str:
    """Make the page.

    Args:
        entries: of teams. Published systems are added.
        title: of the page.
        note: a line below it.
    """
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    rows = [{"place": place, "entry": entry, "date": "" if not entry.time else datetime.datetime.fromtimestamp(
        entry.time, datetime.UTC).strftime("%Y-%m-%d")} for place, entry in ranked(entries)]
    rows += [{"place": "", "entry": entry, "date": ""} for entry in published()]
    style = Path(__file__).parent.parent.parent / "report" / "templates" / "style.css"
    return environment.get_template("leaderboard.html").render(
        rows=rows, title=title, note=note, columns=COLUMNS, style=Markup(style.read_text(encoding="utf-8")))


def as_csv(entries: Sequence[Entry]) -> str:
    """Return a CSV table. A name that a spreadsheet would take for a formula gets a quote in front."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["place", "team", *(f"{name}{suffix}" for name in COLUMNS for suffix in ("", " low", " high")),
                     "entries", "verified"])
    for place, entry in ranked(entries):
        name = f"'{entry.team}" if entry.team[0] in "=+-@\t\r" else entry.team
        writer.writerow([f"'{place}" if "-" in place else place, name, *(f"{value:.6f}" for column in COLUMNS
                                                                        for value in entry.scores[column]),
                         entry.entries, int(entry.verified)])
    return buffer.getvalue()


def as_gradescope(entry: Entry) -> list[dict[str, Any]]:
    """Return Gradescope's "leaderboard" of a submission."""
    return [{"name": column.upper() if column != "overall" else "Overall", "value": entry.scores[column][0]}
            for column in COLUMNS]


def as_evalai(entry: Entry) -> dict[str, Any]:
    """Return what EvalAI's `evaluate` returns."""
    return {"result": [{"public": {column: entry.scores[column][0] for column in COLUMNS}}],
            "leaderboard": {"schema": {"labels": list(COLUMNS), "default_order_by": "overall"}}}


def as_codabench(entry: Entry) -> str:
    """Return the scores.txt of Codabench."""
    return "".join(f"{column}: {entry.scores[column][0]:.6f}\n" for column in COLUMNS)
