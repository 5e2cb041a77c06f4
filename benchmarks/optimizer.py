"""AdamW: our update in slices, and compiled, against torch's three (one parameter at a time, multi-tensor, fused) and a
starter's."""
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.measure import Comparison, compare
from benchmarks.starter import StarterAdamW
from engine.adamw import FastAdamW
from engine.bert import FastBertModel
from minbert.adamw import AdamW
from minbert.pretrained import fetch
from minbert.weights import load_encoder
from training.parameters import parameter_groups


def run(weights: str, repeats: int) -> Comparison:
    """One step over all of an encoder's parameters a round. Only the rows of the word table that a batch would touch
    have a gradient that is not zero, as in training."""
    generator = torch.Generator().manual_seed(0)

    def fresh() -> nn.Module:
        encoder, _, _ = load_encoder(fetch(weights), FastBertModel)
        for name, parameter in encoder.named_parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
            if name.startswith("embeddings.word"):
                parameter.grad[torch.rand(len(parameter), generator=generator) > 0.02] = 0
        return encoder

    def ours(compile: bool) -> FastAdamW:
        return FastAdamW(parameter_groups(fresh().named_parameters(), 0.01), lr=1e-5, compile=compile)

    torchs: dict[str, dict[str, Any]] = {"torch, for-loop": {"foreach": False}, "torch, foreach": {"foreach": True},
              "torch, fused": {"fused": True}}
    contestants: dict[str, Callable[[], object]] = {"ours": ours(False).step, "ours, compiled": ours(True).step,
                   "the lesson": AdamW(parameter_groups(fresh().named_parameters(), 0.01), lr=1e-5).step, **{
        name: torch.optim.AdamW(parameter_groups(fresh().named_parameters(), 0.01), lr=1e-5, **options).step
        for name, options in torchs.items()}, "starter shape": StarterAdamW(fresh().parameters(), 1e-5, 0.01).step}
    return compare("AdamW step", contestants, repeats, warmup=3)
