"""The trainer: it learns, it resumes to the same bits from any moment, and it does what a stage says."""
import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from conftest import TINY, make_task

from engine.bert import FastBertModel
from minbert.bert import BertModel
from training import checkpoint
from training.averaging import WeightAverage
from training.batching import TaskBatches
from training.choices import COMBINERS
from training.data import load_data, sample
from training.engines import make_engine
from training.evaluate import conflicts, predict
from training.model import build_model
from training.parameters import freeze, layer_of, optimizer_groups
from training.program import set_encoder_dropout
from training.recipe import parse_recipe
from training.schedules import rate_factor
from training.seeds import seed_of
from training.step import StageSteps, StepState
from training.surgery import SurgeryState, combine_weights
from training.trainer import Trainer, TrainerState


def make_trainer(directory, toy_directory, tokenizer, stages, cls=Trainer, **fields):
    recipe = parse_recipe({"stage": stages, "precision": "float32", **fields}, "test")
    torch.manual_seed(0)
    model = build_model(recipe, TINY, FastBertModel(TINY), tokenizer)
    data = load_data(model.tasks_by_name(), recipe, toy_directory, say=lambda text: None)
    return cls(model, recipe, data, directory, make_engine("engine"), torch.device("cpu"),
               lambda: (recipe.precision, ""), say=lambda text: None, progress=False)


STAGES = [
    {"tasks": ["sst", "para", "sts"], "epochs": 2, "steps_per_epoch": 4, "combine": "gradvac", "average": "ema",
     "weighting": "gradnorm", "optimizer": {"lr": 1e-3}},
    {"tasks": ["sts", "sst"], "epochs": 2, "steps_per_epoch": 3, "mixing": "annealed", "draws": 2, "smart": 0.5,
     "weighting": "famo", "rdrop": 0.5, "keep": "last", "average": "swa", "optimizer": {"lr": 1e-3}},
]


# A trunk of two tasks, a share of a set, one task after the other; then a head of exemplars on the frozen encoder.
SHARING = [
    {"tasks": ["para", "sts"], "epochs": 2, "batch_size": 16, "mixing": "in_turn", "share": {"para": 0.5},
     "balanced": ["para"], "weighting": "dwa", "optimizer": {"lr": 1e-3}},
    {"tasks": ["sst"], "epochs": 2, "batch_size": 16, "trainable": "heads", "optimizer": {"lr": 1e-3}},
]
MASKED = [{"tasks": ["words", "sst"], "epochs": 2, "batch_size": 16, "steps_per_epoch": 4, "weighting": "uncertainty",
           "optimizer": {"lr": 1e-3}}]
MASKED_TASKS = {"words": {"kind": "masked_words", "train": ["sts-train.csv"], "dev": ["ids-sst-dev.csv"]}}
SHARING_TASKS = {"para": {"combination": "u,v", "loss": "bce", "trunk": "pairs"},
                 "sts": {"combination": "u,v", "head": "linear", "trunk": "pairs"},
                 "sst": {"head": "exemplars", "exemplars": 3}}


class Killed(Exception):
    pass


class Mortal(Trainer):
    """Saves after every step, and dies at a given number of them in all."""

    steps_left = 10**9

    def _log(self, record):
        super()._log(record)
        if "loss" in record:
            type(self).steps_left -= 1
            if type(self).steps_left == 0:
                raise Killed


@pytest.mark.parametrize(("save_every", "precision", "stages", "tasks"), [
    (0.0, "float32", STAGES, {}), (1e9, "float32", STAGES, {}), (0.0, "bfloat16", STAGES, {}),
    (1e9, "float32", MASKED, MASKED_TASKS), (0.0, "float32", SHARING, SHARING_TASKS),
    (1e9, "float32", SHARING, SHARING_TASKS)])
def test_a_run_killed_at_any_step_comes_to_the_same_bits(tmp_path, toy_directory, tiny_tokenizer, monkeypatch,
                                                         save_every, precision, stages, tasks):
    """save_every 0: a state after each step; 1e9: only after epochs, so that steps are done twice."""
    straight = make_trainer(tmp_path / "straight", toy_directory, tiny_tokenizer, stages, precision=precision,
                            tasks=tasks)
    straight.train()
    monkeypatch.setattr("training.trainer.SAVE_EVERY", save_every)
    for die_after in (1, 3, 5, 2, 4):
        monkeypatch.setattr(Mortal, "steps_left", die_after)
        victim = make_trainer(tmp_path / "killed", toy_directory, tiny_tokenizer, stages, Mortal, precision=precision,
                              tasks=tasks)
        try:
            victim.train()
        except Killed:
            continue
    monkeypatch.setattr(Mortal, "steps_left", 10**9)
    last = make_trainer(tmp_path / "killed", toy_directory, tiny_tokenizer, stages, Mortal, precision=precision,
                        tasks=tasks)
    last.train()
    expected = straight.model.state_dict()
    for name, tensor in last.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    assert (tmp_path / "killed" / "metrics.jsonl").read_text() == (tmp_path / "straight" / "metrics.jsonl").read_text()
    assert last.state.stage == len(stages)


def test_the_time_of_an_interrupted_run_counts(tmp_path, toy_directory, tiny_tokenizer, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("training.trainer.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("training.trainer.SAVE_EVERY", 0.0)

    class Slow(Mortal):
        def _log(self, record):
            clock[0] += 10 * ("loss" in record)
            super()._log(record)

    stages = [{"tasks": ["sst"], "epochs": 1, "steps_per_epoch": 3, "keep": "last"}] * 2
    monkeypatch.setattr(Mortal, "steps_left", 3)
    with pytest.raises(Killed):  # after two steps that were saved
        make_trainer(tmp_path, toy_directory, tiny_tokenizer, stages, Slow).train()
    clock[0] += 1000  # nothing ran
    monkeypatch.setattr(Mortal, "steps_left", 10**9)
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, stages, Slow)
    trainer.train()
    assert trainer.state.seconds == 60
    again = make_trainer(tmp_path, toy_directory, tiny_tokenizer, stages, Slow)
    again.train()
    assert again.state.seconds == 60


def test_a_finished_run_is_not_trained_again(tmp_path, toy_directory, tiny_tokenizer):
    first = make_trainer(tmp_path, toy_directory, tiny_tokenizer, STAGES[1:])
    first.train()
    again = make_trainer(tmp_path, toy_directory, tiny_tokenizer, STAGES[1:], Mortal)
    Mortal.steps_left = 1  # a single step would raise
    again.train()
    Mortal.steps_left = 10**9
    assert all(torch.equal(a, b) for a, b in zip(first.model.state_dict().values(), again.model.state_dict().values(),
                                                 strict=True))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns_what_can_be_learned(tmp_path, toy_directory, tiny_tokenizer, precision):
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer,
                           [{"tasks": ["sst"], "epochs": 30, "batch_size": 16, "optimizer": {"lr": 3e-3}}],
                           precision=precision)
    trainer.train()
    examples = trainer.data["sst"].dev
    predictions = predict(trainer.model.tasks["sst"], trainer.model.encoder, examples, torch.device("cpu"))
    accuracy = sum(p == e.label for p, e in zip(predictions, examples, strict=True)) / len(examples)
    assert accuracy > 0.6  # five classes; chance is 0.2


class Watching(Trainer):
    """Keeps the gradient that the first step hands to the optimizer, and takes no step."""

    def run_one(self, monkeypatch):
        found = []

        def step(engine, optimizer, scale):
            found.append({parameter: None if parameter.grad is None else parameter.grad.clone() for parameter in
                          self.model.parameters()})

        monkeypatch.setattr("training.engines.FastEngine.step", step)
        self.train()
        return found[0]


def task_gradients(trainer, names):
    """Each task's gradient of the encoder by autograd alone, of the same first batches, without dropout."""
    parameters = list(trainer.model.encoder.parameters())
    rows = []
    for name in names:
        task = trainer.model.tasks[name]
        batches = TaskBatches(task, trainer.data[name].train, 8, f"{trainer.recipe.seed}/0/{name}")
        batch = batches.collate(batches.indices(0))
        gradients = torch.autograd.grad(task.loss(trainer.model.encoder, batch), parameters, allow_unused=True)
        rows.append(torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten()
                               for p, g in zip(parameters, gradients, strict=True)]))
    return torch.stack(rows).double()


@pytest.mark.parametrize("combine", COMBINERS)
def test_a_step_hands_the_optimizer_the_combined_gradient(tmp_path, toy_directory, tiny_tokenizer, monkeypatch,
                                                          combine):
    """Sum and mean by hand. The others: their weights of the Gram matrix, times the tasks' own gradients."""
    names = ["sst", "para", "sts"]
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": names, "epochs": 1, "steps_per_epoch": 1, "combine": combine, "keep": "last"}], Watching,
        hidden_dropout_prob=0.0)
    set_encoder_dropout(trainer.model.encoder, 0.0)
    rows = task_gradients(trainer, names)
    found = trainer.run_one(monkeypatch)
    if combine in ("sum", "mean"):
        weights = torch.full((3,), 1.0 if combine == "sum" else 1 / 3, dtype=torch.float64)
    else:
        generator = torch.Generator().manual_seed(seed_of(f"{trainer.recipe.seed}/0", "surgery", 0))
        weights = combine_weights(combine, rows @ rows.T, names, generator, SurgeryState())
    expected = weights @ rows
    whole = torch.cat([(torch.zeros_like(p) if found[p] is None else found[p]).flatten()
                       for p in trainer.model.encoder.parameters()]).double()
    torch.testing.assert_close(whole, expected, rtol=1e-3, atol=1e-6)


def test_loss_weights_scale_each_tasks_gradient(tmp_path, toy_directory, tiny_tokenizer, monkeypatch):
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sst", "sts"], "epochs": 1, "steps_per_epoch": 1, "loss_weights": {"sts": 7.0}, "keep": "last"}],
        Watching, hidden_dropout_prob=0.0)
    set_encoder_dropout(trainer.model.encoder, 0.0)
    rows = task_gradients(trainer, ["sst", "sts"])
    found = trainer.run_one(monkeypatch)
    whole = torch.cat([(torch.zeros_like(p) if found[p] is None else found[p]).flatten()
                       for p in trainer.model.encoder.parameters()]).double()
    torch.testing.assert_close(whole, rows[0] + 7 * rows[1], rtol=1e-3, atol=1e-6)


def test_learned_weights_scale_each_tasks_gradient_and_are_logged(tmp_path, toy_directory, tiny_tokenizer, monkeypatch):
    stage = {"tasks": ["sst", "sts"], "epochs": 1, "steps_per_epoch": 3, "loss_weights": {"sts": 7.0}, "keep": "last",
             "weighting": "uncertainty"}
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [stage], Watching, hidden_dropout_prob=0.0)
    set_encoder_dropout(trainer.model.encoder, 0.0)
    rows = task_gradients(trainer, ["sst", "sts"])
    sst = trainer.model.tasks["sst"]
    batches = TaskBatches(sst, trainer.data["sst"].train, 8, f"{trainer.recipe.seed}/0/sst")
    loss = sst.loss(trainer.model.encoder, batches.collate(batches.indices(0))).item()
    monkeypatch.setattr("training.weighting.Uncertainty.factors",
                        lambda rule, state, names: {"sst": math.exp(-state.get("sst/s", -math.log(3))), "sts": 0.5})
    found = trainer.run_one(monkeypatch)
    whole = torch.cat([(torch.zeros_like(p) if found[p] is None else found[p]).flatten()
                       for p in trainer.model.encoder.parameters()]).double()
    torch.testing.assert_close(whole, 3 * rows[0] + 3.5 * rows[1], rtol=1e-3, atol=1e-6)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "loss" in line]
    assert logged[0]["weight"] == {"sst": 3.0, "sts": 0.5}
    assert logged[0]["loss"]["sst"] == pytest.approx(loss, abs=1e-5)
    s = -0.02 * (0.5 - loss)  # the rule saw the loss itself, without any factor
    assert logged[1]["weight"]["sst"] == pytest.approx(math.exp(-s), abs=2e-6)


def test_famo_sees_the_same_batches_before_and_after_a_step(tmp_path, toy_directory, tiny_tokenizer, monkeypatch):
    """The gradient is that of the losses' logarithms. The second look has the step's weights and the same dropout."""
    stage = {"tasks": ["sst", "sts"], "epochs": 1, "steps_per_epoch": 2, "loss_weights": {"sts": 7.0}, "keep": "last",
             "weighting": "famo", "optimizer": {"lr": 0.0, "head_lr": 0.0}}
    seen = []
    monkeypatch.setattr("training.weighting.FAMO.observe", lambda rule, state, what: seen.append(what))
    make_trainer(tmp_path / "still", toy_directory, tiny_tokenizer, [stage]).train()
    assert [what.after for what in seen] == [what.losses for what in seen] and len(seen) == 2  # nothing has moved

    seen.clear()
    moving = {**stage, "optimizer": {"lr": 1e-3}}
    trainer = make_trainer(tmp_path / "moving", toy_directory, tiny_tokenizer, [moving], hidden_dropout_prob=0.0)
    set_encoder_dropout(trainer.model.encoder, 0.0)
    rows = task_gradients(trainer, ["sst", "sts"])
    handed, losses = {}, {}

    def step(engine, optimizer, scale):
        if not handed:
            handed.update({p: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                           for p in trainer.model.encoder.parameters()})
        optimizer.step(scale=scale)
        if not losses:  # by the weights that the step has left
            for name in ("sst", "sts"):
                task = trainer.model.tasks[name]
                batches = TaskBatches(task, trainer.data[name].train, 8, f"{trainer.recipe.seed}/0/{name}")
                losses[name] = task.loss(trainer.model.encoder, batches.collate(batches.indices(0))).item()

    monkeypatch.setattr("training.engines.FastEngine.step", step)
    trainer.train()
    whole = torch.cat([handed[p].flatten() for p in trainer.model.encoder.parameters()]).double()
    before = seen[0].losses
    torch.testing.assert_close(whole, rows[0] / before["sst"] + 7 * rows[1] / before["sts"], rtol=1e-3, atol=1e-5)
    assert seen[0].after == pytest.approx(losses, rel=1e-4) and seen[0].after != pytest.approx(before, rel=1e-3)


def test_a_loss_below_zero_has_no_logarithm(tmp_path, toy_directory, tiny_tokenizer, monkeypatch):
    monkeypatch.setattr("tasks.task.Task.training_loss", lambda task, outputs, batch: outputs.values.mean() * 0 - 1)
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [{"tasks": ["sst", "sts"], "weighting": "famo"}])
    with pytest.raises(ValueError, match="weighting 'famo' takes logarithms; the loss of task sst is -1"):
        trainer.train()


def test_gradnorm_sees_the_lengths_of_the_weighed_gradients(tmp_path, toy_directory, tiny_tokenizer, monkeypatch):
    stage = {"tasks": ["sst", "sts"], "epochs": 1, "steps_per_epoch": 2, "loss_weights": {"sts": 7.0}, "keep": "last",
             "weighting": "gradnorm"}
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [stage], Watching, hidden_dropout_prob=0.0)
    set_encoder_dropout(trainer.model.encoder, 0.0)
    rows = task_gradients(trainer, ["sst", "sts"])
    seen = []
    monkeypatch.setattr("training.weighting.GradNorm.observe", lambda rule, state, what: seen.append(what))
    monkeypatch.setattr("training.weighting.GradNorm.factors", lambda rule, state, names: {"sst": 0.5, "sts": 1.5})
    trainer.run_one(monkeypatch)
    lengths = rows.norm(dim=1).tolist()
    assert seen[0].norms == pytest.approx({"sst": 0.5 * lengths[0], "sts": 10.5 * lengths[1]}, rel=1e-3)


@pytest.mark.parametrize(("field", "function"), [("rdrop", "rdrop_loss"), ("smart", "smart_penalty")])
def test_a_step_adds_what_its_regularizers_ask_for(tmp_path, toy_directory, tiny_tokenizer, monkeypatch, field,
                                                   function):
    """The logged loss of a step is the plain loss plus the weighted term, here a term of known size."""
    if field == "rdrop":
        def known(task, encoder, batch, weight):
            outputs = task.outputs(encoder, batch)
            return task.criterion(outputs, batch) + weight * 100, outputs
    else:
        def known(task, encoder, batch, outputs):
            return torch.tensor(100.0)
    monkeypatch.setattr(f"training.step.{function}", known)
    losses = {}
    for weight in (0.0, 0.5):
        trainer = make_trainer(tmp_path / str(weight), toy_directory, tiny_tokenizer, [
            {"tasks": ["sst"], "epochs": 1, "steps_per_epoch": 1, field: weight}])
        trainer.train()
        first = (tmp_path / str(weight) / "metrics.jsonl").read_text().splitlines()[0]
        losses[weight] = json.loads(first)["loss"]["sst"]
    assert losses[0.5] == pytest.approx(losses[0.0] + 50, abs=1e-3)


def test_conflicts_are_logged_where_gradients_are_kept_apart(tmp_path, toy_directory, tiny_tokenizer):
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sst", "para", "sts"], "epochs": 1, "steps_per_epoch": 2, "log_conflicts": True}])
    trainer.train()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert set(records[0]["conflict"]) == {"sst/para", "sst/sts", "para/sts"}
    assert all(-1 <= cosine <= 1 for cosine in records[0]["conflict"].values())


def test_frozen_parts_are_in_evaluation_mode_and_stay_there(tmp_path, toy_directory, tiny_tokenizer):
    """No dropout in what is frozen; and evaluating between epochs flips nothing."""
    for trainable, training in (("heads", []), ("top-1", ["encoder.layer.1", "pooler"]), ("all", ["embeddings"])):
        trainer = make_trainer(tmp_path / trainable, toy_directory, tiny_tokenizer, [
            {"tasks": ["sst"], "epochs": 2, "steps_per_epoch": 1, "trainable": trainable, "keep": "last"}])
        trainer.train()
        modules = dict(trainer.model.encoder.named_modules())
        for name in ("embeddings", "encoder.layer.0", "encoder.layer.1", "pooler"):
            expected = trainable == "all" or name in training
            assert all(part.training == expected for part in modules[name].modules()), (trainable, name)
        assert trainer.model.tasks["sst"].training


@pytest.mark.parametrize("mixing", ["in_turn", "shuffled"])
def test_an_epoch_is_every_example_once(tmp_path, toy_directory, tiny_tokenizer, mixing, monkeypatch):
    drawn = []
    collate = TaskBatches.collate
    monkeypatch.setattr(TaskBatches, "collate", lambda self, indices: (
        drawn.extend((self.seed, index) for index in indices), collate(self, indices))[1])
    monkeypatch.setattr("training.step.StageSteps.try_longest", lambda self: None)
    monkeypatch.setattr("training.trainer.SHORT", 10**9)  # no step is rehearsed
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sst", "sts"], "epochs": 1, "batch_size": {"sst": 5, "sts": 9}, "mixing": mixing}])
    trainer.train()
    assert trainer.state.seen == {"sst": 64, "sts": 64}
    assert len(set(drawn)) == len(drawn) == 128


def test_examples_that_took_part_are_counted(tmp_path, toy_directory, tiny_tokenizer):
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sst", "sts"], "epochs": 1, "steps_per_epoch": 3, "batch_size": {"sst": 4, "sts": 8}},
        {"tasks": ["sts"], "epochs": 1, "steps_per_epoch": 2, "batch_size": 8}])
    trainer.train()
    assert trainer.state.seen == {"sst": 12, "sts": 40}


@pytest.mark.parametrize("combine", ["sum", "mean", "pcgrad"])
@pytest.mark.parametrize("clip", [0.0, 0.01, 1e6])
def test_a_gradient_longer_than_clip_is_scaled_to_it(tmp_path, toy_directory, tiny_tokenizer, monkeypatch, combine,
                                                     clip):
    found = []

    def step(engine, optimizer, scale):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))
        found.append((norm, scale))

    monkeypatch.setattr("training.engines.FastEngine.step", step)
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sst", "para"], "epochs": 1, "steps_per_epoch": 2, "combine": combine, "clip": clip}])
    trainer.train()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    logged = [record["gradient_norm"] for record in records if "loss" in record]
    assert logged == pytest.approx([norm for norm, _ in found], rel=1e-4)  # of the whole gradient, before it is scaled
    expected = [1.0 if clip in (0.0, 1e6) else clip / norm for norm, _ in found]
    assert [scale for _, scale in found] == pytest.approx(expected, rel=1e-4)


def test_frozen_parts_do_not_move_and_free_ones_do(tmp_path, toy_directory, tiny_tokenizer):
    for trainable, frozen in (("heads", ["embeddings.", "encoder.", "pooler."]),
                              ("top-1", ["embeddings.", "encoder.layer.0."]), ("all", [])):
        trainer = make_trainer(tmp_path / trainable, toy_directory, tiny_tokenizer, [
            {"tasks": ["sst"], "epochs": 1, "steps_per_epoch": 2, "trainable": trainable, "keep": "last"}],
            tasks={"sst": {"pooling": "pooler"}})
        before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
        trainer.train()
        for name, tensor in trainer.model.encoder.state_dict().items():
            moved = not torch.equal(tensor, before[f"encoder.{name}"])
            assert moved != any(name.startswith(start) for start in frozen), (trainable, name)
        assert not torch.equal(trainer.model.state_dict()["tasks.sst.head.1.weight"],
                               before["tasks.sst.head.1.weight"])


def test_new_layers_on_a_frozen_encoder_train(tmp_path, toy_directory, tiny_tokenizer):
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sst"], "epochs": 1, "steps_per_epoch": 2, "trainable": "heads", "keep": "last"}],
        tasks={"sst": {"new_layers": 2}})
    before = {name: tensor.clone() for name, tensor in trainer.model.tasks.state_dict().items()}
    trainer.train()
    moved = [name for name, tensor in trainer.model.tasks.state_dict().items() if not torch.equal(tensor, before[name])]
    assert any("new_layers.layer.1" in name for name in moved)


@pytest.mark.parametrize("setting", [{"combine": "pcgrad"}, {"weighting": "gradnorm"}, {}])
def test_a_stage_says_when_its_tasks_share_nothing_that_is_trained(tmp_path, toy_directory, tiny_tokenizer, setting):
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sst", "sts"], "epochs": 1, "steps_per_epoch": 1, "trainable": "heads", **setting}],
        tasks={"sts": {"head": "linear", "combination": "u,v"}})
    lines = []
    trainer.say = lines.append
    trainer.train()
    assert any("share nothing that is trained" in line for line in lines) == bool(setting)


def test_early_stopping_and_the_best_epoch_is_kept(tmp_path, toy_directory, tiny_tokenizer):
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sts"], "epochs": 50, "steps_per_epoch": 1, "patience": 2, "optimizer": {"lr": 0.0}}])
    trainer.train()  # nothing is learned: the first epoch stays the best, two more are waited for
    epochs = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines() if '"epoch"' in line]
    assert len(epochs) == 3


def test_a_run_killed_after_its_last_epoch_stops_as_well(tmp_path, toy_directory, tiny_tokenizer, monkeypatch):
    stages = [{"tasks": ["sts"], "epochs": 50, "steps_per_epoch": 1, "patience": 2, "optimizer": {"lr": 0.0}}]
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, stages)

    def dies(path, model):
        raise Killed

    monkeypatch.setattr(checkpoint, "load_model", dies)  # the first thing after the last epoch was saved
    with pytest.raises(Killed):
        trainer.train()
    monkeypatch.undo()
    make_trainer(tmp_path, toy_directory, tiny_tokenizer, stages).train()
    assert (tmp_path / "metrics.jsonl").read_text().count('"epoch"') == 3


@pytest.mark.parametrize("falls", [1, 2])
def test_a_stage_ends_at_the_given_number_of_decreases(tmp_path, toy_directory, tiny_tokenizer, monkeypatch, falls):
    scores = iter([0.5, 0.4, 0.6, 0.7, 0.5, 0.9, 0.9])
    monkeypatch.setattr("training.trainer.selection_score", lambda tasks, results: next(scores))
    make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sts"], "epochs": 7, "steps_per_epoch": 1, "stop_after_decreases": falls}]).train()
    assert (tmp_path / "metrics.jsonl").read_text().count('"epoch"') == {1: 2, 2: 5}[falls]


def test_a_gradient_that_is_not_finite_is_skipped_then_stops_the_run(tmp_path, toy_directory, tiny_tokenizer):
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["sst", "sts"], "epochs": 1, "steps_per_epoch": 20, "combine": "pcgrad"}])
    with torch.no_grad():
        trainer.model.tasks["sst"].head[1].weight.fill_(float("inf"))
    with pytest.raises(ValueError, match="gradient of task sst is not finite, for 10 steps"):
        trainer.train()
    assert trainer.state.skipped_steps == 10
    assert all(p.isfinite().all() for p in trainer.model.encoder.parameters())


def test_layer_wise_rates():
    encoder = BertModel(TINY)
    freeze(encoder, "all")
    groups = optimizer_groups(encoder, [torch.nn.Linear(2, 2)], 1e-3, 5e-3, 0.1, 0.5)
    names = {parameter: name for name, parameter in encoder.named_parameters()}
    expected = {0: 0.25e-3, 1: 0.5e-3, 2: 1e-3, 3: 1e-3}  # embeddings, two layers, pooler
    for group in groups:
        for parameter in group["params"]:
            if parameter in names:
                assert group["lr"] == pytest.approx(expected[layer_of(names[parameter], 2)])
            else:
                assert group["lr"] == 5e-3
    with pytest.raises(ValueError, match="this encoder has 2 layers"):
        freeze(encoder, "top-3")


@pytest.mark.parametrize(("kind", "after"), [
    ("linear", lambda progress: 1 - progress), ("cosine", lambda progress: (1 + math.cos(math.pi * progress)) / 2),
    ("constant", lambda progress: 1.0)])
@pytest.mark.parametrize(("total", "warmup"), [(100, 0.1), (100, 0.0), (7, 0.3), (1, 0.1), (1000, 0.06)])
def test_schedules_are_their_closed_forms(kind, after, total, warmup):
    """Step n of w steps of warm-up has the factor (n + 1) / (w + 1); then the rate falls from 1 towards 0."""
    rising = math.ceil(warmup * total)
    for step in range(total):
        expected = (step + 1) / (rising + 1) if step < rising else after((step - rising) / max(1, total - rising))
        assert rate_factor(kind, step, total, warmup) == pytest.approx(expected)


def test_averages_are_their_definitions():
    layer = torch.nn.Linear(1, 1, bias=False)
    values = [1.0, 2.0, 4.0, 8.0]
    for kind, expected in (("ema", sum(0.5 ** (3 - i) * v for i, v in enumerate(values)) / sum(
            0.5**i for i in range(4))), ("swa", 8.0)):
        average = WeightAverage(kind, 0.5, layer)
        for step, value in enumerate(values):
            torch.nn.init.constant_(layer.weight, value)
            average.update(step, 4)
        with average.applied():
            assert layer.weight.item() == pytest.approx(expected)
        assert layer.weight.item() == 8.0


def test_a_sample_keeps_the_order_and_is_drawn_from_everywhere():
    rows = list(range(1000))
    chosen = sample(rows, 100, "seed")
    assert chosen == sorted(chosen) and len(set(chosen)) == 100 and max(chosen) > 900 and chosen != rows[:100]
    assert sample(rows, 100, "seed") == chosen and sample(rows, 2000, "seed") == rows


def test_a_state_is_whole_or_absent(tmp_path):
    assert checkpoint.load_state(tmp_path) is None
    checkpoint.save_state(tmp_path, {"a": torch.ones(2)}, {"stage": 0, "step": 1})
    checkpoint.save_state(tmp_path, {"a": torch.zeros(2)}, {"stage": 0, "step": 2})
    tensors, values = checkpoint.load_state(tmp_path)
    assert values["step"] == 2 and torch.equal(tensors["a"], torch.zeros(2))
    assert len(list(tmp_path.glob("*.safetensors"))) == 1 and not list(tmp_path.glob(".*"))
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        checkpoint.load_state(tmp_path)


def test_every_state_field_is_json():
    state = TrainerState(drawn={"sst": 3}, surgery={"a>b": 0.5})
    assert TrainerState(**json.loads(json.dumps(dataclasses.asdict(state)))) == state


def test_predictions_keep_the_order_of_the_examples(tiny_tokenizer, toy_directory):
    """Batches go by length; each example's prediction equals the one it gets alone."""
    torch.manual_seed(0)
    task = make_task("similarity", "sts", tiny_tokenizer, TINY, {"head": "cosine", "loss": "mse"})
    encoder = BertModel(TINY).eval()
    examples = task.read(toy_directory / "sts-dev.csv", "dev").examples
    task.tokenize(examples)
    lengths = [task.length(example) for example in examples]
    assert lengths != sorted(lengths)
    together = predict(task, encoder, examples, torch.device("cpu"))
    alone = [predict(task, encoder, [example], torch.device("cpu"))[0] for example in examples]
    assert len({round(float(value), 4) for value in alone}) > len(alone) // 2
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_a_trunk_is_shared_by_surgery_and_stepped_once(tmp_path, toy_directory, tiny_tokenizer):
    """Its gradients are kept apart as the encoder's are, and the optimizer has it in one place."""
    trainer = make_trainer(tmp_path, toy_directory, tiny_tokenizer, [
        {"tasks": ["para", "sts"], "combine": "pcgrad", "optimizer": {"lr": 1e-3}}],
        tasks={name: SHARING_TASKS[name] for name in ("para", "sts")})
    steps = StageSteps(trainer.recipe.stage[0], trainer.model, ["para", "sts"], trainer.data, "seed", trainer.engine,
                       trainer.device)
    trunk = list(trainer.model.tasks["para"].trunk.parameters())
    shared, own = set(steps.shared.parameters), set(steps.own)
    assert set(trunk) <= shared and not set(trunk) & own
    assert own == {p for task in trainer.model.tasks.values() for p in task.head.parameters()}
    stepped = [p for group in steps.optimizer.param_groups for p in group["params"]]
    assert len(stepped) == len(set(stepped)) and set(stepped) == set(trainer.model.parameters())
    before = [parameter.clone() for parameter in trunk]
    steps.training_mode()
    record = steps.take(StepState())
    assert "conflict" in record and all((a != b).any() for a, b in zip(before, trunk, strict=True))


def test_the_rate_of_conflicts_is_counted_from_the_log(tmp_path):
    lines = [{"conflict": {"a/b": -0.5, "a/c": 0.1}}, {"conflict": {"a/b": 0.25}}, {"loss": {"a": 1}},
             {"conflict": {"a/b": -0.1, "a/c": 0.3}}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = conflicts(tmp_path / "metrics.jsonl")
    assert found["a/b"] == pytest.approx({"steps": 3, "rate": 2 / 3, "mean_cosine": -0.35 / 3})
    assert found["a/c"] == pytest.approx({"steps": 2, "rate": 0.0, "mean_cosine": 0.2})
