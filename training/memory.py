"""How much memory a run needs."""
import resource
import sys

import torch


def peak_memory() -> float:
    """Return the most memory that this process has held, in megabytes: of the GPU, if there is one, else of all."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
