"""Sentence vectors against sentence-transformers, whose model the default weights are."""
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from minbert.weights import load_encoder
from tasks.embedding import embed


@pytest.fixture(scope="module")
def both(model_directory):
    encoder, tokenizer, _ = load_encoder(model_directory)
    return encoder, tokenizer, SentenceTransformer(str(model_directory), device="cpu")


@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_equal_sentence_transformers(both, sentences, normalize):
    encoder, tokenizer, peer = both
    texts = [*sentences, "", "word " * 400]  # no words at all; more than the model's 256 tokens
    peer.max_seq_length = 256
    ours = embed(encoder, tokenizer, texts, normalize=normalize)
    theirs = peer.encode(texts, normalize_embeddings=True)
    if not normalize:
        ours = ours / np.linalg.norm(ours, axis=1, keepdims=True)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_batches_do_not_change_vectors(both, sentences):
    encoder, tokenizer, _ = both
    encoder.train()  # embed is for evaluation, and leaves the mode as it was
    together = embed(encoder, tokenizer, sentences[:20])
    alone = embed(encoder, tokenizer, sentences[:20], tokens_per_batch=1)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert encoder.training


def test_no_sentences_are_no_vectors(both):
    encoder, tokenizer, _ = both
    assert embed(encoder, tokenizer, []).shape == (0, encoder.config.hidden_size)
