"""One step of a stage, in the order things happen: next tasks, loss, backward, combine, clip, step.

A step is a function of (seed, stage, its number, batches drawn so far): its dropout, its batches and the order of its
projections are drawn from those, so that a run which starts again at any step takes the same one.
"""
import hashlib
import math
from dataclasses import dataclass, field

import torch

from minbert.adamw import AdamW, compiled_update
from minbert.bert import BertModel
from tasks.task import Batch, Task
from training.averaging import WeightAverage
from training.batching import TaskBatches
from training.data import TaskData
from training.distributed import ALONE, ShardedTask, World
from training.gradients import SharedGradients
from training.mixing import tasks_at
from training.parameters import freeze, optimizer_groups
from training.precision import computing, resolve
from training.rdrop import rdrop_loss
from training.recipe import Stage
from training.schedules import rate_factor
from training.smart import smart_penalty
from training.surgery import SurgeryState, combine_weights, conflict_cosines

# So many updates of a parameter are worth compiling AdamW for: each is some 1.5 ns faster, and the compiler takes up to
# half a minute the first time on a machine.
COMPILE_FROM = 2e10
PATIENT_STEPS = 10  # steps in a row with a gradient that is not finite, after which the run stops


@dataclass
class StepState:
    """What the next step must know of the steps before it, besides the tensors."""

    step: int = 0  # steps done of this stage
    drawn: dict[str, int] = field(default_factory=dict)  # batches drawn of each task in this stage
    bad_steps: int = 0  # in a row, with a gradient that was not finite
    skipped_steps: int = 0
    averaged: int = 0  # updates of the weight average
    surgery: dict[str, float] = field(default_factory=dict)


def seed_of(*parts) -> int:
    """A 63-bit seed that differs for different parts, the same on every machine."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "big") >> 1


def steps_per_epoch(stage: Stage, batches: dict[str, TaskBatches]) -> int:
    if isinstance(stage.steps_per_epoch, int):
        return stage.steps_per_epoch
    counts = [task.per_epoch for task in batches.values()]
    chosen = max(counts) if stage.steps_per_epoch == "longest" else min(counts)
    if stage.mixing == "cycle":
        return chosen
    # Tasks that are drawn one by one: the steps that see every set once, or all sets as often as the shortest.
    total = sum(counts) if stage.steps_per_epoch == "longest" else chosen * len(counts)
    return max(1, total // stage.draws)


def compiles(choice: bool | str, updates: float, device: torch.device) -> tuple[bool, str]:
    """Whether AdamW is compiled, and what to say of it. choice: the recipe's. updates: steps times parameters."""
    if device.type != "cpu":
        return False, "AdamW for many tensors at once"
    if choice == "auto":
        choice = updates >= COMPILE_FROM
        if choice:
            try:
                compiled_update()
            except ValueError as error:
                return False, f"AdamW in slices ({error})"
    return choice, "AdamW compiled" if choice else "AdamW in slices"


class StageSteps:
    """What the steps of one stage need: batches, optimizer, gradient buffers, weight average.

    tasks: the stage's, by name. trained: those of them that have something to train. seed: of the stage. precision: see
    precision.py.
    """

    def __init__(self, stage: Stage, encoder: BertModel, tasks: dict[str, Task], trained: list[str],
                 data: dict[str, TaskData], model: torch.nn.Module, seed: str, device: torch.device,
                 world: World = ALONE, precision: str = "auto"):
        self.stage, self.encoder, self.seed, self.device, self.world = stage, encoder, seed, device, world
        freeze(encoder, stage.trainable)
        self.sizes = {name: len(data[name].train) for name in trained}
        self.tasks = {name: ShardedTask(tasks[name], world) if world.size > 1 else tasks[name] for name in trained}
        self.batches = {name: TaskBatches(task, data[name].train, stage.batch_size_of(name), f"{seed}/{name}",
                                          stage.token_budget, name in stage.balanced)
                        for name, task in self.tasks.items()}
        self.per_epoch = steps_per_epoch(stage, self.batches)
        self.total = stage.epochs * self.per_epoch
        groups = optimizer_groups(encoder, list(tasks.values()), stage.optimizer.lr, stage.optimizer.head_lr,
                                  stage.optimizer.weight_decay, stage.optimizer.layer_decay)
        self.rates = [group["lr"] for group in groups]
        count = sum(parameter.numel() for group in groups for parameter in group["params"])
        compile, self.optimizer_form = compiles(stage.optimizer.compile, self.total * count, device)
        self.optimizer = AdamW(groups, betas=tuple(stage.optimizer.betas), eps=stage.optimizer.eps,
                               correct_bias=stage.optimizer.correct_bias, efficient=stage.optimizer.efficient,
                               compile=compile)
        self.average = None if stage.average == "none" else WeightAverage(stage.average, stage.ema_decay, model)
        # A plain sum needs one row, to which all tasks add; keeping tasks apart needs one for each.
        self.apart = stage.combine not in ("sum", "mean") or stage.log_conflicts
        table = encoder.embeddings.word_embeddings
        self.shared = SharedGradients([p for p in encoder.parameters() if p.requires_grad],
                                      len(trained) if self.apart else 1,
                                      table.weight if table.weight.requires_grad else None)
        self.own = [parameter for task in tasks.values() for parameter in task.parameters()]
        # The look-up's gradient touches a few rows of a large table.
        table.sparse = table.weight.requires_grad
        # SMART asks what a push of 1e-5 does, which any rounding of activations drowns.
        self.precision = "float32" if stage.smart else resolve(precision, device)

    def take(self, state: StepState) -> dict:
        """Takes step number state.step and counts it. Returns what the log says of it."""
        stage, shared = self.stage, self.shared
        # Dropout differs between processes; whatever else is drawn has a generator of its own, and does not.
        torch.manual_seed(seed_of(self.seed, state.step, *([self.world.rank] if self.world.rank else [])))
        names = tasks_at(state.step, self.total, {name: b.per_epoch for name, b in self.batches.items()}, self.sizes,
                         stage.mixing, self.seed, stage.draws, stage.temperature, stage.cap)
        rows = list(dict.fromkeys(names))  # a task that was drawn twice adds to the same row
        factor = rate_factor(stage.schedule, state.step, self.total, stage.warmup)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        for parameter in self.own:
            parameter.grad = None
        losses = {}
        shared.start()
        for name in names:
            row = rows.index(name) if self.apart else 0
            shared.receive(row)
            batch = self.batches[name].batch(state.drawn.get(name, 0)).to(self.device)
            state.drawn[name] = state.drawn.get(name, 0) + 1
            with computing(self.encoder, self.precision):
                loss = stage.loss_weights.get(name, 1.0) * self._loss(self.tasks[name], batch)
                loss.backward()
            shared.keep(row)
            losses[name] = loss.detach()
        shared.finish(self.world)
        self.world.add_up([parameter.grad for parameter in self.own if parameter.grad is not None])
        record = {"step": state.step, "lr": self.rates[0] * factor}
        scale = self._combine(state, rows, record)
        if scale is not None:
            self.optimizer.step(scale=scale)
            if self.average is not None:
                self.average.update(state.step, self.total)
                state.averaged = self.average.count
        state.step += 1
        # Together: a GPU is waited for once.
        values = torch.stack([loss.float() for loss in losses.values()]).tolist()
        record["loss"] = {name: round(value, 6) for name, value in zip(losses, values, strict=True)}
        return record

    def _loss(self, task: Task, batch: Batch) -> torch.Tensor:
        stage, encoder = self.stage, self.encoder
        if not stage.rdrop and not stage.smart:
            return task.loss(encoder, batch)
        if stage.rdrop:
            loss, outputs = rdrop_loss(task, encoder, batch, stage.rdrop)
        else:
            outputs = task.outputs(encoder, batch)
            loss = task.criterion(outputs, batch)
        if stage.smart:
            loss = loss + stage.smart * smart_penalty(task, encoder, batch, outputs)
        return task.regularized(loss)

    def _combine(self, state: StepState, rows: list[str], record: dict) -> float | None:
        """Makes one gradient of the tasks' ones. Returns what to multiply it by to be no longer than stage.clip; None
        where it is not finite: the step is then skipped, and counted."""
        stage, shared = self.stage, self.shared
        weights = torch.ones(1, dtype=torch.float64)
        try:
            if self.apart and len(rows) > 1 and shared.parameters:
                gram = shared.gram()[:len(rows), :len(rows)]
                record["conflict"] = {k: round(v, 4) for k, v in conflict_cosines(gram, rows).items()}
                generator = torch.Generator().manual_seed(seed_of(self.seed, "surgery", state.step))
                remembered = SurgeryState(state.surgery)
                weights = combine_weights(stage.combine, gram, rows, generator, remembered)
                state.surgery = remembered.targets
                # The combination's length is in the Gram matrix already: no pass over the gradients for it.
                norm = math.sqrt(max(0.0, float(weights @ gram @ weights)))
            else:
                if stage.combine == "mean":
                    weights /= len(rows)
                norm = shared.norm() * float(weights[0])
            norms = [torch.linalg.vector_norm(p.grad) for p in self.own if p.grad is not None]
            norm = math.hypot(norm, float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0)
            if not math.isfinite(norm):
                raise FloatingPointError(f"the gradient of {', '.join(rows)} is not finite")
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
