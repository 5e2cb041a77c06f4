"""Heads: what stands between a sentence vector, or two, and a prediction.

Two vectors u and v of a siamese pair are first combined into features (InferSent, Conneau et al. 2017; Sentence-BERT,
Reimers & Gurevych 2019, table 6). The recipe names the parts, as in "u,v,|u-v|".
"""
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tasks.options import HEADS, PARTS

# The one registry. A function takes u and v, [B, H] each, and returns [B, H] or [B, 1].
_FEATURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "|u-v|": lambda u, v: (u - v).abs(),
    "u*v": lambda u, v: u * v,
    "cos": lambda u, v: F.cosine_similarity(u, v).unsqueeze(1),
}
assert tuple(_FEATURES) == PARTS


def combination_size(parts: tuple[str, ...], hidden_size: int) -> int:
    """Return how many numbers `combine` gives for these parts."""
    return sum(1 if part == "cos" else hidden_size for part in parts)


def combine(u: Tensor, v: Tensor, parts: tuple[str, ...]) -> Tensor:
    """Put the parts of a pair's features side by side.

    Args:
        u, v: [B, H].
        parts: names of features.

    Returns:
        [B, combination_size(parts, H)].

    >>> combine(torch.tensor([[1., 2.]]), torch.tensor([[3., 1.]]), ("|u-v|", "u*v")).tolist()
    [[2.0, 1.0, 3.0, 2.0]]
    """
    return torch.cat([_FEATURES[part](u, v) for part in parts], dim=1)


class CosineLogit(nn.Module):
    """Turn a cosine into a logit: scale * cosine + offset, both learned. This is logistic regression on one number.

    >>> CosineLogit()(torch.tensor([0.5])).tolist()
    [0.0]
    """

    def __init__(self):
        super().__init__()
        # At first the decision is at cosine 0.5, with a slope at which a sigmoid still has a gradient.
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.offset = nn.Parameter(torch.tensor(-5.0))

    def forward(self, cosine: Tensor) -> Tensor:
        """Map cosines [B] to logits [B]."""
        return self.scale * cosine + self.offset


class Trunk(nn.Module):
    """Hold two layers that several pair tasks share: dropout, linear, ReLU, twice. Each task adds its own last layer.

    Args:
        size: numbers of a pair's features.
        hidden_size: width of both layers.
        dropout: probability, before each layer.

    >>> Trunk(6, 4, 0.0)(torch.ones(2, 6)).shape
    torch.Size([2, 4])
    """

    def __init__(self, size: int, hidden_size: int, dropout: float):
        super().__init__()
        self.layers = nn.Sequential(nn.Dropout(dropout), nn.Linear(size, hidden_size), nn.ReLU(),
                                    nn.Dropout(dropout), nn.Linear(hidden_size, hidden_size), nn.ReLU())

    def forward(self, features: Tensor) -> Tensor:
        """Map features [B, size] to [B, hidden_size]."""
        return self.layers(features)


class Exemplars(nn.Module):
    """Hold labelled training sentences as vectors of the frozen encoder. Subclasses classify by cosines to them.

    Args:
        count: how many sentences; 0 where only the data say.
        hidden_size: of the vectors.
        classes: of the labels.
    """

    vectors: Tensor
    labels: Tensor

    def __init__(self, count: int, hidden_size: int, classes: int):
        super().__init__()
        self.hidden_size, self.classes = hidden_size, classes
        self.resize(count)

    def resize(self, count: int):
        """Make room for other sentences. What was held is lost."""
        device = self.vectors.device if "vectors" in self._buffers else None
        self.register_buffer("vectors", torch.zeros(count, self.hidden_size, device=device))
        self.register_buffer("labels", torch.zeros(count, dtype=torch.int64, device=device))

    def hold(self, vectors: Tensor, labels: Tensor):
        """Take the sentences. vectors: [N, H], labels: [N]."""
        device = self.vectors.device
        self.vectors, self.labels = vectors.to(device, torch.float32).clone(), labels.to(device)

    def cosines(self, vectors: Tensor) -> Tensor:
        """Compare [B, H] with the N sentences. Returns [B, N]."""
        return F.normalize(vectors, dim=1) @ F.normalize(self.vectors, dim=1).T.to(vectors.dtype)


class ExemplarClassifier(Exemplars):
    """Classify by one linear layer over the N cosines and the N labels, side by side. See Exemplars for arguments."""

    def __init__(self, count: int, hidden_size: int, classes: int):
        super().__init__(count, hidden_size, classes)
        self.linear = nn.Linear(2 * count, classes)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map vectors [B, H] to logits [B, classes]."""
        labels = self.labels.to(vectors.dtype).expand(len(vectors), -1)
        return self.linear(torch.cat([self.cosines(vectors), labels], dim=1))


class NearestExemplar(Exemplars):
    """Classify by the nearest sentence. It has no parameters. See Exemplars for arguments."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Map vectors [B, H] to scores [B, classes]: the largest cosine to a sentence of each class."""
        cosines = self.cosines(vectors)
        best = cosines.new_full((len(vectors), self.classes), -torch.inf)
        return best.scatter_reduce(1, self.labels.expand(len(vectors), -1), cosines, "amax")


def linear_head(size: int, outputs: int, hidden_size: int, dropout: float) -> nn.Module:
    """Build dropout and one layer. See `feature_head`."""
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(size, outputs))


def mlp_head(size: int, outputs: int, hidden_size: int, dropout: float) -> nn.Module:
    """Build two layers with tanh between. See `feature_head`."""
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(size, hidden_size), nn.Tanh(), nn.Dropout(dropout),
                         nn.Linear(hidden_size, outputs))


# The one registry of heads over features. To add one is to add a function here, and its name to options.HEADS.
FEATURE_HEADS: dict[str, Callable[[int, int, int, float], nn.Module]] = {"linear": linear_head, "mlp": mlp_head}
assert {"cosine", *FEATURE_HEADS} == set(HEADS)


def feature_head(kind: str, size: int, outputs: int, hidden_size: int, dropout: float) -> nn.Module:
    """Build a head that maps [B, size] to [B, outputs].

    Args:
        kind: a key of FEATURE_HEADS.
        size: numbers of a feature vector.
        outputs: numbers of a prediction.
        hidden_size: width of inner layers.
        dropout: probability, before each layer.
    """
    return FEATURE_HEADS[kind](size, outputs, hidden_size, dropout)
