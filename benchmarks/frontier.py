"""What a score costs: score, parameters, training time and speed of finished runs, beside the best published model.

    python -m benchmarks.frontier RUN RUN ... --data DIR [--out runs/frontier] [--figure docs/images/frontier.svg]

Runs of one recipe with several seeds are one row. Speed is sentences a second over the dev sets of the three tasks (all
of SST and STS, 2,000 Quora pairs): tokenized, sorted by length, float32, heads included. All models take turns in each
round. A pair is two sentences. Of the published model only its shape is measured: BERT-base with random weights, and
the heads of recipes/lee/nli_triplet.toml.
"""
import argparse
import io
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import compare, markdown
from corpora.files import write_json, write_text
from corpora.flags import Parser, positive
from corpora.messages import status_of
from engine.bert import FastBertModel
from minbert.config import BertConfig
from minbert.pretrained import DEFAULT, fetch
from minbert.tokenizer import BertTokenizer
from training.choices import COURSE_TASKS
from training.data import load_data
from training.evaluate import predict
from training.model import MultitaskModel, build_model, load_run
from training.program import keep_freed_memory
from training.recipe import Recipe, load_recipe
from training.runs import WEIGHTS, require_finished

PUBLISHED = Path(__file__).resolve().parent.parent / "recipes" / "lee" / "nli_triplet.toml"
BERT_BASE = BertConfig(vocab_size=30522, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                       intermediate_size=3072)
PAIRS = 2000  # of Quora, in a round
BLUE, ORANGE = "#0b63ce", "#b3541e"


@dataclass
class Row:
    """Hold one model's line of the table."""

    name: str
    seeds: int
    scores: dict[str, float]  # sst, para, sts and overall; means over seeds
    spread: float  # the standard deviation of overall
    encoder: int  # parameters of the shared encoder
    own: int  # of the tasks: heads, and layers of their own
    minutes: float | None  # of training
    speed: float = 0.0  # sentences a second


def sizes(model: MultitaskModel) -> tuple[int, int]:
    """Count the parameters of the encoder, and those of the tasks."""
    encoder = sum(parameter.numel() for parameter in model.encoder.parameters())
    return encoder, sum(parameter.numel() for parameter in model.parameters()) - encoder


def row_of(results: Sequence[dict[str, Any]], model: MultitaskModel) -> Row:
    """Make a row of the results of one recipe's runs. model: one of them."""
    dev = [result["dev"] for result in results]
    scores = {"sst": statistics.fmean(part["sst"]["accuracy"]["value"] for part in dev),
              "para": statistics.fmean(part["para"]["accuracy"]["value"] for part in dev),
              "sts": statistics.fmean(part["sts"]["pearson"]["value"] for part in dev)}
    overall = [result["overall"] for result in results]
    return Row(results[0]["recipe"], len(results), {**scores, "overall": statistics.fmean(overall)},
               statistics.stdev(overall) if len(overall) > 1 else 0.0, *sizes(model),
               statistics.fmean(result["training_seconds"] for result in results) / 60)


def predictor(recipe: Recipe, model: MultitaskModel, data: Path) -> tuple[Callable[[], object], int]:
    """Return what predicts the dev sets once, and how many sentences they have."""
    tasks = {name: task for name, task in model.tasks_by_name().items() if name in COURSE_TASKS}
    loaded = load_data(tasks, recipe, data, splits=("dev",), say=lambda text: None)
    examples = {name: loaded[name].dev[:PAIRS] for name in tasks}
    sentences = sum(len(example.sentences) for part in examples.values() for example in part)
    return lambda: [predict(task, model.encoder, examples[name], torch.device("cpu"))
                    for name, task in tasks.items()], sentences


def figure(rows: Sequence[Row]) -> str:
    """Draw overall over sentences a second, as SVG."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    with plt.rc_context({"svg.hashsalt": "minbert", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
                         "axes.spines.right": False}):
        canvas, ax = plt.subplots(figsize=(6.4, 3.4))
        for row in rows:
            size = (row.encoder + row.own) / 1e6
            ax.scatter([row.speed], [row.scores["overall"]], s=3 * size, alpha=0.5,
                       color=ORANGE if row.minutes is None else BLUE)
            ax.annotate(f"{row.name}, {size:.0f} M", (row.speed, row.scores["overall"]), xytext=(0, 14),
                        textcoords="offset points", ha="center")
        ax.set_xscale("log")
        for level in (ax.xaxis.set_major_formatter, ax.xaxis.set_minor_formatter):
            level("{x:g}")
        ax.margins(0.3)
        ax.set_xlabel(f"sentences a second ({torch.get_num_threads()} threads of a CPU, log scale)")
        ax.set_ylabel("overall, dev")
        ax.set_title("score and speed; a disc's area is the number of parameters")
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
        plt.close(canvas)
    return buffer.getvalue()


def measure(options: argparse.Namespace):
    """Read the runs, time them, and write table and figure. options: of the command."""
    keep_freed_memory()
    groups: dict[str, dict[Path, dict[str, Any]]] = {}  # recipe -> its runs -> their results
    for run in options.runs:
        require_finished(run)
        results = json.loads((run / "results.json").read_text(encoding="utf-8"))
        groups.setdefault(results["recipe"], {})[run] = results
    rows, contestants, counts = [], {}, set()
    for name, runs in groups.items():
        first = next(iter(runs))
        recipe = load_recipe(first / "recipe.toml")
        model = load_run(recipe, first, first / WEIGHTS, FastBertModel)
        rows.append(row_of(list(runs.values()), model))
        contestants[name], count = predictor(recipe, model, options.data)
        counts.add(count)
    published = load_recipe(PUBLISHED)
    tokenizer = BertTokenizer.load(fetch(DEFAULT))
    model = build_model(published, BERT_BASE, FastBertModel(BERT_BASE), tokenizer)
    course = MultitaskModel(model.encoder, {name: model.tasks_by_name()[name] for name in COURSE_TASKS})
    rows.append(Row("published: lee/nli_triplet", 1, published.published["dev"], 0.0, *sizes(course), None))
    contestants[rows[-1].name], count = predictor(published, course, options.data)
    counts.add(count)
    assert len(counts) == 1
    seconds = compare("dev", contestants, options.repeats).seconds
    for row in rows:
        row.speed = count / statistics.median(seconds[row.name])
    text = markdown(
        ["model", "seeds", "SST", "paraphrase", "STS", "overall", "encoder", "own to tasks", "training",
         "sentences/s"],
        [[row.name, str(row.seeds), *(f"{row.scores[name]:.3f}" for name in COURSE_TASKS),
          f"{row.scores['overall']:.3f}" + (f" ± {row.spread:.3f}" if row.seeds > 1 else ""),
          f"{row.encoder / 1e6:.1f} M", f"{row.own / 1e6:.1f} M",
          "not said" if row.minutes is None else f"{row.minutes:.0f} min", f"{row.speed:,.0f}"] for row in rows])
    print(text, end="")
    write_text(options.out.with_suffix(".md"), text)
    write_json(options.out.with_suffix(".json"), {"rows": [vars(row) for row in rows], "seconds": seconds})
    write_text(options.figure or options.out.with_suffix(".svg"), figure(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m benchmarks.frontier", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--data", type=Path, required=True, help="folder with the course's files")
    parser.add_argument("--out", type=Path, default=Path("runs/frontier"), help="two files: .md and .json")
    parser.add_argument("--figure", type=Path, help="an SVG file (default: beside them)")
    parser.add_argument("--repeats", type=positive, default=3, help="rounds")
    return status_of(lambda: measure(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
