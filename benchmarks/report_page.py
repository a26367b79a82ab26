"""How large a report is, and how long a browser works on it (docs/decisions/0012).

    python benchmarks/report_page.py --clients 1000 --methods 10 --seeds 3

Times are the browser's own processor time, which other programs on the machine do not disturb. The
limits are generous: a page below 6 MB, readable and ready to draw within 2 seconds.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from motet._compare.comparison import Comparison
from motet._engine.evaluation import Evaluation, Score
from motet._engine.results import Cost, Look, Row
from motet._verdict.federation_summary import FederationSummary
from motet.report import write

MOST_BYTES, MOST_SECONDS = 6e6, 2.0
CLASSES, ROUNDS = 10, 50
REFERENCES = ("local", "fedavg", "fedavg-ft")
pairs = partial(zip, strict=True)
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


def invented(clients: int, methods: int, seeds: int) -> Comparison:
    rng = np.random.default_rng(0)
    names = [f"client-{number:04d}" for number in range(clients)]
    labels = [*REFERENCES, *(f"method-{number}" for number in range(methods))][:methods]
    counts = rng.integers(0, 60, (clients, CLASSES))
    return Comparison(
        rows=tuple(one_row(label, seed, names, rng) for label in labels for seed in range(seeds)),
        data="invented",
        split="0" * 64,
        rounds=ROUNDS,
        cohort=0.1,
        federation=FederationSummary(
            name="invented",
            sizes={
                c: {"train": int(n), "val": 9, "test": 9} for c, n in pairs(names, counts.sum(1))
            },
            histograms={c: tuple(n) for c, n in pairs(names, counts.tolist())},
            emd=dict(pairs(names, rng.random(clients).tolist())),
        ),
    )


def one_row(label: str, seed: int, names: list[str], rng: np.random.Generator) -> Row:
    scores = [Score(c, 9, *rng.random(2).tolist()) for c in names]
    spent = {"bytes_up": 10**6, "bytes_down": 10**6, "gradients": 1e5, "seconds": 9.0}
    seen = dict.fromkeys(("mean", "std", "decile", "worst", "loss"), 0.5)
    return Row(
        label=label,
        seed=seed,
        evaluation=Evaluation(label, "accuracy", "test", "after_adapt", ROUNDS, tuple(scores)),
        cost=Cost(**spent, private_bytes=0.0),
        rounds=ROUNDS,
        curve=tuple(Look(round=number, **seen, **spent) for number in range(ROUNDS)),
    )


class Clock:
    """How long a page has kept the processor busy since it was last asked."""

    def __init__(self, page: Page) -> None:
        self.session, self.before = page.context.new_cdp_session(page), 0.0
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def lap(self) -> float:
        metrics = self.session.send("Performance.getMetrics")["metrics"]
        now = next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
        took, self.before = now - self.before, now
        return took


def measure(path: Path) -> dict[str, float]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(FLAGS)
        )
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        clock = Clock(page)
        clock.lap()
        page.goto(path.as_uri())
        found = {"readable": clock.lap()}
        page.wait_for_function("window.Plotly !== undefined")
        found["unpacked"] = clock.lap()
        for figure in page.locator("figure.chart").all():
            figure.scroll_into_view_if_needed()
            figure.locator(".plot.drawn").wait_for()
            page.wait_for_timeout(300)
            found[str(figure.get_attribute("data-chart"))] = clock.lap()
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("clients", 1000), ("methods", 10), ("seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        write(invented(asked.clients, asked.methods, asked.seeds), path)
        size, found = path.stat().st_size, measure(path)
    print(f"{'page':16} {size / 1e6:6.2f} MB")
    for name, seconds in found.items():
        print(f"{name:16} {seconds:6.2f} s")
    assert size < MOST_BYTES
    assert found["readable"] + found["unpacked"] < MOST_SECONDS


if __name__ == "__main__":
    main()
