"""Training: ours against a starter-shaped loop, transformers and sentence-transformers, on lengths of three tasks."""
import gc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.contestants import TASKS, Ours, SentenceTransformers, build, load, starter, transformers_peer
from benchmarks.measure import Comparison, compare

# Each is given what ours takes (weights, data, tasks, batch size[, pooling]) and what others take (weights, task,
# examples, batch size[, pooling]).
CONTESTANTS: dict[str, Callable[[Any, Any], Any]] = {
    "ours": lambda ours, theirs: Ours(*ours),
    "ours, AdamW in slices": lambda ours, theirs: partial(Ours, compile=False)(*ours),
    "ours, float32": lambda ours, theirs: partial(Ours, precision="float32")(*ours),
    "starter shape": lambda ours, theirs: starter(*theirs),
    "transformers, random": lambda ours, theirs: transformers_peer(*theirs),
    "transformers, sorted": lambda ours, theirs: partial(transformers_peer, by_length=True)(*theirs),
    "transformers, sorted, bfloat16": lambda ours, theirs: partial(
        transformers_peer, by_length=True, bfloat16=True)(*theirs),
    "sentence-transformers": lambda ours, theirs: SentenceTransformers(*theirs),
}
PEERS = list(CONTESTANTS)[1:]


def run(data: Path, weights: str, batch_size: int, batches: int, repeats: int, pooling: str,
        tasks: Sequence[str] = TASKS, peers: Sequence[str] = PEERS) -> list[Comparison]:
    """One pass over `batches` batches of each task a round, the sentence vector by this pooling. Ours runs as a long
    stage does by default, then with AdamW in slices as where there is no compiler, then at float32; peers at float32,
    which is their default, and transformers in bfloat16 as well, by autocast."""
    torch.set_float32_matmul_precision("highest")  # the peers'; ours sets its own for each step, and takes it back
    found = []
    model, _ = build(weights)
    loaded = load(data, weights, batches * batch_size)
    for name in tasks:
        task, examples = model.tasks[name], loaded[name].train
        ours = (weights, loaded, [name], batch_size, pooling)
        theirs = (weights, task, examples, batch_size, pooling)
        contestants = {peer: CONTESTANTS[peer](ours, theirs).train_all for peer in ("ours", *peers)
                       if not (peer == "sentence-transformers" and name == "sst")}  # it trains on pairs
        # Two rounds of warm-up: ours meets most shapes of batches that there are (see engine/shapes.py) in the first.
        found.append(compare(f"training, {name}, {pooling} pooling, batch {batch_size}", contestants, repeats,
                             warmup=2))
        del contestants
        gc.collect()
    return found
