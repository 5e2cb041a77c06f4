"""How the cost of training grows: with the sentences' length, the batch, the number of tasks, and a file's rows."""
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.contestants import Ours, build, load
from benchmarks.measure import compare, peak_memory
from corpora.examples import Example
from corpora.toy import paraphrase_row
from training.data import TaskData


def seconds_a_step(contestants: dict, steps: int) -> dict:
    """Each one's median, taken in turns: a machine's speed drifts by more than what is compared here."""
    rounds = compare("", {name: ours.step for name, ours in contestants.items()}, steps, warmup=3)
    return {name: statistics.median(seconds) for name, seconds in rounds.seconds.items()}


def by_length(weights: str, lengths: list[int], tokens: int, steps: int) -> list[tuple[int, int, float]]:
    """(length, sentences a batch, tokens a second) of sentiment batches of about `tokens` tokens, all of one length."""
    tokenizer = build(weights)[1]
    rng = random.Random(0)
    contestants = {}
    for length in lengths:
        batch_size = max(1, tokens // length)
        ids = [[rng.randrange(200, len(tokenizer.vocabulary)) for _ in range(length - 2)] for _ in range(batch_size)]
        examples = [Example(str(row), ("",), row % 5, (row_ids,)) for row, row_ids in enumerate(ids)]
        data = {"sst": TaskData(examples, [], [])}
        contestants[length, batch_size] = ours = Ours(weights, data, ["sst"], batch_size)
        ours.model.tasks_by_name()["sst"].max_length = length  # the recipe's own would cut the longer ones
    return [(length, batch_size, batch_size * length / seconds)
            for (length, batch_size), seconds in seconds_a_step(contestants, steps).items()]


def by_batch(data: Path, weights: str, batch_sizes: list[int], steps: int) -> list[tuple[int, float]]:
    """(batch size, examples a second) of the similarity task."""
    loaded = load(data, weights, 64 * max(batch_sizes))
    contestants = {size: Ours(weights, loaded, ["sts"], size) for size in batch_sizes}
    return [(size, size / seconds) for size, seconds in seconds_a_step(contestants, steps).items()]


def by_tasks(data: Path, weights: str, batch_size: int, steps: int) -> list[tuple[str, int, float, float]]:
    """(combination, tasks, seconds a step, the same over one task's) of a growing number of equal tasks."""
    loaded = load(data, weights, 64 * batch_size)
    contestants = {(combine, len(names)): Ours(weights, loaded, names, batch_size,
                                               combine=combine if len(names) > 1 else "sum")
                   for combine in ("sum", "pcgrad") for names in (["sts"], ["sts", "para"], ["sts", "para", "sst"])}
    found = seconds_a_step(contestants, steps)
    return [(combine, count, seconds, seconds / found[combine, 1]) for (combine, count), seconds in found.items()]


def write_rows(path: Path, rows: int):
    """Generated question pairs in the course's form."""
    rng = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\tid\tsentence1\tsentence2\tis_duplicate\n")
        for row in range(rows):
            first, second, label = paraphrase_row(rng)
            file.write(f"{row}\t{row:025d}\t{first}\t{second}\t{float(label)}\n")


def read_rows(path: Path, weights: str):
    """Prints seconds to read and tokenize the file, seconds of a training step, and megabytes of memory for both."""
    before = peak_memory()
    task = build(weights)[0].tasks_by_name()["para"]
    started = time.perf_counter()
    examples = task.read(path, "train").examples
    task.tokenize(examples)
    loaded = time.perf_counter() - started
    step = seconds_a_step({"": Ours(weights, {"para": TaskData(examples, [], [])}, ["para"], 32)}, 10)[""]
    print(loaded, step, peak_memory() - before)


def by_rows(weights: str, counts: list[int]) -> list[tuple[int, float, float, float]]:
    """(rows, seconds to load, seconds a step, megabytes beyond the imports), each in a process of its own."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            path = Path(folder) / "quora-train.csv"
            write_rows(path, count)
            done = subprocess.run([sys.executable, "-m", "benchmarks.scaling", str(path), weights], check=True,
                                  capture_output=True, text=True)
            loading, step, megabytes = map(float, done.stdout.split()[-3:])
            found.append((count, loading, step, megabytes))
    return found


if __name__ == "__main__":
    read_rows(Path(sys.argv[1]), sys.argv[2])
