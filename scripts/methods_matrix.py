"""Write docs/methods/README.md: what every method shares, keeps, costs and can do, from its card.

Usage: python scripts/methods_matrix.py
"""

from __future__ import annotations

from pathlib import Path

from motet.method import AnyMethod, Method
from motet.methods._catalog import method_class, method_names
from motet.privacy._guarantees import OF_METHODS, Promise

FOLDER = Path(__file__).parents[1] / "docs" / "methods"
PAGE = FOLDER / "README.md"
SHARED_PAGES = {"heur-fedamp": "fedamp"}  # variants that are described on another method's page
HEAD = """\
# Methods

One page per method: the idea, the equations, what crosses the network, defaults and their source,
laws that are tested, deviations from the paper, how it is scored, and how a new client is served.
`motet methods NAME` shows the card of one in a terminal. `scripts/methods_matrix.py` writes this
page from the cards.

## All methods side by side

- **Travels**: what goes to the server and back; **stays**: what never leaves a client.
- **Down / up**: models that a client receives and sends per round.
- **Gradients**: evaluations per training example and epoch, by phase where a round has several.
- **A new client**: how a client is served that took no part in training.
- **DP**: whether DP-SGD gives a guarantee for everything that leaves a client
  ([which one](../guides/privacy.md)).
- **Deploys**: whether `motet deploy` runs it over real sites. With *single uploads* the server
  needs each client's upload, so secure aggregation could not hide it.

| method | travels | stays | down / up | gradients | a new client | DP | deploys |
|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    """Return the text of the page."""
    rows = [_row(name) for name in method_names()]
    tree = "\n".join(sorted({_page_of(name) for name in method_names()}))
    return f"{HEAD}{''.join(rows)}\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{tree}\n```\n"


def _row(name: str) -> str:
    kind = method_class(name)
    card = kind.card
    cells = (
        f"[{card.title}]({_page_of(name)}.md)",
        card.shared,
        card.private,
        f"{card.down} / {card.up}",
        _gradients(kind),
        card.new_client,
        "yes" if isinstance(OF_METHODS[name], Promise) else "no",
        _deploys(kind),
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"


def _gradients(kind: type[AnyMethod]) -> str:
    """Say how many gradients an epoch takes per example, by phase if there are several."""
    method = kind()
    phases = {phase: method.gradients.get(phase, 1.0) for phase in method.plans()}
    if len(phases) == 1:
        return f"{next(iter(phases.values())):g}"
    return ", ".join(f"{phase} {count:g}" for phase, count in phases.items())


def _deploys(kind: type[AnyMethod]) -> str:
    if kind.prepare is not Method.prepare:
        return "no: it moves examples"
    return "yes; single uploads" if kind().reduce.needs_single_uploads else "yes"


def _page_of(name: str) -> str:
    return SHARED_PAGES.get(name, name).replace("-", "_")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
