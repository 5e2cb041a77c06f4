"""Peak memory of a training process, ours and the peers', each measured in a process of its own.

    python -m benchmarks.memory CONTESTANT TASK BATCH_SIZE DATA WEIGHTS     # one of them; prints megabytes
"""
import subprocess
import sys
from pathlib import Path

from benchmarks.contestants import build, load
from benchmarks.measure import peak_memory
from benchmarks.training import CONTESTANTS
from training.program import keep_freed_memory

NAMES = ("ours", "starter shape", "transformers, random", "transformers, sorted", "sentence-transformers")


def main(contestant: str, name: str, batch_size: int, data: Path, weights: str, batches: int = 12):
    """Trains `batches` batches and prints the process's peak resident memory in megabytes."""
    loaded = load(data, weights, batches * batch_size)
    task, examples = build(weights)[0].tasks[name], loaded[name].train
    if contestant == "ours":
        keep_freed_memory()
    made = CONTESTANTS[contestant]((weights, loaded, [name], batch_size), (weights, task, examples, batch_size))
    made.train_all()
    print(peak_memory())


def run(data: Path, weights: str, task: str = "sts", batch_size: int = 32) -> dict[str, float]:
    """Megabytes of each contestant."""
    found = {}
    for name in NAMES:
        command = [sys.executable, "-m", "benchmarks.memory", name, task, str(batch_size), str(data), weights]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[name] = float(done.stdout.split()[-1])
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5])
