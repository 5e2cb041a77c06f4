"""Aligned sentence pairs on disk: one JSON object a line, and readers for alignments made elsewhere.

{"source": [words], "target": [words], "alignments": [[s0, s1, t0, t1], ...], "source_phrases": [[s0, s1], ...],
"target_phrases": [[t0, t1], ...]} with half-open word spans. The phrase lists may be missing: they are the sentences'
whole inventory, from which transfer fine-tuning draws its negatives.
"""
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from corpora.tables import parse_object, read_lines

_WORD = re.compile(r"\w+(?:[-'’.,]\w+)*|[^\w\s]")


def split_words(sentence: str) -> list[str]:
    """Words and punctuation marks; hyphens, apostrophes, and points inside a number or abbreviation do not split."""
    return _WORD.findall(sentence)


@dataclass
class AlignedPair:
    """Hold an aligned sentence pair. Spans are half-open and count words.

    >>> AlignedPair(["dog"], ["hound"], [(0, 1, 0, 1)]).to_json()
    '{"source": ["dog"], "target": ["hound"], "alignments": [[0, 1, 0, 1]], "source_phrases": [], "target_phrases": []}'
    """

    source: list[str]
    target: list[str]
    alignments: list[tuple[int, int, int, int]]  # (s0, s1, t0, t1): source[s0:s1] says what target[t0:t1] says
    source_phrases: list[tuple[int, int]] = field(default_factory=list)
    target_phrases: list[tuple[int, int]] = field(default_factory=list)

    def to_json(self) -> str:
        """Write the pair as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


def _spans(values, limits: tuple[int, ...], where: str, name: str) -> list[Any]:
    """values: lists of half-open spans, two numbers for each of `limits`. Raises ValueError for one outside."""
    if not isinstance(values, list):
        raise ValueError(f"{where}: {name} is a {type(values).__name__}; expected a list of spans")
    found = []
    for value in values:
        right = (isinstance(value, list) and len(value) == 2 * len(limits) and all(type(i) is int for i in value)
                 and all(0 <= value[2 * k] < value[2 * k + 1] <= limit for k, limit in enumerate(limits)))
        if not right:
            raise ValueError(f"{where}: {name} has {value!r}; expected half-open spans inside "
                             f"{' and '.join(str(limit) for limit in limits)} words")
        found.append(tuple(value))
    return found


def parse_line(line: str, where: str) -> AlignedPair:
    """Read a line of JSON. Raise ValueError that begins with `where` for anything that is no aligned pair."""
    values = parse_object(line, where)
    for name in ("source", "target"):
        words = values.get(name)
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{where}: {name} is {str(words)[:40]!r}; expected a list of words")
    source, target = values["source"], values["target"]
    return AlignedPair(
        source, target, _spans(values.get("alignments"), (len(source), len(target)), where, "alignments"),
        _spans(values.get("source_phrases", []), (len(source),), where, "source_phrases"),
        _spans(values.get("target_phrases", []), (len(target),), where, "target_phrases"))


def read_aligned(path: Path) -> list[AlignedPair]:
    """Read a file of JSON lines."""
    return [parse_line(line, f"{path}:{number}") for number, line in enumerate(read_lines(path), start=1)
            if line.strip()]


# ---- alignments made elsewhere ---------------------------------------------------------------------------------------


def read_pharaoh(text: str, source_words: int, target_words: int, where: str) -> list[tuple[int, int]]:
    """Read word links such as "0-0 1-2".

    Args:
        text: the links.
        source_words, target_words: how many there are.
        where: begins an error.

    Raises:
        ValueError: the text is something else, or names a word that is not there.
    """
    links = []
    for part in text.split():
        match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", part)
        if not match or int(match[1]) >= source_words or int(match[2]) >= target_words:
            raise ValueError(f"{where}: found {part[:40]!r}; expected i-j with i below {source_words} and j below "
                             f"{target_words}")
        links.append((int(match[1]), int(match[2])))
    return links


def _find(words: list[str], phrase: list[str]) -> tuple[int, int] | None:
    for start in range(len(words) - len(phrase) + 1):
        if words[start:start + len(phrase)] == phrase:
            return start, start + len(phrase)
    return None


def read_phrase_lines(source: str, target: str, lines: list[str], where: str, first: int = 1) -> AlignedPair:
    """Read a pair and its phrases in the form of Arase's released files.

    A line is `c8 on the mat ||| c12 on the floor mat`, with `---` for a phrase without a partner. Phrases are looked up
    in the sentences by their words.

    Args:
        source, target: the sentences.
        lines: of phrases.
        where: begins an error.
        first: number of the first line, for errors.
    """
    pair = AlignedPair(source.split(), target.split(), [])
    for number, line in enumerate(lines, start=first):
        sides = line.split("|||")
        if len(sides) != 2:
            raise ValueError(f"{where}:{number}: found {line[:60]!r}; expected 'id words ||| id words'")
        spans: list[tuple[int, int] | None] = []
        for words, side, inventory in ((pair.source, sides[0], pair.source_phrases),
                                       (pair.target, sides[1], pair.target_phrases)):
            phrase = side.split()
            if phrase in (["---"], []):
                spans.append(None)
                continue
            span = _find(words, phrase[1:])
            if span is None:
                raise ValueError(f"{where}:{number}: the phrase {' '.join(phrase[1:])!r} is not in the sentence")
            inventory.append(span)
            spans.append(span)
        source_span, target_span = spans
        if source_span is not None and target_span is not None:
            pair.alignments.append((*source_span, *target_span))
    return pair


def read_phrase_file(path: Path) -> list[AlignedPair]:
    """Read blocks separated by blank lines: the source sentence, the target sentence, then phrase lines."""
    pairs: list[AlignedPair] = []
    block: list[str] = []
    first = 1
    for number, line in enumerate([*read_lines(path), ""], start=1):
        if line.strip():
            if not block:
                first = number
            block.append(line)
        elif block:
            if len(block) < 2:
                raise ValueError(f"{path}:{first}: a block of one line; expected source, target and phrases")
            pairs.append(read_phrase_lines(block[0], block[1], block[2:], str(path), first + 2))
            block = []
    return pairs


def _chunk_span(numbers: list[int]) -> tuple[int, int] | None:
    """1-based word numbers of a chunk -> half-open span; None where the words are not neighbours."""
    contiguous = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return (numbers[0] - 1, numbers[-1]) if contiguous else None


@dataclass
class ChunkPair:
    """A pair of the interpretable STS sets, with what its annotators said."""

    pair: AlignedPair
    types: list[str]  # of each alignment: EQUI, SPE1, SIMI, ...
    left_out: int  # links whose words are not neighbours: no span says them


def read_ists(path: Path) -> list[ChunkPair]:
    """Read a SemEval-2016 task 2 `.wa` file. It looks like XML and is not: `2 3 <==> 1 // EQUI // 5 // a b <==> c`."""
    pairs: list[ChunkPair] = []
    section = ""
    current: ChunkPair | None = None
    for number, line in enumerate(read_lines(path), start=1):
        text = line.strip()
        if text.startswith("<sentence"):
            current = ChunkPair(AlignedPair([], [], []), [], 0)
            pairs.append(current)
        elif text.startswith("//") and current is not None and not current.pair.target:
            words = text[2:].split()
            if not current.pair.source:
                current.pair.source = words
            else:
                current.pair.target = words
        elif text in ("<source>", "<translation>", "<alignment>"):
            section = text
        elif text.startswith("</"):
            section = ""
        elif section == "<alignment>" and text and current is not None:
            fields = text.split(" // ")
            sides = fields[0].split("<==>")
            try:
                source, target = ([int(i) for i in side.split()] for side in sides)
            except ValueError:
                raise ValueError(f"{path}:{number}: found {text[:60]!r}; expected 'i j <==> k // TYPE // score'"
                                 ) from None
            spans: list[Any] = [_chunk_span(side) if side and side != [0] else () for side in (source, target)]
            if None in spans:
                current.left_out += 1
                continue
            for span, inventory, words in ((spans[0], current.pair.source_phrases, current.pair.source),
                                           (spans[1], current.pair.target_phrases, current.pair.target)):
                if span:
                    if span[1] > len(words):
                        raise ValueError(f"{path}:{number}: word {span[1]} of a sentence of {len(words)}")
                    inventory.append(span)
            if all(spans):
                current.pair.alignments.append((*spans[0], *spans[1]))
                current.types.append(fields[1].strip() if len(fields) > 1 else "")
    for chunk_pair in pairs:
        if not chunk_pair.pair.source or not chunk_pair.pair.target:
            raise ValueError(f"{path}: a <sentence> has no two sentences; expected two lines that begin with //")
    if not pairs:
        raise ValueError(f"{path}: has no <sentence>; expected a .wa file of SemEval-2016 task 2")
    return pairs


READERS = {".jsonl": read_aligned, ".wa": lambda path: [chunks.pair for chunks in read_ists(path)],
           ".phrases": read_phrase_file}


def read_any(path: Path) -> list[AlignedPair]:
    """Read aligned pairs by the file's suffix: .jsonl ours, .wa iSTS, .phrases the released files' form."""
    if path.suffix not in READERS:
        raise ValueError(f"{path}: unknown form of aligned pairs; expected {', '.join(READERS)}")
    return READERS[path.suffix](path)
