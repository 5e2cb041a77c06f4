"""How near --dry_run's estimates are: each recipe is rehearsed, then run, and the ratios estimate / truth are printed.

    python -m benchmarks.estimates recipes/default.toml recipes/best.toml -- --data DIR --limit 1000 --epochs 1
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from corpora.flags import Parser

ROOT = Path(__file__).resolve().parent.parent
STAGE = re.compile(r"(\d+) epochs of ([\d,]+) steps")
COST = re.compile(r"\(([\d.]+) s a step, ([\d.]+) s for dev after each of \d+ epochs?\), peak memory about ([\d,]+) MB")


def number(text: str) -> float:
    return float(text.replace(",", ""))


def run(recipe: Path, flags: list[str]) -> dict[str, float]:
    """Estimated and true seconds and megabytes of one recipe."""
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, str(ROOT / "train_multitask.py"), "--recipe", str(recipe), "--no_progress", "--out",
                   f"{temporary}/run", *flags]
        said = subprocess.run([*command, "--dry_run"], capture_output=True, text=True, check=True).stdout
        seconds = sum(number(epochs) * (number(steps) * number(step) + number(dev)) for (epochs, steps), (step, dev, _)
                      in zip(STAGE.findall(said), COST.findall(said), strict=True))
        memory = max(number(peak) for _, _, peak in COST.findall(said))
        subprocess.run(command, capture_output=True, check=True)
        results = json.loads(Path(temporary, "run", "results.json").read_text(encoding="utf-8"))
    return {"estimated_s": seconds, "true_s": results["training_seconds"], "estimated_mb": memory,
            "true_mb": results["peak_memory_mb"]}


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m benchmarks.estimates", description=__doc__.splitlines()[0])
    parser.add_argument("recipes", type=Path, nargs="+")
    arguments = sys.argv[1:] if arguments is None else arguments
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])
    print("| recipe | time, estimate / truth | peak memory, estimate / truth |\n|---|---|---|")
    for recipe in options.recipes:
        found = run(recipe, arguments[split + 1:])
        print(f"| {recipe.stem} | {found['estimated_s']:.0f} s / {found['true_s']:.0f} s = "
              f"{found['estimated_s'] / found['true_s']:.2f} | {found['estimated_mb']:,.0f} MB / "
              f"{found['true_mb']:,.0f} MB = {found['estimated_mb'] / found['true_mb']:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
