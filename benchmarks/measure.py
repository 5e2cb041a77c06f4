"""Interleaved repeats: A B A B ..., because a machine's speed drifts and a ratio of neighbours does not."""
import re
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch


@dataclass
class Comparison:
    """Seconds of each contestant, run in turn."""

    name: str
    seconds: dict[str, list[float]]

    def ratio(self, slower: str, faster: str) -> tuple[float, float, float]:
        """slower / faster, round by round: (median, lower quartile, upper quartile)."""
        ratios = [a / b for a, b in zip(self.seconds[slower], self.seconds[faster], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        return middle, low, high

    @property
    def ours(self) -> str:
        """The contestant that the others are measured by: the first."""
        return next(iter(self.seconds))

    def record(self) -> dict:
        ratios = {peer: self.ratio(peer, self.ours) for peer in self.seconds if peer != self.ours}
        return {**asdict(self), "ratios": {peer: dict(zip(("median", "lower", "upper"), values, strict=True))
                                           for peer, values in ratios.items()}}


def at_precision(precision: str, run: Callable[[], object]) -> Callable[[], object]:
    """The same, with matrix products at this precision ("highest" is full float32)."""
    def prepared():
        torch.set_float32_matmul_precision(precision)
        return run()

    return prepared


def compare(name: str, contestants: dict[str, Callable[[], object]], repeats: int, warmup: int = 1) -> Comparison:
    """Runs every contestant once a round, `repeats` rounds after the warm-up. The first one is ours."""
    seconds: dict[str, list[float]] = {contestant: [] for contestant in contestants}
    for turn in range(warmup + repeats):
        for contestant, run in contestants.items():
            started = time.perf_counter()
            run()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if turn >= warmup:
                seconds[contestant].append(time.perf_counter() - started)
    return Comparison(name, seconds)


def peak_memory() -> float:
    """Megabytes that this process has held at most."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage here: on Linux a process begins with the peak of the one that started it.
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes


def markdown(header: list[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def table(comparisons: list[Comparison]) -> str:
    """Each peer's time over ours, median and quartiles of the rounds."""
    rows = []
    for comparison in comparisons:
        milliseconds = 1000 * statistics.median(comparison.seconds[comparison.ours])
        for peer in list(comparison.seconds)[1:]:
            middle, low, high = comparison.ratio(peer, comparison.ours)
            rows.append([comparison.name, peer, f"{middle:.2f}", f"{low:.2f} to {high:.2f}", f"{milliseconds:,.1f}"])
    return markdown(["what", "peer", "peer / ours", "quartiles", "ours, ms"], rows)
