"""HTML of a run for notebooks."""

from __future__ import annotations

from typing import Any, Protocol

from motet._core.notebook_html import box, faint, table, title


class ShownRun(Protocol):
    """What the view looks at; `motet.Run` has it."""

    setting: Any
    backend: Any
    cohort: float | int
    rounds_done: int
    warnings: tuple[str, ...]
    divergence: Any


def run_html(run: ShownRun) -> str:
    """Show how far a run is, and what it warned of."""
    setting = run.setting
    federation, method = setting.federation, setting.method
    diverged = run.divergence.sentences(len(federation.clients))
    facts = [
        ("round", f"{run.rounds_done} of {setting.rounds}"),
        ("data", f"{federation.name}, {len(federation.clients)} clients"),
        ("trained so far", f"{len(setting.store)} clients"),
        ("clients per round", run.cohort if isinstance(run.cohort, int) else f"{run.cohort:.0%}"),
        ("backend", run.backend.name),
        *(("warning", text) for text in dict.fromkeys((*run.warnings, *diverged))),
    ]
    hint = "run.evaluate(), run.predict(client, x), run.model(client)"
    return box(title(method.card.title, "run"), table([], facts), faint(hint))
