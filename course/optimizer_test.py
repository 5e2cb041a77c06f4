"""Is AdamW right? Trains a small linear layer for 1,000 steps and compares its weights with a reference.

    python -m course.optimizer_test                              # with our values
    python -m course.optimizer_test --data optimizer_test.npy    # with the course's

The layer, the data, the rates and the tolerances are the course's. Our file was computed in float64 from the equations
(Loshchilov & Hutter 2019, algorithm 2, decoupled decay). The course's differs from it by less than the tolerance.
"""
import sys
from pathlib import Path

import numpy as np
import torch

from corpora.flags import Parser
from corpora.messages import error_line
from course.starter import AdamW

VALUES = Path(__file__).parent / "data" / "optimizer_test.npy"
SEED, STEPS, LR, WEIGHT_DECAY = 0, 1000, 1e-3, 1e-4
ATOL, RTOL = 1e-6, 1e-4


def trained_weight(optimizer_class: type[torch.optim.Optimizer]) -> np.ndarray:
    """Train linear layer [2, 3] towards (x0 + x1, -x2). Returns its weight.

    optimizer_class: with the starter code's AdamW signature.
    """
    rng = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    layer = torch.nn.Linear(3, 2, bias=False)
    optimizer = optimizer_class(layer.parameters(), lr=LR, weight_decay=WEIGHT_DECAY,  # type: ignore[call-arg]
                                correct_bias=True)
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.tensor(rng.uniform(size=3), dtype=torch.float32)
        wanted = torch.stack([x[0] + x[1], -x[2]])
        ((wanted - layer(x)) ** 2).sum().backward()
        optimizer.step()
    return layer.weight.detach().numpy()


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns 0 if the optimizer is right, 1 if it is not, 2 for a mistake in the call."""
    parser = Parser(prog="python -m course.optimizer_test", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=VALUES)
    options = parser.parse_args(arguments)
    try:
        expected = np.load(options.data, allow_pickle=False)
        if expected.shape != (2, 3):
            raise ValueError(f"{options.data}: has shape {list(expected.shape)}; expected [2, 3]")
    except (ValueError, OSError, EOFError) as error:
        message = str(error) if str(options.data) in str(error) else f"{options.data}: {error}; expected a .npy file"
        print(error_line(ValueError(message)), file=sys.stderr)
        return 2
    found = trained_weight(AdamW)
    if not np.allclose(found, expected, atol=ATOL, rtol=RTOL):
        print(f"AdamW is not right: after {STEPS} steps the weight is\n{found}\nexpected\n{expected}")
        return 1
    print(f"AdamW is right: after {STEPS} steps the weight is that of {options.data.name}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
