"""The one training loop: for every step, next tasks, loss, backward, combine, clip, step; then evaluate, save, log.

There are no callbacks. What must survive a restart is TrainerState plus tensors by name; all randomness of a step is
drawn from (seed, stage, step), so a run that is killed and started again comes to the same bits on a CPU.
"""
import dataclasses
import hashlib
import json
import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

from minbert.adamw import AdamW
from minbert.bert import BertModel
from tasks.task import Batch, Task
from training import checkpoint
from training.averaging import WeightAverage
from training.batching import TaskBatches
from training.data import TaskData, sample
from training.evaluate import leaderboard_score, measure, predict, selection_score, table
from training.gradients import SharedGradients
from training.mixing import tasks_at
from training.parameters import freeze, optimizer_groups
from training.rdrop import rdrop_loss
from training.recipe import Recipe, Stage
from training.schedules import rate_factor
from training.smart import smart_penalty
from training.surgery import SurgeryState, combine_weights, conflict_cosines

SAVE_EVERY = 120.0  # seconds between saved states within an epoch
PATIENT_STEPS = 10  # steps in a row with a gradient that is not finite, after which the run stops


class MultitaskModel(nn.Module):
    """One encoder, and the tasks with their heads. Nothing but a name for the whole: `encoder.*`, `tasks.<name>.*`."""

    def __init__(self, encoder: BertModel, tasks: dict[str, Task]):
        super().__init__()
        self.encoder = encoder
        self.tasks = nn.ModuleDict(tasks)


@dataclass
class TrainerState:
    stage: int = 0
    step: int = 0  # steps done of this stage
    drawn: dict[str, int] = field(default_factory=dict)  # batches drawn of each task in this stage
    best_score: float = -math.inf  # of this stage
    best_epoch: int = 0
    epochs_since_best: int = 0
    last_score: float = -math.inf
    decreases: int = 0  # of the dev score from one epoch to the next
    bad_steps: int = 0  # in a row, with a gradient that was not finite
    skipped_steps: int = 0
    averaged: int = 0  # updates of the weight average
    surgery: dict[str, float] = field(default_factory=dict)
    log_bytes: int = 0  # length of metrics.jsonl when this state was saved


def seed_of(*parts) -> int:
    """A 63-bit seed that differs for different parts, the same on every machine."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "big") >> 1


def stop_reason(stage: Stage, state: TrainerState) -> str | None:
    """Why the stage ends before its last step, by its stopping rules; None where it goes on."""
    if stage.patience and state.epochs_since_best >= stage.patience:
        return f"no better dev score for {stage.patience} epochs"
    if stage.stop_after_decreases and state.decreases >= stage.stop_after_decreases:
        return f"the dev score fell {state.decreases} times"
    return None


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


class Trainer:
    def __init__(self, model: MultitaskModel, recipe: Recipe, data: dict[str, TaskData], directory: Path,
                 device: torch.device, say=print, progress: bool = True):
        self.model, self.recipe, self.data = model.to(device), recipe, data
        self.directory, self.device, self.say, self.progress = Path(directory), device, say, progress
        self.state = TrainerState()
        self.log_path = self.directory / "metrics.jsonl"

    # ---- the run -----------------------------------------------------------------------------------------------------

    def train(self):
        """Trains all stages, from where the run's folder says. Leaves the model with the weights to keep."""
        saved = checkpoint.load_state(self.directory)
        tensors = {}
        if saved is not None:
            tensors, values = saved
            values.pop("tensors")
            self.state = TrainerState(**values)
            self._load(tensors)
            self.say(f"resuming {self.directory} at stage {self.state.stage + 1}, step {self.state.step:,}")
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.log_path, "ab") as log:  # lines after the saved state will be written again
            log.truncate(self.state.log_bytes)
        while self.state.stage < len(self.recipe.stage):
            self._train_stage(self.recipe.stage[self.state.stage], tensors)
            tensors = {}
            self.state = TrainerState(stage=self.state.stage + 1, log_bytes=self.log_path.stat().st_size,
                                      skipped_steps=self.state.skipped_steps)
            self._save(None, None)

    def _train_stage(self, stage: Stage, tensors: dict[str, torch.Tensor]):
        recipe, state, encoder = self.recipe, self.state, self.model.encoder
        tasks: dict[str, Task] = {name: self.model.tasks[name] for name in stage.tasks}
        seed = f"{recipe.seed}/{state.stage}"
        title = stage.name or f"stage {state.stage + 1}"
        freeze(encoder, stage.trainable)
        trained = [name for name in stage.tasks
                   if stage.trainable != "heads" or next(tasks[name].parameters(), None) is not None]
        for name in set(stage.tasks) - set(trained):
            self.say(f"{title}: task {name} has a head without parameters, so on a frozen encoder there is nothing to "
                     "train; it is only evaluated")
        if not trained:
            raise ValueError(f"{title}: nothing to train: the encoder is frozen, and no head has parameters")
        batches = {name: TaskBatches(tasks[name], self.data[name].train, stage.batch_size_of(name), f"{seed}/{name}",
                                     stage.token_budget, name in stage.balanced) for name in trained}
        per_epoch = steps_per_epoch(stage, batches)
        total = stage.epochs * per_epoch
        groups = optimizer_groups(encoder, list(tasks.values()), stage.optimizer.lr, stage.optimizer.head_lr,
                                  stage.optimizer.weight_decay, stage.optimizer.layer_decay)
        rates = [group["lr"] for group in groups]
        optimizer = AdamW(groups, betas=tuple(stage.optimizer.betas), eps=stage.optimizer.eps,
                          correct_bias=stage.optimizer.correct_bias, efficient=stage.optimizer.efficient)
        average = None if stage.average == "none" else WeightAverage(stage.average, stage.ema_decay, self.model)
        self._load_optimizer(optimizer, average, tensors)
        # A plain sum needs one buffer, into which all tasks add; keeping tasks apart needs one for each.
        apart = stage.combine not in ("sum", "mean") or stage.log_conflicts
        table = encoder.embeddings.word_embeddings
        shared = SharedGradients([p for p in encoder.parameters() if p.requires_grad], len(trained) if apart else 1,
                                 table.weight if table.weight.requires_grad else None)
        surgery = SurgeryState(state.surgery)
        own = [parameter for task in tasks.values() for parameter in task.parameters()]
        # The look-up's gradient touches a few rows of a large table: kept sparse until it is added to the buffer.
        table.sparse = table.weight.requires_grad
        self.say(f"{title}: {', '.join(trained)}; {stage.epochs} epochs of {per_epoch:,} steps, "
                 f"mixing {stage.mixing}, gradients by {stage.combine}")
        autocast = torch.autocast("cuda", torch.bfloat16) if self.device.type == "cuda" else nullcontext()
        last_save = time.monotonic()
        bar = tqdm(total=total, initial=state.step, disable=not self.progress, unit="step", leave=False,
                   dynamic_ncols=True, mininterval=1.0)
        self.model.train()
        # Asked before a step, not after an epoch: a run that was killed in between must stop as well.
        while state.step < total and not stop_reason(stage, state):
            torch.manual_seed(seed_of(seed, state.step))
            names = tasks_at(state.step, total, {name: b.per_epoch for name, b in batches.items()},
                             {name: len(self.data[name].train) for name in trained}, stage.mixing, seed,
                             stage.draws, stage.temperature, stage.cap)
            rows = list(dict.fromkeys(names))  # a task that was drawn twice adds to the same row
            factor = rate_factor(stage.schedule, state.step, total, stage.warmup)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            for parameter in own:
                parameter.grad = None
            losses = {}
            for position, name in enumerate(names):
                row = rows.index(name) if apart else 0
                shared.receive(row, clear=name not in losses if apart else position == 0)
                batch = batches[name].batch(state.drawn.get(name, 0)).to(self.device)
                shared.read_ids(row, batch.tokens.input_ids)
                state.drawn[name] = state.drawn.get(name, 0) + 1
                with autocast:
                    loss = stage.loss_weights.get(name, 1.0) * self._loss(stage, tasks[name], batch)
                loss.backward()
                losses[name] = loss.detach()
            record = {"stage": state.stage, "step": state.step, "lr": rates[0] * factor}
            if self._combine(stage, shared, own, rows, apart, surgery, seed, record):
                optimizer.step()
                if average is not None:
                    average.update(state.step, total)
                    state.averaged = average.count
            state.step += 1
            bar.update()
            record["loss"] = {name: round(float(loss), 6) for name, loss in losses.items()}
            self._log(record)
            bar.set_postfix(record["loss"], refresh=False)
            if state.step % per_epoch == 0:
                bar.clear()
                with average.applied() if average is not None else nullcontext():
                    self._end_epoch(stage, title, tasks, state.step // per_epoch)
                self._save(optimizer, average)
                last_save = time.monotonic()
            elif time.monotonic() - last_save > SAVE_EVERY:
                self._save(optimizer, average)
                last_save = time.monotonic()
        bar.close()
        if state.step < total:
            self.say(f"{title}: {stop_reason(stage, state)}; stopped")
        if stage.keep == "best":
            checkpoint.load_model(self._best_path(), self.model)
            self.say(f"{title}: keeping epoch {state.best_epoch}, dev score {state.best_score:.4f}")
        elif average is not None:
            with torch.no_grad():
                for name, parameter in average.parameters.items():
                    parameter.copy_(average.mean[name] if average.count else parameter)

    def _loss(self, stage: Stage, task: Task, batch: Batch) -> torch.Tensor:
        encoder = self.model.encoder
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

    def _combine(self, stage: Stage, shared: SharedGradients, own: list[nn.Parameter], rows: list[str], apart: bool,
                 surgery: SurgeryState, seed: str, record: dict) -> bool:
        """Makes one gradient of the tasks' ones, no longer than stage.clip. False where one is not finite: the step is
        then skipped, and counted."""
        state = self.state
        weights = torch.ones(1, dtype=torch.float64)
        try:
            if apart and len(rows) > 1 and shared.parameters:
                gram = shared.gram(len(rows))
                record["conflict"] = {k: round(v, 4) for k, v in conflict_cosines(gram, rows).items()}
                generator = torch.Generator().manual_seed(seed_of(seed, "surgery", state.step))
                weights = combine_weights(stage.combine, gram, rows, generator, surgery)
                state.surgery = surgery.targets
                # The combination's length is in the Gram matrix already: no pass over the gradients for it.
                norm = math.sqrt(max(0.0, float(weights @ gram @ weights)))
            else:
                if stage.combine == "mean":
                    weights /= len(rows)
                norm = shared.norm() * float(weights[0])
            norms = [torch.linalg.vector_norm(p.grad) for p in own if p.grad is not None]
            norm = math.hypot(norm, float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0)
            if not math.isfinite(norm):
                raise FloatingPointError(f"the gradient of {', '.join(rows)} is not finite")
        except FloatingPointError as error:
            state.bad_steps += 1
            state.skipped_steps += 1
            record["skipped"] = str(error)
            if state.bad_steps >= PATIENT_STEPS:
                raise ValueError(f"stage {state.stage + 1}, step {state.step:,}: {error}, for {PATIENT_STEPS} steps "
                                 "in a row; lower the learning rate") from None
            return False
        state.bad_steps = 0
        record["gradient_norm"] = norm
        if stage.clip and norm > stage.clip:
            scale = stage.clip / norm
            weights *= scale
            for parameter in own:
                if parameter.grad is not None:
                    parameter.grad.mul_(scale)
        if len(weights) > 1 or weights[0] != 1:
            shared.combine(weights)
        return True

    # ---- after an epoch ----------------------------------------------------------------------------------------------

    def evaluate(self, tasks: dict[str, Task], limit: int | None) -> dict:
        """Metrics of each task on its dev set (a sample of it where limited), and how many rows that were."""
        results, counts = {}, {}
        for name, task in tasks.items():
            everything = self.data[name].dev
            examples = sample(everything, limit, f"{self.recipe.seed}/{name}/dev-sample")
            results[name] = measure(task, predict(task, self.model.encoder, examples, self.device), examples)
            counts[name] = (len(examples), len(everything))
        return {"results": results, "counts": counts}

    def _end_epoch(self, stage: Stage, title: str, tasks: dict[str, Task], epoch: int):
        state = self.state
        evaluation = self.evaluate(tasks, self.recipe.dev_limit)
        results = evaluation["results"]
        score = selection_score(tasks, results)
        self.say(f"{title}, epoch {epoch} of {stage.epochs}: dev\n{table(results, evaluation['counts'])}")
        self._log({"stage": state.stage, "step": state.step, "epoch": epoch, "score": score,
                   "overall": leaderboard_score(results),
                   "dev": {task: {name: dataclasses.asdict(metric) for name, metric in metrics.items()}
                           for task, metrics in results.items()}})
        state.decreases += score < state.last_score
        state.last_score = score
        state.epochs_since_best += 1
        if score > state.best_score:
            state.best_score, state.best_epoch, state.epochs_since_best = score, epoch, 0
            if stage.keep == "best":
                checkpoint.save_model(self._best_path(), self.model)

    def _best_path(self) -> Path:
        return self.directory / f"best-stage-{self.state.stage + 1}.safetensors"

    def _log(self, record: dict):
        with open(self.log_path, "a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")

    # ---- saving and resuming -----------------------------------------------------------------------------------------

    def _named(self) -> dict[str, torch.Tensor]:
        return {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}

    def _save(self, optimizer: AdamW | None, average: WeightAverage | None):
        tensors = self._named()
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        for parameter, moments in (optimizer.state.items() if optimizer is not None else ()):
            tensors[f"exp_avg.{names[parameter]}"] = moments["exp_avg"]
            tensors[f"exp_avg_sq.{names[parameter]}"] = moments["exp_avg_sq"]
            tensors[f"steps.{names[parameter]}"] = torch.tensor(moments["step"])
        if average is not None:
            tensors |= {f"average.{name}": mean for name, mean in average.mean.items()}
        self.state.log_bytes = self.log_path.stat().st_size if self.log_path.exists() else 0
        checkpoint.save_state(self.directory, tensors, dataclasses.asdict(self.state))

    def _load(self, tensors: dict[str, torch.Tensor]):
        own = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
        self.model.load_state_dict(own)

    def _load_optimizer(self, optimizer: AdamW, average: WeightAverage | None, tensors: dict[str, torch.Tensor]):
        for name, parameter in self.model.named_parameters():
            if f"exp_avg.{name}" in tensors:
                optimizer.state[parameter] = {
                    "step": int(tensors[f"steps.{name}"]),
                    "exp_avg": tensors[f"exp_avg.{name}"].to(self.device),
                    "exp_avg_sq": tensors[f"exp_avg_sq.{name}"].to(self.device)}
        if average is not None:
            average.count = self.state.averaged
            for name, mean in average.mean.items():
                if f"average.{name}" in tensors:
                    mean.copy_(tensors[f"average.{name}"])
