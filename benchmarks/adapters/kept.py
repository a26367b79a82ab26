"""Comparisons that can be interrupted, kept run by run, and the lines of their table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import motet
from motet._compare.compare import run_comparison, tuned_spec
from motet._compare.comparison_dir import ComparisonDirectory
from motet._compare.comparison_spec import ComparisonSpec

HEADER = (
    "| shared | test accuracy | against Local (95% interval) | a user's interval | above | below "
    "| helped | harmed | kB up | s |\n|---|---|---|---|---|---|---|---|---|---|"
)


def compared(
    folder: Path,
    methods: dict[str, Any],
    task: motet.Task,
    data: motet.data.Federation,
    *,
    watcher: motet.tracking.Watcher,
    **given: Any,
) -> motet.Comparison:
    """Run what `folder` does not hold yet."""
    spec = ComparisonSpec.of(methods, task, data, **given)
    if (folder / "config.toml").exists():
        directory = ComparisonDirectory.open(folder)
        directory.verify(data)
    else:
        directory = ComparisonDirectory.create(folder, {"methods": list(methods)}, data)
    with directory:
        tuned = tuned_spec(spec, directory, motet.tracking.Watcher())
        return run_comparison(tuned, directory, watcher)


def line(found: motet.Comparison, verdict: motet.Verdict, label: str, local: str) -> str:
    """Return one method's line: the mean, its gain over Local, clients by verdict, the cost."""
    rows = found.of(label)
    mean = np.mean([row.evaluation.mean for row in rows])
    sent = np.mean([row.cost.bytes_up / row.rounds / len(row.evaluation.rows) for row in rows])
    seconds = np.median([row.cost.seconds / row.rounds for row in rows])
    cost = f"{sent / 1000:.0f} | {seconds:.1f}"
    gain = verdict.against(label, local)
    if gain is None:
        return f"| {label} | {mean:.3f} | | | | | | | {cost} |"
    sites = verdict.of_sites(label, local)
    states = Counter(site.state for site in sites)
    width = np.median([(site.high - site.low) / 2 for site in sites])
    above, below = sum(s.gain > 0 for s in sites), sum(s.gain < 0 for s in sites)
    told = f"{gain.mean * 100:+.1f} ({gain.low * 100:+.1f} to {gain.high * 100:+.1f})"
    counts = f"{above} | {below} | {states['helped']} | {states['harmed']}"
    return f"| {label} | {mean:.3f} | {told} | ± {width * 100:.0f} | {counts} | {cost} |"
