"""Data parallel training: every process takes a part of each batch, and all take the same step.

    torchrun --nproc_per_node=2 train_multitask.py ...

A batch is cut by tokens. Each process encodes its part. The outputs of all (logits, scores or vectors: small) are then
put together, so that the loss is the whole batch's, in-batch negatives and rankings included, and each process goes
backward through its own rows only. Added up, that is the gradient one process would have found; surgery and the
optimizer then see the same numbers everywhere, and the processes never drift apart.
"""
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor

from minbert.bert import BertModel
from tasks.task import Batch, Example, Task, TokenBatch


@dataclass(frozen=True)
class World:
    """Which of how many processes this one is. A process alone is World(0, 1)."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """The one that prints and writes files."""
        return self.rank == 0

    def wait(self):
        """Until all processes are here."""
        if self.size > 1:
            torch.distributed.barrier()

    def add_up(self, tensors: Sequence[Tensor]):
        """Each tensor becomes its sum over the processes, in one exchange."""
        if self.size > 1 and tensors:
            flat = torch.cat([tensor.flatten() for tensor in tensors])
            torch.distributed.all_reduce(flat)
            for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def gather(self, value) -> list:
        """Every process's value, in the order of their ranks."""
        if self.size == 1:
            return [value]
        found = [None] * self.size
        torch.distributed.all_gather_object(found, value)
        return found


ALONE = World()


def join(use_gpu: bool) -> World:
    """Joins the processes that torchrun started; a process started otherwise is alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ALONE
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if use_gpu else "gloo")
    return World(torch.distributed.get_rank(), torch.distributed.get_world_size())


def leave():
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def shards(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Indices for each process, so that all have about equally many tokens: the longest next, to whoever has least."""
    parts: list[list[int]] = [[] for _ in range(size)]
    loads = [0] * size
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        least = loads.index(min(loads))
        parts[least].append(index)
        loads[least] += lengths[index]
    return [sorted(part) for part in parts]


@dataclass
class ShardedBatch:
    whole: Batch  # what the loss is about: its labels and groups
    own: Batch  # what this process encodes
    parts: list[list[int]]  # each process's examples

    @property
    def tokens(self) -> TokenBatch:
        return self.own.tokens

    def to(self, device: torch.device) -> "ShardedBatch":
        return ShardedBatch(self.whole.to(device), self.own.to(device), self.parts)


class ShardedTask:
    """A task in one of several processes: collates and encodes this process's part, and has the loss of the whole."""

    def __init__(self, task: Task, world: World):
        self.task, self.world = task, world
        self.share = 0.0  # of the batch's examples that are this process's

    def length(self, example: Example) -> int:
        return self.task.length(example)

    def collate(self, examples: list[Example]) -> ShardedBatch:
        parts = shards([self.task.length(example) for example in examples], self.world.size)
        # A process that a small batch leaves without a part encodes one example for nothing, to keep step.
        own = [examples[index] for index in parts[self.world.rank]] or examples[:1]
        return ShardedBatch(self.task.collate(examples), self.task.collate(own), parts)

    def outputs(self, encoder: BertModel, batch: ShardedBatch) -> Tensor:
        self.share = len(batch.parts[self.world.rank]) / sum(map(len, batch.parts))
        return self.task.outputs(encoder, batch.own)

    def criterion(self, outputs: Tensor, batch: ShardedBatch) -> Tensor:
        return self.task.criterion(self._all_outputs(outputs, batch), batch.whole) + 0 * outputs.sum()

    def _all_outputs(self, outputs: Tensor, batch: ShardedBatch) -> Tensor:
        """The whole batch's outputs, [k * B, ...] from this process's [k * b, ...], k rows an example (vectors: first
        all first sentences, then all second ones). Only this process's rows have a gradient."""
        own = batch.parts[self.world.rank]
        sides = len(outputs) // max(len(own), 1)
        by_side = outputs.unflatten(0, (sides, -1))  # [k, b, ...]
        most = max(map(len, batch.parts))
        padded = by_side.new_zeros(sides, most, *by_side.shape[2:])
        padded[:, :len(own)] = by_side[:, :len(own)].detach()
        received = [torch.empty_like(padded) for _ in range(self.world.size)]
        torch.distributed.all_gather(received, padded)
        whole = by_side.new_zeros(sides, sum(map(len, batch.parts)), *by_side.shape[2:])
        for part, rows in zip(batch.parts, received, strict=True):
            whole[:, part] = rows[:, :len(part)]
        if own:
            whole = whole.index_copy(1, torch.tensor(own, device=outputs.device), by_side)
        return whole.flatten(0, 1)

    # The rest is a mean over this process's rows: it counts by the share of the batch that they are.

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        return self.share * self.task.divergence(first, second)

    def regularized(self, loss: Tensor) -> Tensor:
        return loss + self.share * self.task.regularized(torch.zeros_like(loss))

    def loss(self, encoder: BertModel, batch: ShardedBatch) -> Tensor:
        return self.regularized(self.criterion(self.outputs(encoder, batch), batch))
