"""Check the last exercise: an extension of one's own, measured and reported.

What is tried is the student's; that it can be believed is what this checks. extension/measured/ holds what
`python -m training.compare` left there, and extension/report.md says what came out. The check reads both. It asks for
two recipes that differ, three seeds of each, every section of the report, and in it the means as they were measured.
"""
import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from corpora.messages import first_line

REPORT = "extension/report.md"
MEASURED = "extension/measured"
SEEDS = 3  # of each recipe: one seed tells nothing about a gain of half a point
SECTIONS = {
    "What was changed": "what you changed, and why it should help",
    "What was measured": "data, seeds, and the table of training.compare with its test",
    "What it cost": "parameters and minutes, before and after",
    "What did not work": "what you tried and gave up, and why",
    "Errors": "three examples that are still wrong, and what they have in common",
    "What the starting weights had seen": "which of your data their own training had",
}
NOT_COMPARED = ("name", "about", "source", "seed")  # fields of a recipe that change no result
OPEN = "To be written: "


def template() -> str:
    """Return the report that a student starts from."""
    parts = "\n\n".join(f"## {title}\n\n{OPEN}{content}." for title, content in SECTIONS.items())
    return f"# The title of your extension\n\n{parts}\n"


def sections_of(text: str) -> dict[str, str]:
    """Cut a report at its headings: title -> text."""
    parts = re.split(r"^## +(.+?) *$", text, flags=re.MULTILINE)
    return {title: content.strip() for title, content in zip(parts[1::2], parts[2::2], strict=True)}


@dataclass
class Measured:
    """Hold the runs of one recipe."""

    name: str
    recipe: dict[str, Any]
    overall: dict[int, float] = field(default_factory=dict)  # seed -> mean of the dev scores

    @property
    def mean(self) -> str:
        """Return the mean over seeds, as a report writes it."""
        return f"{mean(self.overall.values()):.3f}"


def score_of(results: dict[str, Any]) -> float:
    """Return a run's overall score, or the mean of its tasks' deciding metrics where it has none."""
    if results["overall"] is not None:
        return float(results["overall"])
    return mean(float(next(iter(metrics.values()))["value"]) for metrics in results["dev"].values())


def read_runs(folder: Path) -> list[Measured]:
    """Read the finished runs below a folder, by recipe.

    Raises:
        ValueError: a run's files are not those of this project.
    """
    groups: dict[str, Measured] = {}
    for path in sorted(folder.glob("*/*/results.json")):
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
            recipe = tomllib.loads((path.parent / "recipe.toml").read_text(encoding="utf-8"))
            group = groups.setdefault(path.parent.parent.name, Measured(path.parent.parent.name, recipe))
            group.overall[int(results["seed"])] = score_of(results)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError) as error:
            raise ValueError(f"{path.parent}: {type(error).__name__}: {first_line(error)}; expected results.json and "
                             "recipe.toml of a finished run") from None
    return list(groups.values())


def fields_of(recipe: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a recipe.

    >>> fields_of({"weights": "a", "stage": [{"epochs": 2}]})
    {'weights': 'a', 'stage.0.epochs': 2}
    """
    flat: dict[str, Any] = {}
    for name, value in recipe.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            value = {str(index): item for index, item in enumerate(value)}
        if isinstance(value, dict):
            flat |= fields_of(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def differences(first: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of the fields in which two recipes differ."""
    a, b = fields_of(first), fields_of(other)
    return [name for name in {**a, **b} if a.get(name) != b.get(name) and name not in NOT_COMPARED]


def check(folder: Path) -> list[str] | None:
    """Return what an extension lacks; an empty list, if it lacks nothing; None, if it is not started.

    Args:
        folder: the student's checkout.
    """
    report = folder / REPORT
    text = report.read_text(encoding="utf-8", errors="replace") if report.exists() else template()
    if text == template():
        return None
    sections = sections_of(text)
    lines = [f"{REPORT}: lacks the section '## {title}': {content}" for title, content in SECTIONS.items()
             if title not in sections]
    lines += [f"{REPORT}: the section '{title}' is empty; expected {SECTIONS[title]}"
              for title, content in sections.items() if title in SECTIONS
              and (not content or content.startswith(OPEN))]
    try:
        runs = read_runs(folder / MEASURED)
    except ValueError as error:
        return [*lines, str(error)]
    if len(runs) < 2:
        return [*lines, f"{MEASURED}: has the runs of {len(runs)} recipes; expected two or more, as python -m "
                        f"training.compare BEFORE.toml AFTER.toml --seeds {SEEDS} --out {MEASURED} leaves them"]
    for run in runs:
        if len(run.overall) < SEEDS:
            lines.append(f"{MEASURED}/{run.name}: has {len(run.overall)} seeds; expected {SEEDS} or more")
        # As .760 or 0.760, and not as a part of a longer number.
        if not re.search(rf"(?<![\d.])0?{re.escape(run.mean.removeprefix('0'))}(?!\d)", text):
            lines.append(f"{REPORT}: {run.mean}, the mean of {run.name} over {len(run.overall)} seeds, does not stand "
                         "there")
    if all(not differences(runs[0].recipe, run.recipe) for run in runs[1:]):
        lines.append(f"{MEASURED}: {' and '.join(run.name for run in runs)} are the same recipe; expected a change")
    if len({tuple(sorted(run.overall)) for run in runs}) > 1:
        lines.append(f"{MEASURED}: the recipes have other seeds; expected the same, for the test is paired")
    return lines
