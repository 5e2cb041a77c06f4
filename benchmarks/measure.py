"""Interleaved repeats: A B A B ..., because a machine's speed drifts and a ratio of neighbours does not."""
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

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


def compare(name: str, contestants: dict[str, Callable[[], object]], repeats: int, warmup: int = 1) -> Comparison:
    """Runs every contestant once a round, `repeats` rounds after the warm-up."""
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


def table(comparisons: list[Comparison], ours: str) -> str:
    """Markdown: each peer's time over ours, median and quartiles of the rounds."""
    lines = ["| what | peer | peer / ours | quartiles | ours, ms |", "|---|---|---|---|---|"]
    for comparison in comparisons:
        milliseconds = 1000 * statistics.median(comparison.seconds[ours])
        for peer in comparison.seconds:
            if peer != ours:
                middle, low, high = comparison.ratio(peer, ours)
                lines.append(f"| {comparison.name} | {peer} | {middle:.2f} | {low:.2f} to {high:.2f} | "
                             f"{milliseconds:,.1f} |")
    return "\n".join(lines) + "\n"
