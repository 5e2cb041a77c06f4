"""What the two training programs share: the end of a command, flags of the machine, the choice of a run folder."""
import argparse
import io
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from corpora.messages import error_line, printable
from corpora.processes import end_with
from training.choices import ENGINES, LOGS, PRECISIONS
from training.progress import Interrupted
from training.recipe import Recipe, parse_recipe

PARENT = "MINBERT_PARENT"  # an environment variable: the process whose end is ours as well


def guarded(run: Callable[[argparse.Namespace], int], flags: argparse.Namespace) -> int:
    """Run `run(flags)`. Print a user error as one line and return 2."""
    if os.environ.get(PARENT) == str(os.getppid()):
        end_with(os.getppid())
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows only ASCII must not end a run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return run(flags)
    except (ValueError, OSError) as error:
        print(error_line(error), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted before a state was saved; the same command starts where the last saved state is, if any",
              file=sys.stderr)
        return 130
    except Interrupted as error:
        print(printable(str(error)), file=sys.stderr)
        return 130
    finally:
        if "torch" in sys.modules:  # a wrong flag is answered before torch is imported
            from training.distributed import leave

            leave()


def add_machine_flags(parser: argparse.ArgumentParser):
    """Add the flags of both programs that say on what, and how, a run computes and reports."""
    parser.add_argument("--precision", choices=PRECISIONS, help="of training (default: the fastest, by measurement)")
    parser.add_argument("--engine", choices=ENGINES, default="engine",
                        help="plain: train with the text in minbert/ alone; engine: with its faster twin")
    parser.add_argument("--use_gpu", action="store_true", help="train on a GPU")
    parser.add_argument("--log", nargs="+", choices=LOGS, default=[], help="also write a log for these programs")
    parser.add_argument("--dry_run", action="store_true", help="check every file, try the largest batches, say what "
                                                               "the run would cost, and stop")
    parser.add_argument("--no_progress", action="store_true", help="no progress bars")


def require_writable(path: Path):
    """Raise ValueError if a file or folder cannot be written there. It is checked before any work is done."""
    folder = path
    while not folder.exists():
        folder = folder.parent
    if path.exists() and not path.is_dir():
        folder = path
    if not os.access(folder, os.W_OK) or (folder != path and not folder.is_dir()):
        raise ValueError(f"{path}: cannot be written ({folder} is {'not writable' if folder.is_dir() else 'a file'})")


def _meaning(text: str) -> tuple[list[str], Recipe]:
    """Return the commands' lines and the recipe of what training.runs.saved_recipe wrote. ValueError: it is none."""
    return [line for line in text.split("\n") if line.startswith("# --")], parse_recipe(tomllib.loads(text), "saved")


def _same_run(path: Path, text: str) -> bool:
    """Tell whether a saved recipe says what `text` says. A field that an older version did not know has its default."""
    try:
        return _meaning(path.read_text(encoding="utf-8")) == _meaning(text)
    except ValueError:  # the file is damaged, or of a newer version
        return False


def run_directory(flags: argparse.Namespace, recipe: Recipe, text: str) -> Path:
    """Return --out, or runs/<recipe>. A folder that holds another recipe's run is left alone, and a number is added.

    Args:
        flags: of the command.
        recipe: names the folder.
        text: says what the run is (training.runs.saved_recipe).
    """
    base = flags.out or Path("runs") / recipe.name
    number, candidate = 1, base
    while (candidate / "recipe.toml").exists() and not _same_run(candidate / "recipe.toml", text):
        if flags.out is not None:
            raise ValueError(f"{base}: holds a run of another recipe, data or flags; choose another --out")
        number += 1
        candidate = base.with_name(f"{base.name}-{number}")
    return candidate
