"""A real comparison, its page, and a browser that complains about every error on it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from motet._cli.main import call

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
METHODS = "local,fedavg,fedavg-ft,fedper,fedfomo,knn-per,ditto,cfl,flow,fedalt,apfl"

sys.path.insert(0, str(Path(__file__).parent.parent / "report"))  # the invented comparison


@pytest.fixture(scope="module")  # not longer: it leaves an event loop running in this thread
def chromium() -> Iterator[Any]:
    """Start the browser, or say why there is none."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compare eleven methods on a small federation, kept in a directory with its page."""
    directory = tmp_path_factory.mktemp("compared") / "out"
    asked = f"compare --methods {METHODS} --data digits --clients 6 --rounds 2 --seeds 2 --quiet"
    assert call([*asked.split(), "--out", str(directory)]) == 0
    return directory


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open a page; the test fails if the page says a word on its console."""
    said, contexts = [], []

    def open_page(
        path: str | Path, *, width: int = 1024, dark: bool = False, draw: bool = True
    ) -> Any:
        scheme = "dark" if dark else "light"
        size = {"width": width, "height": 900}
        contexts.append(chromium.new_context(viewport=size, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.set_default_timeout(120_000)  # milliseconds: other tests may be busy beside this one
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: _only_the_file(request.url, said))
        page.goto(Path(path).as_uri())
        if draw:
            draw_all(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not said


def _only_the_file(address: str, said: list[str]) -> None:
    if not address.startswith(("file:", "data:", "blob:")):
        said.append(f"the page asks the network for {address}")


def draw_all(page: Any) -> None:
    """Scroll to each chart, and wait until it is drawn."""
    for figure in page.locator("figure.chart").all():
        figure.scroll_into_view_if_needed()
        figure.locator(".plot.drawn .main-svg").first.wait_for()
