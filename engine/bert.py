"""The fast BERT. Must equal minbert/bert.py: same parameters, same names, same numbers at real tokens.

FastBertModel is a BertModel that runs its layers in another way: on packed tokens [N, H] (packing.py), with few matrix
shapes (shapes.py), cheap dropout masks (dropout.py), one product for three projections (attention.py), and, on request,
in bfloat16 (precision.py). Embeddings, parameters and gradients keep the parameters' type.
"""
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention import fused_pays, self_attention
from engine.dropout import dropout
from engine.packing import Packing
from engine.precision import FLOAT32, Precision
from engine.shapes import packing_for
from minbert.bert import BertModel, BertOutput, Embeddings
from minbert.config import BertConfig


class FastEmbeddings(Embeddings):
    """Embed as minbert's Embeddings do, with a cheap dropout mask. Takes packed ids [N] as well as [B, T]."""

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Embed. All three arguments: [N]. Returns [N, H]."""
        total = (self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
                 + self.position_embeddings(position_ids))
        return dropout(self.LayerNorm(total), self.dropout_p, self.training)


def linear(module: Any, x: Tensor) -> Tensor:
    """Apply a torch.nn.Linear in the input's type. Its parameters stay float32, because AdamW's steps are small.

    A module without a weight is more than a linear layer, such as one with an adapter. It computes itself.
    """
    if not hasattr(module, "weight"):
        return module(x)
    return F.linear(x, module.weight.to(x.dtype), module.bias.to(x.dtype))


def add_norm(module: Any, x: Tensor, residual: Tensor) -> Tensor:
    """Run a minbert.bert.AddNorm.

    Args:
        module: the AddNorm whose parameters are used.
        x: [N, input_size].
        residual: [N, H].
    """
    norm = module.LayerNorm
    total = dropout(linear(module.dense, x), module.dropout_p, module.training) + residual
    return F.layer_norm(total, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps)


def run_layer(layer: Any, hidden: Tensor, packing: Packing, fused: bool, cls_only: bool = False
              ) -> tuple[Tensor, Tensor | None]:
    """Run a minbert.bert.Layer over packed tokens.

    Args:
        layer: the Layer whose parameters are used.
        hidden: [N, H].
        packing: where the tokens are in the batch.
        fused: use torch's fused attention.
        cls_only: compute the output at [CLS] only, [B, H]. Other tokens still serve as keys and values.

    Returns:
        Hidden states [N, H] (or [B, H]), and the attention weights if not fused.
    """
    context, weights = self_attention(layer.attention["self"], hidden, packing, fused, cls_only)
    hidden = add_norm(layer.attention["output"], context, packing.first(hidden) if cls_only else hidden)
    return add_norm(layer.output, layer.activation(linear(layer.intermediate["dense"], hidden)), hidden), weights


class FastBertModel(BertModel):
    """Encode as BertModel does, faster. Padding in its outputs holds zeros.

    `precision` says in which type the layers compute. See engine/precision.py.

    >>> config = BertConfig(vocab_size=100, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    >>> plain, fast = BertModel(config).eval(), FastBertModel(config).eval()
    >>> report = fast.load_state_dict(plain.state_dict())  # the same names
    >>> ids = torch.tensor([[1, 7, 9, 2]])
    >>> torch.allclose(plain(ids).pooler_output, fast(ids).pooler_output, atol=1e-5)
    True
    """

    knows_cls_only = True  # see tasks/encoding.py

    def __init__(self, config: BertConfig):
        super().__init__(config)
        with torch.device("meta"):  # no memory: it takes over the parameters that are there
            embeddings = FastEmbeddings(config)
        embeddings.load_state_dict(self.embeddings.state_dict(), assign=True)
        self.embeddings = embeddings
        self.precision: Precision = FLOAT32

    def _fused(self, layers: Iterable[Any], device: torch.device) -> bool:
        dropout_p = max((module.dropout_p for layer in layers
                         if (module := layer.attention["self"]).training), default=0.0)
        return fused_pays(device, dropout_p, self.precision.reduced)

    def run_layers(self, layers: Iterable[Any], hidden: Tensor, mask: Tensor
                   ) -> tuple[list[Tensor], list[Tensor]]:
        """Run a task's own layers. See BertModel.run_layers. Returns the last hidden states only, and no weights."""
        layers = list(layers)
        packing = packing_for(mask, self.precision.reduced)
        more = packing.mask.shape[1] - hidden.shape[1]
        packed = packing.pack(F.pad(hidden, (0, 0, 0, more))).to(self.precision.activations or hidden.dtype)
        fused = self._fused(layers, hidden.device)
        for layer in layers:
            packed, _ = run_layer(layer, packed, packing, fused)
        return [packing.unpack(packed.to(hidden.dtype))[:, :hidden.shape[1]]], []

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None,
                output_hidden_states: bool = False, output_attentions: bool = False, cls_only: bool = False
                ) -> BertOutput:
        """Encode a batch. Arguments and errors as in BertModel.forward.

        Args:
            cls_only: the caller reads position 0 only. last_hidden_state is then [B, 1, H], and the last layer is
                nearly free.
        """
        if cls_only and output_hidden_states:
            raise ValueError("cls_only computes the last hidden state at one token; output_hidden_states asks for all")
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        self.check_inputs(input_ids, token_type_ids)
        mask = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
        packing = packing_for(mask, self.precision.reduced)
        length = input_ids.shape[1]
        more = packing.mask.shape[1] - length
        ids, types = (packing.pack(F.pad(x, (0, more))) for x in (input_ids, token_type_ids))
        embedded = self.embeddings(ids, types, packing.columns)  # [N, H]
        hidden = embedded.to(self.precision.activations or embedded.dtype)
        layers = self.layers()
        fused = not output_attentions and self._fused(layers, input_ids.device)
        states, attentions = [hidden], []
        for index, layer in enumerate(layers, start=1):
            hidden, weights = run_layer(layer, hidden, packing, fused, cls_only and index == len(layers))
            states.append(hidden)
            attentions.append(weights)

        def padded(packed: Tensor) -> Tensor:
            """Return [B, T, H] in the type of the embeddings, from [N, H]."""
            return packing.unpack(packed.to(embedded.dtype))[:, :length]

        if cls_only:
            last = (hidden.to(embedded.dtype) * mask[:, :1])[:, None]  # [B, 1, H]
        else:
            last = padded(hidden)
        return BertOutput(
            last, self.pooler(last[:, 0]), tuple(map(padded, states)) if output_hidden_states else None,
            tuple(weights[..., :length, :length].to(embedded.dtype) for weights in attentions if weights is not None)
            if output_attentions else None)
