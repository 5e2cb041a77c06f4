"""BERT (Devlin et al. 2019): embeddings, a stack of encoder layers, a pooler.

One encoder layer normalises after each residual sum ("post-LayerNorm"):

    hidden [B, T, H]
      |------------------------------------+
      v                                    |
    self-attention -> dense -> dropout --> + --> LayerNorm      attention.self, attention.output
                                               |
      +----------------------------------------|
      |                                        v
      |          dense to 4H -> GELU -> dense -> dropout        intermediate, output.dense
      |                                             |
      +-------------------------------------------> + --> LayerNorm --> hidden [B, T, H]

Parameters have Hugging Face's names (`encoder.layer.0.attention.self.query.weight`): loading weights is a look-up.
Letters: B sequences, T tokens with padding, H hidden_size, A attention heads.
"""
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.attention import SelfAttention
from minbert.config import BertConfig

_TANH_GELU = partial(F.gelu, approximate="tanh")
# By the names in config.json. "gelu" is the exact form (Hendrycks & Gimpel 2016).
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu, "relu": F.relu, "gelu_new": _TANH_GELU, "gelu_pytorch_tanh": _TANH_GELU}


@dataclass
class BertOutput:
    """Hold what the encoder returns. Values at padding have no meaning."""

    last_hidden_state: Tensor  # [B, T, H]
    pooler_output: Tensor  # [B, H]
    hidden_states: tuple[Tensor, ...] | None = None  # on request: the embeddings, then each layer, [B, T, H] each
    attentions: tuple[Tensor, ...] | None = None  # on request: each layer's weights [B, A, T, T]


class Embeddings(nn.Module):
    """Sum word, position and segment embeddings, and normalise the sum."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout_p = config.hidden_dropout_prob

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Embed. All three arguments: [B, T]. Returns [B, T, H]."""
        total = (self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
                 + self.position_embeddings(position_ids))
        return F.dropout(self.LayerNorm(total), self.dropout_p, self.training)


class AddNorm(nn.Module):
    """End a half of a layer: linear, dropout, residual sum, LayerNorm."""

    def __init__(self, input_size: int, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout_p = config.hidden_dropout_prob

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """Compute LayerNorm(residual + dropout(dense(x))). x: [B, T, input_size]. residual: [B, T, H]."""
        return self.LayerNorm(residual + F.dropout(self.dense(x), self.dropout_p, self.training))


class Layer(nn.Module):
    """Compute one encoder layer, as in the diagram above. The dictionaries give parameters Hugging Face's names."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(config), "output": AddNorm(config.hidden_size, config)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.intermediate_size)})
        self.activation = ACTIVATIONS[config.hidden_act]
        self.output = AddNorm(config.intermediate_size, config)

    def forward(self, hidden: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map hidden states [B, T, H] to [B, T, H]. Also returns the attention weights [B, A, T, T]."""
        context, weights = self.attention["self"](hidden, mask)
        hidden = self.attention["output"](context, hidden)
        wide = self.activation(self.intermediate["dense"](hidden))  # [B, T, intermediate_size]
        return self.output(wide, hidden), weights


class Pooler(nn.Module):
    """Make the sentence vector of BERT's own pre-training: tanh of a linear layer over [CLS]."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, first: Tensor) -> Tensor:
        """Map the vectors at [CLS], [B, H], to [B, H]."""
        return self.dense(first).tanh()


def initialize(model: nn.Module, config: BertConfig):
    """Draw BERT's initial weights: normal matrices and embeddings, zero biases. LayerNorm keeps its ones and zeros."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=config.initializer_range)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


class BertModel(nn.Module):
    """Turn token ids into hidden states.

    >>> model = BertModel(BertConfig(vocab_size=100, hidden_size=8, num_hidden_layers=2, num_attention_heads=2))
    >>> output = model(torch.tensor([[1, 7, 9, 2]]))
    >>> output.last_hidden_state.shape, output.pooler_output.shape
    (torch.Size([1, 4, 8]), torch.Size([1, 8]))
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})
        self.pooler = Pooler(config)
        initialize(self, config)

    def layers(self) -> list[Any]:
        """Return the encoder's layers, the first one first."""
        return list(self.encoder["layer"].children())

    def check_inputs(self, input_ids: Tensor, token_type_ids: Tensor):
        """Raise ValueError where an id would index outside an embedding table. On a GPU that would kill the process."""
        length, limit = input_ids.shape[1], self.config.max_position_embeddings
        if length > limit:
            raise ValueError(f"a sequence of {length} tokens; this model has {limit} positions (truncate it first)")
        for name, ids, size in (("input_ids", input_ids, self.config.vocab_size),
                                ("token_type_ids", token_type_ids, self.config.type_vocab_size)):
            if ids.numel() and (ids.min() < 0 or ids.max() >= size):
                raise ValueError(f"{name} from {ids.min()} to {ids.max()}; expected 0 to {size - 1}")

    def run_layers(self, layers: Iterable[Any], hidden: Tensor, mask: Tensor
                   ) -> tuple[list[Tensor], list[Tensor]]:
        """Run a stack of layers: the model's own, or new ones that a task puts on top.

        Args:
            layers: modules of the class Layer. hidden: [B, T, H]. mask: bool [B, T], False at padding.

        Returns:
            The hidden states after each layer, [B, T, H] each, and the attention weights, [B, A, T, T] each.
        """
        states, attentions = [], []
        for layer in layers:
            hidden, weights = layer(hidden, mask)
            states.append(hidden)
            attentions.append(weights)
        return states, attentions

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None,
                output_hidden_states: bool = False, output_attentions: bool = False) -> BertOutput:
        """Encode a batch.

        Args:
            input_ids: [B, T].
            attention_mask: [B, T], zero at padding. If it is missing, every token is real.
            token_type_ids: [B, T], 0 for the first sentence and 1 for the second. If missing, all are 0.
            output_hidden_states: also return the embeddings and the output of each layer.
            output_attentions: also return the attention weights of each layer.

        Raises:
            ValueError: a sequence is longer than the model's positions, or an id is outside its table.
        """
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        self.check_inputs(input_ids, token_type_ids)
        mask = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
        position_ids = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        embedded = self.embeddings(input_ids, token_type_ids, position_ids)  # [B, T, H]
        states, attentions = self.run_layers(self.layers(), embedded, mask)
        return BertOutput(states[-1], self.pooler(states[-1][:, 0]),
                          (embedded, *states) if output_hidden_states else None,
                          tuple(attentions) if output_attentions else None)
