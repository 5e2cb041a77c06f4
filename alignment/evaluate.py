"""How good are word links and phrase pairs? Precision, recall and F1 against gold, by method and layer.

    python -m alignment.evaluate words gold.jsonl     # {"source", "target", "sure": [[i, j]], "possible": [[i, j]]}
    python -m alignment.evaluate phrases gold.jsonl   # {"source", "target", "chunks": [{"source": [i], "target": [j]}]}
    python -m alignment.evaluate phrases toy          # generated pairs, whose gold is known

Words: gold is sure and possible links together; precision and recall are means over sentences and F1 is of the means
(macro, as Arase et al. 2023). Phrases: gold is aligned chunks of two or more words on both sides; recall is of exact
spans, crossing the share of our pairs that cut a gold chunk in two.
"""
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alignment.choices import EXTRACTORS, METHODS
from alignment.extraction import extract
from alignment.trees import boundary_strengths
from alignment.words import align, cosine_matrix, default_layer, word_vectors
from corpora import toy
from corpora.flags import Parser, positive
from corpora.messages import status_of
from corpora.tables import parse_object, read_lines
from engine.bert import FastBertModel
from minbert.bert import BertModel
from minbert.pretrained import DEFAULT, fetch
from minbert.tokenizer import BertTokenizer
from minbert.weights import load_encoder


@dataclass
class GoldPair:
    """Hold a sentence pair with gold links, or gold phrases."""

    source: list[str]
    target: list[str]
    links: set[tuple[int, int]]
    phrases: set[tuple[int, int, int, int]]  # of two or more words on both sides
    chunks: tuple[list[tuple[int, int]], list[tuple[int, int]]]  # every chunk of each side, for crossings


def _span(words: list[int]) -> tuple[int, int] | None:
    return (words[0], words[-1] + 1) if words and words == list(range(words[0], words[-1] + 1)) else None


def _inside(link: list[int], sides: list[list[str]]) -> bool:
    """Raise ValueError unless a link names a word of each side."""
    if not (isinstance(link, list) and len(link) == 2 and all(type(word) is int for word in link)
            and all(0 <= word < len(side) for word, side in zip(link, sides, strict=True))):
        raise ValueError(f"link {link!r} is not two words of the sentences")
    return True


def read_gold(path: Path) -> list[GoldPair]:
    """Read gold pairs. Raise ValueError with the line of a row that is not in one of the two forms."""
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        row = parse_object(line, f"{path}:{number}")
        try:
            sides = [row["source"], row["target"]]
            for side in sides:
                if not (isinstance(side, list) and side and all(isinstance(word, str) for word in side)):
                    raise ValueError("source and target are no lists of words")
            links = {(link[0], link[1]) for link in row.get("sure", []) + row.get("possible", [])
                     if _inside(link, sides)}
            phrases: set = set()
            chunks: tuple[list, list] = ([], [])
            for chunk in row.get("chunks", []):
                spans: Any = (_span(chunk["source"]), _span(chunk["target"]))
                for number_of_side in (0, 1):
                    span = spans[number_of_side]
                    if span:
                        if not 0 <= span[0] < span[1] <= len(sides[number_of_side]):
                            raise ValueError(f"chunk {chunk} is outside its sentence")
                        chunks[number_of_side].append(span)
                if all(spans) and all(b - a > 1 for a, b in spans):
                    phrases.add((*spans[0], *spans[1]))
            pairs.append(GoldPair(row["source"], row["target"], links, phrases, chunks))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ValueError(f"{path}:{number}: {error}; expected source, target, and sure or chunks") from None
    if not pairs:
        raise ValueError(f"{path}: empty; expected one JSON object a line")
    return pairs


def toy_gold(count: int) -> list[GoldPair]:
    """Generate gold pairs."""
    pairs = []
    for row in toy.rows(toy.aligned_row, count, 11711, "alignment gold"):
        spans = [tuple(a) for a in row["alignments"]]
        pairs.append(GoldPair(row["source"], row["target"], set(),
                              {a for a in spans if a[1] - a[0] > 1 and a[3] - a[2] > 1},
                              ([a[:2] for a in spans], [a[2:] for a in spans])))
    return pairs


def word_scores(found: list[set], gold: list[set]) -> tuple[float, float, float]:
    """Compute macro precision, recall and their F1.

    A sentence without links, or without gold, counts as precise, or as recalled, if the other side is empty too.
    """
    precision = np.mean([len(f & g) / len(f) if f else float(not g) for f, g in zip(found, gold, strict=True)])
    recall = np.mean([len(f & g) / len(g) if g else float(not f) for f, g in zip(found, gold, strict=True)])
    total = max(float(precision + recall), 1e-12)
    return float(precision), float(recall), float(2 * precision * recall / total)


def crosses(span: tuple[int, int], chunks: list[tuple[int, int]]) -> bool:
    """Tell whether a span crosses the border of a chunk."""
    return any(a < span[0] < b < span[1] or span[0] < a < span[1] < b for a, b in chunks)


def evaluate_words(gold: list[GoldPair], encoder: BertModel, tokenizer: BertTokenizer, layers: list[int]) -> list[list]:
    """Measure word links. Returns rows [method, layer, P, R, F1]; identity has no layer.

    Args:
        gold: pairs with links.
        encoder, tokenizer: of one model.
        layers: those to measure.
    """
    vectors = word_vectors(encoder, tokenizer, [p.source for p in gold] + [p.target for p in gold], tuple(layers))
    answers = [pair.links for pair in gold]
    rows = []
    for method in METHODS:
        for index, layer in enumerate(layers[:1] if method == "identity" else layers):
            center = np.concatenate([v[:, index] for v in vectors]).mean(axis=0)
            found = [set(align(method, pair.source, pair.target, cosine_matrix(
                vectors[i][:, index], vectors[len(gold) + i][:, index], center))) for i, pair in enumerate(gold)]
            rows.append([method, "" if method == "identity" else layer, *word_scores(found, answers)])
    return rows


def evaluate_phrases(gold: list[GoldPair], encoder: BertModel, tokenizer: BertTokenizer) -> list[list]:
    """Measure phrase pairs.

    Precision counts only our pairs whose both spans are gold chunks: what lies above or inside a chunk has no gold
    answer.

    Args:
        gold: pairs with chunks.
        encoder, tokenizer: of one model.

    Returns:
        Rows [method, extractor, pairs a source word, precision, recall, F1, crossing].
    """
    depth = encoder.config.num_hidden_layers
    layers = (default_layer(depth), min(default_layer(depth) + 1, depth))
    vectors = word_vectors(encoder, tokenizer, [p.source for p in gold] + [p.target for p in gold], layers)
    center = np.concatenate([v[:, 0] for v in vectors]).mean(axis=0)
    rows = []
    for method in METHODS:
        for extractor in EXTRACTORS:
            pairs = hits = judged = answers = crossing = words = 0
            for i, pair in enumerate(gold):
                source, target = vectors[i], vectors[len(gold) + i]
                links = align(method, pair.source, pair.target, cosine_matrix(source[:, 0], target[:, 0], center))
                strengths = [boundary_strengths(pair.source, source[:, 1]),
                             boundary_strengths(pair.target, target[:, 1])]
                found = extract(extractor, links, strengths[0], strengths[1])
                pairs += len(found)
                words += len(pair.source)
                hits += len(set(found) & pair.phrases)
                answers += len(pair.phrases)
                judged += sum(f[:2] in pair.chunks[0] and f[2:] in pair.chunks[1] for f in found)
                crossing += sum(crosses(f[:2], pair.chunks[0]) or crosses(f[2:], pair.chunks[1]) for f in found)
            precision, recall = hits / max(judged, 1), hits / max(answers, 1)
            rows.append([method, extractor, pairs / max(words, 1), precision, recall,
                         2 * precision * recall / max(precision + recall, 1e-12), crossing / max(pairs, 1)])
    return rows


def markdown(header: list[str], rows: list[list]) -> str:
    """Write a table as Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row) + " |"
              for row in rows]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m alignment.evaluate", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("words", "phrases"))
    parser.add_argument("gold", help="JSON lines, or toy")
    parser.add_argument("--weights", default=DEFAULT)
    parser.add_argument("--limit", type=positive, help="at most so many pairs")
    options = parser.parse_args(arguments)

    def run():
        gold = toy_gold(500) if options.gold == "toy" else read_gold(Path(options.gold))
        gold = gold[:options.limit]
        encoder, tokenizer, _ = load_encoder(fetch(options.weights), FastBertModel)
        if options.what == "words":
            layers = list(range(encoder.config.num_hidden_layers + 1))
            text = markdown(["method", "layer", "precision", "recall", "F1"],
                            evaluate_words(gold, encoder, tokenizer, layers))
        else:
            text = markdown(["method", "extractor", "pairs a word", "precision", "recall", "F1", "crossing"],
                            evaluate_phrases(gold, encoder, tokenizer))
        print(f"{options.gold}: {len(gold):,} pairs\n\n{text}", end="")

    return status_of(run)


if __name__ == "__main__":
    sys.exit(main())
