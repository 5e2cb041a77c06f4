"""python -m benchmarks [PART ...] [--data DIR]: ratios against peers, printed and saved as Markdown and JSON.

Parts: training encoding tokenization optimizer surgery overhead floor memory scaling (default: all). Every contestant
does the same work in the same process, one round after the other; figures are medians with quartiles.
"""
import argparse
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.contestants import TASKS
from benchmarks.measure import Comparison, markdown, table
from benchmarks.training import PEERS
from corpora.files import write_json, write_text
from corpora.flags import Parser, positive
from corpora.messages import status_of
from corpora.tables import read_table
from corpora.toy import write_course_files
from minbert.pretrained import DEFAULT
from training.program import keep_freed_memory


def sentences_of(data: Path, count: int) -> list[str]:
    """The first different sentences of the paraphrase task's dev and train files."""
    found: dict[str, None] = {}
    for name in ("quora-dev.csv", "quora-train.csv"):
        for row in read_table(data / name, ["sentence1", "sentence2"]):
            found |= dict.fromkeys(text for text in (row.sentence("sentence1"), row.sentence("sentence2")) if text)
    return list(found)[:count]


class Report:
    """Collects what the parts found, prints it, and keeps it."""

    def __init__(self, out: Path):
        self.out, self.text = out, ""
        self.records: list = []

    def say(self, text: str):
        print(text, flush=True)
        self.text += text + "\n"
        write_text(self.out.with_suffix(".md"), self.text)

    def add(self, *comparisons: Comparison):
        self.say(table(list(comparisons)))
        self.record(*(comparison.record() for comparison in comparisons))

    def record(self, *records: dict):
        self.records += records
        write_json(self.out.with_suffix(".json"), self.records)


def training(report: Report, data: Path, options: argparse.Namespace):
    from benchmarks import training

    for pooling in options.pooling:
        for batch_size in options.batch_sizes:
            report.add(*training.run(data, options.weights, batch_size, options.batches, options.repeats, pooling,
                                     options.tasks, options.peers))


def encoding(report: Report, data: Path, options: argparse.Namespace):
    from benchmarks import encoding

    found, difference = encoding.run(sentences_of(data, options.sentences), options.weights, min(options.repeats, 5))
    report.add(found)
    report.say(f"largest difference of our float32 vectors from sentence-transformers': {difference:.1e}\n")


def tokenization(report: Report, data: Path, options: argparse.Namespace):
    from benchmarks import tokenization

    report.add(tokenization.run(sentences_of(data, options.sentences), options.weights, min(options.repeats, 5)))


def optimizer(report: Report, data: Path, options: argparse.Namespace):
    from benchmarks import optimizer

    report.add(optimizer.run(options.weights, options.repeats))


def surgery(report: Report, data: Path, options: argparse.Namespace):
    from benchmarks import surgery

    report.add(surgery.run(data, options.weights, 32, options.repeats))


def overhead(report: Report, data: Path, options: argparse.Namespace):
    from benchmarks import overhead

    for precision in ("float32", "bfloat16"):
        ours, theirs = overhead.padding(data, options.weights, 32, precision)
        report.say(f"rows without a token in what linear layers multiply, {precision}: {ours:.1%}; of the same "
                   f"batches, padded: {theirs:.1%}")
    for batch_size in options.batch_sizes:
        share = overhead.loop(data, options.weights, batch_size)
        report.say(f"share of a training step outside forward, backward and optimizer, batch {batch_size}: {share:.1%}")
    rows, seconds = overhead.loading(data, options.weights)
    report.say(f"reading and tokenizing {rows:,} rows: {seconds:.2f} s\n")
    report.add(overhead.start_up(options.weights, min(options.repeats, 5)))


def floor(report: Report, data: Path, options: argparse.Namespace):
    from benchmarks import floor

    found = floor.run(data, options.weights, 32, 4 * options.repeats)
    report.say(markdown(["training, batch 32", "precision", "their floor, ms", "a step, ms", "floor / step"], [
        [task, precision, f"{least:,.0f}", f"{measured:,.0f}", f"{share:.0%}"]
        for task, precision, least, measured, share in found]))
    report.record({"name": "floor", "rows": found})


def memory(report: Report, data: Path, options: argparse.Namespace):
    from benchmarks import memory

    found = memory.run(data, options.weights)
    report.say(markdown(["training sts, batch 32", "peak memory, MB", "over ours"], [
        [name, f"{value:,.0f}", f"{value / found['ours']:.2f}"] for name, value in found.items()]))
    report.record({"name": "peak memory, MB", **found})


def scaling(report: Report, data: Path, options: argparse.Namespace):
    from benchmarks import scaling

    steps = 4 * options.repeats
    lengths = scaling.by_length(options.weights, options.lengths, options.tokens, steps)
    batches = scaling.by_batch(data, options.weights, options.batch_sizes, steps)
    tasks = scaling.by_tasks(data, options.weights, 32, steps)
    rows = scaling.by_rows(options.weights, options.rows)
    report.say(markdown(["tokens of a sentence", "sentences a batch", "tokens/s in training"], [
        [str(length), str(count), f"{speed:,.0f}"] for length, count, speed in lengths]))
    report.say(markdown(["batch size", "sts examples/s in training"], [
        [str(size), f"{speed:,.0f}"] for size, speed in batches]))
    report.say(markdown(["gradients by", "tasks", "a step, ms", "over one task's"], [
        [combine, str(count), f"{1000 * seconds:,.0f}", f"{ratio:.2f}"] for combine, count, seconds, ratio in tasks]))
    report.say(markdown(["rows of a file", "read and tokenized in, s", "a step, ms", "memory, MB"], [
        [f"{count:,}", f"{loading:.1f}", f"{1000 * step:,.0f}", f"{megabytes:,.0f}"]
        for count, loading, step, megabytes in rows]))
    report.record({"name": "scaling", "lengths": lengths, "batches": batches, "tasks": tasks, "rows": rows})


PARTS = {part.__name__: part for part in (training, encoding, tokenization, optimizer, surgery, overhead, floor,
                                          memory, scaling)}


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--data", type=Path, help="folder with the course's files (default: generated)")
    parser.add_argument("--weights", default=DEFAULT)
    parser.add_argument("--batch_sizes", type=positive, nargs="+", default=[8, 32, 64])
    parser.add_argument("--pooling", nargs="+", choices=("mean", "cls"), default=["mean", "cls"],
                        help="of the sentence vectors in training: our default's, and the course's")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="in training")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS, metavar="PEER",
                        help=f"in training, of: {'; '.join(PEERS)}")
    parser.add_argument("--batches", type=positive, default=8, help="of each training round")
    parser.add_argument("--sentences", type=positive, default=20_000, help="to encode and to tokenize")
    parser.add_argument("--lengths", type=positive, nargs="+", default=[8, 16, 32, 64, 128, 256, 512],
                        help="of sentences, in the part scaling")
    parser.add_argument("--tokens", type=positive, default=2048, help="a batch, in the part scaling")
    parser.add_argument("--rows", type=positive, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000],
                        help="of a file, in the part scaling")
    parser.add_argument("--repeats", type=positive, default=5, help="rounds")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks"), help="two files: .md and .json")
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part '{unknown[0]}'; expected some of {', '.join(PARTS)}")
    keep_freed_memory()
    report = Report(options.out)

    def run():
        with tempfile.TemporaryDirectory() as temporary:
            if options.data is None:
                write_course_files(Path(temporary))
            report.say(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {options.repeats} rounds, "
                       f"{'generated data' if options.data is None else 'real data'}\n")
            for name in options.parts or PARTS:
                PARTS[name](report, options.data or Path(temporary), options)

    return status_of(run)


if __name__ == "__main__":
    sys.exit(main())
