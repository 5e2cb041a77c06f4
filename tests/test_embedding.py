"""Sentence vectors against sentence-transformers, whose model the default weights are."""
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from engine.bert import FastBertModel
from minbert.weights import load_encoder
from tasks.encoding import embed


@pytest.fixture(scope="module")
def both(model_directory):
    encoder, tokenizer, _ = load_encoder(model_directory, FastBertModel)
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
    encoder.train()  # embed is for evaluation, and leaves the mode of every part as it was
    encoder.embeddings.eval()
    together = embed(encoder, tokenizer, sentences[:20])
    alone = embed(encoder, tokenizer, sentences[:20], tokens_per_batch=1)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert encoder.training and encoder.pooler.training and not encoder.embeddings.LayerNorm.training


def test_no_sentences_are_no_vectors(both):
    encoder, tokenizer, _ = both
    assert embed(encoder, tokenizer, []).shape == (0, encoder.config.hidden_size)


def test_the_lesson_embeds_alike(both, model_directory, sentences):
    encoder, tokenizer, _ = both
    plain, _, _ = load_encoder(model_directory)
    for pooling in ("pooler", "cls", "mean", "max"):
        np.testing.assert_allclose(embed(plain, tokenizer, sentences[:20], pooling),
                                   embed(encoder, tokenizer, sentences[:20], pooling), atol=1e-5)


@pytest.mark.parametrize("wrong", ["hello", ["hello", None], [3]])
def test_one_string_and_items_that_are_none_are_errors(both, wrong):
    with pytest.raises(TypeError, match=r"expected a list of strings|sentence [01] is"):
        embed(both[0], both[1], wrong)


def test_an_unknown_pooling_is_a_clear_error(both):
    with pytest.raises(ValueError, match="pooling is 'bogus'; expected one of pooler, cls, mean, max"):
        embed(both[0], both[1], ["hello"], pooling="bogus")
