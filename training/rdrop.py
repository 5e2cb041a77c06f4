"""R-Drop (Liang et al. 2021, eqs. 1 to 4): two dropout masks for one batch should give one answer.

The loss is the mean of both passes' losses plus `weight` times the symmetric divergence of their outputs. Costs a
second forward and backward pass.
"""
from torch import Tensor

from minbert.bert import BertModel
from tasks.task import Batch, Task


def rdrop_loss(task: Task, encoder: BertModel, batch: Batch, weight: float) -> tuple[Tensor, Tensor]:
    """(loss, first pass's outputs)"""
    first, second = task.outputs(encoder, batch), task.outputs(encoder, batch)
    mean = (task.criterion(first, batch) + task.criterion(second, batch)) / 2
    return mean + weight * task.divergence(first, second) / 2, first
