"""What is trained, and at which rate.

`trainable` says which part of the encoder moves: all of it, none ("heads": the tasks' own parameters only), or the
pooler and the top k layers. Rates: a task's own parameters may have another rate than the encoder, and layer-wise decay
(Howard & Ruder 2018; Sun et al. 2019) makes each layer slower than the one above it.
"""
import re
from collections.abc import Iterable, Sequence

from torch import nn

from minbert.bert import BertModel


def layer_of(name: str, layers: int) -> int:
    """Return the depth of an encoder parameter: 0 for embeddings, 1 to L for the layers, L + 1 for the pooler."""
    match = re.match(r"encoder\.layer\.(\d+)\.", name)
    if match:
        return int(match.group(1)) + 1
    return 0 if name.startswith("embeddings.") else layers + 1


def freeze(encoder: BertModel, trainable: str):
    """Set requires_grad of every encoder parameter.

    trainable: all, heads or top-K. Raises ValueError for more layers than there are.
    """
    layers = encoder.config.num_hidden_layers
    lowest = {"all": 0, "heads": layers + 2}.get(trainable)
    if lowest is None:
        top = int(trainable.removeprefix("top-"))
        if top > layers:
            raise ValueError(f"trainable is {trainable!r}; this encoder has {layers} layers")
        lowest = layers + 1 - top
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(layer_of(name, layers) >= lowest)


def set_modes(encoder: BertModel, tasks: Sequence[nn.Module]):
    """Put what is trained into training mode, and what is frozen into evaluation mode: no dropout there.

    encoder: as `freeze` left it. tasks: those that are trained.
    """
    for module in encoder.modules():
        module.training = any(parameter.requires_grad for parameter in module.parameters())
    for task in tasks:
        task.train()


def parameter_groups(named_parameters: Iterable[tuple[str, nn.Parameter]], weight_decay: float) -> list[dict]:
    """Make two groups: matrices, which decay, and vectors (biases and LayerNorm's scale), which do not.

    Decay pulls towards zero. Nobody wants a LayerNorm scale of zero, or a bias that is forced to zero.
    """
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, parameter in named_parameters:
        is_vector = name.endswith("bias") or "LayerNorm" in name or parameter.ndim < 2
        (vectors if is_vector else matrices).append(parameter)
    groups: list[dict] = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def optimizer_groups(encoder: BertModel, tasks: Sequence[nn.Module], lr: float, head_lr: float | None,
                     weight_decay: float, layer_decay: float) -> list[dict]:
    """Make the optimizer's parameter groups, with "lr" and "weight_decay" each.

    Args:
        encoder: its trainable parameters take part.
        tasks: all their parameters take part.
        lr: of the encoder's top layer, and of a task's own copies of layers.
        head_lr: of the tasks' other parameters; lr if None.
        weight_decay: of matrices.
        layer_decay: the factor on lr from each layer to the next lower one.
    """
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
    # By the parameter: two tasks may have one in common.
    own = {parameter: name for task in tasks for name, parameter in task.named_parameters()}
    copies = [(name, parameter) for parameter, name in own.items() if name.startswith("own_layers.")]
    heads = [(name, parameter) for parameter, name in own.items() if not name.startswith("own_layers.")]
    for named, rate in ((copies, lr), (heads, lr if head_lr is None else head_lr)):
        groups += [{**group, "lr": rate} for group in parameter_groups(named, weight_decay)]
    return groups
