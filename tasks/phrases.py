"""Transfer fine-tuning (Arase & Tsujii 2019, section 3): which phrases of a sentence pair say the same?

A pair goes in as [CLS] s [SEP] t [SEP]. A phrase's vector is pooled from its tokens' final states. A linear layer over
two phrases' features says paraphrase, in-paraphrase (the target replaced by another phrase of t) or random (a phrase of
a random other sentence). [CLS] says whether the sentences are paraphrases or s with a random one. L = L_p + L_s. Both
classifiers are thrown away afterwards: only the encoder is used further. Choices the paper leaves open:
docs/alignment.md.
"""
import itertools
import json
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpora.examples import Dataset, Example
from corpora.tables import read_json_lines
from minbert.batch import TokenBatch
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks.encoding import encode
from tasks.losses import symmetric_divergence
from tasks.metrics import phrasal, sentential
from tasks.options import PhraseOptions
from tasks.pooling import PENALTY_WEIGHT, SpanAttention, pool_spans
from tasks.task import Task

PARAPHRASE, IN_PARAPHRASE, RANDOM = 0, 1, 2

Span = tuple[int, int]


@dataclass
class PhraseExample(Example):
    """Hold one aligned sentence pair. `sentences` are the two sides' words joined; spans count words."""

    words: tuple[list[str], list[str]] = ((), ())  # type: ignore[assignment]
    alignments: Sequence[tuple[int, int, int, int]] = ()
    phrases: tuple[list[Span], list[Span]] = ((), ())  # type: ignore[assignment]  # each side's phrases
    owners: tuple[list[int], list[int]] = ((), ())  # type: ignore[assignment]  # of each token, its word
    pool: Sequence["PhraseExample"] = ()  # the split it is of: its random sentences come from there


@dataclass
class Phrase:
    """Hold a phrase of an encoded sequence."""

    start: int  # its first token in the sequence
    end: int  # behind its last token
    text: tuple[int, ...]  # its token ids: equal for equal words


@dataclass
class PhrasePair:
    """Hold one example of the phrasal task."""

    sequence: int  # of the batch
    source: Phrase
    target: Phrase
    label: int  # PARAPHRASE, IN_PARAPHRASE or RANDOM
    example: int  # of the batch


@dataclass
class PhraseBatch:
    """Hold a batch of aligned sentence pairs."""

    tokens: TokenBatch  # first the pairs (s, t), then, unless the ablation needs none, the random pairs (s, t')
    source: Tensor  # [P, 2] half-open ranges of flat positions b * T + t
    target: Tensor  # [P, 2]
    labels: Tensor  # [P] PARAPHRASE, IN_PARAPHRASE or RANDOM
    owners: Tensor  # [P] the example each phrase pair belongs to
    sentence_labels: Tensor  # [sequences] 1 for a paraphrase pair, 0 for a random one

    def to(self, device: torch.device) -> "PhraseBatch":
        """Copy the batch to a device."""
        return PhraseBatch(self.tokens.to(device), *(t.to(device) for t in (
            self.source, self.target, self.labels, self.owners, self.sentence_labels)))


@dataclass
class PhraseOutputs:
    """Hold the logits of both tasks. A task that the ablation leaves out has None."""

    phrases: Tensor | None  # [P, 2 or 3]
    sentences: Tensor | None  # [sequences, 2]
    penalty: Tensor  # a number that the loss adds: of attentive pooling, else 0

    def detach(self) -> "PhraseOutputs":
        """Cut the outputs off from the graph."""
        phrases, sentences = (None if values is None else values.detach() for values in (self.phrases, self.sentences))
        return PhraseOutputs(phrases, sentences, self.penalty.detach())


def piece_spans(owners: Sequence[int], spans: Sequence[Span], length: int) -> dict[Span, Span]:
    """Turn word spans into token spans.

    Args:
        owners: of each token of the sentence, its word.
        spans: of words.
        length: how many of the sentence's tokens survived truncation.

    Returns:
        Word span -> token span. Spans that were cut, and spans with a word that has no token, are left out.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, word in enumerate(owners):
        first.setdefault(word, position)
        last[word] = position
    result = {}
    for start, end in spans:
        whole = all(word in first for word in range(start, end))  # a control character, say, has no token
        if whole and last[end - 1] < length:
            result[(start, end)] = (first[start], last[end - 1] + 1)
    return result


def partners_of(pairs: Sequence[tuple[Phrase, Phrase]]) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """Map each source text to the texts that say the same: its own, and those of every target it is aligned to."""
    partners: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for source, target in pairs:
        partners.setdefault(source.text, {source.text}).add(target.text)
    return partners


def _inside(span: object, sides: Sequence[list[str]]) -> bool:
    """Tell whether a JSON value is a half-open span in each of the sentences, one after the other."""
    return (isinstance(span, list) and len(span) == 2 * len(sides) and all(type(place) is int for place in span)
            and all(0 <= span[2 * i] < span[2 * i + 1] <= len(words) for i, words in enumerate(sides)))


class Phrases(Task):
    """Tell paraphrased phrases from other phrases, and paraphrased sentences from random ones."""

    metric = "phrasal"  # where the ablation has it
    classes = 2  # its metrics are accuracies, so that no score is moved as a correlation's
    sequences_per_example = 2
    answers_labels = False  # it counts right pairs
    prediction_header = None  # a training signal, not an answer anyone hands in

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, options: PhraseOptions):
        super().__init__(name, tokenizer, config, options)
        self.attentive = None  # the pooling of the options is of phrases, and has scores of its own
        ablation, self.features = options.ablation, options.features
        self.all_random_sources = options.random_sources == "all"
        self.phrasal = ablation != "sentence_only"
        self.sentential = ablation in ("full", "sentence_only")
        self.metric = "phrasal" if self.phrasal else "sentential"
        self.random_pairs = ablation != "binary"
        self.attention = SpanAttention(self.hidden_size, options.looks) if self.pooling == "attentive" else None
        size = self.hidden_size * (4 if self.features == "full" else 2) * (options.looks if self.attention else 1)
        self.phrase_head = nn.Linear(size, 2 if ablation == "binary" else 3) if self.phrasal else None
        self.sentence_head = nn.Linear(self.hidden_size, 2) if self.sentential else None
        # Aligned phrases of the split last tokenized that are left out: cut by truncation, or of fewer than two tokens.
        self.cut_phrases = self.short_phrases = 0

    # ---- file -> examples --------------------------------------------------------------------------------------------

    def read(self, path: Path, split: str) -> Dataset:
        """Read JSON lines of aligned sentence pairs. See Task.read."""
        examples: list[PhraseExample] = []
        skipped: list[tuple[int, str]] = []
        names = ("source", "target", "alignments")
        for row in read_json_lines(path, names, optional=("source_phrases", "target_phrases")):
            values = {}
            for name, text in row.values.items():
                try:
                    values[name] = json.loads(text) if text else []
                except ValueError:
                    raise row.error(name, "a list") from None
            words = (values["source"], values["target"])
            for name in ("source", "target"):
                if not (isinstance(values[name], list) and all(isinstance(word, str) for word in values[name])):
                    raise row.error(name, "a list of words")
            for name, sides in (("alignments", (0, 1)), ("source_phrases", (0,)), ("target_phrases", (1,))):
                if not (isinstance(values[name], list) and all(_inside(span, [words[side] for side in sides])
                                                               for span in values[name])):
                    raise row.error(name, "half-open spans of words inside the sentences: [s0, s1, t0, t1] of an "
                                          "alignment, [start, end] of a phrase")
            alignments = [tuple(span) for span in values["alignments"]]
            if not alignments:
                skipped.append((row.line, "without an aligned phrase"))
                continue
            source_phrases, target_phrases = (
                sorted({tuple(span) for span in values[name]} | {a[2 * side:2 * side + 2] for a in alignments})
                for side, name in enumerate(("source_phrases", "target_phrases")))
            examples.append(PhraseExample(str(row.line), tuple(" ".join(side) for side in words), 1, words=words,
                                          alignments=alignments, phrases=(source_phrases, target_phrases)))
        if len(examples) < 2:
            raise ValueError(f"{path}: {len(examples)} pairs with aligned phrases; expected two or more, since a "
                             "random sentence must be another's")
        return Dataset(Path(path), examples, skipped)

    def tokenize(self, examples: Sequence[PhraseExample]) -> int:
        """Fill in each example's token ids and words. Returns how many examples max_length will cut."""
        self.short_phrases = 0
        flat = [word for example in examples for side in example.words for word in side]
        ids = iter(self.tokenizer.ids(flat))
        for example in examples:
            sides, owners, ends = [], [], []
            for side in example.words:
                pieces = [next(ids) for _ in side]
                ends.append(list(itertools.accumulate(map(len, pieces), initial=0)))
                sides.append([piece for word in pieces for piece in word])
                owners.append([index for index, word in enumerate(pieces) for _ in word])
            example.ids, example.owners, example.pool = tuple(sides), (owners[0], owners[1]), examples
            self.short_phrases += sum(ends[0][s1] - ends[0][s0] < 2 or ends[1][t1] - ends[1][t0] < 2
                                      for s0, s1, t0, t1 in example.alignments)
        long = [example for example in examples if self.full_length(example) > self.max_length]
        whole = [self._aligned(example, *self._sequence(example, example)[1:]) for example in long]
        self.cut_phrases = sum(len(example.alignments) - len(aligned)
                               for example, aligned in zip(long, whole, strict=True))
        return len(long)

    def note(self) -> str:
        """Say how many aligned phrases are left out, and why."""
        notes = [f"{self.cut_phrases:,} aligned phrases are cut by truncation, and left out"] * bool(self.cut_phrases)
        notes += [f"{self.short_phrases:,} aligned phrases have fewer than two tokens, and are left out"] * bool(
            self.short_phrases)
        return "; ".join(notes)

    def full_length(self, example: PhraseExample) -> int:
        """Return the tokens of the pair in one sequence, before truncation."""
        return sum(map(len, example.ids)) + self.tokenizer.special_of_pair

    # ---- examples -> batch -------------------------------------------------------------------------------------------

    def _sequence(self, first: PhraseExample, second: PhraseExample
                  ) -> tuple[tuple[list[int], list[int]], dict[Span, Phrase], dict[Span, Phrase]]:
        """Build [CLS] first's source [SEP] second's target [SEP].

        Returns:
            The sequence, and both sides' phrases by their word spans. A phrase has at least two tokens (the paper's
            j < k).
        """
        sequence = self.tokenizer.build(first.ids[0], second.ids[1], self.max_length)
        segments = sequence[1]
        between = self.tokenizer.special.between
        target_length = sum(segments) - between
        source_length = len(segments) - target_length - self.tokenizer.special_of_pair

        def phrases(example: PhraseExample, side: int, length: int, shift: int) -> dict[Span, Phrase]:
            spans = piece_spans(example.owners[side], example.phrases[side], length)
            return {span: Phrase(a + shift, b + shift, tuple(example.ids[side][a:b]))
                    for span, (a, b) in spans.items() if b - a > 1}

        start = 1 + source_length + between  # of the target
        return sequence, phrases(first, 0, source_length, 1), phrases(second, 1, target_length, start)

    @staticmethod
    def _aligned(example: PhraseExample, source: dict[Span, Phrase], target: dict[Span, Phrase]
                 ) -> list[tuple[Phrase, Phrase]]:
        """Return the aligned phrases that the sequence holds whole."""
        return [(source[s0, s1], target[t0, t1]) for s0, s1, t0, t1 in example.alignments
                if (s0, s1) in source and (t0, t1) in target]

    @staticmethod
    def _another(example: PhraseExample, rng: random.Random) -> PhraseExample | None:
        """Draw an example of the same split whose target is another sentence. None if twenty draws give none."""
        for _ in range(20):
            other = rng.choice(example.pool)
            if other.words[1] != example.words[1]:
                return other
        return None

    def collate(self, examples: Sequence[PhraseExample]) -> PhraseBatch:
        """Turn sentence pairs into a batch of the three classes.

        Negatives are drawn anew for every batch in training, and are always the same for an example in evaluation. A
        target whose text says the same as the source is no negative.
        """
        step = int(torch.randint(2**31, ())) if self.training else 0
        sequences, random_sequences = [], []
        pairs: list[PhrasePair] = []
        for number, example in enumerate(examples):
            rng = random.Random(zlib.crc32(f"{step}/{example.id}/{example.sentences[0]}".encode()))
            sequence, source, target = self._sequence(example, example)
            sequences.append(sequence)
            aligned = self._aligned(example, source, target)
            partners = partners_of(aligned)
            aligned_sources = {(phrase.start, phrase.end) for phrase, _ in aligned}

            def negative(phrase: Phrase, candidates: dict[Span, Phrase], rng: random.Random = rng,
                         partners: dict = partners) -> Phrase | None:
                same = partners.get(phrase.text, {phrase.text})
                others = [candidate for candidate in candidates.values() if candidate.text not in same]
                return rng.choice(others) if others else None

            for s, t in aligned:
                pairs.append(PhrasePair(number, s, t, PARAPHRASE, number))
                other = negative(s, target)
                if other is not None:
                    pairs.append(PhrasePair(number, s, other, IN_PARAPHRASE, number))
            stranger = self._another(example, rng) if self.random_pairs else None
            if stranger is None:
                continue
            sequence, source, target = self._sequence(example, stranger)
            random_sequences.append(sequence)
            for s in source.values():
                if not self.all_random_sources and (s.start, s.end) not in aligned_sources:
                    continue
                other = negative(s, target)
                if other is not None:
                    pairs.append(PhrasePair(len(examples) + len(random_sequences) - 1, s, other, RANDOM, number))
        tokens = TokenBatch.from_sequences(sequences + random_sequences, self.tokenizer.pad_id)
        width = tokens.input_ids.shape[1]
        spans = torch.tensor([[pair.sequence * width + place for place in (
            pair.source.start, pair.source.end, pair.target.start, pair.target.end)] for pair in pairs],
            dtype=torch.int64).reshape(-1, 4)
        return PhraseBatch(tokens, spans[:, :2], spans[:, 2:],
                           torch.tensor([pair.label for pair in pairs], dtype=torch.int64),
                           torch.tensor([pair.example for pair in pairs], dtype=torch.int64),
                           torch.tensor([1] * len(sequences) + [0] * len(random_sequences)))

    # ---- batch -> logits -> loss, accuracies -------------------------------------------------------------------------

    def outputs(self, encoder: BertModel, batch: PhraseBatch) -> PhraseOutputs:
        """Return the logits of both tasks."""
        output = encode(encoder, batch.tokens, cls_only=not self.phrasal)
        phrases = sentences = None
        penalty = output.last_hidden_state.new_zeros(())
        if self.phrase_head is not None:
            hidden = output.last_hidden_state.flatten(0, 1)  # [B * T, H]
            if self.attention is None:
                hs, ht = (pool_spans(hidden, spans, self.pooling) for spans in (batch.source, batch.target))
            else:
                (hs, first), (ht, second) = self.attention(hidden, (batch.source, batch.target))
                penalty = PENALTY_WEIGHT * (first + second) / 2
            parts = [hs, ht, hs * ht, (hs - ht).abs()] if self.features == "full" else [hs, ht]
            phrases = self.phrase_head(self.dropout(torch.cat(parts, dim=1)))
        if self.sentence_head is not None:
            sentences = self.sentence_head(self.dropout(output.last_hidden_state[:, 0]))
        return PhraseOutputs(phrases, sentences, penalty)

    def criterion(self, outputs: PhraseOutputs, batch: PhraseBatch) -> Tensor:
        """Compute L_p + L_s, both cross-entropies, and add the penalty of attentive pooling."""
        loss = outputs.penalty
        if outputs.phrases is not None and len(outputs.phrases):
            loss = loss + F.cross_entropy(outputs.phrases, batch.labels)
        if outputs.sentences is not None:
            loss = loss + F.cross_entropy(outputs.sentences, batch.sentence_labels)
        return loss

    def divergence(self, first: PhraseOutputs, second: PhraseOutputs) -> Tensor:
        """Add up both tasks' divergences."""
        total = torch.zeros(())
        for one, other in ((first.phrases, second.phrases), (first.sentences, second.sentences)):
            if one is not None and other is not None and len(one):
                total = total.to(one.device) + symmetric_divergence(one, other)
        return total

    def predict(self, encoder: BertModel, batch: PhraseBatch) -> Tensor:
        """Count, for each example, right phrase pairs, phrase pairs, right sentence pairs, sentence pairs: [B, 4]."""
        outputs = self.outputs(encoder, batch)
        count = int(batch.sentence_labels.sum())  # pairs (s, t), one an example
        counts = torch.zeros(count, 4, device=batch.labels.device)
        if outputs.phrases is not None:
            right = (outputs.phrases.argmax(dim=1) == batch.labels).float()
            counts[:, 0].index_add_(0, batch.owners, right)
            counts[:, 1].index_add_(0, batch.owners, torch.ones_like(right))
        if outputs.sentences is not None:
            right = (outputs.sentences.argmax(dim=1) == batch.sentence_labels).float()
            counts[:, 2] = right[:count]
            counts[:, 3] = 1
            if len(right) == 2 * count:
                counts[:, 2] += right[count:]
                counts[:, 3] += 1
        return counts

    def metrics(self) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
        """Return the accuracies of both tasks, where the ablation has them."""
        both: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {"phrasal": phrasal} if self.phrasal else {}
        if self.sentential:
            both["sentential"] = sentential
        return both
