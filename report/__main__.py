"""Make reports of runs that are there.

    python -m report RUN                      writes RUN/report.html
    python -m report RUN RUN ... --out FILE   one page that compares runs
    python -m report errors RUN --task para   the worst errors, in the terminal
"""
import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from corpora.files import write_text
from corpora.flags import Parser, positive
from corpora.messages import printable, status_of


def _errors(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m report errors", description="Print a task's worst dev examples.")
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--task", required=True)
    parser.add_argument("--worst", type=positive, default=30, help="how many (default: 30)")
    options = parser.parse_args(arguments)

    def show():
        from report.analysis import scored, worst
        from report.run import load_run

        run = load_run(options.run)
        if options.task not in run.predictions:
            raise ValueError(f"--task {options.task}: {options.run} has no dev predictions of it; its tasks: "
                             f"{', '.join(run.predictions) or 'none'}")
        rows = scored(run.predictions[options.task])
        chosen = worst(rows, options.worst)
        for row in chosen:
            says = ""
            if row.probabilities is not None:
                says = "  probabilities " + " ".join(f"{value:.2f}" for value in row.probabilities)
            elif row.score is not None:
                says = f"  score {row.score:.3f}"
            print(printable(f"{row.id}  gold {row.gold:g}  predicted {row.prediction:g}{says}"))
            for sentence in row.sentences:
                print("  " + printable(sentence))
        print(f"{len(chosen)} of {len(rows):,} dev examples of {options.task}")

    return status_of(show)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] == ["errors"]:
        return _errors(arguments[1:])
    parser = Parser(prog="python -m report", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a finished run's folder")
    parser.add_argument("--out", type=Path, help="the page's file (default: RUN/report.html, or comparison.html)")
    options = parser.parse_args(arguments)

    def write():
        from report.page import REPORT, render, render_comparison
        from report.run import load_run

        runs = [load_run(folder) for folder in options.runs]
        path = options.out or (options.runs[0] / REPORT if len(runs) == 1 else Path("comparison.html"))
        if path.is_dir():
            raise ValueError(f"--out {path}: is a folder; expected a file, such as {path / 'report.html'}")
        write_text(path, render(runs[0]) if len(runs) == 1 else render_comparison(runs))
        print(f"{path}: {path.stat().st_size / 1000:,.0f} kB")

    return status_of(write)


if __name__ == "__main__":
    sys.exit(main())
