"""MPNet (Song et al. 2020): a relative of BERT. This file is the whole difference between the two encoders.

Three things differ:

1. The score of two tokens gets a learned bias for their distance, one number a head. All layers share it (Raffel et al.
   2020, section 2.1, call it a relative position embedding). Absolute positions are there as well.
2. There are no token types. [SEP] [SEP], which MPNet writes </s> </s>, is all that divides two sentences.
3. Its files name parameters in another way, and count positions from 2.

`become_mpnet` changes a BertModel. It works on the engine's model as well: only parts of the model change.
"""
import math
import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.attention import MASKED_SCORE, SelfAttention
from minbert.bert import BertModel, initialize
from minbert.config import FIRST_MPNET_POSITION, BertConfig

FARTHEST = 128  # tokens: from this distance on, all distances share a bucket
# Parts of a name in MPNet's files, and ours.
_NAMES = {"attention.attn.q.": "attention.self.query.", "attention.attn.k.": "attention.self.key.",
          "attention.attn.v.": "attention.self.value.", "attention.attn.o.": "attention.output.dense.",
          "attention.LayerNorm.": "attention.output.LayerNorm."}
_POSITIONS = "embeddings.position_embeddings.weight"


def distance_buckets(length: int, buckets: int) -> Tensor:
    """Give each pair of tokens the number of its distance's bucket.

    Half of the buckets are for tokens to the left, half for tokens to the right. In each half, the first half of the
    buckets holds one distance each. The others hold ranges that grow as powers do, up to FARTHEST tokens.

    Args:
        length: T, tokens of a sequence.
        buckets: how many there are in all.

    Returns:
        Numbers from 0 to buckets - 1, [T, T]: row i, column j is for query i and key j.

    >>> distance_buckets(3, 32)
    tensor([[ 0, 17, 18],
            [ 1,  0, 17],
            [ 2,  1,  0]])
    """
    places = torch.arange(length)
    offset = places[None, :] - places[:, None]  # [T, T]; positive where the key is to the right
    distance = offset.abs()
    half = buckets // 2
    exact = half // 2
    growth = (distance.clamp_min(1).float() / exact).log() / math.log(FARTHEST / exact)  # 0 at `exact`, 1 at FARTHEST
    far = (exact + (growth * (half - exact)).long()).clamp_max(half - 1)
    return torch.where(distance < exact, distance, far) + half * (offset > 0)


class RelativePositionBias(nn.Embedding):
    """Hold a number for each bucket and head."""

    def __init__(self, config: BertConfig):
        super().__init__(config.relative_attention_num_buckets, config.num_attention_heads)

    def of_length(self, length: int) -> Tensor:
        """Return what is added to the scores of sequences of T tokens, [A, T, T]."""
        buckets = distance_buckets(length, self.num_embeddings).to(self.weight.device)
        return self(buckets).permute(2, 0, 1)


class RelativeSelfAttention(SelfAttention):
    """Attend as BERT does, with the bias added: softmax(Q K^T / sqrt(D) + bias) V."""

    def __init__(self, config: BertConfig, bias: RelativePositionBias):
        super().__init__(config)
        self.shared = (bias,)  # in a tuple: the bias is a parameter of the encoder, not of each layer

    def position_bias(self, length: int) -> Tensor:
        """Return what is added to the scores of sequences of T tokens, [A, T, T]."""
        return self.shared[0].of_length(length)

    def forward(self, hidden: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend. hidden: [B, T, H]. mask: bool [B, T]. Returns the context [B, T, H] and the weights [B, A, T, T]."""
        query, key, value = (self.split_heads(project(hidden)) for project in (self.query, self.key, self.value))
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]) + self.position_bias(hidden.shape[1])
        weights = scores.masked_fill(~mask[:, None, None, :], MASKED_SCORE).softmax(dim=-1)
        context = F.dropout(weights, self.dropout_p, self.training) @ value
        return context.transpose(1, 2).flatten(2), weights


class NoTokenTypes(nn.Module):
    """Stand where BERT has an embedding of token types. Every token's is zero."""

    def forward(self, token_type_ids: Tensor) -> float:
        """Return 0, whatever the token types are."""
        return 0.0


def become_mpnet(model: BertModel):
    """Turn a BertModel, of the lesson or of the engine, into an MPNet with new parameters."""
    config = model.config
    model.embeddings.token_type_embeddings = NoTokenTypes()  # type: ignore[assignment]
    bias = RelativePositionBias(config)
    model.encoder["relative_attention_bias"] = bias
    for layer in model.layers():
        layer.attention["self"] = RelativeSelfAttention(config, bias)
    initialize(model, config)


# ---- the files of transformers' MPNetModel ---------------------------------------------------------------------------


def from_mpnet(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of an MPNet file to ours, and drop the two positions that no token has."""
    ours = {}
    for name, tensor in tensors.items():
        for theirs, own in _NAMES.items():
            name = re.sub(rf"(\.\d+\.){re.escape(theirs)}", rf"\g<1>{own}", name)
        ours[name] = tensor[FIRST_MPNET_POSITION:] if name == _POSITIONS else tensor
    return ours


def to_mpnet(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename our tensors to those of an MPNet file. The two positions that no token has are zeros."""
    theirs = {}
    for name, tensor in tensors.items():
        for their, own in _NAMES.items():
            name = re.sub(rf"(\.\d+\.){re.escape(own)}", rf"\g<1>{their}", name)
        theirs[name] = F.pad(tensor, (0, 0, FIRST_MPNET_POSITION, 0)) if name == _POSITIONS else tensor
    return theirs
