"""Word links -> phrase pairs: three extractors behind one function.

A pair of spans is consistent when no link leaves it on one side only and at least one is inside (Koehn et al. 2003).
`koehn` takes all such pairs up to a length: simple, and two thirds of them cross a phrase of the language. `trees`
keeps those whose spans are nodes of both sentences' trees. `bracket` (the default) splits both sentences at once,
top down, where no link crosses and the boundaries are strongest (after the inversion transduction grammars of Wu 1997);
every block it meets is consistent by construction.
"""
import numpy as np

from alignment.trees import Span, tree_spans

PhrasePair = tuple[int, int, int, int]  # (s0, s1, t0, t1), half-open


def _prefix_counts(links: list[tuple[int, int]], n: int, m: int) -> np.ndarray:
    """Count the links in the first i source and j target words, [n + 1, m + 1]. A block is then four look-ups."""
    matrix = np.zeros((n + 1, m + 1), dtype=np.int64)
    for i, j in links:
        matrix[i + 1, j + 1] = 1
    return matrix.cumsum(axis=0).cumsum(axis=1)


def _count(prefix: np.ndarray, s0, s1, t0, t1):
    return prefix[s1, t1] - prefix[s0, t1] - prefix[s1, t0] + prefix[s0, t0]


def koehn(links: list[tuple[int, int]], n: int, m: int, max_words: int = 7, extend: bool = False) -> list[PhrasePair]:
    """Extract all consistent pairs.

    Args:
        links: (source word, target word) each.
        n, m: words of the two sentences.
        max_words: of a phrase.
        extend: also over unaligned words at a target span's ends.
    """
    prefix = _prefix_counts(links, n, m)
    targets_of: list[list[int]] = [[] for _ in range(n)]
    for i, j in links:
        targets_of[i].append(j)
    linked_target = {j for _, j in links}
    pairs = []
    for s0 in range(n):
        low, high = m, -1
        for s1 in range(s0 + 1, min(n, s0 + max_words) + 1):
            for j in targets_of[s1 - 1]:
                low, high = min(low, j), max(high, j)
            if high < 0 or high + 1 - low > max_words:
                continue
            if _count(prefix, 0, n, low, high + 1) != _count(prefix, s0, s1, low, high + 1):
                continue
            t0 = low
            while True:
                t1 = high + 1
                while t1 - t0 <= max_words:
                    pairs.append((s0, s1, t0, t1))
                    if not extend or t1 == m or t1 in linked_target:
                        break
                    t1 += 1
                if not extend or t0 == 0 or t0 - 1 in linked_target:
                    break
                t0 -= 1
    return pairs


def trees(links: list[tuple[int, int]], source_spans: list[Span], target_spans: list[Span], n: int, m: int
          ) -> list[PhrasePair]:
    """Extract consistent pairs of two tree nodes. Nodes that differ by unaligned words only are all taken.

    Args:
        links: (source word, target word) each.
        source_spans, target_spans: the nodes.
        n, m: words of the two sentences.
    """
    prefix = _prefix_counts(links, n, m)
    pairs = []
    for s0, s1 in source_spans:
        own = _count(prefix, s0, s1, 0, m)
        if own == 0:
            continue
        for t0, t1 in target_spans:
            if _count(prefix, s0, s1, t0, t1) == own == _count(prefix, 0, n, t0, t1):
                pairs.append((s0, s1, t0, t1))
    return pairs


INVERSION_COST = 0.5  # two halves that change places are a less likely reading than two that stay
PEELING_COST = 0.25


def bracket(links: list[tuple[int, int]], source_strengths: np.ndarray, target_strengths: np.ndarray
            ) -> list[PhrasePair]:
    """Extract the blocks of the best synchronous bracketing.

    Args:
        links: (source word, target word) each.
        source_strengths, target_strengths: [words + 1] of each side's gaps (trees.py).
    """
    n, m = len(source_strengths) - 1, len(target_strengths) - 1
    prefix = _prefix_counts(links, n, m)
    if not links:
        return []
    blocks, waiting = [], [(0, n, 0, m)]
    while waiting:
        s0, s1, t0, t1 = waiting.pop()
        blocks.append((s0, s1, t0, t1))
        best, children = -np.inf, []
        p, q = np.arange(s0 + 1, s1), np.arange(t0 + 1, t1)
        if len(p) and len(q):
            upper_left = _count(prefix, s0, p[:, None], t0, q[None, :])
            upper_right = _count(prefix, s0, p[:, None], q[None, :], t1)
            lower_left = _count(prefix, p[:, None], s1, t0, q[None, :])
            lower_right = _count(prefix, p[:, None], s1, q[None, :], t1)
            strength = source_strengths[p][:, None] + target_strengths[q][None, :]
            straight = (upper_right == 0) & (lower_left == 0) & (upper_left > 0) & (lower_right > 0)
            inverted = (upper_left == 0) & (lower_right == 0) & (upper_right > 0) & (lower_left > 0)
            score = np.where(straight, strength, np.where(inverted, strength - INVERSION_COST, -np.inf))
            row, column = np.unravel_index(score.argmax(), score.shape)
            if score[row, column] > best:
                best = score[row, column]
                i, j = int(p[row]), int(q[column])
                children = ([(s0, i, t0, j), (i, s1, j, t1)] if straight[row, column] else
                            [(s0, i, j, t1), (i, s1, t0, j)])
        # Or an unaligned stretch at one of the four ends is taken off: what is left is one smaller block.
        peelings = [(_count(prefix, s0, p, t0, t1), source_strengths[p], p, 0),
                    (_count(prefix, p, s1, t0, t1), source_strengths[p], p, 1),
                    (_count(prefix, s0, s1, t0, q), target_strengths[q], q, 2),
                    (_count(prefix, s0, s1, q, t1), target_strengths[q], q, 3)]
        for links_lost, strength, gaps, end in peelings:
            score = np.where(links_lost == 0, 2 * strength - PEELING_COST, -np.inf)
            if len(score) and score.max() > best:
                best = score.max()
                ends = [s0, s1, t0, t1]
                ends[end] = int(gaps[score.argmax()])
                children = [(ends[0], ends[1], ends[2], ends[3])]
        waiting += children[::-1]
    return blocks


def extract(extractor: str, links: list[tuple[int, int]], source_strengths: np.ndarray, target_strengths: np.ndarray,
            min_words: int = 2, max_words: int | None = None, spans: tuple[list[Span], list[Span]] | None = None
            ) -> list[PhrasePair]:
    """Extract phrase pairs, each once, in reading order.

    Args:
        extractor: bracket, trees or koehn.
        links: (source word, target word) each.
        source_strengths, target_strengths: [words + 1] of each side's gaps (trees.py).
        min_words, max_words: of a phrase, on both sides.
        spans: real constituents of both sentences, where a parser gave them. Other pairs are left out.
    """
    n, m = len(source_strengths) - 1, len(target_strengths) - 1
    if extractor == "koehn":
        pairs = koehn(links, n, m, max_words or 7)
    elif extractor == "trees":
        nodes = spans or (tree_spans(source_strengths), tree_spans(target_strengths))
        pairs = trees(links, *nodes, n, m)
    else:
        pairs = bracket(links, source_strengths, target_strengths)
    if spans is not None:
        pairs = [pair for pair in pairs if pair[:2] in set(spans[0]) and pair[2:] in set(spans[1])]
    limit = max_words or max(n, m)
    return sorted({pair for pair in pairs if min_words <= pair[1] - pair[0] <= limit
                   and min_words <= pair[3] - pair[2] <= limit})
