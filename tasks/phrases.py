"""Transfer fine-tuning (Arase & Tsujii 2019, section 3): which phrases of a sentence pair say the same?

A pair goes in as [CLS] s [SEP] t [SEP]. A phrase's vector is pooled from its tokens' final states; a linear layer over
two phrases' features says paraphrase, in-paraphrase (the target replaced by another phrase of t) or random (a phrase of
a random other sentence). [CLS] says whether the sentences are paraphrases or s with a random one. L = L_p + L_s. Both
classifiers are thrown away afterwards: only the encoder goes on. Choices the paper leaves open: docs/alignment.md.
"""
import json
import random
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpora.tables import read_json_lines
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks.task import Dataset, Example, Task, TokenBatch

PARAPHRASE, IN_PARAPHRASE, RANDOM = 0, 1, 2
ABLATIONS = ("full", "sentence_only", "three_way", "binary")
FEATURES = ("full", "simple")  # [hs; ht; hs*ht; |hs-ht|], or [hs; ht] (the appendix's "simple TFT")
SPAN_POOLINGS = ("max", "mean", "attentive")

Span = tuple[int, int]


@dataclass
class PhraseExample(Example):
    """`sentences` are the two sides' words joined; spans count words."""

    words: tuple[list[str], list[str]] = ((), ())
    alignments: list[tuple[int, int, int, int]] = ()
    phrases: tuple[list[Span], list[Span]] = ((), ())  # each side's inventory, from which negatives are drawn
    owners: tuple[list[int], list[int]] = ((), ())  # of each token, its word
    pool: list["PhraseExample"] = ()  # the split it is of: where its random sentences come from


@dataclass
class PhraseBatch:
    tokens: TokenBatch  # first the pairs (s, t), then, unless the ablation needs none, the random pairs (s, t')
    source: Tensor  # [P, 2] half-open token spans in the packed batch [N]
    target: Tensor  # [P, 2]
    labels: Tensor  # [P] PARAPHRASE, IN_PARAPHRASE or RANDOM
    owners: Tensor  # [P] the example each phrase pair belongs to
    sentence_labels: Tensor  # [sequences] 1 for a paraphrase pair, 0 for a random one

    def to(self, device: torch.device) -> "PhraseBatch":
        return PhraseBatch(self.tokens.to(device), *(t.to(device) for t in (
            self.source, self.target, self.labels, self.owners, self.sentence_labels)))


def pool_spans(hidden: Tensor, spans: Tensor, pooling: str, scores: Tensor | None = None) -> Tensor:
    """hidden: [N, H] packed states. spans: [P, 2], none empty. Returns one vector a span, [P, H].

    scores: [N, r] of pooling "attentive": each of r looks is a softmax over the span's tokens (Lin et al. 2017); their
    mean is taken.
    """
    lengths = spans[:, 1] - spans[:, 0]
    offsets = lengths.cumsum(0) - lengths
    owners = torch.repeat_interleave(torch.arange(len(spans), device=hidden.device), lengths)
    places = torch.arange(len(owners), device=hidden.device) - offsets[owners] + spans[owners, 0]  # [F]
    if pooling in ("max", "mean"):
        return F.embedding_bag(places, hidden, offsets, mode=pooling)
    chosen = scores[places]  # [F, r]
    # Any shift leaves a softmax as it is; each span's own maximum keeps the exponentials in range.
    highest = chosen.new_full((len(spans), chosen.shape[1]), -torch.inf)
    highest = highest.scatter_reduce(0, owners[:, None].expand_as(chosen), chosen.detach(), "amax")
    weights = (chosen - highest[owners]).exp()
    weights = weights / torch.zeros_like(highest).index_add(0, owners, weights)[owners]
    return hidden.new_zeros(len(spans), hidden.shape[1]).index_add(
        0, owners, hidden[places] * weights.mean(dim=1, keepdim=True))


def piece_spans(owners: list[int], spans: list[Span], kept: int) -> dict[Span, Span]:
    """Word spans -> token spans of a sentence whose first `kept` tokens survived truncation. Spans that were cut, and
    words without a token, are left out. owners: of each token, its word."""
    first, last = {}, {}
    for position, word in enumerate(owners):
        first.setdefault(word, position)
        last[word] = position
    found = {}
    for start, end in spans:
        whole = all(word in first for word in range(start, end))  # a control character, say, has no token
        if whole and last[end - 1] < kept:
            found[(start, end)] = (first[start], last[end - 1] + 1)
    return found


class Phrases(Task):
    metric = "phrasal"  # where the ablation has it
    classes = 2  # its metrics are accuracies, so that no score is moved as a correlation's
    sequences_per_example = 2
    prediction_header = None  # a training signal, not an answer anyone hands in

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, ablation: str = "full",
                 features: str = "full", pooling: str = "max", dropout: float = 0.2, exclude_aligned: bool = True,
                 all_random_sources: bool = False, **options):
        super().__init__(name, tokenizer, config, pooling="cls", dropout=dropout, **options)
        for field, value, known in (("ablation", ablation, ABLATIONS), ("features", features, FEATURES),
                                    ("pooling", pooling, SPAN_POOLINGS)):
            if value not in known:
                raise ValueError(f"task {name}: {field} is {value!r}; known: {', '.join(known)}")
        self.ablation, self.features, self.span_pooling = ablation, features, pooling
        # exclude_aligned: an in-paraphrase target is never one that is aligned to the same source, or the label would
        # be wrong. all_random_sources: random pairs take every phrase of s, not the aligned ones only.
        self.exclude_aligned, self.all_random_sources = exclude_aligned, all_random_sources
        self.phrasal = ablation != "sentence_only"
        self.sentential = ablation in ("full", "sentence_only")
        self.metric = "phrasal" if self.phrasal else "sentential"
        self.random_pairs = ablation != "binary"
        size = self.hidden_size * (4 if features == "full" else 2)
        self.phrase_head = nn.Linear(size, 2 if ablation == "binary" else 3) if self.phrasal else None
        self.sentence_head = nn.Linear(self.hidden_size, 2) if self.sentential else None
        self.looks = nn.Sequential(nn.Linear(self.hidden_size, 64, bias=False), nn.Tanh(),
                                   nn.Linear(64, 4, bias=False)) if pooling == "attentive" else None
        self.cut_phrases = 0  # aligned phrases of the split last tokenized that truncation cuts, and that are left out

    # ---- file -> examples --------------------------------------------------------------------------------------------

    def read(self, path: Path, split: str) -> Dataset:
        examples, skipped = [], []
        names = ("source", "target", "alignments")
        for row in read_json_lines(path, names, optional=("source_phrases", "target_phrases")):
            values = {name: json.loads(text) if text else [] for name, text in row.values.items()}
            words = (values["source"], values["target"])
            alignments = [tuple(span) for span in values["alignments"]]
            right = all(len(a) == 4 and 0 <= a[0] < a[1] <= len(words[0]) and 0 <= a[2] < a[3] <= len(words[1])
                        for a in alignments)
            if not right:
                raise ValueError(f"{path}:{row.line}: an alignment is not inside its sentences; expected half-open "
                                 "spans [s0, s1, t0, t1] of words")
            if not alignments:
                skipped.append((row.line, "without an aligned phrase"))
                continue
            inventories = tuple(
                sorted({tuple(span) for span in values[name]} | {a[2 * side:2 * side + 2] for a in alignments})
                for side, name in enumerate(("source_phrases", "target_phrases")))
            examples.append(PhraseExample(str(row.line), tuple(" ".join(side) for side in words), 1, (), words,
                                          alignments, inventories))
        if len(examples) < 2:
            raise ValueError(f"{path}: {len(examples)} pairs with aligned phrases; expected two or more, since a "
                             "random sentence must be another's")
        return Dataset(Path(path), examples, skipped)

    def tokenize(self, examples: list[PhraseExample]) -> int:
        flat = [word for example in examples for side in example.words for word in side]
        ids = iter(self.tokenizer.ids(flat))
        for example in examples:
            sides, owners = [], []
            for side in example.words:
                pieces = [next(ids) for _ in side]
                sides.append([piece for word in pieces for piece in word])
                owners.append([index for index, word in enumerate(pieces) for _ in word])
            example.ids, example.owners, example.pool = tuple(sides), tuple(owners), examples
        long = [example for example in examples if self.full_length(example) > self.max_length]
        self.cut_phrases = sum(len(example.alignments) - len(self._usable(example)[0]) for example in long)
        return len(long)

    def note(self) -> str:
        return f"{self.cut_phrases:,} aligned phrases are cut by truncation, and left out" if self.cut_phrases else ""

    def full_length(self, example: PhraseExample) -> int:
        return sum(map(len, example.ids)) + 3

    # ---- examples -> batch -------------------------------------------------------------------------------------------

    def _sequence(self, first: PhraseExample, second: PhraseExample
                  ) -> tuple[tuple[list[int], list[int]], dict[Span, Span], dict[Span, Span]]:
        """[CLS] first's source [SEP] second's target [SEP], and where both inventories' phrases are in it. A phrase has
        at least two tokens (the paper's j < k)."""
        sequence = self.tokenizer.build(first.ids[0], second.ids[1], self.max_length)
        segments = sequence[1]
        kept_target = sum(segments) - 1
        kept_source = len(segments) - kept_target - 3
        source = piece_spans(first.owners[0], first.phrases[0], kept_source)
        target = piece_spans(second.owners[1], second.phrases[1], kept_target)
        shift = kept_source + 2
        return (sequence,
                {span: (a + 1, b + 1) for span, (a, b) in source.items() if b - a > 1},
                {span: (a + shift, b + shift) for span, (a, b) in target.items() if b - a > 1})

    def _usable(self, example: PhraseExample) -> tuple[list[tuple[Span, Span]], tuple]:
        """The aligned phrases that the sequence holds whole, as word spans, and what `_sequence` made of it."""
        made = self._sequence(example, example)
        return [(a[:2], a[2:]) for a in example.alignments if a[:2] in made[1] and a[2:] in made[2]], made

    @staticmethod
    def _another(example: PhraseExample, rng: random.Random) -> PhraseExample | None:
        """A random example of the same split whose target is another sentence; None where none is found."""
        for _ in range(20):
            other = rng.choice(example.pool)
            if other.words[1] != example.words[1]:
                return other
        return None

    def collate(self, examples: list[PhraseExample]) -> PhraseBatch:
        """Negatives are drawn anew for every batch in training, and always the same for an example in evaluation."""
        step = int(torch.randint(2**31, ())) if self.training else 0
        sequences, random_sequences = [], []
        # (sequence, source span, target span, label, example); spans are within the sequence
        found: list[tuple[int, Span, Span, int, int]] = []
        for number, example in enumerate(examples):
            rng = random.Random(zlib.crc32(f"{step}/{example.id}/{example.sentences[0]}".encode()))
            usable, (sequence, source, target) = self._usable(example)
            sequences.append(sequence)
            partners: dict[Span, set[Span]] = {}
            for s0, s1, t0, t1 in example.alignments:
                partners.setdefault((s0, s1), set()).add((t0, t1))
            for s, t in usable:
                found.append((number, source[s], target[t], PARAPHRASE, number))
                others = [span for span in target if span not in (partners[s] if self.exclude_aligned else {t})]
                if others:
                    found.append((number, source[s], target[rng.choice(others)], IN_PARAPHRASE, number))
            if self.random_pairs:
                other = self._another(example, rng)
                if other is None:
                    continue
                sequence, source, target = self._sequence(example, other)
                random_sequences.append(sequence)
                row = len(examples) + len(random_sequences) - 1
                phrases = list(source) if self.all_random_sources else sorted({s for s, _ in usable if s in source})
                if target:
                    for s in phrases:
                        found.append((row, source[s], target[rng.choice(list(target))], RANDOM, number))
        tokens = TokenBatch.from_sequences(sequences + random_sequences, self.tokenizer.pad_id)
        lengths = [len(ids) for ids, _ in sequences + random_sequences]
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        spans = np.array([[starts[row] + s[0], starts[row] + s[1], starts[row] + t[0], starts[row] + t[1]]
                          for row, s, t, _, _ in found], dtype=np.int64).reshape(-1, 4)
        spans = torch.from_numpy(spans)
        return PhraseBatch(tokens, spans[:, :2], spans[:, 2:],
                           torch.tensor([f[3] for f in found], dtype=torch.int64),
                           torch.tensor([f[4] for f in found], dtype=torch.int64),
                           torch.tensor([1] * len(sequences) + [0] * len(random_sequences)))

    # ---- batch -> logits -> loss, accuracies -------------------------------------------------------------------------

    def outputs(self, encoder: BertModel, batch: PhraseBatch) -> tuple[Tensor | None, Tensor | None]:
        """(phrase logits [P, 2 or 3], sentence logits [sequences, 2]); None for a task the ablation leaves out."""
        tokens = batch.tokens
        output = encoder(tokens.input_ids, tokens.attention_mask, tokens.token_type_ids, packing=tokens.packing,
                         cls_only=not self.phrasal)
        phrases = sentences = None
        if self.phrasal:
            hidden = tokens.packing.pack(output.last_hidden_state)  # [N, H]
            scores = self.looks(hidden) if self.looks is not None else None
            hs = pool_spans(hidden, batch.source, self.span_pooling, scores)
            ht = pool_spans(hidden, batch.target, self.span_pooling, scores)
            parts = [hs, ht, hs * ht, (hs - ht).abs()] if self.features == "full" else [hs, ht]
            phrases = self.phrase_head(self.dropout(torch.cat(parts, dim=1)))
        if self.sentential:
            sentences = self.sentence_head(self.dropout(output.last_hidden_state[:, 0]))
        return phrases, sentences

    def criterion(self, outputs: tuple[Tensor | None, Tensor | None], batch: PhraseBatch) -> Tensor:
        phrases, sentences = outputs
        loss = torch.zeros((), device=batch.labels.device)
        if phrases is not None and len(phrases):
            loss = loss + F.cross_entropy(phrases, batch.labels)
        if sentences is not None:
            loss = loss + F.cross_entropy(sentences, batch.sentence_labels)
        return loss

    def divergence(self, first, second) -> Tensor:
        return sum((super(Phrases, self).divergence(a, b) for a, b in zip(first, second, strict=True)
                    if a is not None), torch.zeros(()))

    def predict(self, encoder: BertModel, batch: PhraseBatch) -> Tensor:
        """[B, 4]: each example's right phrase pairs, phrase pairs, right sentence pairs, sentence pairs."""
        phrases, sentences = self.outputs(encoder, batch)
        count = int(batch.sentence_labels.sum())  # pairs (s, t), one an example
        counts = torch.zeros(count, 4, device=batch.labels.device)
        if phrases is not None:
            right = (phrases.argmax(dim=1) == batch.labels).float()
            counts[:, 0].index_add_(0, batch.owners, right)
            counts[:, 1].index_add_(0, batch.owners, torch.ones_like(right))
        if sentences is not None:
            right = (sentences.argmax(dim=1) == batch.sentence_labels).float()
            counts[:, 2] = right[:count]
            counts[:, 3] = 1
            if len(right) == 2 * count:
                counts[:, 2] += right[count:]
                counts[:, 3] += 1
        return counts

    def metrics(self) -> dict:
        def share(column: int):
            def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
                total = predictions[:, column + 1].sum()
                return float(predictions[:, column].sum() / total) if total else 0.0
            return accuracy

        both = {"phrasal": share(0)} if self.phrasal else {}
        if self.sentential:
            both["sentential"] = share(2)
        return both
