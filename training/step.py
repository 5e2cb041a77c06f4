"""One step of a stage, in the order things happen: next tasks, loss, backward, combine, clip, step.

A step is a function of (seed, stage, its number, batches drawn so far). Its dropout, its batches and the order of its
projections are drawn from those. So a run that starts again at any step takes the same step.
"""
import math
import statistics
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from minbert.batch import by_tokens
from tasks.task import Task, TrainerTask
from training.averaging import WeightAverage
from training.batching import TaskBatches
from training.data import TaskData
from training.distributed import ALONE, ShardedTask, World
from training.engines import Engine
from training.gradients import SharedGradients
from training.mixing import tasks_at
from training.parameters import freeze, optimizer_groups, set_modes
from training.rdrop import rdrop_loss
from training.recipe import Stage
from training.schedules import rate_factor
from training.seeds import seed_of
from training.smart import smart_penalty
from training.surgery import SurgeryState, combine_weights, conflict_cosines
from training.weighting import RULES, TINY, Seen

PATIENT_STEPS = 10  # steps in a row with a gradient that is not finite, after which the run stops


@dataclass
class StepState:
    """Hold what the next step must know of the steps before it, besides the tensors.

    >>> StepState(step=3).drawn
    {}
    """

    step: int = 0  # steps done of this stage
    drawn: dict[str, int] = field(default_factory=dict)  # batches drawn of each task in this stage
    seen: dict[str, int] = field(default_factory=dict)  # examples of each task that took part in steps, of all stages
    bad_steps: int = 0  # in a row, with a gradient that was not finite
    skipped_steps: int = 0
    averaged: int = 0  # updates of the weight average
    surgery: dict[str, float] = field(default_factory=dict)
    weighting: dict[str, float] = field(default_factory=dict)  # what the learned loss weights remember


def steps_per_epoch(stage: Stage, batches: dict[str, TaskBatches]) -> int:
    """Return how many steps an epoch of a stage has."""
    if isinstance(stage.steps_per_epoch, int):
        return stage.steps_per_epoch
    counts = [task.per_epoch for task in batches.values()]
    least_or_most = max(counts) if stage.steps_per_epoch == "longest" else min(counts)
    if stage.mixing == "cycle":
        return least_or_most
    # Tasks that are drawn one by one: the steps that see every set once, or all sets as often as the shortest.
    if stage.mixing == "in_turn":
        return sum(counts)
    if stage.mixing == "shuffled":
        return math.ceil(sum(counts) / stage.draws)
    total = sum(counts) if stage.steps_per_epoch == "longest" else least_or_most * len(counts)
    return max(1, total // stage.draws)


@contextmanager
def explained_memory(name: str, stage: Stage, batch: Any) -> Iterator[None]:
    """Turn "out of memory" inside into a ValueError that says what was too large, and what to lower.

    Args:
        name: of the task.
        stage: knows the batch size.
        batch: what is computed.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError | torch.OutOfMemoryError) or "memory" in str(error).lower()):
            raise
        tokens = getattr(batch, "own", batch).tokens.input_ids
        raise ValueError(f"out of memory: a batch of {stage.batch_size_of(name)} examples of task {name}, "
                         f"{tokens.shape[0]} sequences of {tokens.shape[1]} tokens; lower batch_size or max_length"
                         ) from None


def _numbers(losses: dict[str, torch.Tensor]) -> dict[str, float]:
    """Read losses, all at once: a GPU is waited for once."""
    return dict(zip(losses, torch.stack([loss.float() for loss in losses.values()]).tolist(), strict=True))


class StageSteps:
    """Take the steps of one stage. It has the stage's batches, optimizer, gradient buffers and weight average.

    Args:
        stage: what to do.
        model: a training.trainer.MultitaskModel.
        trained: names of the stage's tasks that have something to train.
        data: examples by task.
        seed: of the stage.
        engine: the implementation that computes.
        device: where.
        world: the processes that train as one.
    """

    def __init__(self, stage: Stage, model: Any, trained: list[str], data: dict[str, TaskData], seed: str,
                 engine: Engine, device: torch.device, world: World = ALONE):
        self.stage, self.encoder, self.seed, self.engine = stage, model.encoder, seed, engine
        self.device, self.world = device, world
        self.models: dict[str, Task] = {name: model.tasks_by_name()[name] for name in stage.tasks}
        freeze(self.encoder, stage.trainable)
        self.tasks: dict[str, TrainerTask] = {
            name: ShardedTask(self.models[name], world) if world.size > 1 else self.models[name] for name in trained}
        self.batches = {name: TaskBatches(task, data[name].train, stage.batch_size_of(name), f"{seed}/{name}",
                                          stage.token_budget, name in stage.balanced, stage.share.get(name, 1.0))
                        for name, task in self.tasks.items()}
        self.sizes = {name: batches.count for name, batches in self.batches.items()}
        self.per_epoch = steps_per_epoch(stage, self.batches)
        self.total = stage.epochs * self.per_epoch
        settings = stage.optimizer
        groups = optimizer_groups(self.encoder, list(self.models.values()), settings.lr, settings.head_lr,
                                  settings.weight_decay, settings.layer_decay)
        self.rates = [group["lr"] for group in groups]
        self.optimizer, self.optimizer_form = engine.optimizer(groups, settings, self.total, device)
        self.average = None if stage.average == "none" else WeightAverage(stage.average, stage.ema_decay, model)
        self.rule = None if stage.weighting == "none" else RULES[stage.weighting]
        # A plain sum needs one collection, to which all tasks add. Keeping tasks apart needs one for each.
        self.apart = (stage.combine not in ("sum", "mean") or stage.log_conflicts
                      or (self.rule is not None and self.rule.needs_norms))
        table = self.encoder.embeddings.word_embeddings
        # A look-up touches few words, so its gradient may be sparse. A head that reads all of them has a dense one.
        sparse = (engine.sparse and table.weight.requires_grad
                  and not any(task.reads_word_embeddings for task in self.models.values()))
        # A parameter of two tasks, such as a trunk's, is shared as the encoder's are.
        owners = Counter(parameter for task in self.models.values() for parameter in task.parameters())
        between = [parameter for parameter, count in owners.items() if count > 1]
        self.shared = SharedGradients([p for p in self.encoder.parameters() if p.requires_grad] + between,
                                      len(trained) if self.apart else 1,
                                      table if sparse else None)
        self.own = [parameter for parameter, count in owners.items() if count == 1]

    def training_mode(self):
        """Put what is trained into training mode, and what is frozen into evaluation mode."""
        set_modes(self.encoder, [self.models[name] for name in self.tasks])

    def trained_numbers(self) -> int:
        """Count the numbers that the optimizer updates."""
        return sum(parameter.numel() for group in self.optimizer.param_groups for parameter in group["params"])

    def try_longest(self) -> str:
        """Run every task's longest batch forward and backward, and throw the gradients away.

        A run that will not fit into memory then ends before its first step. Returns what the largest of them is.
        """
        largest = (0, "")
        for name, task in self.tasks.items():
            batches = self.batches[name]
            order = sorted(range(len(batches.lengths)), key=lambda index: -batches.lengths[index])
            size, budget = self.stage.batch_size_of(name), self.stage.token_budget
            indices = order[:size] if budget is None else by_tokens(order, batches.lengths, budget)[0]
            batch = batches.collate(indices).to(self.device)
            with self.shared.collecting(self.world), self.shared.of(0), explained_memory(name, self.stage, batch):
                task.training_loss(task.outputs(self.encoder, batch), batch).backward()
            sequences, length = getattr(batch, "own", batch).tokens.input_ids.shape
            largest = max(largest, (sequences * length, f"{len(indices)} examples of {name}, {sequences} sequences of "
                                                        f"{length} tokens"))
        for parameter in self.own:
            parameter.grad = None
        return largest[1]

    def rehearse(self, number: int):
        """Compute the gradients of step `number` and throw them away. See training/estimate.py."""
        buffers = [(buffer, buffer.clone()) for task in self.models.values() for buffer in task.buffers()]
        state = StepState(step=number, drawn={name: number % batches.per_epoch
                                              for name, batches in self.batches.items()})
        batches, losses = self._gradients(state, {})
        self._combine(state, list(losses), {})
        if self.rule is not None and self.rule.looks_again:
            self._look_again(state, batches)
        for parameter in (*self.shared.parameters, *self.own):
            parameter.grad = None
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)

    def take(self, state: StepState) -> dict[str, Any]:
        """Take step number state.step and count it. Returns what the log says of it."""
        factor = rate_factor(self.stage.schedule, state.step, self.total, self.stage.warmup)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        factors = {} if self.rule is None else self.rule.factors(state.weighting, list(self.tasks))
        batches, losses = self._gradients(state, factors)
        record: dict[str, Any] = {"step": state.step, "lr": self.rates[0] * factor}
        values = _numbers(losses)
        scale = self._combine(state, list(losses), record)
        after = {}
        if scale is not None:
            self.engine.step(self.optimizer, scale)
            if self.average is not None:
                self.average.update(state.step, self.total)
                state.averaged = self.average.count
            if self.rule is not None and self.rule.looks_again:
                after = _numbers(self._look_again(state, batches))
        state.step += 1
        if self.rule is not None:
            record["weight"] = {name: round(factor, 6) for name, factor in factors.items()}
            self._learn(state, values, after, record.get("length", {}))
        record["loss"] = {name: round(self.stage.loss_weights.get(name, 1.0) * value, 6) if math.isfinite(value)
                          else None for name, value in values.items()}
        return record

    def _learn(self, state: StepState, losses: dict[str, float], after: dict[str, float], norms: dict[str, float]):
        """Let the stage's rule see a step, which is counted already. See training.weighting.Seen."""
        # R-Drop and penalties differ between processes, which see their own examples. All go on with the mean.
        losses, after = self._means(losses), self._means(after) if after else {}
        if self.rule is not None and all(map(math.isfinite, (*losses.values(), *after.values()))):
            self.rule.observe(state.weighting, Seen(losses, state.step % self.per_epoch == 0, after, norms))

    def _means(self, values: dict[str, float]) -> dict[str, float]:
        """Return the values' means over the processes."""
        everywhere = self.world.gather(values)
        return {name: statistics.fmean(part[name] for part in everywhere) for name in values}

    def _positive(self, name: str, loss: float) -> float:
        """Return a task's loss as the mean over the processes. Raise ValueError if it has no logarithm."""
        mean = self._means({name: loss})[name]
        if mean < 0:
            raise ValueError(f"weighting '{self.stage.weighting}' takes logarithms; the loss of task {name} is "
                             f"{mean:.4g}")
        return mean

    def _seed_dropout(self, state: StepState):
        """Seed what dropout draws in a step. It differs between processes. All else is drawn from generators."""
        torch.manual_seed(seed_of(self.seed, state.step, *([self.world.rank] if self.world.rank else [])))

    def _gradients(self, state: StepState, factors: dict[str, float]
                   ) -> tuple[list[tuple[str, Any]], dict[str, torch.Tensor]]:
        """Draw the step's batches and compute the gradients of their weighed losses.

        Args:
            state: of the step.
            factors: on the tasks' losses, besides the stage's loss_weights; 1 where absent.

        Returns:
            The tasks' names and batches, in the order drawn, and each task's loss in its last one, not weighed.
        """
        stage, shared = self.stage, self.shared
        self._seed_dropout(state)
        names = tasks_at(state.step, self.total, {name: b.per_epoch for name, b in self.batches.items()}, self.sizes,
                         stage.mixing, self.seed, stage.draws, stage.temperature, stage.cap, self.per_epoch)
        different = list(dict.fromkeys(names))  # a task that was drawn twice adds to the same gradients
        batches = []
        for parameter in self.own:
            parameter.grad = None
        losses: dict[str, torch.Tensor] = {}
        with shared.collecting(self.world):
            for name in names:
                indices = self.batches[name].indices(state.drawn.get(name, 0))
                batch = self.batches[name].collate(indices).to(self.device)
                batches.append((name, batch))
                state.drawn[name] = state.drawn.get(name, 0) + 1
                state.seen[name] = state.seen.get(name, 0) + len(indices)
                with shared.of(different.index(name) if self.apart else 0), explained_memory(name, stage, batch):
                    loss, outputs = self._loss(self.tasks[name], batch)
                    factor = stage.loss_weights.get(name, 1.0) * factors.get(name, 1.0)
                    if self.rule is not None and self.rule.of_logarithms:
                        factor /= self._positive(name, float(loss.detach())) + TINY  # d log L = dL / L
                    (factor * loss).backward()
                self.tasks[name].observe(outputs, batch)
                losses[name] = loss.detach()
        self.world.add_up([parameter.grad for parameter in self.own if parameter.grad is not None])
        return batches, losses

    def _look_again(self, state: StepState, batches: list[tuple[str, Any]]) -> dict[str, torch.Tensor]:
        """Compute each task's loss again, with the same dropout. batches: of _gradients."""
        self._seed_dropout(state)
        with torch.set_grad_enabled(self.stage.smart > 0):  # SMART's push follows a gradient
            return {name: self._loss(self.tasks[name], batch)[0].detach() for name, batch in batches}

    def _loss(self, task: TrainerTask, batch: Any) -> tuple[torch.Tensor, Any]:
        """Compute a task's loss, with R-Drop and SMART where the stage asks for them. Also returns the outputs."""
        stage, encoder = self.stage, self.encoder
        if stage.rdrop:
            loss, outputs = rdrop_loss(task, encoder, batch, stage.rdrop)
        else:
            outputs = task.outputs(encoder, batch)
            loss = task.training_loss(outputs, batch)
        if stage.smart:
            loss = loss + stage.smart * smart_penalty(task, encoder, batch, outputs)
        return loss, outputs

    def _combine(self, state: StepState, names: list[str], record: dict[str, Any]) -> float | None:
        """Make one gradient of the tasks' gradients.

        Returns:
            The factor that makes it no longer than stage.clip. None if it is not finite: the step is then skipped, and
            counted.

        Raises:
            ValueError: the gradient was not finite for PATIENT_STEPS steps in a row.
        """
        stage, shared = self.stage, self.shared
        weights = torch.ones(1, dtype=torch.float64)
        try:
            if self.apart and len(names) > 1 and shared.parameters:
                gram = shared.gram()[:len(names), :len(names)]
                cosines = conflict_cosines(gram, names)
                if all(map(math.isfinite, cosines.values())):
                    record["conflict"] = {pair: round(cosine, 4) for pair, cosine in cosines.items()}
                generator = torch.Generator().manual_seed(seed_of(self.seed, "surgery", state.step))
                remembered = SurgeryState(state.surgery)
                weights = combine_weights(stage.combine, gram, names, generator, remembered)
                state.surgery = remembered.targets
                lengths = gram.diagonal().sqrt().tolist()
                record["length"] = {name: float(f"{length:.6g}") for name, length in zip(names, lengths, strict=True)}
                # The combination's length is in the Gram matrix already: no pass over the gradients for it.
                norm = math.sqrt(max(0.0, float(weights @ gram @ weights)))
            else:
                if stage.combine == "mean":
                    weights /= len(names)
                norm = shared.norm() * float(weights[0])
            norms = [torch.linalg.vector_norm(p.grad) for p in self.own if p.grad is not None]
            norm = math.hypot(norm, float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0)
            if not math.isfinite(norm):
                raise FloatingPointError(f"the gradient of {', '.join(names)} is not finite")
        except FloatingPointError as error:
            state.bad_steps += 1
            state.skipped_steps += 1
            record["skipped"] = str(error)
            if state.bad_steps >= PATIENT_STEPS:
                raise ValueError(f"{stage.name or 'training'}, step {state.step:,}: {error}, for {PATIENT_STEPS} steps "
                                 "in a row; lower the learning rate") from None
            return None
        state.bad_steps = 0
        record["gradient_norm"] = norm
        shared.combine(weights)
        return stage.clip / norm if stage.clip and norm > stage.clip else 1.0
