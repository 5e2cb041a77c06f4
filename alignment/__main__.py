"""Aligns a corpus of paraphrase pairs: word links by the encoder, phrase pairs by an extractor.

    python -m alignment corpus.tsv --out aligned.jsonl [--extractor bracket] [--method transport] [--workers 2]

corpus.tsv: two sentences a line, separated by a tab (a third column may hold links made elsewhere, as in "0-0 1-2").
Interrupted, the same command goes on where it stopped.
"""
import os
import sys
import time
from pathlib import Path

from alignment.choices import EXTRACTORS, METHODS
from alignment.corpus import Settings, write_corpus
from corpora.files import must_be_new
from corpora.flags import Parser, positive
from corpora.messages import error_line
from engine.bert import FastBertModel
from minbert.pretrained import DEFAULT, fetch
from minbert.weights import load_encoder


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m alignment", description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--weights", default=DEFAULT)
    parser.add_argument("--method", choices=METHODS, default="transport")
    parser.add_argument("--extractor", choices=EXTRACTORS, default="bracket")
    parser.add_argument("--layer", type=int, help="of the encoder (default: the middle one)")
    parser.add_argument("--min_words", type=positive, default=2)
    parser.add_argument("--max_words", type=positive)
    parser.add_argument("--trees", type=Path, help="two bracketed trees a line: only constituents become phrases")
    parser.add_argument("--workers", type=positive, default=os.cpu_count() or 1)
    parser.add_argument("--no_progress", action="store_true")
    options = parser.parse_args(arguments)
    try:
        must_be_new(options.out)
        encoder, tokenizer, _ = load_encoder(fetch(options.weights), FastBertModel)
        settings = Settings(options.method, options.extractor, options.layer, options.min_words, options.max_words)
        started = time.monotonic()
        aligned = write_corpus(options.corpus, options.out, encoder, tokenizer, settings, options.workers,
                               not options.no_progress, options.trees)
    except (ValueError, OSError) as error:
        print(error_line(error), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; the same command continues {options.out}", file=sys.stderr)
        return 130
    phrases = sum(len(pair.alignments) for pair in aligned)
    seconds = time.monotonic() - started
    print(f"{options.out}: {len(aligned):,} pairs, {phrases:,} phrase pairs ({phrases / len(aligned):.1f} a pair), "
          f"{phrases / max(seconds, 1e-9):,.0f} phrase pairs a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
