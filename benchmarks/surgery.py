"""What gradient surgery costs: a whole training step with PCGrad by Gram matrix, against the plain sum of the losses,
and against PCGrad as it is usually written, projecting flattened gradients pair by pair."""
from pathlib import Path

import torch

from benchmarks.measure import Comparison, compare
from minbert.adamw import AdamW
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.pretrained import DEFAULT, fetch
from minbert.weights import load_encoder
from tasks.task import Task
from training.batching import TaskBatches
from training.data import load_data
from training.gradients import SharedGradients
from training.parameters import freeze, optimizer_groups
from training.program import build_model
from training.recipe import Recipe, load_recipe
from training.surgery import SurgeryState, combine_weights

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "default.toml"


class Contestant:
    """An encoder with its tasks and optimizer, on the same batches as the others."""

    def __init__(self, recipe: Recipe, weights: str, batches: dict[str, list], rows: int):
        encoder, tokenizer, _ = load_encoder(fetch(weights))
        self.model = build_model(recipe, encoder.config, encoder, tokenizer)
        self.model.train()
        self.tasks: dict[str, Task] = dict(self.model.tasks.items())
        self.encoder: BertModel = encoder
        freeze(encoder, "all")
        self.optimizer = AdamW(optimizer_groups(encoder, list(self.tasks.values()), 1e-5, 1e-4, 0.01, 1.0))
        self.batches, self.rows, self.turn = batches, rows, 0
        table = encoder.embeddings.word_embeddings
        table.sparse = rows > 0
        self.shared = SharedGradients(list(encoder.parameters()), rows, table.weight) if rows else None

    def losses(self):
        for name, task in self.tasks.items():
            for parameter in task.parameters():
                parameter.grad = None
            batch = self.batches[name][self.turn % len(self.batches[name])]
            yield name, batch, task
        self.turn += 1

    def sum_step(self):
        for position, (_, batch, task) in enumerate(self.losses()):
            self.shared.receive(0, clear=position == 0)
            self.shared.read_ids(0, batch.tokens.input_ids)
            task.loss(self.encoder, batch).backward()
        norm = self.shared.norm()
        if norm > 1:
            self.shared.combine(torch.tensor([1 / norm]))
        self.optimizer.step()

    def pcgrad_step(self):
        names = []
        for row, (name, batch, task) in enumerate(self.losses()):
            self.shared.receive(row)
            self.shared.read_ids(row, batch.tokens.input_ids)
            task.loss(self.encoder, batch).backward()
            names.append(name)
        gram = self.shared.gram(len(names))
        weights = combine_weights("pcgrad", gram, names, torch.Generator().manual_seed(self.turn), SurgeryState())
        norm = float((weights @ gram @ weights).clamp_min(0).sqrt())
        self.shared.combine(weights / max(norm, 1.0))
        self.optimizer.step()

    def pairwise_step(self):
        """Yu et al. (2020) as usually written: copies of flattened gradients, projected one by one."""
        parameters = list(self.encoder.parameters())
        flat = []
        for _, batch, task in self.losses():
            for parameter in parameters:
                parameter.grad = None
            task.loss(self.encoder, batch).backward()
            flat.append(torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten()
                                   for p in parameters]))
        projected = [gradient.clone() for gradient in flat]
        generator = torch.Generator().manual_seed(self.turn)
        for i, gradient in enumerate(projected):
            for j in torch.randperm(len(flat), generator=generator).tolist():
                inner = torch.dot(gradient, flat[j])
                if j != i and inner < 0:
                    gradient -= inner / flat[j].norm() ** 2 * flat[j]
        total = torch.stack(projected).sum(dim=0)
        for parameter, part in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = part.view_as(parameter)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        self.optimizer.step()


def run(data: Path, batch_size: int, repeats: int, weights: str = DEFAULT) -> Comparison:
    """One training step of all three tasks a round. data: a folder with the course's files."""
    recipe = load_recipe(RECIPE)
    directory = fetch(weights)
    encoder, tokenizer, _ = load_encoder(directory)
    model = build_model(recipe, BertConfig.load(directory / "config.json"), encoder, tokenizer)
    loaded = load_data(dict(model.tasks.items()), recipe, data, 40 * batch_size, say=lambda text: None,
                       splits=("train", "dev"))
    batches = {}
    for name, task in model.tasks.items():
        row = TaskBatches(task, loaded[name].train, batch_size, name)
        batches[name] = [row.batch(number) for number in range(min(row.per_epoch, 20))]
    plain, by_gram, pairwise = (Contestant(recipe, weights, batches, rows) for rows in (1, 3, 0))
    steps = {"plain sum": plain.sum_step, "PCGrad": by_gram.pcgrad_step, "PCGrad, pairwise": pairwise.pairwise_step}
    return compare(f"training step, 3 tasks, batch {batch_size}", steps, repeats, warmup=3)
