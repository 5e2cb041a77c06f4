"""Precision: with how many bits the layers of the fast BERT compute. minbert/ computes in float32.

Parameters, their gradients, losses and AdamW are float32 at every precision.

- float32: everything.
- medium: matrix products round their inputs to bfloat16 and add up in float32, where the processor can. Elsewhere this
  is the same as float32.
- bfloat16: the encoder's layers compute in it, activations included. Heads compute as at medium.

Which one is fastest depends on the processor, on the shapes and on torch's version. So we measure it (`fastest`).
torch's setting for products is global to the process. The program sets it (`set_products`); nothing in the library
reads it.
"""
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from corpora.files import write_json
from minbert.bert import Layer
from minbert.config import BertConfig

MOST_TOKENS = 2048  # a measurement with more tokens would take more than a second
LEAST_GAIN = 1.05  # a coarser precision must be this much faster than a finer one
SLOW = 2.0  # a precision that is so many times as slow as the fastest: the program says so
ROUNDS = 5
FIRST = 8  # sequences that are measured first
HOPELESS = 3.0  # times as slow as the fastest on those: measured no further
CACHE_FILE = "precision.json"


@dataclass(frozen=True)
class Precision:
    """Say how products of float32 matrices are computed, and in which type the layers keep their activations.

    >>> BY_NAME["medium"].reduced, BY_NAME["float32"].reduced
    (True, False)
    """

    name: str
    products: str  # torch's word for it: highest or medium
    activations: torch.dtype | None  # None: the parameters' own type

    @property
    def reduced(self) -> bool:
        """Tell whether products are less exact than float32."""
        return self.products != "highest"


FLOAT32 = Precision("float32", "highest", None)
MEDIUM = Precision("medium", "medium", None)
BFLOAT16 = Precision("bfloat16", "medium", torch.bfloat16)
BY_NAME = {precision.name: precision for precision in (FLOAT32, MEDIUM, BFLOAT16)}


def set_products(precision: Precision):
    """Set how this process multiplies float32 matrices. For programs only: the setting is global."""
    torch.set_float32_matmul_precision(precision.products)


def processor(device: torch.device) -> str:
    """Name the processor that does the work."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        model = platform.processor()
    # Virtual machines hide features of a model that other machines of the same name have.
    able = sorted(name for name, there in torch.cpu.get_capabilities().items() if there is True)
    return f"{platform.machine()} {model} {' '.join(able)}"


def measure(config: BertConfig, batch: int, length: int, device: torch.device) -> dict[str, float]:
    """Time one layer, forward and backward, at each precision. Sets torch's global precision on the way.

    A processor without bfloat16 products can take 25 times as long with them as in float32. So a few sequences come
    first. A precision that is far slower there is not timed on the whole batch: its time is what it took for the few,
    scaled up.

    Args:
        config: of the encoder.
        batch: sequences in a step.
        length: tokens of a typical sequence.
        device: where training runs.

    Returns:
        Seconds by the name of the precision: the least of some rounds.
    """
    layer = Layer(config).to(device)
    few = min(batch, FIRST)
    first = _least(list(BY_NAME), 2, lambda name: _time(layer, config, BY_NAME[name], few, length, device))
    promising = [name for name in BY_NAME if first[name] <= HOPELESS * min(first.values())]
    whole = _least(promising, ROUNDS, lambda name: _time(layer, config, BY_NAME[name], batch, length, device))
    return {name: whole.get(name, first[name] * batch / few) for name in BY_NAME}


def _least(names: Sequence[str], count: int, seconds: Callable[[str], float]) -> dict[str, float]:
    """Return the least time of some rounds by name. The names take turns. One more round before compiles kernels."""
    rounds = [{name: seconds(name) for name in names} for _ in range(count + 1)]
    return {name: min(times[name] for times in rounds) for name in names}


def _time(layer: Layer, config: BertConfig, precision: Precision, batch: int, length: int, device: torch.device
          ) -> float:
    """Return the seconds of one pass, forward and backward."""
    from engine.bert import run_layer  # here, because engine.bert needs Precision
    from engine.shapes import packing_for

    set_products(precision)
    packing = packing_for(torch.ones(batch, length, dtype=torch.bool, device=device), precision.reduced)
    hidden = torch.randn(packing.size, config.hidden_size, device=device,
                         dtype=precision.activations or torch.float32, requires_grad=True)
    before = time.perf_counter()
    output, _ = run_layer(layer, hidden, packing, fused=device.type != "cpu")
    output.float().sum().backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - before


def choose(seconds: dict[str, float]) -> Precision:
    """Take the fastest precision. A coarser one must gain five percent over the finer ones.

    >>> choose({"float32": 1.0, "medium": 0.99, "bfloat16": 0.5}).name
    'bfloat16'
    >>> choose({"float32": 1.0, "medium": 0.99, "bfloat16": 2.0}).name
    'float32'
    """
    chosen = FLOAT32
    for precision in (MEDIUM, BFLOAT16):
        if seconds[precision.name] * LEAST_GAIN < seconds[chosen.name]:
            chosen = precision
    return chosen


def fastest(config: BertConfig, batch: int, length: int, device: torch.device, cache: Path) -> tuple[Precision, str]:
    """Find the fastest precision for a run's shapes, and a line that says how. See `speeds` for the arguments."""
    seconds, message = speeds(config, batch, length, device, cache)
    chosen = choose(seconds)
    return chosen, f"precision {chosen.name} ({message})"


def asked(name: str, config: BertConfig, batch: int, length: int, device: torch.device, cache: Path) -> str:
    """Return the line about a precision that a recipe names. It says so if another one is twice as fast."""
    if name == FLOAT32.name:
        return f"precision {name}"
    seconds, message = speeds(config, batch, length, device, cache)
    best = choose(seconds).name
    times = seconds[name] / seconds[best]
    if times < SLOW:
        return f"precision {name}"
    return (f"precision {name}, as asked; here {best} is {times:.0f} times as fast, and --precision auto takes it "
            f"({message})")


def speeds(config: BertConfig, batch: int, length: int, device: torch.device, cache: Path
           ) -> tuple[dict[str, float], str]:
    """Return what `measure` says of a run's shapes: measured in about a second, then remembered in a file.

    Args:
        config: of the encoder.
        batch: sequences in a step.
        length: tokens of a typical sequence.
        device: where training runs.
        cache: a folder for the file. If it cannot be written, the measurement is made again next time.

    Returns:
        Seconds by the name of the precision, and a few words that say where they come from.
    """
    # Nearby shapes share a measurement: the length and the number of tokens are rounded up to powers of two.
    length = 1 << (max(length, 1) - 1).bit_length()
    batch = max(1, min(1 << (max(batch, 1) - 1).bit_length(), MOST_TOKENS // length))
    key = "/".join(map(str, (processor(device), torch.__version__, torch.get_num_threads(), config.hidden_size,
                             config.intermediate_size, config.num_attention_heads, batch, length)))
    known: dict[str, Any] = {}
    try:
        known = json.loads((cache / CACHE_FILE).read_text(encoding="utf-8"))
        seconds = {name: float(known[key][name]) for name in BY_NAME}
        how = "measured before"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        seconds = measure(config, batch, length, device)
        how = "measured"
        try:
            write_json(cache / CACHE_FILE, {**(known if isinstance(known, dict) else {}), key: seconds})
        except OSError as error:
            how = f"measured; not remembered: {error.strerror}"
    times = ", ".join(f"{name} {1000 * seconds[name]:.1f} ms" for name in BY_NAME)
    return seconds, f"{how}, one layer at {batch} x {length} tokens: {times}"
