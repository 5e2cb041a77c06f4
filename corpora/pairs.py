"""Paraphrase corpora as they are distributed -> two sentences a line, separated by a tab.

    python -m corpora.pairs twitter-url Twitter_URL_Corpus_train.txt --out pairs.tsv

`pretrain_tft.py --layout NAME --corpus FILE...` does the same. White space in a sentence becomes single spaces. A pair
without one of its sentences, or of two equal sentences, is left out and counted.
"""
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from corpora.files import must_be_new, write_text
from corpora.flags import Parser
from corpora.messages import status_of
from corpora.tables import decimal, read_lines

AGREED = 4  # votes of six that make a pair of the Twitter corpus a paraphrase (Lan et al. 2017); two or fewer: none

Pair = tuple[str, str] | str  # two sentences, or why a row is none


def _fields(path: Path, count: int, what: str) -> Iterator[tuple[int, list[str]]]:
    """Read lines of `count` fields separated by tabs. what: they are, for an error."""
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) != count:
            raise ValueError(f"{path}:{number}: found {len(fields)} columns separated by tabs; expected {count}: "
                             f"{what}")
        yield number, fields


def para_nmt(files: Sequence[Path]) -> Iterator[Pair]:
    """Read Para-NMT (Wieting & Gimpel 2018): two sentences and a score a line. The score is not used."""
    for path in files:
        for number, (first, second, score) in _fields(path, 3, "a sentence, its paraphrase, a score"):
            if decimal(score) is None:
                raise ValueError(f"{path}:{number}: the score is {score[:40]!r}; expected a number")
            yield first, second


def twitter_url(files: Sequence[Path]) -> Iterator[Pair]:
    """Read the Twitter URL corpus (Lan et al. 2017): two sentences, votes such as (4, 6), and an address a line."""
    for path in files:
        for number, (first, second, votes, _) in _fields(path, 4, "two sentences, votes as in (4, 6), an address"):
            match = re.fullmatch(r"\(([0-9]), ?([0-9])\)", votes.strip())
            if match is None or int(match[1]) > int(match[2]):
                raise ValueError(f"{path}:{number}: the votes are {votes[:40]!r}; expected some of all, as in (4, 6)")
            yield (first, second) if int(match[1]) >= AGREED else f"with fewer than {AGREED} votes"


def simple_wikipedia(files: Sequence[Path]) -> Iterator[Pair]:
    """Read Simple Wikipedia (Kauchak 2013): two files of aligned lines, each `article, paragraph, sentence`."""
    for lines in _aligned(files, 2, 2):
        sentences = []
        for path, number, line in lines:
            fields = line.split("\t")
            if len(fields) != 3:
                raise ValueError(f"{path}:{number}: found {len(fields)} columns separated by tabs; expected 3: "
                                 "an article, a paragraph's number, a sentence")
            sentences.append(fields[2])
        yield sentences[0], sentences[1]


def references(files: Sequence[Path]) -> Iterator[Pair]:
    """Read n files of parallel lines: line i of each says the same, as the references of a translation do.

    Every two of them are a pair.
    """
    for lines in _aligned(files, 2, None):
        for (_, _, first), (_, _, second) in itertools.combinations(lines, 2):
            yield first, second


def _aligned(files: Sequence[Path], least: int, most: int | None) -> Iterator[list[tuple[Path, int, str]]]:
    """Read files of as many lines, line by line: (path, number, line) of each file.

    Args:
        files: the files.
        least, most: how many files there may be.
    """
    if len(files) < least or (most is not None and len(files) > most):
        raise ValueError(f"found {len(files)} file{'' if len(files) == 1 else 's'} ({', '.join(map(str, files))}); "
                         f"expected {most or f'{least} or more'} with parallel lines")
    for number, lines in enumerate(itertools.zip_longest(*map(read_lines, files)), start=1):
        if None in lines:
            raise ValueError(f"{files[lines.index(None)]}: has {number - 1:,} lines; expected as many as the others "
                             "have")
        yield [(path, number, line) for path, line in zip(files, lines, strict=True)]


LAYOUTS: dict[str, Callable[[Sequence[Path]], Iterator[Pair]]] = {
    "para-nmt": para_nmt,
    "twitter-url": twitter_url,
    "simple-wikipedia": simple_wikipedia,
    "references": references,
}


def write_pairs(layout: str, files: Sequence[Path], out: Path) -> str:
    """Write a corpus as two sentences a line. Returns a line that says how many, and what was left out.

    Args:
        layout: a key of LAYOUTS.
        files: of the corpus.
        out: the file to write.

    Raises:
        ValueError: with file and line, where a file is not in the layout; or no pair is left.
    """
    lines, left_out = [], Counter[str]()
    for pair in LAYOUTS[layout](files):
        if isinstance(pair, str):
            left_out[pair] += 1
            continue
        first, second = (" ".join(sentence.split()) for sentence in pair)
        if not (first and second):
            left_out["without a sentence"] += 1
        elif first == second:
            left_out["of equal sentences"] += 1
        else:
            lines.append(f"{first}\t{second}\n")
    if not lines:
        raise ValueError(f"{files[0]}: has no usable pair; expected at least one")
    write_text(out, "".join(lines))
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    return f"{out}: {len(lines):,} pairs" + (f"; left out: {reasons}" if reasons else "")


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m corpora.pairs", description=__doc__.splitlines()[0])
    parser.add_argument("layout", choices=LAYOUTS)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)

    def run():
        must_be_new(options.out)
        print(write_pairs(options.layout, options.files, options.out))

    return status_of(run)


if __name__ == "__main__":
    sys.exit(main())
