"""Transfer fine-tuning (Arase & Tsujii 2019): the encoder learns phrasal and sentential paraphrase.

    python pretrain_tft.py                                     # a generated corpus, aligned here, the default weights
    python pretrain_tft.py --corpus pairs.tsv --out runs/tft   # two sentences a line, separated by a tab
    python pretrain_tft.py --corpus aligned.jsonl              # phrases aligned elsewhere, or by python -m alignment

The encoder that comes out, <out>/encoder, is one that train_multitask.py --weights and transformers load.
"""
import argparse
import dataclasses
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from alignment.choices import EXTRACTORS, METHODS
from corpora.files import write_json, write_text
from corpora.flags import Parser, positive, rate
from corpora.pairs import LAYOUTS, write_pairs
from tasks.options import ABLATIONS, FEATURES, SPAN_POOLINGS
from training.commandline import add_machine_flags, guarded, run_directory
from training.recipe import Recipe, load_recipe
from training.runs import IDENTITY, content_hash, hashes_of, model_hashes, saved_recipe

HERE = Path(__file__).parent
DEFAULT_RECIPE = HERE / "recipes" / "tft" / "full.toml"
GENERATED_RECIPE = HERE / "recipes" / "tft" / "generated.toml"  # where no corpus is given either
GENERATED = Path("data") / "generated" / "paraphrases.tsv"
GENERATED_PAIRS = 3000
REHEARSED = 300  # pairs of a corpus that a dry run aligns


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    result = Parser(description=__doc__.splitlines()[0])
    result.add_argument("--corpus", type=Path, nargs="+",
                        help="pairs (TSV), or aligned pairs (.jsonl, .wa, .phrases); with --layout one file or more")
    result.add_argument("--layout", choices=LAYOUTS, help="of a corpus as it is distributed (corpora/pairs.py)")
    result.add_argument("--recipe", type=Path, help="TOML file (default: recipes/tft/full.toml; with no corpus, "
                                                    "recipes/tft/generated.toml)")
    result.add_argument("--weights", help="encoder to start from: a directory, a hub id, or all-MiniLM-L6-v2")
    result.add_argument("--out", type=Path, help="run folder (default: runs/<recipe>)")
    result.add_argument("--pooling", choices=SPAN_POOLINGS, help="of a phrase's token vectors")
    result.add_argument("--features", choices=FEATURES, help="[hs; ht; hs*ht; |hs-ht|], or [hs; ht]")
    result.add_argument("--ablation", choices=ABLATIONS,
                        help="which of the two tasks are trained, and with how many classes")
    result.add_argument("--method", choices=METHODS, default="transport",
                        help="of word alignment")
    result.add_argument("--extractor", choices=EXTRACTORS, default="bracket",
                        help="of phrase pairs")
    result.add_argument("--held_out", type=positive, help="pairs for dev, and as many for test (default: a tenth, at "
                                                          "most 50,000)")
    result.add_argument("--limit", type=positive, help="at most so many pairs of the corpus")
    result.add_argument("--train_size", type=positive, help="at most so many of them for training, drawn by the seed")
    result.add_argument("--seed", type=int, help="of everything that is drawn (default: the recipe's)")
    result.add_argument("--epochs", type=positive, help="of every stage")
    result.add_argument("--steps_per_epoch", type=positive, help="instead of one pass over the corpus")
    result.add_argument("--batch_size", type=positive, help="sentence pairs in a step")
    result.add_argument("--lr", type=rate, help="of the encoder (default: the recipe's)")
    add_machine_flags(result)
    return result


def override(recipe: Recipe, flags: argparse.Namespace) -> Recipe:
    """Return the recipe with the flags' values in it."""
    stages = []
    for stage in recipe.stage:
        changes = {name: value for name in ("epochs", "steps_per_epoch", "batch_size")
                   if (value := getattr(flags, name)) is not None}
        if flags.lr is not None:
            changes["optimizer"] = dataclasses.replace(stage.optimizer, lr=flags.lr)
        stages.append(dataclasses.replace(stage, **changes))
    if "tft" not in recipe.tasks:
        raise ValueError(f"{flags.recipe}: has no task tft; expected a recipe such as {DEFAULT_RECIPE.name}")
    task = recipe.tasks["tft"]
    options = {name: value for name in ("pooling", "features", "ablation")
               if (value := getattr(flags, name)) is not None}
    task = dataclasses.replace(task, options=dataclasses.replace(task.options, **options))
    if flags.train_size is not None:
        task = dataclasses.replace(task, limit=flags.train_size)
    tasks = {**recipe.tasks, "tft": task}
    fields = {name: value for name in ("weights", "seed", "precision") if (value := getattr(flags, name)) is not None}
    return dataclasses.replace(recipe, **fields, stage=stages, tasks=tasks)


def generated_corpus() -> Path:
    """Write the generated paraphrase pairs, and say so. Returns their file."""
    from corpora import toy

    print(f"No corpus given (--corpus): using {GENERATED_PAIRS:,} GENERATED paraphrase pairs, written to {GENERATED}. "
          "Their accuracies say that training works, and nothing about language.")
    rows = toy.rows(toy.aligned_row, GENERATED_PAIRS, 11711, "paraphrases")
    content = "".join(" ".join(row["source"]) + "\t" + " ".join(row["target"]) + "\n" for row in rows)
    write_text(GENERATED, content)
    return GENERATED


def corpus_files(flags: argparse.Namespace) -> list[Path]:
    """Return the corpus's files: those of --corpus, or the generated one. Raise ValueError where one is missing."""
    if flags.corpus is None:
        if flags.layout is not None:
            raise ValueError("--layout has no effect without --corpus")
        return [generated_corpus()]
    for file in flags.corpus:
        if not file.is_file():
            raise ValueError(f"{file}: no such file; expected paraphrase pairs (TSV), aligned ones (JSON lines), or a "
                             "file of the --layout")
    if len(flags.corpus) > 1 and flags.layout is None:
        raise ValueError(f"--corpus: found {len(flags.corpus)} files; expected one, or --layout")
    return flags.corpus


def prepare(flags: argparse.Namespace, recipe: Recipe, corpus: Path, folder: Path):
    """Align the corpus if that is not done yet, and write train.jsonl, dev.jsonl and test.jsonl into a folder.

    Args:
        flags: of the command.
        recipe: its weights align.
        corpus: sentence pairs, or aligned ones.
        folder: for the three files.
    """
    from alignment.corpus import Settings, write_corpus
    from alignment.jsonl import READERS, read_any
    from minbert.pretrained import fetch
    from minbert.weights import load_encoder
    from training.engines import make_engine

    weights = fetch(recipe.weights)
    identity = {"corpus": content_hash(corpus), "weights": model_hashes(weights), "seed": recipe.seed,
                **{name: getattr(flags, name) for name in ("method", "extractor", "held_out", "limit")}}
    splits = [folder / f"{split}.jsonl" for split in ("train", "dev", "test")]
    with suppress(OSError, ValueError):
        if json.loads((folder / IDENTITY).read_text(encoding="utf-8")) == {**identity, "splits": hashes_of(splits)}:
            return
    if corpus.suffix in READERS:
        pairs = read_any(corpus)
    else:
        encoder, tokenizer, _ = load_encoder(weights, make_engine(flags.engine).model)
        print(f"aligning {corpus}: {flags.method}, phrases by {flags.extractor}")
        pairs = write_corpus(corpus, folder / "aligned.jsonl", encoder, tokenizer,
                             Settings(flags.method, flags.extractor), progress=not flags.no_progress)
    phrases = sum(len(pair.alignments) for pair in pairs)
    print(f"{corpus}: {len(pairs):,} sentence pairs, {phrases:,} phrase pairs "
          f"({phrases / max(len(pairs), 1):.1f} each)")
    random.Random(f"{recipe.seed}/tft").shuffle(pairs)
    pairs = pairs[:flags.limit]
    held_out = flags.held_out or min(50_000, len(pairs) // 10)
    if held_out < 2 or len(pairs) < 3 * held_out:
        raise ValueError(f"{corpus}: {len(pairs)} pairs cannot spare {held_out} for dev and {held_out} for test; "
                         "expected at least 20 pairs, and --held_out at most a third")
    parts = {"dev": pairs[:held_out], "test": pairs[held_out:2 * held_out], "train": pairs[2 * held_out:]}
    for split, part in parts.items():
        write_text(folder / f"{split}.jsonl", "".join(pair.to_json() + "\n" for pair in part))
    write_json(folder / IDENTITY, {**identity, "splits": hashes_of(splits)})  # last: without it the files prove nothing


def rehearse(flags: argparse.Namespace, recipe: Recipe, files: list[Path], folder: Path):
    """Prepare as much of the corpus as a dry run needs: all of an aligned one, else the first pairs, aligned.

    Args:
        flags: of the command.
        recipe: its weights align.
        files: of the corpus.
        folder: is deleted afterwards.
    """
    from alignment.jsonl import READERS

    corpus = files[0]
    if flags.layout is not None:
        corpus = folder / "pairs.tsv"
        print(write_pairs(flags.layout, files, corpus))
    if corpus.suffix not in READERS:
        with open(corpus, encoding="utf-8") as lines:
            pairs = sum(1 for _ in lines)
        if pairs > REHEARSED:
            some = folder / "some.tsv"
            with open(corpus, encoding="utf-8") as lines:
                write_text(some, "".join(itertools.islice(lines, REHEARSED)))
            before = time.monotonic()
            prepare(flags, recipe, some, folder / "corpus")
            minutes = (time.monotonic() - before) / REHEARSED * pairs / 60
            print(f"aligning all {pairs:,} pairs takes about {minutes:.0f} min; the steps below are those of the first "
                  f"{REHEARSED:,} pairs, and an epoch of all has {pairs / REHEARSED:.0f} times as many")
            return
    prepare(flags, recipe, corpus, folder / "corpus")


def run(flags: argparse.Namespace) -> int:
    """Do what the flags say."""
    flags.recipe = flags.recipe or (DEFAULT_RECIPE if flags.corpus else GENERATED_RECIPE)
    recipe = override(load_recipe(flags.recipe), flags)
    files = corpus_files(flags)
    from training.program import Program  # late: a wrong flag or recipe should not wait for torch

    choices = {name: getattr(flags, name) for name in ("method", "extractor", "held_out", "limit")}
    if flags.layout is not None:
        choices["layout"] = flags.layout
    named = " ".join(str(file.absolute()) for file in files)
    text = f"# --corpus {named} {json.dumps(choices)}\n" + saved_recipe(recipe, files[0], None)
    directory = run_directory(flags, recipe, text)
    # Built first, because it sets the process up (threads, precision) and refuses a missing GPU before any work.
    folder = Path(tempfile.mkdtemp()) if flags.dry_run else directory
    program = Program(recipe, folder / "corpus", folder, None, flags.use_gpu, not flags.no_progress, flags.engine,
                      flags.log)
    if program.world.size > 1:
        raise ValueError("pretrain_tft.py runs as one process; it was started as several (torchrun)")
    if flags.dry_run:
        try:
            rehearse(flags, recipe, files, folder)
            program.dry_run()
        finally:
            shutil.rmtree(folder)
        return 0
    with program.alone():
        if not program.finished():
            corpus = files[0]
            if flags.layout is not None:
                corpus = directory / "corpus" / "pairs.tsv"
                print(write_pairs(flags.layout, files, corpus))
            prepare(flags, recipe, corpus, directory / "corpus")
            program.train(text)
            program.finish({})
    print(f"encoder: {directory / 'encoder'} (python train_multitask.py --weights {directory / 'encoder'})")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the program. Returns the exit status."""
    return guarded(run, parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
