"""The one training loop: for every step, take it (step.py) and log it; then, after an epoch, evaluate and save.

There are no callbacks. What must survive a restart is TrainerState plus tensors by name. All randomness of a step is
drawn from (seed, stage, step). So a run that is killed and started again ends with bit-identical parameters on a CPU.
"""
import dataclasses
import json
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from corpora.messages import in_words
from corpora.processes import interruptions
from tasks.task import Task
from training import checkpoint
from training.data import TaskData, sample
from training.distributed import ALONE, World
from training.engines import Engine
from training.estimate import PATIENCE, SHORT, Cost, estimate
from training.evaluate import measure, one_score, predict, selection_score, table
from training.logs import Log, flatten, open_logs
from training.memory import peak_memory
from training.model import MultitaskModel
from training.progress import Interrupted, Progress
from training.recipe import Recipe, Stage
from training.step import StageSteps, StepState

EVALUATED = 256  # dev examples by which the time of an evaluation is estimated
SAVE_EVERY = 120.0  # seconds between saved states within an epoch


@dataclass
class TrainerState(StepState):
    """Hold everything besides tensors that must survive a restart."""

    stage: int = 0
    precision: str = ""  # resolved at the start of the run
    best_score: float | None = None  # of this stage
    best_epoch: int = 0
    epochs_since_best: int = 0
    last_score: float | None = None
    decreases: int = 0  # of the dev score from one epoch to the next
    seconds: float = 0.0  # of training, in all processes that took part one after the other
    log_bytes: int = 0  # length of metrics.jsonl when this state was saved


def stop_reason(stage: Stage, state: TrainerState) -> str | None:
    """Say why the stage ends before its last step, by its stopping rules. None if it does not."""
    if stage.patience and state.epochs_since_best >= stage.patience:
        return f"no better dev score for {stage.patience} epochs"
    if stage.stop_after_decreases and state.decreases >= stage.stop_after_decreases:
        return f"the dev score fell {state.decreases} times"
    return None


class Trainer:
    """Train a model by a recipe.

    Args:
        model: encoder and tasks.
        recipe: its stages are trained in order.
        data: examples by task.
        directory: the run's folder. A state that is saved there is resumed.
        engine: the implementation that computes.
        device: where.
        precision: decides the precision of a run that starts anew: returns its name and a line to say.
        say: prints a line.
        progress: show a bar.
        world: the processes that train as one.
        logs: further logs (training/logs.py).
    """

    def __init__(self, model: MultitaskModel, recipe: Recipe, data: dict[str, TaskData], directory: Path,
                 engine: Engine, device: torch.device,
                 precision: Callable[[], tuple[str, str]] = lambda: ("float32", ""),
                 say: Callable[[str], None] = print, progress: bool = True, world: World = ALONE,
                 logs: Sequence[str] = ()):
        self.model, self.recipe, self.data = model.to(device), recipe, data
        self.directory, self.engine, self.device, self.say, self.world = Path(directory), engine, device, say, world
        self.decide_precision = precision
        self.progress = progress and world.first
        self.state = TrainerState()
        self.log_path = self.directory / "metrics.jsonl"
        self.log_names, self.logs = logs, list[Log]()
        self.resting_memory = peak_memory()

    # ---- the run -----------------------------------------------------------------------------------------------------

    def train(self):
        """Train all stages, from where the run's folder says. Leaves the model with the weights to keep."""
        saved = checkpoint.load_state(self.directory)
        tensors: dict[str, torch.Tensor] = {}
        if saved is not None:
            tensors, values = saved
            try:
                self.state = TrainerState(**values)
            except TypeError:
                raise ValueError(f"{self.directory / checkpoint.STATE}: is of another version of this program; "
                                 "delete the folder to start anew") from None
            self._load(tensors)
            self.say(f"resuming {self.directory} at stage {self.state.stage + 1}, step {self.state.step:,}")
        else:
            self.state.precision, message = self.world.gather(self.decide_precision() if self.world.first else None)[0]
            if message:
                self.say(message)
        self.started = time.monotonic() - self.state.seconds
        self.world.wait()  # all have read the saved state before the first process writes another
        if self.world.first:
            self.directory.mkdir(parents=True, exist_ok=True)
            with open(self.log_path, "ab") as log:  # lines after the saved state will be written again
                log.truncate(self.state.log_bytes)
            self.logs = open_logs(self.log_names, self.directory, dataclasses.asdict(self.recipe),
                                  self.state.step if saved is not None else None)
        while self.state.stage < len(self.recipe.stage):
            self._train_stage(self.recipe.stage[self.state.stage], tensors)
            tensors = {}
            self.state = TrainerState(stage=self.state.stage + 1, skipped_steps=self.state.skipped_steps,
                                      seen=self.state.seen, precision=self.state.precision, seconds=self.state.seconds)
            self._save(None)
        for further in self.logs:
            further.close()
        self.engine.use("float32", self.model.encoder)  # what is reported and exported is computed exactly

    def dry_run(self):
        """Say what each stage would cost, and take no step. Nothing is written.

        A stage begins with the starting weights here, which cost as much as trained ones.
        """
        self.state.precision, message = self.decide_precision()
        if message:
            self.say(message)
        total = 0.0
        for number, stage in enumerate(self.recipe.stage):
            self.state.stage = number
            steps = self._begin(stage)
            if steps is not None:
                total += self._estimate(stage, steps, 3 * PATIENCE).seconds
        self.say(f"in all about {in_words(total)}, on {self.device}; nothing was trained")

    def _title(self, stage: Stage) -> str:
        """Name the stage that is being trained."""
        return stage.name or f"stage {self.state.stage + 1}"

    def _begin(self, stage: Stage) -> StageSteps | None:
        """Get ready for a stage. Returns what takes its steps, or None if there is nothing to train in it."""
        state = self.state
        tasks = {name: self.model.tasks_by_name()[name] for name in stage.tasks}
        title = self._title(stage)
        trained = [name for name in stage.tasks
                   if stage.trainable != "heads" or next(tasks[name].parameters(), None) is not None]
        for name in stage.tasks:
            if name not in trained:
                self.say(f"{title}: task {name} has a head without parameters, so on a frozen encoder there is nothing "
                         "to train; it is only evaluated")
        if stage.trainable == "heads":
            self.engine.use("float32", self.model.encoder)
            for name, task in tasks.items():
                task.prepare(self.model.encoder, self.data[name].train, f"{self.recipe.seed}/{name}/exemplars",
                             self.device)
        if not trained:
            if not any(recipe.prepared for recipe in (self.recipe.tasks[name] for name in stage.tasks)):
                raise ValueError(f"{title}: nothing to train: the encoder is frozen, and no head has parameters")
            return None
        # SMART asks what a push of 1e-5 does. Any rounding of activations would drown it.
        self.engine.use("float32" if stage.smart else state.precision, self.model.encoder)
        steps = StageSteps(stage, self.model, trained, self.data, f"{self.recipe.seed}/{state.stage}", self.engine,
                           self.device, self.world)
        self.say(f"{title}: {', '.join(trained)}; {stage.epochs} epochs of {steps.per_epoch:,} steps, "
                 f"mixing {stage.mixing}, gradients by {stage.combine}, {steps.optimizer_form}")
        if steps.apart and not steps.shared.parameters:
            self.say(f"{title}: the tasks share nothing that is trained, so no gradients are combined or compared")
        steps.training_mode()
        self.say(f"{title}: the largest batch fits: {steps.try_longest()}")
        return steps

    def _estimate(self, stage: Stage, steps: StageSteps, patience: float) -> Cost:
        """Measure and say what the rest of the stage will cost. patience: seconds for its rehearsal."""
        cost = estimate(steps, self.engine, stage, self.device, self.state.step, self.resting_memory,
                        lambda: self._evaluation_seconds(stage), patience)
        self.say(f"{self._title(stage)}: {cost.line()}")
        return cost

    def _evaluation_seconds(self, stage: Stage) -> float:
        """Estimate the time of an evaluation on dev by that of some examples of each task."""
        total = 0.0
        for name in self.recipe.scored(stage.tasks):
            task, everything = self.model.tasks_by_name()[name], self.data[name].dev
            count = min(len(everything), self.recipe.dev_limit or len(everything))
            some = sample(everything, min(count, EVALUATED), f"{self.recipe.seed}/{name}/estimate")
            before = time.perf_counter()
            predict(task, self.model.encoder, some, self.device, self.world)
            total += (time.perf_counter() - before) * count / max(1, len(some))
        return total

    def _train_stage(self, stage: Stage, tensors: dict[str, torch.Tensor]):
        state = self.state
        title = self._title(stage)
        scored = {name: self.model.tasks_by_name()[name] for name in self.recipe.scored(stage.tasks)}
        steps = self._begin(stage)
        if steps is None:
            return
        self._load_optimizer(steps, tensors)
        if steps.total - state.step > SHORT:
            self._estimate(stage, steps, PATIENCE)
        average = steps.average
        last_save = time.monotonic()
        bar = Progress(steps.total, state.step, title, self.progress)
        with interruptions(signal.SIGINT, signal.SIGTERM) as interrupted:
            # Checked before a step, not after an epoch: a run that was killed in between must stop as well.
            while state.step < steps.total and not stop_reason(stage, state):
                record = steps.take(state)
                bar.update(record["loss"])
                self._log({"stage": state.stage, **record})
                if state.step % steps.per_epoch == 0:
                    bar.clear()
                    self._require_finite(title)
                    with average.applied() if average is not None else nullcontext():
                        self._end_epoch(stage, title, scored, state.step // steps.per_epoch)
                if state.step % steps.per_epoch == 0 or time.monotonic() - last_save > SAVE_EVERY or interrupted:
                    self._save(steps)
                    last_save = time.monotonic()
                if interrupted:
                    raise Interrupted(f"interrupted; the same command resumes {self.directory} at stage "
                                      f"{state.stage + 1}, step {state.step:,}")
        bar.close()
        if state.step < steps.total:
            self.say(f"{title}: {stop_reason(stage, state)}; stopped")
        if stage.keep == "best":
            self.world.wait()  # the first process has written it
            checkpoint.load_model(self._best_path(), self.model)
            self.say(f"{title}: keeping epoch {state.best_epoch}, dev score {state.best_score or 0:.4f}")
        elif average is not None:
            with torch.no_grad():
                for name, parameter in average.parameters.items():
                    parameter.copy_(average.mean[name] if average.count else parameter)

    def _require_finite(self, title: str):
        """Raise ValueError if a parameter is not finite: a model that has diverged is not a result."""
        for name, parameter in self.model.named_parameters():
            if not bool(parameter.isfinite().all()):
                raise ValueError(f"{title}, step {self.state.step:,}: training has diverged, {name} is not finite; "
                                 "lower the learning rate, or clip gradients")

    # ---- after an epoch ----------------------------------------------------------------------------------------------

    def evaluate(self, tasks: dict[str, Task], limit: int | None) -> dict:
        """Measure each task on its dev set, or on a sample of at most `limit` rows.

        Also says how many rows that were.
        """
        results, counts = {}, {}
        for name, task in tasks.items():
            everything = self.data[name].dev
            examples = sample(everything, limit, f"{self.recipe.seed}/{name}/dev-sample")
            results[name] = measure(task, predict(task, self.model.encoder, examples, self.device, self.world),
                                    examples)
            counts[name] = (len(examples), len(everything))
        return {"results": results, "counts": counts}

    def _end_epoch(self, stage: Stage, title: str, tasks: dict[str, Task], epoch: int):
        state = self.state
        evaluation = self.evaluate(tasks, self.recipe.dev_limit)
        results = evaluation["results"]
        score = selection_score(tasks, results)
        self.say(f"{title}, epoch {epoch} of {stage.epochs}: dev\n"
                 f"{table(results, evaluation['counts'], self.recipe.overall)}")
        self._log({"stage": state.stage, "step": state.step, "epoch": epoch, "score": score,
                   "overall": one_score(results, self.recipe.overall),
                   "dev": {task: {name: dataclasses.asdict(metric) for name, metric in metrics.items()}
                           for task, metrics in results.items()}})
        state.decreases += state.last_score is not None and score < state.last_score
        state.last_score = score
        state.epochs_since_best += 1
        if state.best_score is None or score > state.best_score:
            state.best_score, state.best_epoch, state.epochs_since_best = score, epoch, 0
            if stage.keep == "best" and self.world.first:
                checkpoint.save_model(self._best_path(), self.model)

    def _best_path(self) -> Path:
        return self.directory / f"best-stage-{self.state.stage + 1}.safetensors"

    def _log(self, record: dict):
        if not self.world.first:
            return
        with open(self.log_path, "a", encoding="utf-8") as log:
            log.write(json.dumps(record, allow_nan=False) + "\n")
        for further in self.logs:
            further.write(record["step"], dict(flatten(record, f"stage-{record['stage'] + 1}")))

    # ---- saving and resuming -----------------------------------------------------------------------------------------

    def _named(self) -> dict[str, torch.Tensor]:
        return {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}

    def _save(self, steps: StageSteps | None):
        """Save the state. steps: of the stage that is under way; None between two stages."""
        if not self.world.first:
            return
        tensors = self._named()
        names: dict[Any, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        for parameter, moments in (steps.optimizer.state.items() if steps is not None else ()):
            tensors[f"exp_avg.{names[parameter]}"] = moments["exp_avg"]
            tensors[f"exp_avg_sq.{names[parameter]}"] = moments["exp_avg_sq"]
            tensors[f"steps.{names[parameter]}"] = torch.tensor(moments["step"])
        if steps is not None and steps.average is not None:
            tensors |= {f"average.{name}": mean for name, mean in steps.average.mean.items()}
        self.state.seconds = time.monotonic() - self.started
        self.state.log_bytes = self.log_path.stat().st_size if self.log_path.exists() else 0
        checkpoint.save_state(self.directory, tensors, dataclasses.asdict(self.state))

    def _load(self, tensors: dict[str, torch.Tensor]):
        own = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
        checkpoint.fit_exemplars(self.model, own)
        self.model.load_state_dict(own)

    def _load_optimizer(self, steps: StageSteps, tensors: dict[str, torch.Tensor]):
        for name, parameter in self.model.named_parameters():
            if f"exp_avg.{name}" in tensors:
                steps.optimizer.state[parameter] = {
                    "step": int(tensors[f"steps.{name}"]),
                    "exp_avg": tensors[f"exp_avg.{name}"].to(self.device),
                    "exp_avg_sq": tensors[f"exp_avg_sq.{name}"].to(self.device)}
        if steps.average is not None:
            steps.average.count = self.state.averaged
            for name, mean in steps.average.mean.items():
                if f"average.{name}" in tensors:
                    mean.copy_(tensors[f"average.{name}"])
