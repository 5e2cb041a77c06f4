"""What gradient surgery costs: a whole training step with PCGrad by Gram matrix, against the plain sum of the losses,
and against PCGrad as it is usually written, projecting flattened gradients pair by pair."""
from pathlib import Path

import torch

from benchmarks.contestants import TASKS, Ours, load
from benchmarks.measure import Comparison, compare
from training.seeds import seed_of


class Pairwise(Ours):
    """Yu et al. (2020) as usually written: copies of flattened gradients, projected one by one."""

    def step(self):
        steps, state = self.steps, self.state
        torch.manual_seed(seed_of(steps.seed, state.step))
        parameters = list(self.model.encoder.parameters())
        flat = []
        for name in TASKS:
            for parameter in parameters:
                parameter.grad = None
            task = self.model.tasks_by_name()[name]
            for parameter in task.parameters():
                parameter.grad = None
            batch = steps.batches[name].collate(steps.batches[name].indices(state.drawn.get(name, 0)))
            state.drawn[name] = state.drawn.get(name, 0) + 1
            with self.computing():
                task.loss(self.model.encoder, batch).backward()
            flat.append(torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.to_dense().flatten()
                                   for p in parameters]))
        projected = [gradient.clone() for gradient in flat]
        generator = torch.Generator().manual_seed(seed_of(steps.seed, "surgery", state.step))
        for i, gradient in enumerate(projected):
            for j in torch.randperm(len(flat), generator=generator).tolist():
                inner = torch.dot(gradient, flat[j])
                if j != i and inner < 0:
                    gradient -= inner / flat[j].norm() ** 2 * flat[j]
        total = torch.stack(projected).sum(dim=0)
        for parameter, part in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = part.view_as(parameter)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        steps.optimizer.step()
        state.step += 1


def run(data: Path, weights: str, batch_size: int, repeats: int) -> Comparison:
    """One training step of all three tasks a round."""
    loaded = load(data, weights, 40 * batch_size)
    options = (weights, loaded, TASKS, batch_size)
    steps = {"plain sum": Ours(*options).step, "PCGrad": Ours(*options, combine="pcgrad").step,
             "PCGrad, pairwise": Pairwise(*options).step}
    return compare(f"training step, 3 tasks, batch {batch_size}", steps, repeats, warmup=3)
