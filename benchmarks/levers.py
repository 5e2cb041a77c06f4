"""Measures what each lever gives alone: one base recipe, one change at a time, the same number of steps, three seeds.

    python -m benchmarks.levers ../shared/data --out runs/levers [--teacher RUN] [--tft ENCODER] [--parallel 2]

The base is the three tasks of the course on one shared encoder for 150 steps, at a rate that falls to zero, and its
last weights are kept. A lever that needs a stage before has 50 steps more, and says so. Every row is tested against the
base over the same dev rows: all of SST and STS, and 4,000 Quora pairs. A row that is finished is not run again.
"""
import argparse
import copy
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparison_data import drawn
from corpora.files import write_text
from corpora.flags import Parser, positive
from corpora.messages import status_of
from corpora.tables import read_lines, read_table
from minbert.pretrained import DEFAULT
from training import compare, mining
from training.recipe import parse_recipe, recipe_to_toml

BASE = """
about = "the three tasks on one shared encoder"
source = "ours"
[tasks.sst]
pooling = "mean"
[tasks.para]
pooling = "mean"
combination = "u,v,|u-v|,u*v,cos"
[tasks.sts]
pooling = "mean"
[stage]
tasks = ["sst", "para", "sts"]
epochs = 1
steps_per_epoch = 150
batch_size = { sst = 16, para = 64, sts = 16 }
loss_weights = { sts = 10.0 }
optimizer = { lr = 5e-5, head_lr = 1e-3, weight_decay = 0.01 }
keep = "last"
"""
PHRASES = """
[tasks.phrases]
model_of = "sst"
train = ["{file}"]
[stage]
tasks = ["sst", "phrases", "para", "sts"]
batch_size = {{ phrases = 48 }}
"""
BEFORE = """
[tasks.{task}]
{settings}
[before]
tasks = ["{task}"]
epochs = 1
steps_per_epoch = 50
batch_size = {size}
optimizer = {{ lr = 3e-5, head_lr = 1e-3 }}
keep = "last"
"""
# Name -> where it comes from, and what it changes in the base. "before" and "after" are further stages.
LEVERS = {
    "phrases": ("SST's phrases beside its sentences (Socher et al. 2013)", PHRASES.format(file="phrases.csv")),
    "long_phrases": ("phrases of four words and more only", PHRASES.format(file="long-phrases.csv")),
    "phrases_first": ("phrases in the first 100 steps, sentences alone in the last 50 (Bengio et al. 2009)",
                      PHRASES.format(file="phrases.csv") + """
steps_per_epoch = 100
schedule = "constant"
[after]
tasks = ["sst", "para", "sts"]
epochs = 1
steps_per_epoch = 50
batch_size = { sst = 16, para = 64, sts = 16 }
loss_weights = { sts = 10.0 }
warmup = 0.0
optimizer = { lr = 5e-5, head_lr = 1e-3, weight_decay = 0.01 }
keep = "last"
"""),
    "rate": ("a rate of 1e-4 instead of 5e-5", "[stage]\noptimizer = { lr = 1e-4 }\n"),
    "own_layers": ("copies of the top three layers for sentiment and paraphrase (Stickland & Murray 2019)",
                   "[tasks.sst]\nown_layers = 3\n[tasks.para]\nown_layers = 3\n"),
    "low_rank": ("LoRA of rank 8 for sentiment and paraphrase, on the encoder that all train (Hu et al. 2021)",
                 "[tasks.sst]\nlow_rank = 8\n[tasks.para]\nlow_rank = 8\n"),
    "adapter": ("adapters of width 32 for sentiment and paraphrase, the encoder trains too (Houlsby et al. 2019)",
                "[tasks.sst]\nadapter = 32\n[tasks.para]\nadapter = 32\n"),
    "new_layers": ("a new layer on top of the encoder for sentiment and paraphrase",
                   "[tasks.sst]\nnew_layers = 1\n[tasks.para]\nnew_layers = 1\n"),
    "cross": ("paraphrase in one sequence (Devlin et al. 2019)", '[tasks.para]\nencoding = "cross"\n'),
    "both": ("paraphrase as two vectors and in one sequence", '[tasks.para]\nencoding = "both"\n'),
    "duplicates": ("contrast on duplicates beside the classifier (InfoNCE, Henderson et al. 2017)", """
[tasks.duplicates]
kind = "paraphrase"
train = ["duplicates.csv"]
dev = ["quora-dev.csv"]
pooling = "mean"
head = "cosine"
loss = "info_nce"
[stage]
tasks = ["sst", "para", "sts", "duplicates"]
batch_size = { duplicates = 32 }
loss_weights = { duplicates = 0.1 }
"""),
    "threshold": ("the threshold that is best on 2,000 held-out rows of train, in place of one half",
                  '[tasks.para]\nheld_out = ["quora-train.csv"]\n'),
    "mined": ("mined hard negatives, a tenth of the pairs", """
[tasks.mined]
model_of = "para"
train = ["mined.csv"]
[stage]
tasks = ["sst", "para", "mined", "sts"]
batch_size = { para = 58, mined = 6 }
loss_weights = { para = 0.9, mined = 0.1 }
"""),
    "simcse": ("50 steps of a sentence with itself before (Gao et al. 2021, section 3)", BEFORE.format(
        task="twins", size=64, settings='kind = "similarity"\ntrain = ["twins.csv"]\ndev = ["sts-dev.csv"]\n'
        'pooling = "mean"\nloss = "info_nce"')),
    "masked_words": ("50 steps of masked words before (Gururangan et al. 2020)", BEFORE.format(
        task="words", size=64, settings='kind = "masked_words"\ntrain = ["ids-sst-train.csv", "quora-train.csv", '
        '"sts-train.csv"]\ndev = ["ids-sst-dev.csv"]')),
    "nli": ("50 steps of NLI triplets before (Gao et al. 2021, section 4)", BEFORE.format(
        task="triplets", size=64, settings='kind = "inference_triplets"\ntrain = ["triplets.csv"]\n'
        'dev = ["triplets-dev.csv"]\npooling = "mean"\nobjective = "contrastive"')),
    "tft": ("starts from transfer fine-tuning (Arase & Tsujii 2019)", 'weights = "{tft}"\n'),
    "smart": ("SMART (Jiang et al. 2020)", "[stage]\nsmart = 1.0\n"),
    "rdrop": ("R-Drop (Liang et al. 2021)", "[stage]\nrdrop = 1.0\n"),
    "ema": ("moving average of the weights (Polyak & Juditsky 1992)", '[stage]\naverage = "ema"\nema_decay = 0.97\n'),
    "swa": ("mean of the last weights (Izmailov et al. 2018)", '[stage]\naverage = "swa"\n'),
    "uncertainty": ("learned loss weights (Kendall et al. 2018), in place of 10 for STS",
                    '[stage]\nweighting = "uncertainty"\nloss_weights = { sts = 1.0 }\n'),
    "dwa": ("learned loss weights (Liu, Johns & Davison 2019); epochs of 25 steps",
            '[stage]\nweighting = "dwa"\nepochs = 6\nsteps_per_epoch = 25\n'),
    "gradnorm": ("learned loss weights (Chen et al. 2018), in place of 10 for STS",
                 '[stage]\nweighting = "gradnorm"\nloss_weights = { sts = 1.0 }\n'),
    "famo": ("learned loss weights (Liu et al. 2023), in place of 10 for STS; every batch is computed twice",
             '[stage]\nweighting = "famo"\nloss_weights = { sts = 1.0 }\n'),
    "pcgrad": ("gradient surgery (Yu et al. 2020)", '[stage]\ncombine = "pcgrad"\n'),
    "cagrad": ("gradient surgery (Liu et al. 2021)", '[stage]\ncombine = "cagrad"\n'),
    "label_smoothing": ("label smoothing 0.1 for sentiment and paraphrase (Szegedy et al. 2016)",
                        "[tasks.sst]\nlabel_smoothing = 0.1\n[tasks.para]\nlabel_smoothing = 0.1\n"),
    "frozen_end": ("own layers; in the last 50 steps the shared part is frozen", """
[tasks.sst]
own_layers = 3
[tasks.para]
own_layers = 3
[stage]
steps_per_epoch = 100
schedule = "constant"
[after]
tasks = ["sst", "para"]
epochs = 1
steps_per_epoch = 50
trainable = "heads"
batch_size = { sst = 16, para = 64 }
warmup = 0.0
optimizer = { lr = 5e-5, head_lr = 1e-3, weight_decay = 0.01 }
keep = "last"
"""),
    "teacher": ("a base-size model's answers are labels too (Hinton et al. 2015)",
                "".join(f'[tasks.{task}]\nteacher = "{{teacher}}"\n' for task in ("sst", "para", "sts"))),
    "unlabelled": ("half of the pairs are mined ones without a label; a base-size model answers for all of them", """
[tasks.para]
teacher = "{teacher}"
[tasks.mined]
model_of = "para"
train = ["mined.csv"]
unlabelled = true
[stage]
tasks = ["sst", "para", "mined", "sts"]
batch_size = { para = 32, mined = 32 }
loss_weights = { para = 0.5, mined = 0.5 }
"""),
}
DEV_PAIRS = 4000
MINED_FROM = 30_000  # questions


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a table in which another one's values are put, table by table."""
    result = copy.deepcopy(base)
    for name, value in change.items():
        result[name] = merged(result.get(name, {}), value) if isinstance(value, dict) else value
    return result


def recipe_of(name: str, change: str, weights: str = DEFAULT) -> str:
    """Return the recipe of a row.

    Args:
        name: of the row.
        change: TOML that is put into the base.
        weights: of the encoder, unless the row has its own.
    """
    values = merged({"weights": weights, **tomllib.loads(BASE)}, tomllib.loads(change))
    stages = [values.pop(stage) for stage in ("before", "stage", "after") if stage in values]
    return recipe_to_toml(parse_recipe({**values, "name": name, "stage": stages}, f"{name}.toml"))


def _write(path: Path, header: str, lines: Sequence[str]):
    write_text(path, "\n".join([header, *lines]) + "\n")
    print(f"{path}: {len(lines):,} rows")


def write_data(shared: Path, out: Path):
    """Write the folder that the rows train on, unless it is there. shared: the folder with cs224n, qqp, sst and nli."""
    if (out / "mined.csv").exists():
        return
    course = shared / "cs224n"
    for name in ("ids-sst-train.csv", "ids-sst-dev.csv", "sts-train.csv", "sts-dev.csv", "quora-dev.csv"):
        header, *lines = read_lines(course / name)
        _write(out / name, header, drawn(lines, DEV_PAIRS, name) if name == "quora-dev.csv" else lines)
    header, *lines = read_lines(shared / "qqp/quora-train-merged2.csv")
    _write(out / "quora-train.csv", header, lines)
    header, *lines = read_lines(shared / "sst/ids-sst-phrases-train.csv")
    _write(out / "phrases.csv", header, lines)
    place = header.split("\t").index("sentence")
    _write(out / "long-phrases.csv", header, [line for line in lines if len(line.split("\t")[place].split()) >= 4])
    asked = {row.sentence(name).lower() for row in read_table(course / "quora-dev.csv", ["sentence1", "sentence2"])
             for name in ("sentence1", "sentence2")}
    rows = list(read_table(shared / "qqp/quora-duplicates.csv", ["sentence1", "sentence2"]))
    apart = [(row.sentence("sentence1"), row.sentence("sentence2")) for row in rows]
    apart = [pair for pair in apart if not {sentence.lower() for sentence in pair} & asked]
    _write(out / "duplicates.csv", mining.HEADER,
           [mining.line(f"d{index}", *pair, 1) for index, pair in enumerate(apart)])
    texts = dict.fromkeys(row.sentence(column) for name, columns in (
        ("ids-sst-train.csv", ["sentence"]), ("quora-train.csv", ["sentence1", "sentence2"]),
        ("sts-train.csv", ["sentence1", "sentence2"])) for row in read_table(out / name, columns) for column in columns)
    _write(out / "twins.csv", "\tid\tsentence1\tsentence2\tsimilarity",
           [mining.line(f"t{index}", text, text, 5) for index, text in enumerate(texts)])
    header, *lines = read_lines(shared / "nli/triplets/nli_for_simcse-dev.csv")
    _write(out / "triplets-dev.csv", header, lines[:500])
    _write(out / "triplets.csv", header, lines[500:])
    if mining.main([str(out / "quora-train.csv"), "--out", str(out / "mined.csv"), "--questions", str(MINED_FROM)]):
        raise ValueError("no negatives were mined")


def measure(options: argparse.Namespace):
    """Write data and recipes, and run them. options: of the command."""
    given = {"teacher": options.teacher, "tft": options.tft}
    unknown = set(options.levers or LEVERS) - set(LEVERS)
    if unknown:
        raise ValueError(f"--levers: unknown {', '.join(sorted(unknown))}; known: {', '.join(LEVERS)}")
    write_data(options.shared, options.out / "data")
    recipes = [options.out / "base.toml"]
    write_text(recipes[0], recipe_of("base", "", options.weights))
    for name in options.levers or LEVERS:
        change = LEVERS[name][1]
        needed = next((option for option in given if f"{{{option}}}" in change), None)
        if needed is not None:
            if given[needed] is None:
                print(f"{name}: left out, it needs --{needed}")
                continue
            change = change.replace(f"{{{needed}}}", str(Path(given[needed]).resolve()))
        recipes.append(options.out / f"{name}.toml")
        write_text(recipes[-1], recipe_of(name, change, options.weights))
    if compare.main([*map(str, recipes), "--seeds", str(options.seeds), "--parallel", str(options.parallel), "--out",
                     str(options.out / "runs"), "--data", str(options.out / "data"), "--", "--no_progress"]):
        raise ValueError("not all rows were run; the same command goes on")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m benchmarks.levers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("shared", type=Path, help="the folder with cs224n, qqp, sst and nli")
    parser.add_argument("--out", type=Path, default=Path("runs/levers"))
    parser.add_argument("--teacher", type=Path, metavar="RUN", help="a finished run, for teacher and unlabelled")
    parser.add_argument("--tft", type=Path, metavar="ENCODER", help="an encoder of pretrain_tft.py, for the row tft")
    parser.add_argument("--weights", default=DEFAULT, help=f"of the encoder (default: {DEFAULT})")
    parser.add_argument("--levers", nargs="+", metavar="NAME", help="these rows only, and the base")
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--parallel", type=positive, default=1,
                        help="runs at a time; the cores are shared between them")
    return status_of(lambda: measure(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
