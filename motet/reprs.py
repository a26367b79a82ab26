"""How results look in a notebook: small tables that read on a light and on a dark page.

Every text that comes from data is escaped, and no colour is set but the page's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.comparing.comparison import Comparison
    from motet.data.federation import Federation
    from motet.evaluate import Evaluation
    from motet.federation import Run
    from motet.method import AnyMethod

MOST_ROWS = 20
BOX = "font:13px/1.45 system-ui,sans-serif;max-width:60em"
FAINT = "opacity:.7"
TABLE = "border-collapse:collapse;margin:.3em 0;font:inherit;color:inherit"
CELL = "padding:1px 12px 1px 0;text-align:left;background:none;vertical-align:top"
BAR = "display:inline-block;height:.7em;background:currentColor;opacity:.35"


def evaluation_html(evaluation: Evaluation) -> str:
    """Show what is always reported together, and the clients, the worst first."""
    e = evaluation
    names = ("mean", "weighted_mean", "std", "decile", "worst", "loss")
    head = [name.replace("_", " ") for name in names]
    numbers = _table(head, [[f"{getattr(e, name):.4f}" for name in names]])
    ordered = sorted(e.rows, key=lambda row: row.value, reverse=not e.higher_is_better)
    rows = [
        [
            row.client,
            f"{row.value:.4f}",
            _bar(row.value) if e.higher_is_better else "",
            row.examples,
        ]
        for row in ordered[:MOST_ROWS]
    ]
    clients = _table(["client", e.metric, "", "examples"], rows, total=len(ordered))
    about = f"{e.metric} on {e.split}, {e.point}, round {e.round}, {len(e.rows)} clients"
    return _box(_title(e.method, about), numbers, _details("Clients, the worst first", clients))


def run_html(run: Run) -> str:
    """Show how far a run is, and what it warned of."""
    setting = run.setting
    federation, method = setting.federation, setting.method
    facts = [
        ("round", f"{run.finished} of {setting.rounds}"),
        ("data", f"{federation.name}, {len(federation.clients)} clients"),
        ("trained so far", f"{len(setting.store)} clients"),
        ("clients per round", run.cohort if isinstance(run.cohort, int) else f"{run.cohort:.0%}"),
        ("backend", run.backend.name),
        *(("warning", text) for text in run.warnings),
    ]
    hint = "run.evaluate(), run.predict(client, x), run.model(client)"
    return _box(_title(method.card.title, "run"), _table([], facts), _faint(hint))


def federation_html(federation: Federation) -> str:
    """Show who holds how much."""
    f = federation
    sizes = {split: f.sizes(split) for split in ("train", "val", "test")}
    what = "values" if f.classes is None else f"{f.classes} classes"
    about = f"{len(f.clients)} clients, {what}, inputs {'x'.join(map(str, f.shape))}"
    rows = [
        [split, sum(s.values()), min(s.values()), f"{median(s.values()):g}", max(s.values())]
        for split, s in sizes.items()
    ]
    spread = _table(["split", "examples", "least", "median", "most"], rows)
    listed = [[c, *(sizes[split][c] for split in sizes)] for c in f.clients[:MOST_ROWS]]
    clients = _table(["client", *sizes], listed, total=len(f.clients))
    split = _faint(f"split {f.hash[:12]}")
    return _box(_title(f.name, about), spread, _details("Clients", clients), split)


def comparison_html(comparison: Comparison) -> str:
    """Show methods side by side, the mean over seeds; the best mean is bold."""
    c = comparison
    found = [c.summary(label) for label in c.labels]
    higher = bool(c.rows) and c.rows[0].evaluation.higher_is_better
    means = [row["mean"] for row in found]
    best = (max if higher else min)(means, default=None)
    rows = [
        [
            _strong(row["label"]) if row["mean"] == best else row["label"],
            *(f"{row[name]:.4f}" for name in ("mean", "std", "decile", "worst")),
            "" if row["harmed_vs_local"] is None else f"{row['harmed_vs_local']:.0%}",
        ]
        for row in found
    ]
    head = ["method", "mean", "std", "decile", "worst", "harmed versus local"]
    metric = c.rows[0].evaluation.metric if c.rows else "no result"
    about = f"{metric}, {_count(len(c.seeds), 'seed')}, {_count(c.rounds, 'round')}"
    failed = [_faint(f"failed: {f.label}, seed {f.seed}: {f.reason}") for f in c.failures]
    return _box(_title(c.data, about), _table(head, rows), *failed)


def method_html(method: AnyMethod) -> str:
    """Show a method's card, and its hyperparameters as they are set."""
    card = method.card
    facts = [
        ("paper", f"{card.paper} {card.year or ''} {card.link}"),
        ("shared", card.shared),
        ("private", card.private),
        ("down / up", f"{card.down} / {card.up} models per round and client"),
        ("a new client", card.new_client),
    ]
    settings = _table([], [(f.name, repr(getattr(method, f.name))) for f in fields(method)])
    title = _title(card.title, method.name)
    return _box(title, _line(card.idea), _table([], facts), _details("Hyperparameters", settings))


class _Markup(str):
    """Text that is HTML already; everything else is escaped."""

    __slots__ = ()


def _strong(text: str) -> _Markup:
    return _Markup(f"<b>{escape(text)}</b>")


def _bar(share: float) -> _Markup:
    width = 0.0 if math.isnan(share) else min(max(share, 0.0), 1.0)
    return _Markup(f'<span style="{BAR};width:{6 * width:.2f}em"></span>')


def _cell(value: Any) -> str:
    return value if isinstance(value, _Markup) else escape(str(value))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], total: int = 0) -> str:
    body = [list(row) for row in rows]
    names = "".join(f'<th style="{CELL};{FAINT}">{escape(name)}</th>' for name in head)
    lines = ["".join(f'<td style="{CELL}">{_cell(value)}</td>' for value in row) for row in body]
    drawn = "".join(f'<tr style="background:none">{line}</tr>' for line in [names, *lines] if line)
    more = _faint(f"... {total - len(body)} more") if total > len(body) else ""
    return f'<table style="{TABLE}">{drawn}</table>{more}'


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _title(title: str, about: str) -> str:
    return f'<div><b>{escape(title)}</b> <span style="{FAINT}">{escape(about)}</span></div>'


def _line(text: str) -> str:
    return f"<div>{escape(text)}</div>"


def _faint(text: str) -> str:
    return f'<div style="{FAINT}">{escape(text)}</div>'


def _details(summary: str, inside: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def _box(*parts: str) -> str:
    return f'<div style="{BOX}">{"".join(parts)}</div>'
