"""R-Drop (Liang et al. 2021, eqs. 1 to 4): two dropout masks for one batch should give one answer.

The loss is the mean of both passes' losses plus `weight` times the symmetric divergence of their outputs. It costs a
second forward and backward pass.
"""
from typing import Any

from torch import Tensor

from minbert.bert import BertModel
from tasks.task import TrainerTask


def rdrop_loss(task: TrainerTask, encoder: BertModel, batch: Any, weight: float) -> tuple[Tensor, Any]:
    """Compute the loss.

    Args:
        task, encoder, batch: what is trained.
        weight: of the divergence.

    Returns:
        The loss, and the first pass's outputs.
    """
    first, second = task.outputs(encoder, batch), task.outputs(encoder, batch)
    mean = (task.training_loss(first, batch) + task.training_loss(second, batch)) / 2
    return mean + weight * task.divergence(first, second) / 2, first
