"""Take the screenshots of docs/: the top of a run's report and its errors, in two themes and two widths.

    python docs/screenshots.py RUN

It needs Chromium, and the packages of requirements-dev.txt. It also prints what axe finds, and the page's size.
"""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from browser import opened, violations

from report.page import write_report

HEIGHTS = {390: 1500, 1280: 1500}  # pixels of the page that a picture shows
SHOWN = {"top": "#scores", "errors": "#errors-para"}  # picture -> the section at its top


def main(folder: str) -> int:
    """Take all pictures. Returns the exit status."""
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
