"""Token sequences of different lengths -> batches of tensors, padded to the longest sequence.

This is the one place where sequences are padded and where an order of sequences is cut into batches.
"""
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class TokenBatch:
    """Hold B sequences, padded to T tokens.

    >>> batch = TokenBatch.from_sequences([([2, 7, 3], [0, 0, 0]), ([2, 3], [0, 0])], pad_id=0)
    >>> batch.input_ids.tolist(), batch.attention_mask.tolist()
    ([[2, 7, 3], [2, 3, 0]], [[True, True, True], [True, True, False]])
    """

    input_ids: Tensor  # [B, T]
    attention_mask: Tensor  # bool [B, T], False at padding
    token_type_ids: Tensor  # [B, T]

    @classmethod
    def from_sequences(cls, sequences: Sequence[tuple[list[int], list[int]]], pad_id: int) -> "TokenBatch":
        """Pad sequences. sequences: (input_ids, token_type_ids) each, as BertTokenizer.build returns them."""
        width = max((len(ids) for ids, _ in sequences), default=0)
        input_ids = torch.tensor([ids + [pad_id] * (width - len(ids)) for ids, _ in sequences])
        token_type_ids = torch.tensor([types + [0] * (width - len(types)) for _, types in sequences])
        lengths = torch.tensor([len(ids) for ids, _ in sequences])
        return cls(input_ids, torch.arange(width) < lengths[:, None], token_type_ids)

    def to(self, device: torch.device) -> "TokenBatch":
        """Copy the batch to a device."""
        return TokenBatch(*(tensor.to(device, non_blocking=True)
                            for tensor in (self.input_ids, self.attention_mask, self.token_type_ids)))


def by_size(order: Sequence[int], batch_size: int) -> list[list[int]]:
    """Cut an order of indices into batches of batch_size; the last one may be smaller."""
    return [list(order[start:start + batch_size]) for start in range(0, len(order), batch_size)]


def by_length(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Cut all indices into batches of sequences of like length. See `by_tokens`."""
    return by_tokens(sorted(range(len(lengths)), key=lengths.__getitem__), lengths, token_budget)


def by_tokens(order: Sequence[int], lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Cut an order of indices into batches of at most token_budget tokens, padding included.

    Args:
        order: indices, best sorted by length, so that little is padding.
        lengths: of index i, its number of tokens.
        token_budget: a longer sequence is a batch of its own.

    >>> by_tokens([0, 1, 2], [3, 3, 8], token_budget=8)
    [[0, 1], [2]]
    """
    batches: list[list[int]] = []
    longest = 0
    for index in order:
        longest = max(longest, lengths[index])
        if not batches or longest * (len(batches[-1]) + 1) > token_budget:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    return batches
