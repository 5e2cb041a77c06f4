"""Sentences -> vectors: one encoder call for a batch, and sentence vectors without a task (Reimers & Gurevych 2019).

Sentences are encoded by length, in batches of a token budget, so that padding costs next to nothing.
"""
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F

from minbert.batch import TokenBatch, by_length
from minbert.bert import BertModel, BertOutput
from minbert.tokenizer import BertTokenizer
from tasks.pooling import CLS_POOLINGS, pool

TOKENS_PER_BATCH = 4096  # of an evaluation batch, padding included: its activations should fit a processor's cache


@contextmanager
def evaluating(*modules: torch.nn.Module) -> Iterator[None]:
    """Put modules into evaluation mode inside, and give every one of their parts its own mode back afterwards."""
    parts = [part for module in modules for part in module.modules()]
    modes = [part.training for part in parts]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode


def encode(encoder: BertModel, tokens: TokenBatch, cls_only: bool = False) -> BertOutput:
    """Run the encoder on a batch.

    Args:
        encoder: minbert's BertModel, or the engine's, which can save the last layer where only [CLS] is read.
        tokens: the batch.
        cls_only: the caller reads position 0 only.
    """
    options = {"cls_only": True} if cls_only and getattr(encoder, "knows_cls_only", False) else {}
    return encoder(tokens.input_ids, tokens.attention_mask, tokens.token_type_ids, **options)


@torch.inference_mode()
def embed(encoder: BertModel, tokenizer: BertTokenizer, sentences: Sequence[str], pooling: str | None = None,
          max_length: int | None = None, normalize: bool | None = None, tokens_per_batch: int = TOKENS_PER_BATCH
          ) -> np.ndarray:
    """Embed sentences, each on its own, as the encoder's folder declares it unless the caller says otherwise.

    Args:
        encoder, tokenizer: of one model.
        sentences: a list of texts.
        pooling: pooler, cls, mean or max.
        max_length: tokens of a sentence, special tokens included. Longer ones are cut.
        normalize: scale each vector to length 1, so that a dot product is a cosine.
        tokens_per_batch: of an encoder call, padding included.

    Returns:
        Vectors [n, H], float32, in the order of the sentences.

    Raises:
        TypeError: `sentences` is one string, or an item is no string.
        ValueError: the folder declares sentence vectors that this library does not make.
    """
    declared = encoder.config.sentences
    if declared.refused and pooling is None:
        raise ValueError(declared.refused)
    pooling = declared.pooling if pooling is None else pooling
    max_length = declared.max_length if max_length is None else max_length
    normalize = declared.normalize if normalize is None else normalize
    if isinstance(sentences, str):
        raise TypeError("sentences is one string; expected a list of strings, as in embed(encoder, tokenizer, [text])")
    for index, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise TypeError(f"sentence {index} is {sentence!r}; expected a string")
    device = encoder.embeddings.word_embeddings.weight.device
    limit = min(max_length, encoder.config.max_position_embeddings)
    sequences = [tokenizer.build(ids, max_length=limit) for ids in tokenizer.ids(sentences)]
    lengths = [len(input_ids) for input_ids, _ in sequences]
    vectors = np.empty((len(sequences), encoder.config.hidden_size), dtype=np.float32)
    for indices in by_length(lengths, tokens_per_batch):
        tokens = TokenBatch.from_sequences([sequences[index] for index in indices], tokenizer.pad_id).to(device)
        with evaluating(encoder):
            pooled = pool(encode(encoder, tokens, pooling in CLS_POOLINGS), tokens.attention_mask, pooling)
        vectors[indices] = (F.normalize(pooled, dim=1) if normalize else pooled).float().cpu().numpy()
    return vectors
