"""Take the screenshots under docs/images again: four of a terminal, five of a report.

Usage: scripts/demo && python scripts/screenshots.py runs/demo/report.html

Needs chromium, playwright and Pillow. Commands are those of docs/start/first-report.md and run with
the `motet` that is found on the path, in a temporary folder.
"""

from __future__ import annotations

import html
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parents[1] / "docs"
IMAGES = DOCS / "images"
TABLE = "--table patients.csv --client-column hospital --target outcome"
# The picture, the command, and how many lines of it are shown.
TERMINALS = {
    "doctor": ("motet doctor", 40),
    "data-terminal": (
        f"motet data {TABLE} \\\n    --drop patient --categorical sex --missing median",
        16,
    ),
    "init-config": ("cat study.toml", 34),
    "compare-terminal": ("motet compare study.toml --rounds 20 --seeds 1 --out runs/study", 29),
}
# The picture, width and height of the window, pixels per point, dark or not.
REPORTS = {
    "report": (1024, 900, 1, False),
    "report-desktop-light": (1280, 860, 1, False),
    "report-desktop-dark": (1280, 860, 1, True),
    "report-phone-light": (390, 844, 2, False),
    "report-phone-dark": (390, 844, 2, True),
}
SCREEN = """<body style="margin: 0; display: inline-block; background: #17181c; color: #e8e8e8">
<pre style="margin: 18px 22px; font: 14px/1.35 'DejaVu Sans Mono', monospace">{}</pre></body>"""
# Home and data are those of an invented user, not of the person who takes the pictures.
HIDDEN = {"HOME": "/home/ada", "MOTET_DATA": "", "COLUMNS": "80", "NO_COLOR": "1"}


def main(report: Path) -> None:
    """Write all pictures."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for name, shown in _terminals(Path(folder)).items():
            page = browser.new_page(viewport={"width": 1000, "height": 400})
            page.set_content(SCREEN.format(html.escape(shown)))
            _write(name, page.locator("body").screenshot())
        for name, (width, height, scale, dark) in REPORTS.items():
            page = browser.new_page(
                viewport={"width": width, "height": height},
                device_scale_factor=scale,
                color_scheme="dark" if dark else "light",
            )
            page.goto(report.resolve().as_uri())
            page.locator("figure.chart .plot.drawn .main-svg").first.wait_for()
            _write(name, page.screenshot())
        browser.close()


def _terminals(folder: Path) -> dict[str, str]:
    """Run the commands of the first steps, and return what a terminal shows of each."""
    text = (DOCS / "start" / "first-report.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    for block in blocks:
        if "patients.csv" in block:  # the table is written, and then the config
            _run(block, folder)
    return {
        name: f"$ {command}\n{_cut(_run(command, folder), lines)}"
        for name, (command, lines) in TERMINALS.items()
    }


def _run(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, **HIDDEN},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _cut(text: str, lines: int) -> str:
    shown = [line.rstrip() for line in text.rstrip().splitlines()]
    return "\n".join([*shown[:lines], "..."] if len(shown) > lines else shown)


def _write(name: str, picture: bytes) -> None:
    """Write a picture with 256 colours, which takes about a third of the bytes."""
    few = Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
