"""BERT (Devlin et al. 2019): embeddings, a stack of transformer encoder layers (post-LayerNorm), a pooler.

Parameter names are Hugging Face's (`encoder.layer.0.attention.self.query.weight`), so that loading weights is a
dictionary look-up. Outside, tensors are padded [B, T, H]; inside, they are packed [N, H] (packing.py): no linear layer,
LayerNorm, GELU or dropout touches padding, but for the few rows that reduced precision adds (Packing.rounded).
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.attention import SelfAttention
from minbert.config import BertConfig
from minbert.dropout import Dropout
from minbert.layers import LayerNorm, Linear
from minbert.packing import Packing


@dataclass
class BertOutput:
    last_hidden_state: Tensor  # [B, T, H], zeros at padding; [B, 1, H] of a call with cls_only
    pooler_output: Tensor  # [B, H]
    hidden_states: tuple[Tensor, ...] | None = None  # on request: the embeddings, then each layer, [B, T, H] each
    attentions: tuple[Tensor, ...] | None = None  # on request: each layer's weights [B, A, T, T]


def activation(name: str):
    if name == "relu":
        return F.relu
    approximate = "none" if name == "gelu" else "tanh"
    return lambda x: F.gelu(x, approximate=approximate)


class Embeddings(nn.Module):
    """Word, position and segment embeddings, summed and normalised."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor) -> Tensor:
        """All [N]. Returns [N, H]."""
        total = (self.word_embeddings(input_ids) + self.position_embeddings(positions)
                 + self.token_type_embeddings(token_type_ids))
        return self.dropout(self.LayerNorm(total))


class AddNorm(nn.Module):
    """Linear, dropout, residual, LayerNorm: how both halves of a layer end."""

    def __init__(self, size: int, config: BertConfig):
        super().__init__()
        self.dense = Linear(size, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class Attention(nn.Module):
    def __init__(self, config: BertConfig):
        super().__init__()
        self.self = SelfAttention(config)
        self.output = AddNorm(config.hidden_size, config)

    def forward(self, hidden: Tensor, packing: Packing, fused: bool, cls_only: bool) -> tuple[Tensor, Tensor | None]:
        context, weights = self.self(hidden, packing, fused, cls_only)
        return self.output(context, packing.first(hidden) if cls_only else hidden), weights


class Intermediate(nn.Module):
    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = Linear(config.hidden_size, config.intermediate_size)
        self.activation = activation(config.hidden_act)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.activation(self.dense(hidden))


class Layer(nn.Module):
    """One encoder layer: attention, then a feed-forward network, each with residual and LayerNorm."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.attention = Attention(config)
        self.intermediate = Intermediate(config)
        self.output = AddNorm(config.intermediate_size, config)

    def forward(self, hidden: Tensor, packing: Packing, fused: bool = True, cls_only: bool = False
                ) -> tuple[Tensor, Tensor | None]:
        """[N, H] -> [N, H], and the attention weights where they were asked for.

        cls_only: [N, H] -> [B, H], the layer's output at each sequence's first token alone. The last layer of a model
        that reads nothing but [CLS] owes no more: the other tokens give it keys and values, and end there.
        """
        hidden, weights = self.attention(hidden, packing, fused, cls_only)
        return self.output(self.intermediate(hidden), hidden), weights


class Encoder(nn.Module):
    def __init__(self, config: BertConfig):
        super().__init__()
        self.layer = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))


class Pooler(nn.Module):
    """The sentence vector of BERT's own pre-training: tanh of a linear layer over [CLS]."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, first: Tensor) -> Tensor:
        """[B, H] -> [B, H]"""
        return self.dense(first).tanh()


def initialize(model: nn.Module, config: BertConfig):
    """BERT's initial weights: normal matrices and embeddings, zero biases; LayerNorm keeps torch's ones and zeros."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.data.normal_(std=config.initializer_range)
        if isinstance(module, nn.Linear):
            module.bias.data.zero_()


class BertModel(nn.Module):
    """The encoder. `fused = False` switches every layer to the written-out attention of the lesson.

    `compute_dtype = torch.bfloat16` runs the layers between embeddings and output in that type; inputs, outputs,
    parameters and their gradients keep theirs.
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config)
        self.fused = True
        self.compute_dtype: torch.dtype | None = None  # None: the parameters' own
        initialize(self, config)

    def check_inputs(self, input_ids: Tensor, token_type_ids: Tensor):
        """Raises ValueError where an id would index outside an embedding table (on a GPU that kills the process)."""
        length, limit = input_ids.shape[1], self.config.max_position_embeddings
        if length > limit:
            raise ValueError(f"a sequence of {length} tokens; this model has {limit} positions (truncate it first)")
        for name, ids, size in (("input_ids", input_ids, self.config.vocab_size),
                                ("token_type_ids", token_type_ids, self.config.type_vocab_size)):
            if ids.numel() and (ids.min() < 0 or ids.max() >= size):
                raise ValueError(f"{name} from {ids.min()} to {ids.max()}; expected 0 to {size - 1}")

    def _products_are_compiled(self, device: torch.device) -> bool:
        """For each shape anew (see Packing.rounded)."""
        return device.type == "cpu" and (self.compute_dtype is not None
                                         or torch.get_float32_matmul_precision() != "highest")

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None,
                packing: Packing | None = None, output_hidden_states: bool = False,
                output_attentions: bool = False, cls_only: bool = False) -> BertOutput:
        """input_ids, attention_mask, token_type_ids: [B, T]. A missing mask means that every token is real.

        packing: what the collator made of the mask; with it, inputs are trusted and not checked again.
        cls_only: the caller reads position 0 ([CLS]) alone; same numbers, and the last layer is nearly free.
        A row that is all padding yields zeros. Raises ValueError for too long a sequence or an id outside its table.
        """
        if cls_only and output_hidden_states:
            raise ValueError("cls_only computes the last hidden state at one token; output_hidden_states asks for all")
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        if packing is None:
            self.check_inputs(input_ids, token_type_ids)
            packing = Packing.from_mask(torch.ones_like(input_ids) if attention_mask is None else attention_mask)
        inside = packing.rounded() if self._products_are_compiled(input_ids.device) else packing
        length, more = input_ids.shape[1], inside.mask.shape[1] - input_ids.shape[1]
        ids, types = (inside.pack(F.pad(x, (0, more))) for x in (input_ids, token_type_ids))
        embedded = self.embeddings(ids, inside.columns, types)  # [N, H]
        hidden = embedded.to(self.compute_dtype or embedded.dtype)
        states, attentions = [hidden], []
        for index, layer in enumerate(self.encoder.layer, start=1):
            hidden, weights = layer(hidden, inside, fused=self.fused and not output_attentions,
                                    cls_only=cls_only and index == len(self.encoder.layer))
            states.append(hidden)
            attentions.append(weights)

        def outside(packed: Tensor) -> Tensor:
            """[N, H] -> [B, T, H], of the type that came in."""
            return inside.unpack(packed.to(embedded.dtype))[:, :length]

        if cls_only:
            last = (hidden.to(embedded.dtype) * packing.mask[:, :1])[:, None]  # [B, 1, H]
        else:
            last = outside(hidden)
        return BertOutput(
            last, self.pooler(last[:, 0]), tuple(map(outside, states)) if output_hidden_states else None,
            tuple(weights[..., :length, :length].to(embedded.dtype) for weights in attentions)
            if output_attentions else None)
