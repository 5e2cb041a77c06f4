"""Training: ours against a starter-shaped loop, transformers and sentence-transformers, on lengths of three tasks."""
import gc
from pathlib import Path

import torch

from benchmarks.contestants import TASKS, Ours, SentenceTransformers, build, load, starter, transformers_peer
from benchmarks.measure import Comparison, compare


def run(data: Path, weights: str, batch_size: int, batches: int, repeats: int, pooling: str) -> list[Comparison]:
    """One pass over `batches` batches of each task a round, the sentence vector by this pooling. Ours runs as a long
    stage does by default, then with AdamW in slices as where there is no compiler, then at float32; peers at float32,
    which is their default, and transformers in bfloat16 as well, by autocast."""
    torch.set_float32_matmul_precision("highest")  # the peers'; ours sets its own for each step, and takes it back
    found = []
    model, _ = build(weights)
    loaded = load(data, weights, batches * batch_size)
    for name in TASKS:
        task, examples = model.tasks[name], loaded[name].train
        theirs = (weights, task, examples, batch_size)
        ours = (weights, loaded, [name], batch_size, pooling)
        contestants = {
            "ours": Ours(*ours).train_all,
            "ours, AdamW in slices": Ours(*ours, compile=False).train_all,
            "ours, float32": Ours(*ours, precision="float32").train_all,
            "starter shape": starter(*theirs, pooling).train_all,
            "transformers, random": transformers_peer(*theirs, by_length=False, pooling=pooling).train_all,
            "transformers, sorted": transformers_peer(*theirs, by_length=True, pooling=pooling).train_all,
            "transformers, sorted, bfloat16": transformers_peer(
                *theirs, by_length=True, pooling=pooling, bfloat16=True).train_all,
        }
        if name != "sst":  # sentence-transformers trains on pairs
            contestants["sentence-transformers"] = SentenceTransformers(
                weights, name, examples, batch_size, pooling).train_all
        # Two rounds of warm-up: ours meets most shapes of batches that there are (see Packing.rounded) in the first.
        found.append(compare(f"training, {name}, {pooling} pooling, batch {batch_size}", contestants, repeats,
                             warmup=2))
        del contestants
        gc.collect()
    return found
