"""Is the encoder right? Compares it with values that Hugging Face's BertModel gave for the same weights.

    python -m course.sanity_check                                         # all-MiniLM-L6-v2, with our values
    python -m course.sanity_check --weights bert-base-uncased --data sanity_check.data    # with the course's

The file has the course's layout: a dict with last_hidden_state [2, 8, H] and pooler_output [2, H] for the two sentences
below. Values at padding have no meaning and are not compared.
"""
import sys
from pathlib import Path

import torch
from torch import Tensor

from corpora.flags import Parser
from corpora.messages import error_line
from course.starter import BertModel
from minbert.pretrained import DEFAULT
from minbert.weights import read_tensors

VALUES = Path(__file__).parent / "data" / "sanity_check.data"
# "hello world" and "hello neural network for nlp", in the vocabulary of BERT-base uncased.
INPUT_IDS = torch.tensor([[101, 7592, 2088, 102, 0, 0, 0, 0], [101, 7592, 15756, 2897, 2005, 17953, 2361, 102]])
ATOL, RTOL = 1e-5, 1e-3  # the course's


def differences(model: BertModel, expected: dict[str, Tensor]) -> dict[str, float]:
    """Return the largest difference of each output that is too far from what is expected. Empty: all is well.

    Args:
        model: in evaluation mode.
        expected: last_hidden_state [2, 8, H] and pooler_output [2, H].
    """
    mask = (INPUT_IDS != 0).long()
    with torch.no_grad():
        outputs = model(INPUT_IDS, mask)
    found = {}
    for name in ("last_hidden_state", "pooler_output"):
        ours, theirs = outputs[name], expected[name]
        if name == "last_hidden_state":
            ours, theirs = ours * mask[:, :, None], theirs * mask[:, :, None]
        if not torch.allclose(ours, theirs, atol=ATOL, rtol=RTOL):
            found[name] = float((ours - theirs).abs().max())
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns 0 if the encoder is right, 1 if it is not, 2 for a mistake in the call."""
    parser = Parser(prog="python -m course.sanity_check", description=__doc__.splitlines()[0])
    parser.add_argument("--weights", default=DEFAULT)
    parser.add_argument("--data", type=Path, default=VALUES)
    options = parser.parse_args(arguments)
    try:
        expected = read_tensors(options.data)
        model = BertModel.from_pretrained(options.weights)
        size = model.config.hidden_size
        shapes = {"last_hidden_state": (*INPUT_IDS.shape, size), "pooler_output": (len(INPUT_IDS), size)}
        for name, shape in shapes.items():
            if name not in expected or tuple(expected[name].shape) != shape:
                there = f"shape {list(expected[name].shape)}" if name in expected else "none"
                raise ValueError(f"{options.data}: {name} has {there}; expected {list(shape)}, as {options.weights} "
                                 "gives it")
    except (ValueError, OSError) as error:
        print(error_line(error), file=sys.stderr)
        return 2
    wrong = differences(model, expected)
    for name, difference in wrong.items():
        print(f"{name} differs by up to {difference:.2g}; expected at most {ATOL:g} + {RTOL:g} of the value")
    if not wrong:
        print(f"The encoder is right: {options.weights} gives the values of {options.data.name}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
