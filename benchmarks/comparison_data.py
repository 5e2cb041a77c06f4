"""Writes the folder that docs/comparison.md was measured on: the published sets' ratio, at a fraction of their sizes.

    python -m benchmarks.comparison_data ../shared/data --out runs/comparison-data
    python -m benchmarks.comparison_data ../shared/data --out runs/comparison-ma --fraction 8 --quora 17688

Lee and Yi trained on 8,544 rows of SST, 141,507 of Quora, 6,041 of STS, 550,152 of SNLI and 392,703 of MultiNLI. A
sixteenth of each is drawn. Ma et al. had 17,688 rows of Quora, and an eighth is drawn for them. Of the two NLI sets
there is less: all of SNLI's dev set (its test set is then the dev set) and 10,000 rows of MultiNLI's training set.
"""
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from corpora.examples import Example
from corpora.files import write_text
from corpora.flags import Parser, positive
from corpora.messages import status_of
from corpora.tables import read_lines
from tasks.inference import read_pairs

PUBLISHED = {"ids-sst-train.csv": 8544, "quora-train.csv": 141_507, "sts-train.csv": 6041,
             "snli_1.0_train.jsonl": 550_152, "multinli_1.0_train.jsonl": 392_703}
DEV_PAIRS = 2000  # of Quora; 1,000 of each NLI set: enough to tell the rows apart
NLI_LABELS = ("contradiction", "neutral", "entailment")


def drawn(rows: Sequence[str], count: int, name: str) -> list[str]:
    """Draw rows in their own order, always the same ones. name: of the file they are for."""
    if count >= len(rows):
        return list(rows)
    chosen = sorted(random.Random(f"comparison/{name}").sample(range(len(rows)), count))
    return [rows[index] for index in chosen]


def nli_rows(examples: Sequence[Example]) -> list[str]:
    """Write pairs as SNLI's own files have them, one JSON object a line."""
    return [json.dumps({"gold_label": NLI_LABELS[int(example.label or 0)], "sentence1": example.sentences[0],
                        "sentence2": example.sentences[1]}) for example in examples]


def write_folder(data: Path, out: Path, fraction: int, quora: int):
    """Write the files.

    Args:
        data: the folder with cs224n, qqp and nli.
        out: the folder for the files.
        fraction: a set becomes this many times smaller than the published one.
        quora: rows of the published Quora set.
    """
    published = {**PUBLISHED, "quora-train.csv": quora}
    sources = {"ids-sst-train.csv": data / "cs224n/ids-sst-train.csv",
               "ids-sst-dev.csv": data / "cs224n/ids-sst-dev.csv",
               "quora-train.csv": data / "qqp/quora-train-merged2.csv", "quora-dev.csv": data / "cs224n/quora-dev.csv",
               "sts-train.csv": data / "cs224n/sts-train.csv", "sts-dev.csv": data / "cs224n/sts-dev.csv"}
    for name, source in sources.items():
        header, *rows = read_lines(source)
        count = round(published[name] / fraction) if name in published else DEV_PAIRS
        chosen = drawn(rows, count, name)
        write_text(out / name, "\n".join([header, *chosen]) + "\n")
        print(f"{out / name}: {len(chosen):,} of {len(rows):,} rows")
    inference = {"snli_1.0_train.jsonl": ("snli/labels.dev", "dev"), "snli_1.0_dev.jsonl": ("snli/labels.test", "dev"),
                 "multinli_1.0_train.jsonl": ("mnli/train.jsonl", "train"),
                 "multinli_1.0_dev_matched.jsonl": ("mnli/dev.jsonl", "dev")}
    for name, (file, split) in inference.items():
        rows = nli_rows(read_pairs(data / "nli" / file, split).examples)
        chosen = drawn(rows, round(published[name] / fraction) if name in published else 1000, name)
        write_text(out / name, "\n".join(chosen) + "\n")
        print(f"{out / name}: {len(chosen):,} of {len(rows):,} pairs")


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m benchmarks.comparison_data", description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="the folder with cs224n, qqp and nli")
    parser.add_argument("--out", type=Path, default=Path("runs/comparison-data"))
    parser.add_argument("--fraction", type=positive, default=16, help="a set becomes this many times smaller")
    parser.add_argument("--quora", type=positive, default=PUBLISHED["quora-train.csv"],
                        help="rows of the published Quora set")
    options = parser.parse_args(arguments)
    if options.fraction < 1 or options.quora < 1:
        parser.error("--fraction and --quora: expected 1 or more")
    return status_of(lambda: write_folder(options.data, options.out, options.fraction, options.quora))


if __name__ == "__main__":
    sys.exit(main())
