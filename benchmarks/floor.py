"""The floor: the time that the matrix products of the real tokens would take at the machine's measured peak."""
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.contestants import TASKS, Ours, load
from engine.precision import BY_NAME, set_products
from minbert.config import BertConfig


def flops(config: BertConfig, lengths: list[int]) -> float:
    """Of forward and backward over sequences of these lengths: 6 a weight and token, 12 T H a token for attention."""
    weights = config.num_hidden_layers * (4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size)
    return sum(length * (6 * weights + 12 * config.num_hidden_layers * config.hidden_size * length)
               for length in lengths)


def peak(config: BertConfig, precision: str, tokens: int = 1024, repeats: int = 30) -> float:
    """FLOPs a second of the encoder's largest matrix product at its usual size, the best of some runs."""
    set_products(BY_NAME[precision])
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    x = torch.randn(tokens, config.hidden_size, dtype=dtype)
    weight = torch.randn(config.intermediate_size, config.hidden_size, dtype=dtype)
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        F.linear(x, weight)
        best = min(best, time.perf_counter() - started)
    return 2 * x.numel() * config.intermediate_size / best


def run(data: Path, weights: str, batch_size: int, steps: int) -> list[tuple[str, str, float, float, float]]:
    """(task, precision, the floor in ms, measured ms, floor / measured) of one training step."""
    loaded = load(data, weights, 64 * batch_size)
    found = []
    for precision in ("auto", "float32"):
        for name in TASKS:
            ours = Ours(weights, loaded, [name], batch_size, precision=precision)
            config = ours.model.encoder.config
            fastest = peak(config, ours.precision)  # anew each time, beside what it is compared with
            batches = ours.steps.batches[name]
            shares, floors, times = [], [], []
            for number in range(steps + 3):
                batch = batches.collate(batches.indices(ours.state.drawn.get(name, 0)))
                started = time.perf_counter()
                ours.step()
                seconds = time.perf_counter() - started
                if number >= 3:
                    floors.append(flops(config, batch.tokens.attention_mask.sum(dim=1).tolist()) / fastest)
                    times.append(seconds)
                    shares.append(floors[-1] / seconds)
            found.append((name, ours.precision, 1000 * statistics.median(floors), 1000 * statistics.median(times),
                          statistics.median(shares)))
    return found
