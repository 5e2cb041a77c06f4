"""Figures as SVG text, drawn by matplotlib.

matplotlib was chosen because its SVG needs no script: a figure is a few kilobytes, prints, and shows at any size. Its
colours are names of CSS variables here, so that one figure serves light and dark pages.
"""
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

# Colours that no figure would have by chance -> CSS variables of templates/style.css.
INK, GRID, SURFACE = "#010101", "#020202", "#030303"
SERIES = ["#0101a1", "#0101a2", "#0101a3", "#0101a4", "#0101a5", "#0101a6"]
VARIABLES = {INK: "var(--ink)", GRID: "var(--grid)", SURFACE: "var(--surface)",
             **{color: f"var(--series-{index})" for index, color in enumerate(SERIES, start=1)}}
STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "minbert", "font.family": "sans-serif", "font.size": 9,
         "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": GRID, "xtick.color": INK, "ytick.color": INK,
         "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.6, "axes.spines.top": False,
         "axes.spines.right": False, "axes.axisbelow": True, "figure.facecolor": "none", "axes.facecolor": "none",
         "legend.frameon": False, "legend.labelcolor": INK, "savefig.transparent": True, "lines.linewidth": 1.6}
POINTS = 300  # of a curve
DOTS = 800  # of a scatter plot
LINES = ["-", "--", "-.", ":"]


class Figure(NamedTuple):
    """Hold a figure: what it shows, and its SVG."""

    title: str
    svg: str


def color(index: int) -> str:
    """Return the colour of a series."""
    return SERIES[index % len(SERIES)]


def to_svg(figure: Any, title: str) -> Figure:
    """Turn a matplotlib figure into SVG, and close it. title: also for those who cannot see it."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    plt.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r"#0[123]0[123][0-9a-f]{2}", lambda match: VARIABLES.get(match.group(), match.group()), text)
    # Two figures of a page must not share ids.
    prefix = re.sub(r"\W+", "-", title.lower())
    text = re.sub(r'id="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(xlink:href="|url\()#', rf"\1#{prefix}-", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    escaped = title.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1)
    return Figure(title, text.replace("<svg ", f'<svg role="img" aria-label="{escaped}" ', 1))


def axes(width: float = 4.6, height: float = 2.7) -> tuple[Any, Any]:
    """Make a figure of so many inches and its axes."""
    return plt.subplots(figsize=(width, height))


def thinned(x: Sequence[float], y: Sequence[float], points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Replace a long curve by the means of so many equal parts."""
    if len(x) <= points:
        return np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    parts = np.array_split(np.arange(len(x)), points)
    return (np.array([np.asarray(x)[part].mean() for part in parts]),
            np.array([np.asarray(y)[part].mean() for part in parts]))


def curves(series: Mapping[str, tuple[Sequence[float], Sequence[float]]], title: str, ylabel: str,
           marks: Sequence[float] = (), kept: Sequence[float] = (), dots: bool = False,
           ylim: tuple[float, float] | None = None) -> Figure:
    """Draw curves over training steps.

    Args:
        series: name -> steps and values.
        title: says what is seen.
        ylabel: of the values.
        marks: steps at which a stage begins.
        kept: steps of the epochs whose weights were kept.
        dots: mark every point.
        ylim: of the values.
    """
    with plt.rc_context(STYLE):
        figure, ax = axes()
        for index, (name, (x, y)) in enumerate(series.items()):
            xs, ys = thinned(x, y)
            ax.plot(xs, ys, LINES[index // len(SERIES) % len(LINES)], color=color(index), label=name,
                    marker="o" if dots else None, markersize=3.5)
        for step in marks:
            ax.axvline(step, color=INK, linewidth=0.8, linestyle=":")
        for number, step in enumerate(kept):
            ax.axvline(step, color=INK, linewidth=1.0, linestyle="--", label="kept" if number == 0 else None)
        ax.set_xlabel("step")
        ax.set_ylabel(ylabel)
        if ylim is not None:
            ax.set_ylim(*ylim)
        if len(series) > 1 or kept:
            ax.legend(fontsize=8, ncols=2)
        return to_svg(figure, title)


def matrix(counts: np.ndarray, title: str) -> Figure:
    """Draw a confusion matrix: shares of each gold class, with counts in the cells."""
    size = len(counts)
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, ax = axes(3.6, 3.2)
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        for gold in range(size):
            for predicted in range(size):
                share = float(shares[gold, predicted])
                ax.add_patch(plt.Rectangle((predicted - 0.5, gold - 0.5), 1, 1, facecolor=color(0), alpha=0.75 * share,
                                           edgecolor=GRID, linewidth=0.5))
                ax.text(predicted, gold, f"{counts[gold, predicted]:,}", ha="center", va="center",
                        fontsize=9 if size < 8 else 7)
        ax.set_xlim(-0.5, size - 0.5)
        ax.set_ylim(size - 0.5, -0.5)
        ax.set_xticks(range(size))
        ax.set_yticks(range(size))
        ax.set_xlabel("predicted")
        ax.set_ylabel("gold")
        return to_svg(figure, title)


def scatter(gold: np.ndarray, predicted: np.ndarray, title: str) -> Figure:
    """Draw predicted against gold scores, with a histogram of each at its side. Many rows are thinned evenly."""
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(2, 2, figsize=(4.4, 3.6), width_ratios=[4, 1], height_ratios=[1, 4],
                                    gridspec_kw={"wspace": 0.06, "hspace": 0.08})
        grid[0, 1].axis("off")
        chosen = np.linspace(0, len(gold) - 1, min(DOTS, len(gold))).astype(int)
        ax = grid[1, 0]
        ax.scatter(gold[chosen], predicted[chosen], s=7, color=color(0), alpha=0.45, linewidths=0)
        low, high = float(min(gold.min(), predicted.min())), float(max(gold.max(), predicted.max()))
        ax.plot([low, high], [low, high], color=INK, linewidth=0.8, linestyle="--")
        ax.set_xlabel("gold")
        ax.set_ylabel("predicted")
        edges = np.linspace(low, high if high > low else low + 1, 21)
        grid[0, 0].hist(gold, bins=edges, color=color(1), alpha=0.8)
        grid[1, 1].hist(predicted, bins=edges, color=color(0), alpha=0.8, orientation="horizontal")
        for side in (grid[0, 0], grid[1, 1]):
            side.axis("off")
        grid[0, 0].set_xlim(ax.get_xlim())
        grid[1, 1].set_ylim(ax.get_ylim())
        return to_svg(figure, title)


def reliability(confidence: Sequence[float], accuracy: Sequence[float], counts: Sequence[int], title: str) -> Figure:
    """Draw how often predictions of a confidence were right. Larger dots stand for more predictions."""
    with plt.rc_context(STYLE):
        figure, ax = axes(3.6, 3.0)
        ax.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle="--")
        sizes = 12 + 160 * np.array(counts) / max(counts)
        ax.plot(confidence, accuracy, color=color(0))
        ax.scatter(confidence, accuracy, s=sizes, color=color(0), alpha=0.75)
        ax.set_xlim(0, 1.02)
        ax.set_ylim(0, 1.02)
        ax.set_xlabel("probability of the predicted class")
        ax.set_ylabel("share that is right")
        return to_svg(figure, title)


def bars(names: Sequence[str], values: Sequence[float], title: str, xlabel: str, ylabel: str,
         errors: Sequence[tuple[float, float]] | None = None) -> Figure:
    """Draw a bar for each name.

    Args:
        names, values: of the bars.
        title: says what is seen.
        xlabel, ylabel: of the axes.
        errors: intervals, low and high each.
    """
    with plt.rc_context(STYLE):
        figure, ax = axes(4.2, 2.6)
        places = np.arange(len(names))
        spread = None
        if errors is not None:
            spread = np.array([[value - low, high - value]
                               for value, (low, high) in zip(values, errors, strict=True)]).T.clip(0)
        ax.bar(places, values, color=color(0), width=0.7, yerr=spread, ecolor=INK, capsize=3)
        ax.set_xticks(places, names, rotation=0 if sum(map(len, names)) < 40 else 30,
                      ha="center" if sum(map(len, names)) < 40 else "right")
        ax.grid(axis="x", visible=False)
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        return to_svg(figure, title)
