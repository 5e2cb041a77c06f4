"""A corpus of paraphrase pairs -> aligned pairs: encode, link words, extract phrases, write.

Encoding is nearly all of the time and uses torch's threads; extraction is plain Python and runs in processes. Work goes
in chunks, and a file that was begun is gone on with.
"""
import fcntl
import hashlib
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from alignment.extraction import extract
from alignment.jsonl import AlignedPair, parse_line, read_pharaoh, split_words
from alignment.trees import Span, boundary_strengths, read_brackets, tree_spans
from alignment.words import align, cosine_matrix, default_layer, word_vectors
from corpora.files import write_atomically
from corpora.processes import ctrl_c_later, end_with
from corpora.tables import read_lines
from minbert.batch import by_size
from minbert.bert import BertModel
from minbert.tokenizer import BertTokenizer

CHUNK = 500  # pairs that are encoded, aligned and written together
CENTER_PAIRS = 1000  # pairs whose words' mean vector stands for the corpus'


@dataclass
class Settings:
    """Say how a corpus is aligned.

    >>> Settings(method="itermax").extractor
    'bracket'
    """

    method: str = "transport"
    extractor: str = "bracket"
    layer: int | None = None  # of the encoder's states for links; None: the middle one
    min_words: int = 2
    max_words: int | None = None

    def __post_init__(self):
        if self.min_words < 1 or (self.max_words is not None and self.max_words < self.min_words):
            raise ValueError(f"min_words {self.min_words}, max_words {self.max_words}; expected 1 or more, the smaller "
                             "first")


@dataclass
class Pair:
    """Hold a sentence pair before alignment."""

    source: list[str]
    target: list[str]
    links: list[tuple[int, int]] | None = None
    spans: tuple[list[Span], list[Span]] | None = None  # constituents by a real parser


def read_pairs(path: Path, trees: Path | None = None) -> list[Pair]:
    """Read sentence pairs.

    Args:
        path: two sentences a line, separated by a tab; a third column may hold links.
        trees: a file of as many lines, each two bracketed trees separated by a tab. Their leaves are then the words,
            and only their constituents become phrases.

    Raises:
        ValueError: with the line of a row without two sentences.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) not in (2, 3) or not all(split_words(field) for field in fields[:2]):
            raise ValueError(f"{path}:{number}: found {len(fields)} columns, {line[:40]!r}; expected two sentences "
                             "separated by a tab (and links, if any)")
        if len(fields) == 3:  # links number the words by white space
            source, target = fields[0].split(), fields[1].split()
            pairs.append(Pair(source, target, read_pharaoh(fields[2], len(source), len(target), f"{path}:{number}")))
        else:
            pairs.append(Pair(split_words(fields[0]), split_words(fields[1])))
    if not pairs:
        raise ValueError(f"{path}: empty; expected two sentences a line, separated by a tab")
    if trees is not None:
        lines = list(read_lines(trees))
        if len(lines) != len(pairs):
            raise ValueError(f"{trees}: {len(lines)} lines of trees for {len(pairs)} pairs of {path}")
        for number, (line, pair) in enumerate(zip(lines, pairs, strict=True), start=1):
            sides = line.split("\t")
            if len(sides) != 2:
                raise ValueError(f"{trees}:{number}: found {len(sides)} columns; expected two bracketed trees")
            (pair.source, first), (pair.target, second) = (read_brackets(s, f"{trees}:{number}") for s in sides)
            pair.spans = (first, second)
    return pairs


def extract_pair(work: tuple[Pair, np.ndarray, np.ndarray, np.ndarray, Settings]) -> AlignedPair:
    """Find one pair's links and phrases.

    work: the pair, both sides' vectors [words, 2, H] (for links, for boundaries), the center, the settings.
    """
    pair, source, target, center, settings = work
    links = pair.links
    if links is None:
        links = align(settings.method, pair.source, pair.target,
                      cosine_matrix(source[:, 0], target[:, 0], center))
    strengths = [boundary_strengths(words, vectors[:, 1])
                 for words, vectors in ((pair.source, source), (pair.target, target))]
    phrases = extract(settings.extractor, links, strengths[0], strengths[1], settings.min_words, settings.max_words,
                      pair.spans)
    inventories: list[list[Span]] = []
    for side, strength in enumerate(strengths):
        aligned = {(phrase[2 * side], phrase[2 * side + 1]) for phrase in phrases}
        nodes = pair.spans[side] if pair.spans else tree_spans(strength)
        long_enough = {span for span in nodes if span[1] - span[0] >= settings.min_words}
        inventories.append(sorted(aligned | long_enough))
    return AlignedPair(pair.source, pair.target, phrases, inventories[0], inventories[1])


def layers_for(encoder: BertModel, settings: Settings) -> tuple[int, int]:
    """Return the layers (for links, for boundaries): the middle one, and the one above it."""
    depth = encoder.config.num_hidden_layers
    layer = default_layer(depth) if settings.layer is None else settings.layer
    if not 0 <= layer <= depth:
        raise ValueError(f"layer {layer}; this encoder has layers 0 to {depth}")
    return layer, min(default_layer(depth) + 1, depth)


def align_corpus(pairs: list[Pair], encoder: BertModel, tokenizer: BertTokenizer, settings: Settings, workers: int = 1,
                 start: int = 0, progress: bool = True):
    """Yield the aligned pairs in order.

    Args:
        pairs: of the whole corpus.
        encoder, tokenizer: of one model.
        settings: say how.
        workers: processes for the extraction.
        start: number of the first pair to yield.
        progress: show a bar.
    """
    layers = layers_for(encoder, settings)

    def vectors_of(chosen: list[Pair]) -> list[np.ndarray]:
        return word_vectors(encoder, tokenizer, [p.source for p in chosen] + [p.target for p in chosen], layers)

    center = np.concatenate([v[:, 0] for v in vectors_of(pairs[:CENTER_PAIRS])]).mean(axis=0)
    pool = ProcessPoolExecutor(workers, initializer=end_with, initargs=(os.getpid(),)) if workers > 1 else None
    bar = tqdm(total=len(pairs), initial=start, unit="pair", disable=not progress, mininterval=1.0)
    try:
        for indices in by_size(range(start, len(pairs)), CHUNK):
            chunk = [pairs[index] for index in indices]
            vectors = vectors_of(chunk)
            work = [(pair, vectors[i], vectors[len(chunk) + i], center, settings) for i, pair in enumerate(chunk)]
            with ctrl_c_later():  # the first call starts the workers
                extracted = pool.map(extract_pair, work, chunksize=64) if pool else map(extract_pair, work)
            yield from extracted
            bar.update(len(chunk))
    finally:
        bar.close()
        if pool:
            pool.shutdown(cancel_futures=True)


def write_corpus(corpus: Path, out: Path, encoder: BertModel, tokenizer: BertTokenizer, settings: Settings,
                 workers: int = 1, progress: bool = True, trees: Path | None = None) -> list[AlignedPair]:
    """Align a file into a file. A part that an interrupted call left is continued; the result appears whole.

    Args:
        corpus: sentence pairs.
        out: the file of aligned pairs.
        encoder, tokenizer: of one model.
        settings: say how.
        workers: processes for the extraction.
        progress: show a bar.
        trees: see `read_pairs`.
    """
    pairs = read_pairs(corpus, trees)
    part = out.with_name(out.name + ".part")
    out.parent.mkdir(parents=True, exist_ok=True)
    identity = identity_of(corpus, settings, encoder, tokenizer, trees)
    with open(part, "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{part}: another process writes it; wait for it, or choose another --out") from None
        file.seek(0)
        header, *done = file.read().split(b"\n")[:-1] or [b""]
        # The part belongs to this corpus and these settings, or it is begun anew; its last line may be half written.
        if header != identity.encode():
            done = []
        file.truncate(0)
        file.write(b"".join(line + b"\n" for line in [identity.encode(), *done]))
        for aligned in align_corpus(pairs, encoder, tokenizer, settings, workers, len(done), progress):
            line = aligned.to_json().encode()
            file.write(line + b"\n")
            done.append(line)
        write_atomically(out, lambda path: path.write_bytes(b"".join(line + b"\n" for line in done)))
        part.unlink()
    return [parse_line(line.decode(), f"{out}:{number}") for number, line in enumerate(done, start=1)]


def identity_of(corpus: Path, settings: Settings, encoder: BertModel, tokenizer: BertTokenizer, trees: Path | None
                ) -> str:
    """Return a line that says what a part belongs to: the contents of corpus and trees, the model, the settings.

    Args:
        corpus, trees: files.
        settings: say how.
        encoder, tokenizer: of one model.
    """
    content = hashlib.sha256()
    for path in (corpus, trees):
        content.update(b"none" if path is None else Path(path).read_bytes())
    for name, tensor in encoder.state_dict().items():
        content.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    content.update("\n".join(tokenizer.vocabulary).encode() + str(tokenizer.cleaning).encode())
    return f"# {content.hexdigest()} {settings}"
