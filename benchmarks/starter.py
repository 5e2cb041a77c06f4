"""The slow way, on purpose: a BERT in the shape that courses hand out, as the yardstick for everything else.

Padded throughout; three projections; attention written out, with torch's dropout and an additive mask; one encoder call
a sentence of a pair; AdamW parameter by parameter. The weights are our encoder's, so its hidden states are too.
"""
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.bert import BertModel
from minbert.config import BertConfig


class StarterLayer(nn.Module):
    def __init__(self, config: BertConfig):
        super().__init__()
        size = config.hidden_size
        self.heads = config.num_attention_heads
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.attention_dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.attention_dense = nn.Linear(size, size)
        self.attention_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.inner_dense = nn.Linear(size, config.intermediate_size)
        self.outer_dense = nn.Linear(config.intermediate_size, size)
        self.outer_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def split(self, projected: Tensor) -> Tensor:
        """[B, T, H] -> [B, A, T, D]"""
        return projected.view(*projected.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """hidden: [B, T, H]; mask: [B, 1, 1, T], -10000 at padding."""
        query, key, value = (self.split(linear(hidden)) for linear in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
        weights = self.attention_dropout(F.softmax(scores, dim=-1))
        context = (weights @ value).transpose(1, 2).contiguous().view(hidden.shape)
        hidden = self.attention_norm(hidden + self.dropout(self.attention_dense(context)))
        inner = F.gelu(self.inner_dense(hidden))
        return self.outer_norm(hidden + self.dropout(self.outer_dense(inner)))


class StarterBert(nn.Module):
    """[B, T] ids and mask -> hidden states [B, T, H]."""

    def __init__(self, config: BertConfig):
        super().__init__()
        size = config.hidden_size
        self.words = nn.Embedding(config.vocab_size, size)
        self.positions = nn.Embedding(config.max_position_embeddings, size)
        self.types = nn.Embedding(config.type_vocab_size, size)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layers = nn.ModuleList(StarterLayer(config) for _ in range(config.num_hidden_layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.words(input_ids) + self.positions(positions) + self.types(torch.zeros_like(input_ids))
        hidden = self.dropout(self.norm(hidden))
        mask = (1.0 - attention_mask[:, None, None, :].to(hidden.dtype)) * -10000.0
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return hidden

    @classmethod
    def like(cls, encoder: BertModel) -> "StarterBert":
        """The same weights."""
        model = cls(encoder.config)
        names = {"words": "embeddings.word_embeddings", "positions": "embeddings.position_embeddings",
                 "types": "embeddings.token_type_embeddings", "norm": "embeddings.LayerNorm"}
        parts = {"query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
                 "attention_dense": "attention.output.dense", "attention_norm": "attention.output.LayerNorm",
                 "inner_dense": "intermediate.dense", "outer_dense": "output.dense", "outer_norm": "output.LayerNorm"}
        for index in range(len(model.layers)):
            names |= {f"layers.{index}.{own}": f"encoder.layer.{index}.{theirs}" for own, theirs in parts.items()}
        weights = encoder.state_dict()
        model.load_state_dict({f"{own}.{kind}": weights[f"{theirs}.{kind}"] for own, theirs in names.items()
                               for kind in ("weight", "bias") if f"{theirs}.{kind}" in weights})
        return model


class StarterAdamW(torch.optim.Optimizer):
    """Adam with decoupled decay as a course's reference does it: one parameter after the other, fresh memory for every
    intermediate."""

    def __init__(self, parameters, lr: float, weight_decay: float):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = 0
                    state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                state["step"] += 1
                gradient = parameter.grad
                state["mean"] = 0.9 * state["mean"] + 0.1 * gradient
                state["square"] = 0.999 * state["square"] + 0.001 * gradient * gradient
                rate = group["lr"] * math.sqrt(1 - 0.999 ** state["step"]) / (1 - 0.9 ** state["step"])
                parameter -= rate * state["mean"] / (state["square"].sqrt() + 1e-6)
                parameter -= group["lr"] * group["weight_decay"] * parameter
