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

from corpora.examples import Example
from minbert.bert import BertModel
from tasks.task import Batch, Outputs, Task


@dataclass(frozen=True)
class World:
    """Say which of how many processes this one is. A process alone is World(0, 1).

    >>> World().first
    True
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Tell whether this is the process that prints and writes files."""
        return self.rank == 0

    def wait(self):
        """Wait until all processes are here."""
        if self.size > 1:
            torch.distributed.barrier()

    def add_up(self, tensors: Sequence[Tensor]):
        """Make each tensor its sum over the processes, in one exchange."""
        if self.size > 1 and tensors:
            flat = torch.cat([tensor.flatten() for tensor in tensors])
            torch.distributed.all_reduce(flat)
            for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def gather(self, value) -> list:
        """Return every process's value, in the order of their ranks."""
        if self.size == 1:
            return [value]
        values: list = [None] * self.size
        torch.distributed.all_gather_object(values, value)
        return values


ALONE = World()


def join(use_gpu: bool) -> World:
    """Join the processes that torchrun started. A process that was started otherwise is alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ALONE
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if use_gpu else "gloo")
    return World(torch.distributed.get_rank(), torch.distributed.get_world_size())


def leave():
    """Leave the processes, if this one joined any."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def shards(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Give each process indices so that all have about equally many tokens: the longest next, to whoever has least."""
    parts: list[list[int]] = [[] for _ in range(size)]
    loads = [0] * size
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        least = loads.index(min(loads))
        parts[least].append(index)
        loads[least] += lengths[index]
    return [sorted(part) for part in parts]


@dataclass
class ShardedBatch:
    """Hold a batch, and what this process encodes of it."""

    whole: Batch  # what the loss is about: its labels and groups
    own: Batch  # what this process encodes
    parts: list[list[int]]  # each process's examples

    def to(self, device: torch.device) -> "ShardedBatch":
        """Copy the batch to a device."""
        return ShardedBatch(self.whole.to(device), self.own.to(device), self.parts)


class ShardedTask:
    """A task in one of several processes. It encodes this process's part of a batch, and has the loss of the whole.

    It satisfies tasks.task.TrainerTask.
    """

    def __init__(self, task: Task, world: World):
        self.task, self.world = task, world

    def length(self, example: Example) -> int:
        """Return the tokens of the example's longest sequence."""
        return self.task.length(example)

    def collate(self, examples: Sequence[Example]) -> ShardedBatch:
        """Turn examples into a batch, and this process's part of them into another."""
        parts = shards([self.task.length(example) for example in examples], self.world.size)
        # A small batch may leave a process without a part. It encodes one example for nothing, to keep step.
        own = [examples[index] for index in parts[self.world.rank]] or examples[:1]
        return ShardedBatch(self.task.collate(examples), self.task.collate(own), parts)

    def outputs(self, encoder: BertModel, batch: ShardedBatch) -> "ShardedOutputs":
        """Run encoder and head on this process's part."""
        own = self.task.outputs(encoder, batch.own)
        return ShardedOutputs(own, len(batch.parts[self.world.rank]) / sum(map(len, batch.parts)))

    def training_loss(self, outputs: "ShardedOutputs", batch: ShardedBatch) -> Tensor:
        """Compute the whole batch's loss. Only this process's examples have a gradient."""
        # The penalty is a mean over this process's sequences. It counts by their share of the batch.
        whole = Outputs(self._all_values(outputs.own.values, batch), outputs.share * outputs.own.penalty)
        return self.task.training_loss(whole, batch.whole) + 0 * outputs.own.values.sum()

    def divergence(self, first: "ShardedOutputs", second: "ShardedOutputs") -> Tensor:
        """Return this process's part of the divergence."""
        return first.share * self.task.divergence(first.own, second.own)

    def observe(self, outputs: "ShardedOutputs", batch: ShardedBatch):
        """Take note of the whole batch's outputs."""
        values = self._all_values(outputs.own.values, batch)
        self.task.observe(Outputs(values, outputs.own.penalty), batch.whole)

    def _all_values(self, values: Tensor, batch: ShardedBatch) -> Tensor:
        """Put all processes' values together: [k * b, ...] of this process -> [k * B, ...] of the whole batch.

        An example has k rows (of sentence vectors: first all first sentences, then all second ones). Only this
        process's rows have a gradient.
        """
        own = batch.parts[self.world.rank]
        sides = len(values) // max(len(own), 1)
        by_side = values.unflatten(0, (sides, -1))  # [k, b, ...]
        most = max(map(len, batch.parts))
        padded = by_side.new_zeros(sides, most, *by_side.shape[2:])
        padded[:, :len(own)] = by_side[:, :len(own)].detach()
        received = [torch.empty_like(padded) for _ in range(self.world.size)]
        torch.distributed.all_gather(received, padded)
        whole = by_side.new_zeros(sides, sum(map(len, batch.parts)), *by_side.shape[2:])
        for part, rows in zip(batch.parts, received, strict=True):
            whole[:, part] = rows[:, :len(part)]
        if own:
            whole = whole.index_copy(1, torch.tensor(own, device=values.device), by_side)
        return whole.flatten(0, 1)


@dataclass
class ShardedOutputs:
    """Hold a process's own outputs, and the share of the batch that they are."""

    own: Outputs
    share: float

    def detach(self) -> "ShardedOutputs":
        """Cut the outputs off from the graph."""
        return ShardedOutputs(self.own.detach(), self.share)
