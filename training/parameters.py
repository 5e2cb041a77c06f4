"""What is trained, and at which rate.

`trainable` says which part of the encoder moves: all of it, none ("heads": the tasks' own parameters only), or the
pooler and the top k layers. Rates: a task's own parameters may have another rate than the encoder, and layer-wise decay
(Howard & Ruder 2018; Sun et al. 2019) makes each layer slower than the one above it.
"""
import re

from torch import nn

from minbert.adamw import parameter_groups
from minbert.bert import BertModel

_TOP = re.compile(r"top-([1-9][0-9]*)")


def check_trainable(text: str):
    if text not in ("all", "heads") and not _TOP.fullmatch(text):
        raise ValueError(f"trainable is {text!r}; expected all, heads or top-K with K layers, as in top-4")


def layer_of(name: str, layers: int) -> int:
    """Depth of an encoder parameter: 0 embeddings, 1 to L the layers, L + 1 the pooler."""
    match = re.match(r"encoder\.layer\.(\d+)\.", name)
    if match:
        return int(match.group(1)) + 1
    return 0 if name.startswith("embeddings.") else layers + 1


def freeze(encoder: BertModel, trainable: str):
    """Sets requires_grad of every encoder parameter. Raises ValueError for more layers than there are."""
    check_trainable(trainable)
    layers = encoder.config.num_hidden_layers
    lowest = {"all": 0, "heads": layers + 2}.get(trainable)
    if lowest is None:
        top = int(_TOP.fullmatch(trainable).group(1))
        if top > layers:
            raise ValueError(f"trainable is {trainable!r}; this encoder has {layers} layers")
        lowest = layers + 1 - top
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(layer_of(name, layers) >= lowest)


def optimizer_groups(encoder: BertModel, tasks: list[nn.Module], lr: float, head_lr: float | None,
                     weight_decay: float, layer_decay: float) -> list[dict]:
    """Parameter groups with "lr" and "weight_decay". layer_decay: factor on lr from each layer to the next lower."""
    layers = encoder.config.num_hidden_layers
    by_depth: dict[int, list] = {}
    for name, parameter in encoder.named_parameters():
        if parameter.requires_grad:
            depth = layer_of(name, layers) if layer_decay != 1 else layers
            by_depth.setdefault(min(depth, layers), []).append((name, parameter))
    groups = []
    for depth, named in sorted(by_depth.items()):
        for group in parameter_groups(named, weight_decay):
            groups.append({**group, "lr": lr * layer_decay ** (layers - depth)})
    own = [(name, parameter) for task in tasks for name, parameter in task.named_parameters()]
    for group in parameter_groups(own, weight_decay):
        groups.append({**group, "lr": lr if head_lr is None else head_lr})
    return groups
