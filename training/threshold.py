"""The threshold of a two-class task: how sure must the model be of class 1 to say so?

One half is right if the model's probabilities are. They are not where the training data have another share of class 1
than the questions that will be asked. So rows like those are held out of training, and the threshold is the one that is
right most often on them. It is saved with the weights.
"""
import math

import numpy as np
import torch

from minbert.bert import BertModel
from report.analysis import best_threshold
from tasks.pair import PairTask
from tasks.task import Task
from training.data import TaskData
from training.distributed import World
from training.evaluate import answers


def make_room(task: Task):
    """Let a task have a threshold: one half, until it is tuned."""
    assert isinstance(task, PairTask)
    task.objective.threshold = torch.tensor(0.5)


def tune(task: Task, encoder: BertModel, data: TaskData, device: torch.device, world: World) -> str:
    """Set a task's threshold to the one that is right most often on the rows that are held out.

    Args:
        task: for which there is room.
        encoder: trained.
        data: of the task.
        device: where.
        world: the processes.

    Returns:
        A line that says what was set.
    """
    assert isinstance(task, PairTask)
    probabilities = answers(task, encoder, data.held_out, device, world)["probabilities"][:, 1]
    labels = np.array([example.label for example in data.held_out])
    threshold, accuracy = best_threshold(probabilities, labels)
    half = float(((probabilities > 0.5) == labels).mean())
    if not math.isfinite(threshold):
        return f"task {task.name}: threshold 0.5; on {len(labels):,} held-out rows none is better than one class"
    assert isinstance(task.objective.threshold, torch.Tensor)
    task.objective.threshold.fill_(threshold)
    return (f"task {task.name}: threshold {threshold:.3f}, right for {accuracy:.4f} of {len(labels):,} held-out rows "
            f"(one half: {half:.4f})")
