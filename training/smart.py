"""SMART's smoothness-inducing regularizer (Jiang et al. 2020, section 3.1): a small push to the embeddings must not
change the answer.

The push is the worst one within `radius`. One step of gradient ascent from small noise finds it. The penalty is the
divergence between the outputs with and without the push. It costs two more forward passes and one more backward pass.
"""
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from minbert.bert import BertModel
from tasks.task import TrainerTask


class Push:
    """Add a small tensor to the encoder's embeddings. The first pass draws it as noise of their shape.

    Args:
        deviation: of the noise.

    >>> push = Push(deviation=0.1)
    >>> push(torch.zeros(2, 3)).shape == push.value.shape
    True
    """

    def __init__(self, deviation: float):
        self.deviation = deviation
        self.value: Tensor | None = None

    def __call__(self, embedded: Tensor) -> Tensor:
        """Return the pushed embeddings."""
        if self.value is None:
            self.value = (self.deviation * torch.randn_like(embedded)).requires_grad_()
        return embedded + self.value


@contextmanager
def embeddings_moved(encoder: BertModel, push: Push) -> Iterator[None]:
    """Push the encoder's embeddings inside."""
    handle = encoder.embeddings.register_forward_hook(lambda module, inputs, embedded: push(embedded))
    try:
        yield
    finally:
        handle.remove()


def smart_penalty(task: TrainerTask, encoder: BertModel, batch: Any, outputs: Any, noise: float = 1e-5,
                  step: float = 1e-3, radius: float = 1e-5) -> Tensor:
    """Compute the penalty.

    Args:
        task, encoder, batch: what is trained.
        outputs: the task's outputs for this batch.
        noise: the deviation of the start.
        step, radius: the length of the ascent step, and the largest push of one number.
    """
    push = Push(noise)
    with embeddings_moved(encoder, push):
        moved = task.outputs(encoder, batch)
    assert push.value is not None
    (ascent,) = torch.autograd.grad(task.divergence(moved, outputs.detach()), push.value)
    direction = ascent / ascent.abs().amax(dim=-1, keepdim=True).clamp_min(1e-12)
    push.value = (push.value.detach() + step * direction).clamp(-radius, radius)
    with embeddings_moved(encoder, push):
        return task.divergence(task.outputs(encoder, batch), outputs)
