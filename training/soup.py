"""Average the weights of several runs of one recipe into one model: a uniform soup (Wortsman et al. 2022, section 2).

    python -m training.soup RUN RUN ... --out DIR
    python train_multitask.py --option evaluate --checkpoint DIR

The runs differ in their seeds alone, and began with the same weights. Their mean is one model of the same size. It is
no better by right: the evaluation says whether it is.
"""
import json
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from corpora.files import must_be_new, write_json
from corpora.flags import Parser
from corpora.messages import first_line, status_of
from minbert.weights import read_tensors
from training.runs import WEIGHTS, content_hash, require_finished

PARTS = (WEIGHTS, f"encoder/{WEIGHTS}")
OWN = ("seed", "name")  # fields of a recipe in which the runs may differ


def mean_tensors(paths: Sequence[Path]) -> dict[str, torch.Tensor]:
    """Average tensors of the same names and shapes, in float64. Raise ValueError that names the first difference.

    paths: safetensors files. A tensor of whole numbers must be the same in all of them.
    """
    first = read_tensors(paths[0])
    total = {name: tensor.double() for name, tensor in first.items()}
    for path in paths[1:]:
        tensors = read_tensors(path)
        for name in sorted(first.keys() ^ tensors.keys()):
            raise ValueError(f"{path}: {'lacks' if name in first else 'has'} {name}, unlike {paths[0]}")
        for name, tensor in tensors.items():
            if tensor.shape != first[name].shape:
                raise ValueError(f"{path}: {name} has the shape {list(tensor.shape)}; expected "
                                 f"{list(first[name].shape)}, as in {paths[0]}")
            if not tensor.is_floating_point() and not torch.equal(tensor, first[name]):
                raise ValueError(f"{path}: {name} is not as in {paths[0]}, and whole numbers have no mean")
            total[name] += tensor.double()
    return {name: (tensor / len(paths)).to(first[name].dtype) for name, tensor in total.items()}


def _read(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a finished run's recipe, without its seed, and its results."""
    require_finished(run)
    try:
        results = json.loads((run / "results.json").read_text(encoding="utf-8"))
        recipe = tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))
        return {name: value for name, value in recipe.items() if name not in OWN}, results["identity"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{run}: {type(error).__name__}: {first_line(error)}; expected the folder of a finished run"
                         ) from None


def cook(runs: Sequence[Path], out: Path):
    """Write a folder that --option evaluate takes for a run: the runs' mean, and soup.json, which names them.

    Raises:
        ValueError: fewer than two runs, runs of other recipes or starting weights, or a folder that is in use.
    """
    if len({run.resolve() for run in runs}) != len(runs) or len(runs) < 2:
        raise ValueError("a soup has two or more different runs")
    must_be_new(out)
    first, *others = [_read(run) for run in runs]
    for run, (recipe, identity) in zip(runs[1:], others, strict=True):
        names = [name for name in {**first[0], **recipe} if first[0].get(name) != recipe.get(name)]
        if names:
            raise ValueError(f"{run}: is of another recipe than {runs[0]}: {names[0]} differs")
        if identity.get("weights") != first[1].get("weights"):
            raise ValueError(f"{run}: began with other weights than {runs[0]}; their mean is no model")
    out.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".soup-", dir=out.parent))
    try:
        shutil.copytree(runs[0] / "encoder", place / "encoder")
        shutil.copy(runs[0] / "recipe.toml", place / "recipe.toml")
        for part in PARTS:
            safetensors.torch.save_file(mean_tensors([run / part for run in runs]), place / part)
        write_json(place / "soup.json", {str(run): content_hash(run / WEIGHTS) for run in runs})
        place.chmod(0o755)
        place.rename(out)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m training.soup", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    options = parser.parse_args(arguments)

    def run():
        cook(options.runs, options.out)
        print(f"{options.out}: the mean of {len(options.runs)} runs; python train_multitask.py --option evaluate "
              f"--checkpoint {options.out}")

    return status_of(run)


if __name__ == "__main__":
    sys.exit(main())
