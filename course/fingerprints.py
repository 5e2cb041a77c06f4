"""What the right outputs are, and what each known mistake's are: course/checks/<exercise>.npz and messages.json.

Arrays are named reference/<output>, form/<id>/<output> and mistake/<id>/<output>. Of a mistake only the outputs that
differ from the reference's are stored. Files are read without pickles.
"""
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corpora.messages import first_line
from course.probes import TOLERANCE, Arrays

FOLDER = Path(__file__).parent / "checks"
SEED = 336  # of the stored outputs; an autograder draws its own


@dataclass
class Fingerprints:
    """Hold an exercise's right outputs, the outputs of other right forms, and those of known mistakes."""

    reference: Arrays
    forms: dict[str, Arrays] = field(default_factory=dict)
    mistakes: dict[str, Arrays] = field(default_factory=dict)  # all outputs

    def named(self, found: Arrays) -> list[str]:
        """Return the ids of the mistakes whose every output equals what was found."""
        return [name for name, outputs in self.mistakes.items() if same_outputs(outputs, found)]

    def right(self, found: Arrays) -> str | None:
        """Return "" if the outputs are the reference's, the id of the right form that they are, or None."""
        if same_outputs(self.reference, found):
            return ""
        return next((name for name, outputs in self.forms.items() if same_outputs(outputs, found)), None)


def same(expected: np.ndarray, found: np.ndarray) -> bool:
    """Tell whether two arrays are equal, up to float32's rounding. NaN equals nothing."""
    if expected.shape != found.shape:
        return False
    if expected.dtype.kind in "US" or found.dtype.kind in "US":
        return expected.dtype.kind == found.dtype.kind and bool((expected == found).all())
    # Float32 rounds a sum by its largest part: a mistake's outputs may be differences of thousands.
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0)) if expected.dtype.kind == "f" else 1.0
    return bool(np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE * largest))


def same_outputs(expected: Arrays, found: Arrays) -> bool:
    """Tell whether all outputs are equal."""
    return expected.keys() == found.keys() and all(same(expected[name], found[name]) for name in expected)


def save(exercise: str, fingerprints: Fingerprints, folder: Path = FOLDER):
    """Write an exercise's file. The same outputs give the same bytes."""
    arrays = {f"reference/{name}": value for name, value in fingerprints.reference.items()}
    for group, members in (("form", fingerprints.forms), ("mistake", fingerprints.mistakes)):
        for identifier, outputs in members.items():
            arrays |= {f"{group}/{identifier}/{name}": value for name, value in outputs.items()
                       if not same(fingerprints.reference[name], value)}
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{exercise}.npz", "wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def load(exercise: str, folder: Path = FOLDER) -> Fingerprints:
    """Read an exercise's file. Raise ValueError if it is missing or damaged."""
    path = folder / f"{exercise}.npz"
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except Exception as error:  # whatever a damaged file makes numpy and zipfile raise
        raise ValueError(f"{path}: cannot be read ({first_line(error)}); expected the outputs of "
                         "python -m course.mutations --write") from None
    result = Fingerprints({name.removeprefix("reference/"): value for name, value in arrays.items()
                           if name.startswith("reference/")})
    for name, value in arrays.items():
        group, _, rest = name.partition("/")
        if group in ("form", "mistake"):
            identifier, _, output = rest.partition("/")
            members = result.forms if group == "form" else result.mistakes
            members.setdefault(identifier, dict(result.reference))[output] = value
    return result


def load_messages(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Return the title and the cure of each known mistake and form, by id."""
    return json.loads((folder / "messages.json").read_text(encoding="utf-8"))
