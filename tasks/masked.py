"""Masked words: which word was hidden? What BERT was trained on before anything else (Devlin et al. 2019, section 3.1).

Of the words of a sentence 15 % are chosen. Of those, 80 % become [MASK], 10 % another word, and 10 % stay as they are.
The encoder predicts the chosen words from all others. It needs no labels, so an encoder can go on with it on the text
of its later tasks (Gururangan et al. 2020). On dev the same words of a sentence are hidden each time.
"""
import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpora.examples import Dataset, Example, examples_of
from corpora.tables import read_lines, read_table
from minbert.batch import TokenBatch
from minbert.bert import ACTIVATIONS, BertModel, initialize
from minbert.config import BertConfig
from minbert.tokenizer import BertTokenizer
from tasks.encoding import encode
from tasks.options import MaskedOptions
from tasks.task import Batch, Outputs, Task

COLUMNS = ("sentence", "sentence1", "sentence2")  # of the course's files; each is a sentence of its own
BECOMES_MASK, BECOMES_ANOTHER = 0.8, 0.1  # shares of the chosen words


def hide(input_ids: Tensor, candidates: Tensor, share: float, mask_id: int, vocab_size: int,
         generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Choose words and hide them.

    Args:
        input_ids: [B, T].
        candidates: bool [B, T], what may be chosen.
        share: of the candidates that is chosen, by chance. Each sequence with a candidate has one chosen at least.
        mask_id: of [MASK].
        vocab_size: other words are drawn from all of it.
        generator: draws, on the CPU. None: torch's own.

    Returns:
        The ids with the chosen words hidden, and where they are, bool [B, T].
    """
    luck, kind = (torch.rand(input_ids.shape, generator=generator).to(input_ids.device) for _ in range(2))
    others = torch.randint(vocab_size, input_ids.shape, generator=generator).to(input_ids.device)
    luck = luck.masked_fill(~candidates, 2.0)
    chosen = ((luck < share) | (luck == luck.min(dim=1, keepdim=True).values)) & candidates
    hidden = input_ids.masked_fill(chosen & (kind < BECOMES_MASK), mask_id)
    another = chosen & (kind >= BECOMES_MASK) & (kind < BECOMES_MASK + BECOMES_ANOTHER)
    return torch.where(another, others, hidden), chosen


class MaskedHead(nn.Module):
    """Turn hidden states into logits of the vocabulary: a layer, then the word embeddings again, and a bias a word.

    Its parameters are called as in Hugging Face's `cls.predictions`.
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        self.activation = ACTIVATIONS[config.hidden_act]
        self.transform = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.hidden_size),
                                        "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)})
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        initialize(self, config)

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """Return logits [N, V]. hidden: [N, H]. word_embeddings: [V, H], the encoder's."""
        hidden = self.transform["LayerNorm"](self.activation(self.transform["dense"](hidden)))
        return F.linear(hidden, word_embeddings, self.bias)


class MaskedWords(Task):
    """Predict hidden words. The metric is the share of a sentence's hidden words that are right, over sentences."""

    metric = "accuracy"
    answers_labels = False  # a sentence is its own label
    reads_word_embeddings = True

    def __init__(self, name: str, tokenizer: BertTokenizer, config: BertConfig, options: MaskedOptions):
        super().__init__(name, tokenizer, config, options)
        self.share = options.share
        self.vocab_size = config.vocab_size
        self.head = MaskedHead(config)

    def read(self, path: Path, split: str) -> Dataset:
        """Read the sentences of a file of the course, whatever its labels. See Task.read. A repeat is left out."""
        path = Path(path)
        header = next(read_lines(path), "")
        columns = [name for name in COLUMNS if name in map(str.strip, header.split("\t"))]
        if not columns:
            raise ValueError(f"{path}:1: columns are {header[:100]!r}; expected a column "
                             f"{' or '.join(COLUMNS)}, divided by tabs")
        examples, skipped, seen = examples_of(path), [], set[str]()
        for row in read_table(path, columns):
            for column in columns:
                text = row.sentence(column)
                if not text.strip():
                    skipped.append((row.line, f"without {column}"))
                elif text in seen:
                    skipped.append((row.line, "a repeat"))
                else:
                    seen.add(text)
                    examples.append(Example(f"{row.line}.{column}", (text,), 1))
        return Dataset(path, examples, skipped)

    def _hidden(self, tokens: TokenBatch) -> tuple[Tensor, Tensor]:
        """Hide words of a batch: see `hide`. Of a dev sentence the same words each time, whatever is beside it."""
        special = torch.tensor([self.tokenizer.cls_id, self.tokenizer.sep_id], device=tokens.input_ids.device)
        candidates = tokens.attention_mask & ~torch.isin(tokens.input_ids, special)
        rest = (self.share, self.tokenizer.mask_id, self.vocab_size)
        if self.training:
            return hide(tokens.input_ids, candidates, *rest, None)
        hidden, chosen = tokens.input_ids.clone(), torch.zeros_like(candidates)
        for index, length in enumerate(tokens.attention_mask.sum(dim=1).tolist()):
            own = (slice(index, index + 1), slice(length))
            hidden[own], chosen[own] = hide(hidden[own], candidates[own], *rest, torch.Generator().manual_seed(length))
        return hidden, chosen

    def outputs(self, encoder: BertModel, batch: Batch) -> Outputs:
        """Hide words and predict them. Returns of each sentence, [B, 3]: loss, hidden words, how many are right."""
        ids = batch.tokens.input_ids
        hidden, chosen = self._hidden(batch.tokens)
        states = encode(encoder, dataclasses.replace(batch.tokens, input_ids=hidden)).last_hidden_state[chosen]
        logits = self.head(states, encoder.embeddings.word_embeddings.weight)
        losses = F.cross_entropy(logits, ids[chosen], reduction="none")
        right = (logits.argmax(dim=1) == ids[chosen]).to(losses.dtype)
        words = torch.stack([losses, torch.ones_like(right), right], dim=1)
        # Sums by sentence: processes that share a batch put them together (training/distributed.py).
        sentence = chosen.nonzero()[:, 0]
        return Outputs(words.new_zeros(len(ids), 3).index_add(0, sentence, words), words.new_zeros(()))

    def criterion(self, outputs: Outputs, batch: Batch) -> Tensor:
        """Compute the mean cross-entropy of the hidden words."""
        total, count, _ = outputs.values.unbind(dim=1)
        return total.sum() / count.sum().clamp_min(1)

    def divergence(self, first: Outputs, second: Outputs) -> Tensor:
        """Refuse: two outputs are of different hidden words."""
        raise ValueError(f"task {self.name}: R-Drop and SMART compare two outputs for one input; here the hidden words "
                         "differ each time")

    def predict_from(self, outputs: Outputs) -> Tensor:
        """Return the share of each sentence's hidden words that are right, [B]."""
        _, count, right = outputs.values.unbind(dim=1)
        return right / count.clamp_min(1)

    def metrics(self) -> dict[str, Callable[[np.ndarray, np.ndarray], float]]:
        """Return the mean of the sentences' shares."""
        return {"accuracy": lambda predictions, labels: float(np.mean(predictions))}
