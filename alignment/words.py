"""Word alignment of a paraphrase pair from our own encoder's hidden states.

A word's vector is the mean of its sub-words' states at a middle layer; two words are alike by the cosine. Four ways
from that matrix to links, from simple to good: the same word (baseline); mutual best (argmax of Jalili Sabet et al.
2020); the same iterated (itermax, ibid., algorithm 1); entropic optimal transport with a bin for words that have no
partner (Cuturi 2013; Sarlin et al. 2020; Arase et al. 2023). Layer, centring and thresholds were chosen by measurement:
docs/alignment.md.
"""
from collections.abc import Callable

import numpy as np
import torch

from minbert.batch import TokenBatch, by_length
from minbert.bert import BertModel
from minbert.tokenizer import BertTokenizer

TOKENS_PER_BATCH = 4096

Links = list[tuple[int, int]]


def default_layer(layers: int) -> int:
    """Return the middle layer, 3 of 6. Later layers tell what a sentence means, and less which word is where."""
    return layers // 2


@torch.inference_mode()
def word_vectors(encoder: BertModel, tokenizer: BertTokenizer, sentences: list[list[str]], layers: tuple[int, ...]
                 ) -> list[np.ndarray]:
    """Embed words. Each sentence is encoded on its own.

    Args:
        encoder, tokenizer: of one model.
        sentences: lists of words.
        layers: 0 for the embeddings, 1 to L.

    Returns:
        Of each sentence, [words, len(layers), H]. A word that the encoder's limit cuts off, or that has no sub-word, is
        zeros.
    """
    encoder.eval()
    limit = encoder.config.max_position_embeddings - 2
    pieces = [tokenizer.word_ids(words) for words in sentences]
    lengths = [min(len(ids), limit) + 2 for ids, _ in pieces]
    result: list[np.ndarray] = [np.zeros(0)] * len(sentences)
    for indices in by_length(lengths, max(TOKENS_PER_BATCH, limit + 2)):
        batch = TokenBatch.from_sequences([tokenizer.build(pieces[i][0][:limit]) for i in indices], tokenizer.pad_id)
        states = encoder(batch.input_ids, batch.attention_mask, output_hidden_states=True).hidden_states
        chosen = torch.stack([states[layer] for layer in layers], dim=2)  # [B, T, layers, H]
        for position, i in enumerate(indices):
            owners = torch.tensor(pieces[i][1][:limit])
            total = torch.zeros(len(sentences[i]), *chosen.shape[2:])
            total.index_add_(0, owners, chosen[position, 1:1 + len(owners)])
            counts = torch.bincount(owners, minlength=len(sentences[i])).clamp_min(1)
            result[i] = (total / counts[:, None, None]).numpy()
    return result


def cosine_matrix(source: np.ndarray, target: np.ndarray, center: np.ndarray | float = 0.0) -> np.ndarray:
    """Compute the cosines of all pairs of words, [n, m].

    Args:
        source: [n, H].
        target: [m, H].
        center: the corpus' mean vector, which all words share. It is subtracted first.
    """
    source, target = source - center, target - center
    source = source / np.maximum(np.linalg.norm(source, axis=1, keepdims=True), 1e-9)
    target = target / np.maximum(np.linalg.norm(target, axis=1, keepdims=True), 1e-9)
    return source @ target.T


def identity(source: list[str], target: list[str]) -> Links:
    """Link the k-th occurrence of a word (case aside) with its k-th occurrence on the other side: the baseline."""
    places: dict[str, list[int]] = {}
    for j, word in enumerate(target):
        places.setdefault(word.lower(), []).append(j)
    return [(i, places[word.lower()].pop(0)) for i, word in enumerate(source) if places.get(word.lower())]


def intersection(similarity: np.ndarray, threshold: float = -1.0) -> Links:
    """Link words that are each other's best, and at least as alike as the threshold. similarity: [n, m]."""
    if similarity.size == 0:
        return []
    best_target, best_source = similarity.argmax(axis=1), similarity.argmax(axis=0)
    return [(i, int(j)) for i, j in enumerate(best_target) if best_source[j] == i and similarity[i, j] >= threshold]


def itermax(similarity: np.ndarray, rounds: int = 2, damping: float = 0.9) -> Links:
    """Repeat the intersection (Jalili Sabet et al. 2020, algorithm 1).

    Words that have a link count for less, and links between two such words for nothing. So the others find partners.

    Args:
        similarity: [n, m].
        rounds: how often.
        damping: the factor on words that have a link.
    """
    links: set[tuple[int, int]] = set(intersection(similarity))
    positive = (similarity + 1) / 2  # damping makes a number smaller only where it is positive
    for _ in range(rounds - 1):
        taken_source, taken_target = {i for i, _ in links}, {j for _, j in links}
        damped = positive.copy()
        damped[sorted(taken_source)] *= damping
        damped[:, sorted(taken_target)] *= damping
        damped[np.ix_(sorted(taken_source), sorted(taken_target))] = 0
        fresh = {(i, j) for i, j in intersection(damped) if damped[i, j] > 0}
        if not fresh - links:
            break
        links |= fresh
    return sorted(links)


def transport_plan(similarity: np.ndarray, bin_score: float = 0.2, regularization: float = 0.05,
                   iterations: int = 50) -> np.ndarray:
    """Compute the entropic transport plan between words, with one bin a side.

    Each word has mass 1. The source's bin takes what m target words leave, and the target's bin likewise. A word goes
    to the
    bin if nothing is more alike than bin_score. Sinkhorn's iterations run in log space, so that nothing under-flows.

    Args:
        similarity: [n, m].
        bin_score: of every word with a bin.
        regularization: of the entropy.
        iterations: of Sinkhorn.

    Returns:
        The plan [n, m]. Its rows and columns add up to at most 1.
    """
    n, m = similarity.shape
    scores = np.full((n + 1, m + 1), bin_score)
    scores[:n, :m] = similarity
    kernel = scores / regularization
    log_rows = np.log(np.append(np.ones(n), m))
    log_columns = np.log(np.append(np.ones(m), n))
    u, v = np.zeros(n + 1), np.zeros(m + 1)
    for _ in range(iterations):
        u = log_rows - _log_sum(kernel + v[None, :], axis=1)
        v = log_columns - _log_sum(kernel + u[:, None], axis=0)
    return np.exp(kernel + u[:, None] + v[None, :])[:n, :m]


def _log_sum(values: np.ndarray, axis: int) -> np.ndarray:
    highest = values.max(axis=axis, keepdims=True)
    return (highest + np.log(np.exp(values - highest).sum(axis=axis, keepdims=True))).squeeze(axis)


def transport(similarity: np.ndarray, threshold: float = 0.4, **settings) -> Links:
    """Link words where at least `threshold` of a word's mass goes. similarity: [n, m]."""
    if similarity.size == 0:
        return []
    plan = transport_plan(similarity, **settings)
    return [(int(i), int(j)) for i, j in zip(*np.nonzero(plan >= threshold), strict=True)]


def align(method: str, source: list[str], target: list[str], similarity: np.ndarray) -> Links:
    """Link words by a method with its measured settings.

    Args:
        method: of alignment.choices.METHODS.
        source, target: the words.
        similarity: [n, m].
    """
    if method == "identity":
        return identity(source, target)
    methods: dict[str, Callable[[np.ndarray], Links]] = {
        "intersection": intersection, "itermax": itermax, "transport": transport}
    return methods[method](similarity)
