"""Heads: what stands between a sentence vector, or two, and a prediction.

Two vectors u and v of a siamese pair are first combined into features (InferSent, Conneau et al. 2017; Sentence-BERT,
Reimers & Gurevych 2019, table 6): the recipe names the parts, as in "u,v,|u-v|".
"""
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.dropout import Dropout

PARTS = ("u", "v", "|u-v|", "u*v", "cos")
HEADS = ("cosine", "linear", "mlp")


def parse_combination(text: str) -> tuple[str, ...]:
    """"u,v,|u-v|" -> its parts. Raises ValueError for an unknown part."""
    parts = tuple(part.strip() for part in text.strip("() ").split(","))
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise ValueError(f"combination '{text}': unknown part '{unknown[0]}'; known: {', '.join(PARTS)}")
    return parts


def combination_size(parts: tuple[str, ...], hidden_size: int) -> int:
    return sum(1 if part == "cos" else hidden_size for part in parts)


def combine(u: Tensor, v: Tensor, parts: tuple[str, ...]) -> Tensor:
    """u, v: [B, H]. Returns the chosen parts side by side, [B, combination_size]."""
    features = {"u": lambda: u, "v": lambda: v, "|u-v|": lambda: (u - v).abs(), "u*v": lambda: u * v,
                "cos": lambda: F.cosine_similarity(u, v).unsqueeze(1)}
    return torch.cat([features[part]() for part in parts], dim=1)


class CosineLogit(nn.Module):
    """A logit from a cosine: a * cos + b with both learned, a logistic regression on one number."""

    def __init__(self):
        super().__init__()
        # Starts as a decision at cosine 0.5 with a slope that a sigmoid still has a gradient at.
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.offset = nn.Parameter(torch.tensor(-5.0))

    def forward(self, cosine: Tensor) -> Tensor:
        return self.scale * cosine + self.offset


def feature_head(kind: str, size: int, outputs: int, hidden_size: int, dropout: float) -> nn.Module:
    """linear: dropout and one layer; mlp: with a hidden layer of tanh between. [B, size] -> [B, outputs]."""
    if kind == "linear":
        return nn.Sequential(Dropout(dropout), nn.Linear(size, outputs))
    return nn.Sequential(Dropout(dropout), nn.Linear(size, hidden_size), nn.Tanh(), Dropout(dropout),
                         nn.Linear(hidden_size, outputs))
