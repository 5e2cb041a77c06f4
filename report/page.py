"""A run, or several -> one HTML file that needs nothing else.

Text of users reaches the page through jinja2's escaping only. Figures are SVG (figures.py); style.css and script.js are
put inside the file.
"""
import difflib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from corpora.check import FileCheck, Overlap, check_files, overlaps
from corpora.files import write_text
from corpora.messages import in_words
from corpora.predictions import Prediction
from minbert.tokenizer import BertTokenizer
from report import analysis, figures
from report.run import Run, earlier_runs

REPORT = "report.html"
WORST = 30  # examples of a task
LARGEST = 2_000_000  # bytes of a page
CHECKED_ROWS = 400_000  # in all data files: the section on data may not take longer than the rest
_TEMPLATES = Path(__file__).parent / "templates"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True,
                                     undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = number
    environment.filters["hours"] = in_words
    return environment


def number(value: Any, digits: int = 3) -> str:
    """Write a number for readers: 0.8431, 1,203, or a dash for none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def _shown_figures(drawn: Sequence[figures.Figure]) -> list[dict[str, Any]]:
    """Mark figures as safe. Everything in one comes from matplotlib, which escapes its text."""
    return [{"title": figure.title, "svg": Markup(figure.svg)} for figure in drawn]


# ---- the sections ----------------------------------------------------------------------------------------------------


def score_rows(run: Run) -> list[dict[str, Any]]:
    """Make a row for each task and metric: values with intervals, beside what they can be compared with."""
    rows = []
    baselines = run.results.get("baselines") or {}
    published = run.results.get("published") or {}
    for task, metrics in run.results["dev"].items():
        for index, (name, metric) in enumerate(metrics.items()):
            train = ((run.results.get("train") or {}).get(task) or {}).get(name)
            test = ((run.results.get("test") or {}).get(task) or {}).get(name)
            rows.append({
                "task": task, "metric": name, "dev": metric, "train": train, "test": test,
                "gap": train["value"] - metric["value"] if train else None,
                "published": {split: figures_[task] for split, figures_ in published.items()
                              if index == 0 and task in figures_},
                "baselines": baselines.get(task, {}) if index == 0 else {},
                "rows": (run.results.get("rows") or {}).get(task) if index == 0 else None})
    return rows


def _stage_starts(run: Run) -> tuple[list[int], Callable[[dict], int]]:
    """Return the first step of each stage, counted over the whole run, and a function: record -> its step."""
    lengths: dict[int, int] = {}
    for record in [*run.steps, *run.epochs]:
        stage = record.get("stage", 0)
        lengths[stage] = max(lengths.get(stage, 0), record["step"] + ("epoch" not in record))
    starts, total = {}, 0
    for stage in sorted(lengths):
        starts[stage] = total
        total += lengths[stage]
    return list(starts.values()), lambda record: starts[record.get("stage", 0)] + record["step"]


def curve_figures(run: Run) -> list[dict[str, Any]]:
    """Draw loss, learning rate, gradient norm and dev scores over steps, and the tasks' agreement."""
    if not run.steps:
        return []
    starts, place = _stage_starts(run)
    marks = starts[1:]
    losses: dict[str, tuple[list[float], list[float]]] = {}
    cosines: dict[str, tuple[list[float], list[float]]] = {}
    for record in run.steps:
        for source, target in (("loss", losses), ("conflict", cosines)):
            for name, value in (record.get(source) or {}).items():
                if value is not None:
                    xs, ys = target.setdefault(name, ([], []))
                    xs.append(place(record))
                    ys.append(value)
    single = {name: ([place(record) for record in run.steps if name in record],
                     [record[name] for record in run.steps if name in record]) for name in ("lr", "gradient_norm")}
    best: dict[int, dict] = {}
    for record in run.epochs:
        if record.get("score") is not None and record["score"] > best.get(record["stage"], {}).get("score", -math.inf):
            best[record["stage"]] = record
    kept = [place(record) for record in best.values()]
    dev: dict[str, tuple[list[float], list[float]]] = {}
    for record in run.epochs:
        for task, metrics in record["dev"].items():
            name, metric = next(iter(metrics.items()))
            xs, ys = dev.setdefault(f"{task} {name}", ([], []))
            xs.append(place(record))
            ys.append(metric["value"])
    drawn = [figures.curves(losses, "Loss of each task over training steps", "loss", marks)]
    if dev:
        drawn.append(figures.curves(dev, "Dev score of each task after each epoch", "dev score", marks, kept,
                                    dots=True))
    drawn.append(figures.curves({"lr": single["lr"]}, "Learning rate over training steps", "learning rate", marks))
    if single["gradient_norm"][0]:
        drawn.append(figures.curves({"norm": single["gradient_norm"]}, "Gradient norm over training steps, before "
                                    "clipping", "gradient norm", marks))
    if cosines:
        drawn.append(figures.curves(cosines, "Cosine of each pair of tasks' gradients over training steps", "cosine",
                                    marks, ylim=(-1, 1)))
    return _shown_figures(drawn)


def task_section(task: str, rows: Sequence[Prediction], tokenizer: BertTokenizer | None) -> dict[str, Any] | None:
    """Make the errors section of a task. None where there is nothing to compare."""
    rows = analysis.scored(rows)
    if not rows:
        return None
    classes = analysis.is_classification(rows)
    drawn: list[figures.Figure] = []
    section: dict[str, Any] = {"task": task, "count": len(rows), "classes": classes, "threshold": None, "error": None}
    measure = "accuracy" if classes else "mean absolute error"
    if classes:
        drawn.append(figures.matrix(analysis.confusion(rows), f"Confusion matrix of {task}"))
        if (found := analysis.calibration(rows)) is not None:
            drawn.append(figures.reliability(found.confidence, found.accuracy, found.counts,
                                             f"How often {task} is right at each confidence"))
            section["error"] = found.error
        section["threshold"] = analysis.threshold(rows)
        section["wrong"] = sum(row.wrong for row in rows)
    else:
        gold, predicted = (np.array([getattr(row, name) for row in rows], dtype=float)
                           for name in ("gold", "prediction"))
        drawn.append(figures.scatter(gold, predicted, f"Predicted and gold scores of {task}"))
        section["wrong"] = None
    lengths, labels = analysis.by_length(rows), analysis.by_label(rows)
    for groups, what in ((lengths, "words of an example"), (labels, "gold class" if classes else "gold score")):
        drawn.append(figures.bars([group.name for group in groups], [group.value for group in groups],
                                  f"{measure} of {task} by {what}", what, measure))
    section["figures"] = _shown_figures(drawn)
    section["groups"] = [{"what": "words", "groups": lengths}, {"what": "gold", "groups": labels}]
    section["measure"] = measure
    section["worst"] = [_shown(row, tokenizer) for row in analysis.worst(rows, WORST)]
    return section


def _shown(row: Prediction, tokenizer: BertTokenizer | None) -> dict[str, Any]:
    """Make a row of the table of errors."""
    pieces = []
    if tokenizer is not None:
        pieces = [" ".join(tokenizer.vocabulary[token.id] for token in tokenizer.tokenize(sentence[:2000]))
                  for sentence in row.sentences]
    says = ""
    if row.probabilities is not None:
        says = ", ".join(f"{index}: {value:.2f}" for index, value in enumerate(row.probabilities))
    elif row.score is not None:
        says = f"score {row.score:.3f}"
    return {"id": row.id, "sentences": [sentence[:2000] for sentence in row.sentences], "gold": _label(row.gold),
            "prediction": _label(row.prediction), "says": says, "pieces": pieces}


def _label(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) and value != int(value) else f"{value:g}"


def data_section(run: Run, tokenizer: BertTokenizer | None) -> tuple[list[FileCheck], list[Overlap]]:
    """Check the files that the run read, as far as they are still there, within a limit of rows.

    run: names the files. tokenizer: counts their pieces; words are counted if it is missing.
    """
    files = [path for path in run.data_files() if path.is_file()]
    size = 0
    chosen = []
    for path in files:
        with open(path, "rb") as file:
            size += sum(1 for _ in file)
        if size <= CHECKED_ROWS:
            chosen.append(path)
    lengths = run.results.get("max_length") or {}
    count = (lambda texts: [len(ids) for ids in tokenizer.ids(texts)]) if tokenizer is not None else None
    checks = check_files(chosen, count, max(lengths.values(), default=None))
    return [check for check in checks if check.kind], overlaps(checks)


def facts(run: Run) -> list[tuple[str, str]]:
    """List what the run was: commit, versions, machine, time, memory, hashes."""
    results = run.results
    versions = ", ".join(f"{name} {version}" for name, version in (results.get("versions") or {}).items())
    rows = [("recipe", str(results.get("recipe"))), ("seed", str(results.get("seed"))),
            ("starting weights", str(results.get("weights"))), ("commit", results.get("commit") or "no git checkout"),
            ("versions", versions),
            ("machine", f"{results.get('machine')}, {results.get('processors', '?')} processors"),
            ("engine and precision", f"{results.get('engine')}, {results.get('precision')}"),
            ("training time", in_words(results.get("training_seconds") or 0.0)),
            ("peak memory", f"{results['peak_memory_mb']:,} MB" if results.get("peak_memory_mb") else "-")]
    for part, hashes in (results.get("identity") or {}).items():
        rows += [(f"{part}: {Path(name).name}", f"SHA-256 {value}") for name, value in hashes.items()]
    return rows


# ---- pages -----------------------------------------------------------------------------------------------------------


def render(run: Run) -> str:
    """Make the report of one run."""
    tokenizer = run.tokenizer()
    sections = [section for task, rows in run.predictions.items()
                if (section := task_section(task, rows, tokenizer)) is not None]
    checks, leaks = data_section(run, tokenizer)
    attention = run.attention
    page = _environment().get_template("report.html")
    values = {
        "run": run, "scores": score_rows(run), "overall": run.results.get("overall"),
        "formula": run.results.get("overall_formula"), "earlier": earlier_runs(run), "curves": curve_figures(run),
        "seen": _seen(run), "conflicts": run.results.get("conflicts") or {}, "sections": sections, "checks": checks,
        "leaks": leaks, "facts": facts(run), "warnings": run.results.get("warnings") or [],
        "style": _file("style.css"), "script": _file("script.js")}
    text = page.render(**values, attention=attention, attention_json=_script_json(attention))
    while len(text.encode()) > LARGEST and attention:
        attention = attention[:-1]  # the one part whose size grows with the model
        text = page.render(**values, attention=attention, attention_json=_script_json(attention))
    return text


def _seen(run: Run) -> list[tuple[str, int, float | None]]:
    """Return each task, how many examples it has seen in training, and how often that is its set."""
    sizes = run.results.get("rows_train") or {}
    return [(task, count, count / sizes[task] if sizes.get(task) else None)
            for task, count in (run.results.get("examples_seen") or {}).items()]


def _file(name: str) -> Markup:
    return Markup((_TEMPLATES / name).read_text(encoding="utf-8"))


def _script_json(value: Any) -> Markup:
    """Write JSON that can stand inside a script element: no text in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def disagreements(first: Run, second: Run, task: str) -> dict[str, int] | None:
    """Count on how many dev examples one of two runs is right and the other wrong. None for other examples."""
    a, b = ({row.id: row for row in analysis.scored(run.predictions.get(task, []))} for run in (first, second))
    shared = [name for name in a if name in b and a[name].gold == b[name].gold]
    if not shared or not analysis.is_classification([*(a[name] for name in shared), *(b[name] for name in shared)]):
        return None
    right = [(not a[name].wrong, not b[name].wrong) for name in shared]
    return {"both": sum(x and y for x, y in right), "first": sum(x and not y for x, y in right),
            "second": sum(y and not x for x, y in right), "neither": sum(not x and not y for x, y in right)}


def recipe_differences(runs: Sequence[Run]) -> list[str]:
    """Return the lines in which the other runs' recipes differ from the first one's, as a diff."""
    lines: list[str] = []
    for run in runs[1:]:
        lines += difflib.unified_diff(runs[0].recipe.splitlines(), run.recipe.splitlines(), runs[0].name, run.name,
                                      lineterm="", n=1)
    return lines


def render_comparison(runs: Sequence[Run]) -> str:
    """Make the page that compares several runs."""
    metrics = list(dict.fromkeys((task, name) for run in runs for task, values in run.results["dev"].items()
                                 for name in values))
    drawn = []
    for task, name in metrics:
        having = [(run, run.results["dev"][task][name]) for run in runs if name in run.results["dev"].get(task, {})]
        if name == next(iter(having[0][0].results["dev"][task])):
            drawn.append(figures.bars([run.name for run, _ in having], [metric["value"] for _, metric in having],
                                      f"{task} {name} of each run, with 95 % intervals", "run", f"{task} {name}",
                                      [(metric["low"], metric["high"]) for _, metric in having]))
    progress = {}
    for run in runs:
        _, place = _stage_starts(run)
        progress[run.name] = ([place(record) for record in run.epochs if record.get("score") is not None],
                              [record["score"] for record in run.epochs if record.get("score") is not None])
    if any(xs for xs, _ in progress.values()):
        drawn.append(figures.curves(progress, "Mean dev score of each run after each epoch", "mean dev score",
                                    dots=True))
    pairs = [(runs[0], other, task, counts) for other in runs[1:] for task in runs[0].predictions
             if (counts := disagreements(runs[0], other, task)) is not None]
    return _environment().get_template("comparison.html").render(
        runs=runs, metrics=metrics, figures=_shown_figures(drawn), pairs=pairs,
        differences=recipe_differences(runs), style=_file("style.css"), script=_file("script.js"))


def write_report(folder: Path) -> Path:
    """Write the report of a finished run into its folder. Returns the file."""
    from report.run import load_run

    path = Path(folder) / REPORT
    write_text(path, render(load_run(folder)))
    return path


