"""Headless Chromium for tests of pages. A test that asks for it is skipped where no Chromium is installed."""
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@contextmanager
def opened(url: str, width: int = 1280, scheme: str = "light", scripts: bool = True) -> Iterator:
    """A page of the browser. What goes wrong in its scripts, and what it asks of the network, is in page.complaints."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme,
                                      java_script_enabled=scripts)
        page = context.new_page()
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: page.complaints.append(request.url)
                if not request.url.startswith((url.split("#")[0], "data:")) else None)
        page.goto(url)
        yield page
        browser.close()


def violations(page) -> list[str]:
    """What axe finds wrong with the page."""
    from axe_playwright_python.sync_playwright import Axe

    return [f"{found['id']}: {found['nodes'][0]['html'][:200]}" for found in Axe().run(page).response["violations"]]
