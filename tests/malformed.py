"""Malformed files of every format that the project reads, made from a well-formed one by one change each.

Every reader must give the value, or one ValueError in one line that names the file. `python tests/malformed.py` prints
the table of docs/faults.md.
"""
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch

from alignment.corpus import read_pairs as read_alignment_pairs
from alignment.evaluate import read_gold
from alignment.jsonl import read_any
from corpora import toy
from corpora.layouts import FileLayout
from corpora.pairs import write_pairs
from corpora.predictions import load_predictions
from course import fingerprints
from course.exercises import load_course
from course.extension import read_runs
from course.leaderboard.scoring import load_hidden
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import SPECIAL_TOKENS, BertTokenizer
from minbert.weights import export, load_encoder, read_tensors
from report.run import load_run
from tasks.inference import read_pairs
from tasks.leaderboard import read_predictions
from tasks.options import OPTIONS
from tasks.registry import TASKS
from training import checkpoint
from training.recipe import load_recipe

CONFIG = BertConfig(vocab_size=60, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
                    max_position_embeddings=16)
QUESTIONS = {"sentence1": "q", "sentence2": "r", "is_duplicate": "same"}


def tokenizer() -> BertTokenizer:
    return BertTokenizer([*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghij")])


def reader(kind: str, split: str = "train", **options) -> Callable[[Path], object]:
    """A task's own reader, and then its tokenizer: what is accepted must also be usable."""
    task = TASKS[kind]("t", tokenizer(), CONFIG, OPTIONS[kind](**options))

    def read(path: Path) -> object:
        examples = task.read(path, split).examples
        task.tokenize(examples)
        return [task.length(example) for example in examples]
    return read


def own(format_name: str, kind: str = "paraphrase", **layout) -> Callable[[Path], object]:
    """The reader of a file of one's own."""
    task = TASKS[kind]("t", tokenizer(), CONFIG, OPTIONS[kind]())
    return lambda path: task.tokenize(task.read_own(path, "train", FileLayout(format_name, **layout)).examples)


def corpus(layout: str, *others: str) -> Callable[[Path], object]:
    """The reader of a paraphrase corpus as it is distributed. others: names of files beside the first."""
    return lambda path: write_pairs(layout, [path, *(path.with_name(name) for name in others)],
                                    path.with_name("written.tsv"))


def formats(folder: Path) -> dict[str, tuple[Path, Callable[[Path], object]]]:
    """Of each format a well-formed file, and its reader. A reader may look at the file's neighbours."""
    toy.write_course_files(folder, train=6, dev=4, test=4)
    toy.write_glue_files(folder, train=6, dev=4, test=4)
    toy.write_aligned_files(folder, train=6, dev=4, test=4)
    export(BertModel(CONFIG), tokenizer(), folder / "model")
    torch.save({"a": torch.ones(3)}, folder / "w.bin")
    checkpoint.save_state(folder / "run", {"a": torch.ones(3)}, {"stage": 0, "step": 1})
    write = {"p.csv": "id \t Predicted_Sentiment \na , 1 \nb , 2 \n", "pairs.tsv": "a dog ran\ta hound ran\nx y\tz y\n",
             "linked.tsv": "a dog ran\ta hound ran\t0-0 1-1\n", "trip.csv": 'sent0,sent1,hard_neg\n"a, b",c,d\ne,f,g\n',
             "n.tsv": "sentence1\tsentence2\tgold_label\na\tb\tneutral\nc\td\tentailment\n",
             "labels.dev": "neutral\nentailment\n", "s1.dev": "a\nb\n", "s2.dev": "c\nd\n",
             "x.phrases": "a dog ran\na hound ran\nc1 a dog ||| c2 a hound\n---  ||| c3 ran\n",
             "g.jsonl": '{"source": ["a", "b"], "target": ["c"], "sure": [[0, 0]]}\n',
             "r.toml": 'seed = 3\n[tasks.sst]\npooling = "mean"\n[[stage]]\ntasks = ["sst"]\n'
                       'optimizer = { lr = 1e-5 }\n',
             "x.wa": "<sentence id=\"1\" status=\"\">\n// a dog ran\n// a hound ran\n<source>\n1 a : \n</source>\n"
                     "<translation>\n1 a : \n</translation>\n<alignment>\n"
                     "1 2 <==> 1 2 // EQUI // 5 // a dog <==> a hound\n</alignment>\n</sentence>\n",
             "own.csv": 'q;r;same\n"a; b";c;yes\nd;e;no\n', "own.jsonl": '{"q": "a", "r": "b", "same": "yes"}\n',
             "place.tsv": "k\t1\ta\tb\n", "s1.own": "a\nb\n", "s2.own": "c\nd\n", "gold.own": "0\n1\n",
             "cmu.txt": "3 ||| a film\n0 ||| bad\n", "nmt.txt": "a dog\ta hound\t0.9\n",
             "urls.txt": "a dog\ta hound\t(5, 6)\thttp://x\n", "normal": "D\t0\ta dog\n", "simple": "D\t0\ta hound\n",
             "r1": "a\nb\n", "r2": "c\nd\n",
             "t.tsv": "a b\tc d\n", "trees.tsv": "(S (A a) (B b))\t(S (A c) (B d))\n"}
    results = '{"seed": 1, "overall": 0.5, "dev": {"sst": {"accuracy": {"value": 0.5, "low": 0.4, "high": 0.6}}}}'
    write |= {"finished/results.json": results, "finished/recipe.toml": write["r.toml"],
              "finished/metrics.jsonl": '{"stage": 0, "step": 1, "loss": {"sst": 1.5}}\n',
              "finished/predictions/sst-dev.jsonl": '{"id": "a", "sentences": ["a film"], "gold": 1, "prediction": 2, '
                                                    '"probabilities": [0.25, 0.25, 0.5]}\n',
              "measured/mine/seed-1/results.json": results, "measured/mine/seed-1/recipe.toml": write["r.toml"],
              "exercises.toml": "hints = 1\n[a]\ntitle = 't'\nsolutions = []\npoints = 1\nminutes = 1\nwhy = ''\n"
                                "equation = ''\n",
              "hidden/sst-labels.csv": "id\tsentiment\tpart\na\t1\tpublic\nb\t4\tprivate\n",
              "hidden/para-labels.csv": "id\tis_duplicate\tpart\na\t1\tpublic\n",
              "hidden/sts-labels.csv": "id\tsimilarity\tpart\na\t1.5\tpublic\n"}
    for name, text in write.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "course" / "checks" / "pairs.npz", folder / "pairs.npz")

    def encoder(path: Path) -> object:
        return load_encoder(path.parent)

    return {
        "sentiment table": (folder / "ids-sst-train.csv", reader("sentiment")),
        "sentiment test table": (folder / "ids-sst-test-student.csv", reader("sentiment", "test")),
        "paraphrase table": (folder / "quora-train.csv", reader("paraphrase")),
        "similarity table": (folder / "sts-train.csv", reader("similarity")),
        "sentences of any table": (folder / "sts-train.csv", reader("masked_words")),
        "NLI JSON lines": (folder / "nli-train.jsonl", lambda path: read_pairs(path, "train")),
        "NLI table": (folder / "n.tsv", lambda path: read_pairs(path, "train")),
        "NLI parallel lines": (folder / "labels.dev", lambda path: read_pairs(path, "dev")),
        "NLI triplets": (folder / "trip.csv", reader("inference_triplets")),
        "GLUE MRPC": (folder / "MRPC" / "train.tsv", reader("glue", layout="mrpc")),
        "GLUE STS-B": (folder / "STS-B" / "train.tsv", reader("glue", layout="stsb")),
        "GLUE CoLA": (folder / "CoLA" / "train.tsv", reader("glue", layout="cola")),
        "aligned phrases (task)": (folder / "train.jsonl", reader("phrases")),
        "aligned phrases (aligner)": (folder / "dev.jsonl", read_any),
        "iSTS .wa": (folder / "x.wa", read_any),
        "phrase blocks": (folder / "x.phrases", read_any),
        "sentence pairs": (folder / "pairs.tsv", read_alignment_pairs),
        "linked pairs": (folder / "linked.tsv", read_alignment_pairs),
        "bracketed trees": (folder / "trees.tsv", lambda path: read_alignment_pairs(path.with_name("t.tsv"), path)),
        "gold links": (folder / "g.jsonl", read_gold),
        "prediction file": (folder / "p.csv", read_predictions),
        "own csv": (folder / "own.csv", own("csv", separator=";", columns=QUESTIONS, labels={"yes": 1, "no": 0})),
        "own JSON lines": (folder / "own.jsonl", own("jsonl", columns=QUESTIONS, labels={"yes": 1, "no": 0})),
        "own table by places": (folder / "place.tsv", own("tsv", header=False, columns={
            "id": "1", "is_duplicate": "2", "sentence1": "3", "sentence2": "4"})),
        "own parallel lines": (folder / "s1.own", own("lines", columns={
            "sentence1": "s1", "sentence2": "s2", "is_duplicate": "gold"})),
        "CMU's files": (folder / "cmu.txt", own("cmu", "sentiment")),
        "Para-NMT": (folder / "nmt.txt", corpus("para-nmt")),
        "Twitter URL": (folder / "urls.txt", corpus("twitter-url")),
        "Simple Wikipedia": (folder / "normal", corpus("simple-wikipedia", "simple")),
        "references": (folder / "r1", corpus("references", "r2")),
        "recipe": (folder / "r.toml", load_recipe),
        "config.json": (folder / "model" / "config.json", encoder),
        "tokenizer.json": (folder / "model" / "tokenizer.json", encoder),
        "tokenizer_config.json": (folder / "model" / "tokenizer_config.json", encoder),
        "vocab.txt": (folder / "model" / "vocab.txt", encoder),
        "modules.json": (folder / "model" / "modules.json", encoder),
        "pooling config": (folder / "model" / "1_Pooling" / "config.json",
                           lambda path: load_encoder(path.parent.parent)),
        "model.safetensors": (folder / "model" / "model.safetensors", encoder),
        "pickled weights": (folder / "w.bin", read_tensors),
        "saved state": (folder / "run" / "state.json", lambda path: checkpoint.load_state(path.parent)),
        "predictions with context": (folder / "finished" / "predictions" / "sst-dev.jsonl", load_predictions),
        "results of a run": (folder / "finished" / "results.json", lambda path: load_run(path.parent)),
        "log of a run": (folder / "finished" / "metrics.jsonl", lambda path: load_run(path.parent)),
        "results of an extension": (folder / "measured" / "mine" / "seed-1" / "results.json",
                                    lambda path: read_runs(path.parents[2])),
        "recipe of an extension": (folder / "measured" / "mine" / "seed-1" / "recipe.toml",
                                   lambda path: read_runs(path.parents[2])),
        "exercises.toml": (folder / "exercises.toml", load_course),
        "outputs of an exercise": (folder / "pairs.npz", lambda path: fingerprints.load("pairs", path.parent)),
        "hidden labels": (folder / "hidden" / "sst-labels.csv", lambda path: load_hidden(path.parent)),
    }


def json_value(text: str, value: str, rng: random.Random) -> str:
    """Replace one JSON value of a text by another."""
    places = [i for i, c in enumerate(text) if c in ":[" and i + 1 < len(text)]
    if not places:
        return text + value
    start = rng.choice(places) + 1
    end = start
    while end < len(text) and text[end] not in ",}]\n":
        end += 1
    return text[:start] + value + text[end:]


def changes(content: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Damaged versions of a file."""
    text = content.decode("utf-8", errors="replace")
    lines = text.split("\n")
    yield "empty", b""
    yield "a byte order mark", b"\xef\xbb\xbf" + content
    yield "two byte order marks", b"\xef\xbb\xbf" * 2 + content
    yield "CRLF", content.replace(b"\n", b"\r\n")
    yield "CR", content.replace(b"\n", b"\r")
    yield "no last line break", content.rstrip(b"\n")
    yield "blank lines", content.replace(b"\n", b"\n\n")
    yield "only the first line", lines[0].encode() + b"\n"
    yield "without the first line", "\n".join(lines[1:]).encode()
    yield "the first line twice", "\n".join([lines[0], *lines]).encode()
    yield "the second line twice", "\n".join([*lines[:2], *lines[1:]]).encode()
    yield "lines in reverse", "\n".join(lines[::-1]).encode()
    yield "commas for tabs", content.replace(b"\t", b",")
    yield "spaces for tabs", content.replace(b"\t", b"  ")
    yield "one more tab", content.replace(b"\n", b"\t\n")
    yield "no quotes", content.replace(b'"', b"")
    yield "UTF-16", text.encode("utf-16")
    yield "an HTML page", b"<!DOCTYPE html><html><body>404</body></html>\n"
    yield "an LFS pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    yield "a NUL", content[:len(content) // 2] + b"\0" + content[len(content) // 2:]
    yield "an escape sequence", content[:len(content) // 2] + b"\x1b[2J" + content[len(content) // 2:]
    yield "a wrong byte", content[:len(content) // 2] + b"\xff" + content[len(content) // 2:]
    yield "nested deeply", b"[" * 20_000
    yield "an object nested deeply", b'{"a":' * 20_000
    yield "a number of 5,000 digits", b"9" * 5000
    for value in ("null", "true", "-1", "1.5", "NaN", "1e999", "9" * 5000, '"x"', "[]", "[[]]", "{}", '"\\u0000"',
                  '""'):
        yield f"a value {value[:8]}", json_value(text, value, rng).encode()
    for _ in range(4):
        yield "cut short", content[:rng.randrange(1, max(2, len(content)))]
        place = rng.randrange(len(content))
        yield "a byte removed", content[:place] + content[place + 1:]
        yield "a bit flipped", content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1:]
        if b"\t" in content:
            fields = [line.split("\t") for line in lines]
            row = rng.randrange(1, max(2, len(fields) - 1))
            if row < len(fields):
                column = rng.randrange(len(fields[row]))
                fields[row][column] = rng.choice(["", "x", "-1", "0_1", "nan", "1e9", "\u0663"])
            yield "a field changed", "\n".join("\t".join(row) for row in fields).encode()


def attempts(folder: Path, seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """(format, change, what came of it: value, one line, or the fault) of every damaged file."""
    for name, (path, read) in formats(folder).items():
        rng = random.Random(f"{seed}/{name}")
        content = path.read_bytes()
        read(path)  # the well-formed file is read
        for change, damaged in changes(content, rng):
            path.write_bytes(damaged)
            try:
                read(path)
                result = "value"
            except ValueError as error:
                message = str(error)
                fine = "\n" not in message and (path.name in message or str(path.parent) in message
                                                or path.with_name("s1.dev").name in message)
                result = "one line" if fine else f"FAULT: {message[:200]!r}"
            except Exception as error:
                result = f"FAULT: {type(error).__name__}: {str(error)[:200]!r}"
            path.write_bytes(content)
            yield name, change, result


def main():
    counts: dict[str, Counter] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, change, result in attempts(Path(folder)):
            counts.setdefault(name, Counter())[result.split(":")[0]] += 1
            if result.startswith("FAULT"):
                print(f"{name}, {change}: {result}", file=sys.stderr)
    print("| format | inputs | a value | one line | faults |\n|---|---|---|---|---|")
    for name, counter in {**counts, "all": sum(counts.values(), Counter())}.items():
        print(f"| {name} | {counter.total():,} | {counter['value']:,} | {counter['one line']:,} | "
              f"{counter['FAULT']:,} |")


if __name__ == "__main__":
    main()
