"""SMART's smoothness-inducing regularizer (Jiang et al. 2020, section 3.1): a small push to the embeddings must not
change the answer.

The push is the worst one within `radius`, found by one step of gradient ascent from small noise; the penalty is the
divergence between the outputs with and without it. Costs two more forward passes and one more backward.
"""
from contextlib import contextmanager

import torch
from torch import Tensor

from minbert.bert import BertModel
from tasks.task import Batch, Task


@contextmanager
def embeddings_moved(encoder: BertModel, push: Tensor):
    """Inside, the encoder's embeddings [N, H] come out with `push` added."""
    handle = encoder.embeddings.register_forward_hook(lambda module, inputs, embedded: embedded + push)
    try:
        yield
    finally:
        handle.remove()


def smart_penalty(task: Task, encoder: BertModel, batch: Batch, outputs: Tensor, noise: float = 1e-5,
                  step: float = 1e-3, radius: float = 1e-5) -> Tensor:
    """outputs: the task's outputs for this batch. noise: deviation of the start; step, radius: of the ascent."""
    shape = (batch.tokens.tokens, encoder.config.hidden_size)
    push = (noise * torch.randn(shape, device=outputs.device)).requires_grad_()
    with embeddings_moved(encoder, push):
        moved = task.outputs(encoder, batch)
    (ascent,) = torch.autograd.grad(task.divergence(moved, outputs.detach()), push)
    direction = ascent / ascent.abs().amax(dim=-1, keepdim=True).clamp_min(1e-12)
    push = (push.detach() + step * direction).clamp(-radius, radius)
    with embeddings_moved(encoder, push):
        return task.divergence(task.outputs(encoder, batch), outputs)
