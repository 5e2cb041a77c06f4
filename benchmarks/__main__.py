"""python -m benchmarks [--data DIR] [--batch_size 32] [--repeats 20]: ratios against peers, printed and saved.

Every contestant does the same work in the same process, one round after the other; figures are medians with quartiles.
"""
import argparse
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks import surgery
from benchmarks.measure import table
from corpora.toy import write_course_files
from minbert.weights import write_atomically
from training.program import keep_freed_memory


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the course's files (default: generated)")
    parser.add_argument("--weights", default=surgery.DEFAULT)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--precision", choices=("highest", "medium"), default="medium",
                        help="of matrix products, for all contestants alike")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks.md"))
    options = parser.parse_args(arguments)
    torch.set_float32_matmul_precision(options.precision)
    keep_freed_memory()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            if options.data is None:
                write_course_files(Path(temporary))
            found = surgery.run(options.data or Path(temporary), options.batch_size, options.repeats, options.weights)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = (f"{torch.get_num_threads()} threads, matrix products at {options.precision} precision, "
            f"{options.repeats} rounds\n\n{table([found], 'plain sum')}")
    write_atomically(options.out, lambda path: path.write_text(text, encoding="utf-8"))
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
