"""Run the probes on a student's code, in a process that knows no answers. Started by sandbox.py, never by hand.

    python worker.py PROBES OUT SEED EXERCISE ...

It writes OUT/<exercise>.npz with the outputs, or OUT/<exercise>.error with what went wrong. Nothing that the code
prints is read. The standard library, torch and numpy are all that it imports besides the student's code.
"""
import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path

import numpy as np
import torch

NAME = "course_probes"
IMPORTED = "imported"  # sandbox.py looks for it
BANNED_FUNCTIONS = ("scaled_dot_product_attention", "multi_head_attention_forward")
BANNED_CLASSES = ("MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerEncoderLayer",
                  "TransformerDecoder", "TransformerDecoderLayer")
BANNED_MODULES = ("transformers", "sentence_transformers", "tensorflow", "jax")


def refuse(name: str):
    """Return a function that says that `name` is not to be used."""

    def refused(*arguments, **options):
        """Refuse."""
        raise RuntimeError(f"{name} is not allowed in this exercise: write it yourself")

    return refused


def set_traps():
    """Take away what the student is to write. Names may be reached in any way: what they lead to is replaced."""
    for name in BANNED_FUNCTIONS:
        for holder in (torch.nn.functional, torch._C._nn, torch):
            if hasattr(holder, name):
                setattr(holder, name, refuse(name))
    for name in BANNED_CLASSES:
        for holder in (torch.nn, torch.nn.modules, torch.nn.modules.activation, torch.nn.modules.transformer):
            if hasattr(holder, name):
                setattr(getattr(holder, name), "__init__", refuse(name))  # noqa: B010
    for name, value in list(vars(torch.optim).items()):
        if isinstance(value, type) and "Adam" in name:
            value.__init__ = refuse(name)  # type: ignore[misc]
            value.step = refuse(name)  # type: ignore[attr-defined]
    for name in BANNED_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]


def place_of(error: BaseException) -> str:
    """Return the file and line of the student's code where an error arose."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(os.getcwd())]
    return f"{Path(own[-1].filename).relative_to(os.getcwd())}:{own[-1].lineno}: " if own else ""


def main():
    """Run the exercises in turn. Each answer is renamed into place when it is whole."""
    probes_file, out, seed, *exercises = sys.argv[1:]
    torch.set_num_threads(1)
    set_traps()
    spec = importlib.util.spec_from_file_location(NAME, probes_file)
    assert spec is not None and spec.loader is not None
    probes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probes)
    sys.path.insert(0, os.getcwd())
    # Whoever hangs or ends the process here does so in every exercise: the grader need not try them all.
    with contextlib.suppress(BaseException):  # each exercise says it
        importlib.import_module("course.adapters")
    (Path(out) / IMPORTED).touch()
    for exercise in exercises:
        target = Path(out) / exercise
        try:
            adapters = importlib.import_module("course.adapters")
            outputs = probes.PROBES[exercise](adapters, int(seed))
            with open(f"{target}.part", "wb") as file:
                np.savez(file, **outputs)
            os.rename(f"{target}.part", f"{target}.npz")
        except BaseException as error:
            text = (str(error).splitlines() or [""])[0][:1000]
            with open(f"{target}.part", "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{place_of(error)}{type(error).__name__}: {text}")
            os.rename(f"{target}.part", f"{target}.error")


if __name__ == "__main__":
    main()
