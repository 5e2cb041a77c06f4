"""What is not forward, backward or optimizer: padding in linear layers, the loop's own time, data loading, start-up."""
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import torch

import engine.bert
from benchmarks.contestants import TASKS, Ours, load
from benchmarks.measure import Comparison, compare
from minbert.pretrained import fetch


def padding(data: Path, weights: str, batch_size: int, precision: str, steps: int = 20) -> tuple[float, float]:
    """Count rows without a token.

    Returns:
        Their share in what the linear layers multiply, and the share that padded tensors would have had.
    """
    ours = Ours(weights, load(data, weights, 64 * batch_size), TASKS, batch_size, precision=precision)
    rows, real, padded = [], [], []
    watched = ours.model.encoder.layers()[0].intermediate["dense"]
    linear = engine.bert.linear

    def counting(module, x):
        if module is watched:
            rows.append(x.shape[:-1].numel())
        return linear(module, x)

    for batches in ours.steps.batches.values():
        def collated(indices, collate=batches.collate):
            batch = collate(indices)
            real.append(int(batch.tokens.attention_mask.sum()))
            padded.append(batch.tokens.input_ids.numel())
            return batch

        batches.collate = collated  # type: ignore[method-assign]
    engine.bert.linear = counting
    try:
        for _ in range(steps):
            ours.step()
    finally:
        engine.bert.linear = linear
    return sum(rows) / sum(real) - 1, 1 - sum(real) / sum(padded)


def loop(data: Path, weights: str, batch_size: int, steps: int = 40) -> float:
    """Share of a training step's time that is spent outside forward, backward and the optimizer's step."""
    ours = Ours(weights, load(data, weights, 64 * batch_size), TASKS, batch_size)
    inside = [0.0]

    def timed(function):
        def call(*arguments, **options):
            started = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                inside[0] += time.perf_counter() - started
        return call

    @contextmanager
    def replaced(owner, name):
        original = getattr(owner, name)
        setattr(owner, name, timed(original))
        try:
            yield
        finally:
            setattr(owner, name, original)

    for _ in range(5):
        ours.step()
    inside[0] = 0.0
    with (replaced(ours.steps, "_loss"), replaced(torch.Tensor, "backward"), replaced(ours.steps.optimizer, "step")):
        started = time.perf_counter()
        for _ in range(steps):
            ours.step()
        whole = time.perf_counter() - started
    return 1 - inside[0] / whole


def start_up(weights: str, repeats: int) -> Comparison:
    """A new process that imports, loads the weights and encodes one sentence."""
    directory = str(fetch(weights))
    ours = ("from minbert.weights import load_encoder; from tasks.encoding import embed; from pathlib import Path; "
            "from engine.bert import FastBertModel; "
            f"encoder, tokenizer, _ = load_encoder(Path({directory!r}), FastBertModel); "
            "embed(encoder, tokenizer, ['one sentence'])")
    theirs = ("import torch, transformers; "
              f"m = transformers.BertModel.from_pretrained({directory!r}); "
              f"t = transformers.AutoTokenizer.from_pretrained({directory!r}); "
              "m(**t('one sentence', return_tensors='pt'))")
    third = ("from sentence_transformers import SentenceTransformer; "
             f"SentenceTransformer({directory!r}, device='cpu').encode('one sentence')")

    def process(code: str):
        return lambda: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    return compare("start-up to the first vector", {
        "ours": process(ours), "transformers": process(theirs), "sentence-transformers": process(third)}, repeats)


def loading(data: Path, weights: str) -> tuple[int, float]:
    """(rows read and tokenized, seconds) of the three tasks' train and dev files."""
    load(data, weights, 8)  # imports and caches
    started = time.perf_counter()
    loaded = load(data, weights, 10**9)
    return sum(len(task.train) + len(task.dev) for task in loaded.values()), time.perf_counter() - started
