"""Predictions with what they were made for: one JSON object a line, in the order of the dev file.

    {"id": "f1", "sentences": ["..."], "gold": 3, "prediction": 2, "probabilities": [0.01, 0.2, 0.5, 0.28, 0.01]}

`probabilities` has one number a class. A task without classes, or whose loss gives no probabilities, may have `score`:
the number from which the prediction was made. Transfer fine-tuning has no `gold`: its `prediction` is a list of counts
(tasks/phrases.py).
"""
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.files import write_text

Number = float | int
REQUIRED = ("id", "sentences", "prediction")
FIELDS = (*REQUIRED, "gold", "probabilities", "score")


@dataclass
class Prediction:
    """Hold one row.

    >>> Prediction("a", ["Good."], 4, 3, probabilities=[0, 0, 0, .6, .4]).wrong
    True
    """

    id: str
    sentences: list[str]
    gold: Number | None
    prediction: Any  # a class, a score, or a list of counts
    probabilities: list[float] | None = None
    score: float | None = None

    @property
    def wrong(self) -> bool:
        """Tell whether the prediction is not the gold label."""
        return self.prediction != self.gold

    def to_json(self) -> str:
        """Return the row as a line. Raise ValueError for a number that JSON does not have."""
        values = {name: getattr(self, name) for name in FIELDS}
        return json.dumps({name: value for name, value in values.items() if value is not None}, allow_nan=False,
                          ensure_ascii=False)


def save_predictions(path: Path, predictions: Sequence[Prediction]):
    """Write the rows atomically."""
    write_text(path, "".join(prediction.to_json() + "\n" for prediction in predictions))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _parse(values: Any) -> Prediction:
    """Make a row of a parsed line. Raise ValueError that says what is wrong."""
    if not isinstance(values, dict):
        raise ValueError(f"found a JSON {type(values).__name__}; expected an object")
    unknown = sorted(values.keys() - set(FIELDS))
    missing = [name for name in REQUIRED if name not in values]
    if unknown or missing:
        what = f"unknown field '{unknown[0]}'" if unknown else f"no field '{missing[0]}'"
        raise ValueError(f"{what}; expected {', '.join(FIELDS)}")
    sentences, probabilities = values["sentences"], values.get("probabilities")
    checks = {
        "id": (isinstance(values["id"], str), "text"),
        "sentences": (isinstance(sentences, list) and len(sentences) > 0
                      and all(isinstance(sentence, str) for sentence in sentences), "a list of texts"),
        "gold": (values.get("gold") is None or _is_number(values["gold"]), "a number"),
        "prediction": (_is_number(values["prediction"]) or (isinstance(values["prediction"], list) and
                                                            all(map(_is_number, values["prediction"]))),
                       "a number or a list of numbers"),
        "probabilities": (probabilities is None or (isinstance(probabilities, list) and len(probabilities) > 1
                                                    and all(map(_is_number, probabilities))), "a list of numbers"),
        "score": (values.get("score") is None or _is_number(values["score"]), "a number")}
    for name, (right, expected) in checks.items():
        if not right:
            raise ValueError(f"{name} is {str(values[name])[:40]!r}; expected {expected}")
    return Prediction(**{"gold": None, **values})


def load_predictions(path: Path) -> list[Prediction]:
    """Read the rows. Raise ValueError, with file and line, where one makes no sense."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    result = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            result.append(_parse(json.loads(line)))
        except RecursionError:
            raise ValueError(f"{path}:{number}: nested too deeply; expected one JSON object a line") from None
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    return result
