"""Take the screenshots of docs/: a run's report in two themes and two widths, a failing check, the leaderboard.

    python docs/screenshots.py RUN

It needs Chromium, and the packages of requirements-dev.txt. It also prints what axe finds, and the page's size.
"""
import html
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import opened, violations

from report.page import write_report

HEIGHTS = {390: 1500, 1280: 1500}  # pixels of the page that a picture shows
SHOWN = {"top": "#scores", "errors": "#errors-para"}  # picture -> the section at its top


def picture(text: str, name: str, width: int):
    """Take a picture of a page's text."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "page.html"
        path.write_text(text, encoding="utf-8")
        with opened(path.as_uri(), width) as page:
            page.set_viewport_size({"width": width, "height": 100})
            height = page.evaluate("document.body.scrollHeight")
            page.set_viewport_size({"width": width, "height": height + 24})
            page.screenshot(path=str(ROOT / "docs" / "images" / f"{name}.png"))


def failing_check():
    """Plant a known mistake in a handout's solution, and take a picture of what the check says."""
    from course.exercises import load_course
    from course.handout import build

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "mine"
        build(folder, load_course())
        text = (ROOT / "minbert" / "attention.py").read_text(encoding="utf-8")
        (folder / "minbert" / "attention.py").write_text(text.replace(" / math.sqrt(query.shape[-1])", ""))
        command = [sys.executable, "-m", "course.check", "embeddings", "attention", "heads", "adamw"]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    style = "background:#14181f;color:#e6e9ee;font:14px/1.45 monospace;margin:0;padding:12px;white-space:pre-wrap"
    picture(f'<body style="{style}">$ python -m course.check embeddings attention heads adamw\n{html.escape(said)}',
            "check", 1100)


def leaderboard():
    """Take a picture of a leaderboard with made-up teams."""
    from course.leaderboard.page import render
    from course.leaderboard.store import Entry

    teams = [("residual risk", .771, .505, .868, .881), ("two heads", .768, .500, .866, .876),
             ("pooled veterans", .742, .481, .829, .833), ("warmup", .655, .392, .752, .643)]
    entries = [Entry(name, {key: [value, value - spread, value + spread] for key, value, spread in zip(
        ("overall", "sst", "para", "sts"), values, (.009, .03, .006, .02), strict=True)}, 1.79e9 - 1e5 * index,
        7 - index, verified=index < 2) for index, (name, *values) in enumerate(teams)]
    picture(render(entries, "Leaderboard of an example", "Made-up teams: this picture shows the page, not results."),
            "leaderboard", 1000)


def main(folder: str) -> int:
    """Take all pictures. Returns the exit status."""
    failing_check()
    leaderboard()
    path = write_report(Path(folder)).resolve()
    print(f"{path.name}: {path.stat().st_size / 1000:,.0f} kB")
    for scheme in ("light", "dark"):
        for width, height in HEIGHTS.items():
            with opened(path.as_uri(), width, scheme) as page:
                print(f"{scheme}, {width} pixels: axe finds {violations(page) or 'nothing'}")
                page.set_viewport_size({"width": width, "height": height})
                for name, section in SHOWN.items():
                    page.evaluate(f"document.querySelector('{section}').scrollIntoView()")
                    if name == "top":
                        page.evaluate("window.scrollTo(0, 0)")
                    page.screenshot(path=str(ROOT / "docs" / "images" / f"report-{name}-{scheme}-{width}.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
