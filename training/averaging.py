"""Averages of the weights over training steps, used for evaluation and kept at the end.

ema: exponential moving average (Polyak & Juditsky 1992), from the first step, with the early steps' bias corrected.
swa: plain mean over the last quarter of the stage (stochastic weight averaging, Izmailov et al. 2018).
"""
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

SWA_FROM = 0.75  # fraction of the stage's steps after which swa begins


class WeightAverage:
    """Average a model's trainable parameters over steps.

    Args:
        kind: ema or swa.
        decay: of the moving average.
        model: whose parameters.
    """

    def __init__(self, kind: str, decay: float, model: nn.Module):
        self.kind, self.decay = kind, decay
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.mean = {name: torch.zeros_like(parameter) for name, parameter in self.parameters.items()}
        self.count = 0

    @torch.no_grad()
    def update(self, step: int, total: int):
        """Take in the parameters after step `step` (from 0) of `total`."""
        if self.kind == "swa" and step < SWA_FROM * total:
            return
        self.count += 1
        rate = 1 / self.count
        if self.kind == "ema":
            # The weights of the n steps seen sum to one: a debiased average from the first step on.
            rate = (1 - self.decay) / (1 - self.decay**self.count)
        for name, parameter in self.parameters.items():
            self.mean[name].lerp_(parameter, rate)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights inside."""
        if self.count == 0:
            yield
            return
        with torch.no_grad():
            own = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
            for name, parameter in self.parameters.items():
                parameter.copy_(self.mean[name])
        try:
            yield
        finally:
            with torch.no_grad():
                for name, parameter in self.parameters.items():
                    parameter.copy_(own[name])
