"""Draw the lessons' figures: docs/images/lesson-NN.svg.

    python docs/lessons/figures.py

Numbers in them are computed, with the project's own code where it has some.
"""
import io
import sys
from pathlib import Path

import matplotlib
import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
matplotlib.use("Agg")
from matplotlib import pyplot as plt

from training.mixing import probabilities

BLUE, ORANGE, GREEN, GREY = "#0b63ce", "#b3541e", "#1c7c54", "#8a93a0"
FOLDER = ROOT / "docs" / "images"
STYLE = {"svg.hashsalt": "minbert", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
         "axes.spines.right": False}


def boxes(ax, rows: list[list[str]], colors: list[str], width: float = 1.0, height: float = 0.8):
    """Draw rows of labelled boxes, the first row at the top."""
    for y, row in enumerate(rows):
        for x, text in enumerate(row):
            color = colors[y % len(colors)]
            ax.add_patch(plt.Rectangle((x * width, -y), width * 0.94, height, color=color, alpha=0.22))
            ax.text(x * width + width * 0.47, -y + height / 2, text, ha="center", va="center")
    ax.set_xlim(-0.1, width * max(map(len, rows)))
    ax.set_ylim(-len(rows) + 0.9, 1)
    ax.axis("off")


def setup(ax):
    """Axes of a tensor [B, T, H]."""
    boxes(ax, [[f"sequence 0, token {t}" for t in range(3)], [f"sequence 1, token {t}" for t in range(3)]],
          [BLUE, GREEN], 1.6)
    ax.set_title("hidden states [B = 2, T = 3, H]: each box holds H numbers")


def tokens(ax):
    """A word, cut from the left."""
    boxes(ax, [list("unaffable"), ["un", "", "##aff", "", "", "##able", "", "", ""]], [GREY, BLUE], 0.6)
    ax.set_title("the longest piece first: un, then ##aff, then ##able")


def embeddings(ax):
    """Three tables and their sum."""
    boxes(ax, [["word[7]", "word[4]", "word[9]"], ["position[0]", "position[1]", "position[2]"],
               ["type[0]", "type[0]", "type[1]"], ["LayerNorm(sum)"] * 3], [BLUE, ORANGE, GREEN, GREY], 1.5)


def attention(ax):
    """Weights of scores, with and without the division by sqrt(D)."""
    generator = torch.Generator().manual_seed(3)
    query, keys = torch.randn(64, generator=generator), torch.randn(8, 64, generator=generator)
    scores = keys @ query
    places = np.arange(8)
    ax.bar(places - 0.2, scores.softmax(0), 0.4, color=ORANGE, label="softmax(q k)")
    ax.bar(places + 0.2, (scores / 8).softmax(0), 0.4, color=BLUE, label="softmax(q k / sqrt(64))")
    ax.set_xlabel("key")
    ax.set_ylabel("weight")
    ax.legend(frameon=False)


def heads(ax):
    """The slices of a vector."""
    boxes(ax, [[f"{n}" for n in range(8)], ["head 0", "", "head 1", "", "head 2", "", "head 3", ""]], [GREY, BLUE], 0.7)
    ax.set_title("H = 8, A = 4: head a reads numbers 2a and 2a + 1")


def add_norm(ax):
    """The residual path."""
    boxes(ax, [["x", "sub-layer", "dense", "dropout", "+", "LayerNorm"]], [BLUE], 1.3)
    ax.annotate("", (5.8, 0.85), (0.6, 0.85), arrowprops={"arrowstyle": "->", "connectionstyle": "arc3,rad=-0.25",
                                                           "color": ORANGE})
    ax.text(3.1, 1.45, "residual", color=ORANGE, ha="center")
    ax.set_ylim(-0.2, 1.8)


def layer(ax):
    """GELU and ReLU."""
    x = torch.linspace(-4, 3, 200)
    ax.plot(x, torch.nn.functional.gelu(x), color=BLUE, label="GELU")
    ax.plot(x, torch.nn.functional.relu(x), color=GREY, linestyle="--", label="ReLU")
    ax.plot(x, 100 * (torch.nn.functional.gelu(x) - torch.nn.functional.gelu(x, approximate="tanh")), color=ORANGE,
            label="100 x (exact - tanh)")
    ax.legend(frameon=False)


def model(ax):
    """The stack."""
    boxes(ax, [["pooler: tanh(W h + b) at [CLS]"], ["layer 12"], ["..."], ["layer 2"], ["layer 1"],
               ["embeddings: word + position + type"], ["input_ids, token_type_ids, attention_mask"]],
          [ORANGE, BLUE, BLUE, BLUE, BLUE, GREEN, GREY], 5)


def adamw(ax):
    """Averages of a constant gradient, with and without the correction."""
    t = np.arange(1, 41)
    ax.plot(t, 1 - 0.9**t, color=BLUE, label="m, beta1 = 0.9")
    ax.plot(t, 1 - 0.999**t, color=ORANGE, label="v, beta2 = 0.999")
    ax.plot(t, np.ones_like(t), color=GREY, linestyle="--", label="both, corrected")
    ax.set_xlabel("step, with a gradient that is always 1")
    ax.legend(frameon=False)


def sentiment(ax):
    """The loss by the logit of the right class, with one and with two softmaxes."""
    margins = torch.linspace(-6, 10, 100)
    logits = torch.stack([margins, *[torch.zeros(100)] * 4], dim=1)
    label = torch.zeros(100, dtype=torch.int64)
    once = torch.nn.functional.cross_entropy(logits, label, reduction="none")
    twice = torch.nn.functional.cross_entropy(logits.softmax(1), label, reduction="none")
    ax.plot(margins, once, color=BLUE, label="cross-entropy of logits")
    ax.plot(margins, twice, color=ORANGE, label="of probabilities: never below 0.905")
    ax.set_xlabel("logit of the right class; the others are 0")
    ax.set_ylabel("loss")
    ax.legend(frameon=False)


def pairs(ax):
    """Loss of a cosine for labels in two units."""
    cosine = np.linspace(-1, 1, 100)
    for label, color in ((1.0, BLUE), (3.8, GREEN)):
        ax.plot(cosine, (cosine - label / 5) ** 2, color=color, label=f"label {label:g}, divided by 5")
    ax.plot(cosine, (cosine - 3.8) ** 2 / 10, color=ORANGE, linestyle="--", label="label 3.8, not divided (a tenth)")
    ax.set_xlabel("cosine")
    ax.set_ylabel("squared error")
    ax.legend(frameon=False)


def nli(ax):
    """Which candidate is what."""
    names = [["p0", "p1", "p2", "n0", "n1", "n2"]] * 3
    boxes(ax, [["right" if x == y else "negative" for x in range(6)] for y in range(3)], [BLUE, GREEN, ORANGE], 1.1)
    for x, name in enumerate(names[0]):
        ax.text(x * 1.1 + 0.5, 1.05, name, ha="center")
    for y in range(3):
        ax.text(-0.25, -y + 0.4, f"a{y}", ha="right")
    ax.set_xlim(-0.8, 6.7)
    ax.set_ylim(-2.2, 1.4)


def mixing(ax):
    """Shares by temperature."""
    sizes = {"sst": 8544, "para": 141_506, "sts": 6040}
    temperatures = np.linspace(1, 8, 60)
    for (name, color) in zip(sizes, (BLUE, ORANGE, GREEN), strict=True):
        ax.plot(temperatures, [probabilities(sizes, "temperature", float(t))[name] for t in temperatures], color=color,
                label=name)
    ax.set_xlabel("temperature")
    ax.set_ylabel("share of the draws")
    ax.legend(frameon=False)


def surgery(ax):
    """Two gradients and what PCGrad makes of them."""
    first, second = np.array([1.0, 0.15]), np.array([-0.7, 0.9])
    one = first - first @ second / (second @ second) * second
    two = second - second @ first / (first @ first) * first
    for vector, color, name in ((first, BLUE, "g1"), (second, ORANGE, "g2"), (first + second, GREY, "g1 + g2"),
                                (one + two, GREEN, "PCGrad")):
        ax.annotate("", vector, (0, 0), arrowprops={"arrowstyle": "->", "color": color, "linewidth": 1.6})
        ax.text(*(1.08 * vector), name, color=color)
    ax.set_xlim(-1, 1.3)
    ax.set_ylim(-0.2, 1.6)
    ax.set_aspect("equal")


def extension(ax):
    """Two methods whose seeds overlap."""
    for place, scores in enumerate(([0.481, 0.487, 0.479], [0.486, 0.482, 0.490])):
        ax.scatter([place] * 3, scores, color=(BLUE, ORANGE)[place], s=40)
        ax.plot([place - 0.15, place + 0.15], [np.mean(scores)] * 2, color=GREY)
    ax.set_xticks([0, 1], ["before", "after"])
    ax.set_xlim(-0.6, 1.6)
    ax.set_ylabel("accuracy, three seeds")


FIGURES = [setup, tokens, embeddings, attention, heads, add_norm, layer, model, adamw, sentiment, pairs, nli, mixing,
           surgery, extension]


def draw(number: int) -> str:
    """Draw a lesson's figure. Returns the file's text."""
    with plt.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(5.6, 2.6))
        FIGURES[number](ax)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight",
                       facecolor="white")
        plt.close(figure)
    return "\n".join(line.rstrip() for line in buffer.getvalue().split("\n"))


def main() -> int:
    """Draw all figures."""
    FOLDER.mkdir(exist_ok=True)
    for number in range(len(FIGURES)):
        (FOLDER / f"lesson-{number:02d}.svg").write_text(draw(number), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
