"""Training speed of this checkout against another one, in alternating rounds.

    git worktree add ../before COMMIT
    python -m benchmarks.commits ../before --data DIR [--precision float32]

Each checkout trains the same batches in a process of its own. One round is here, the next one there.
"""
import subprocess
import sys
from pathlib import Path

from benchmarks.contestants import TASKS
from benchmarks.measure import Comparison, table
from corpora.flags import Parser, positive
from minbert.pretrained import DEFAULT

# Runs in either checkout. It trains one round for each line that it reads, and answers with the seconds.
WORKER = """
import sys, time
from pathlib import Path
from benchmarks.contestants import Ours, load
from training.program import keep_freed_memory
data, weights, task, batches, batch_size, precision = sys.argv[1:]
keep_freed_memory()
ours = Ours(weights, load(Path(data), weights, int(batches) * int(batch_size)), [task], int(batch_size),
            precision=precision)
for line in sys.stdin:
    started = time.perf_counter()
    ours.train_all()
    print(time.perf_counter() - started, flush=True)
"""


class Checkout:
    """Train rounds in a checkout.

    Args:
        folder: of the checkout.
        arguments: of the worker.
    """

    def __init__(self, folder: Path, arguments: list[str]):
        self.process = subprocess.Popen([sys.executable, "-c", WORKER, *arguments], cwd=folder, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def round(self) -> float:
        """Train one round. Returns its seconds."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise ValueError(f"the checkout in {self.process.args!r} ended without an answer")
        return float(answer)

    def close(self):
        """End the process."""
        self.process.communicate()


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark. Returns the exit status."""
    parser = Parser(prog="python -m benchmarks.commits", description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="another checkout")
    parser.add_argument("--data", type=Path, required=True, help="folder with the course's files")
    parser.add_argument("--weights", default=DEFAULT)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--batch_size", type=positive, default=32)
    parser.add_argument("--batches", type=positive, default=8, help="of a round")
    parser.add_argument("--rounds", type=positive, default=9)
    options = parser.parse_args(arguments)
    here = Path(__file__).resolve().parent.parent
    for task in TASKS:
        of_worker = [str(options.data.absolute()), options.weights, task, str(options.batches),
                     str(options.batch_size), options.precision]
        checkouts = {"this checkout": Checkout(here, of_worker), "the other": Checkout(options.other, of_worker)}
        seconds: dict[str, list[float]] = {name: [] for name in checkouts}
        for turn in range(options.rounds + 2):  # two rounds of warm-up
            for name, checkout in checkouts.items():
                spent = checkout.round()
                if turn >= 2:
                    seconds[name].append(spent)
        for checkout in checkouts.values():
            checkout.close()
        title = f"training, {task}, batch {options.batch_size}, precision {options.precision}"
        print(table([Comparison(title, seconds)]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
