"""Encoding: sentence vectors of many real sentences, against sentence-transformers and a starter-shaped encoder."""
import random
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.contestants import mean_of, ours_encoder, starter_model
from benchmarks.measure import Comparison, at_precision, compare
from minbert.batch import TokenBatch
from minbert.pretrained import fetch
from minbert.tokenizer import BertTokenizer
from tasks.encoding import embed

STARTER_BATCH = 64


def starter_encoder(weights: str, tokenizer: BertTokenizer) -> Callable[[list[str]], np.ndarray]:
    """In the order that the sentences come in, padded."""
    model = starter_model(weights, "sts").encoder.eval()

    @torch.no_grad()
    def encode(sentences: list[str]) -> np.ndarray:
        vectors = []
        for start in range(0, len(sentences), STARTER_BATCH):
            batch = TokenBatch.from_sequences([tokenizer.build(ids, max_length=256) for ids in tokenizer.ids(
                sentences[start:start + STARTER_BATCH])], tokenizer.pad_id)
            ids, mask = batch.input_ids, batch.attention_mask
            vectors.append(torch.nn.functional.normalize(mean_of(model(ids, mask), mask), dim=1))
        return torch.cat(vectors).numpy()

    return encode


def run(sentences: list[str], weights: str, repeats: int) -> tuple[Comparison, float]:
    """The comparison, and the largest difference between our float32 vectors and sentence-transformers'."""
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(fetch(weights)), device="cpu")
    encoder, tokenizer = ours_encoder(weights)
    starter = starter_encoder(weights, tokenizer)
    shuffled = random.Random(0).sample(sentences, len(sentences))
    torch.set_float32_matmul_precision("highest")
    some = shuffled[:1000]
    difference = float(np.abs(embed(encoder, tokenizer, some) - peer.encode(some, normalize_embeddings=True)).max())
    found = compare(f"encoding, {len(sentences):,} sentences", {
        "ours, float32": at_precision("highest", lambda: embed(encoder, tokenizer, shuffled)),
        "sentence-transformers": at_precision("highest", lambda: peer.encode(shuffled, show_progress_bar=False)),
        "starter shape": at_precision("highest", lambda: starter(shuffled)),
        "ours, medium precision": at_precision("medium", lambda: embed(encoder, tokenizer, shuffled)),
        "sentence-transformers, medium precision": at_precision(
            "medium", lambda: peer.encode(shuffled, show_progress_bar=False))}, repeats)
    return found, difference
