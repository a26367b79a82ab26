"""`motet methods`: a table of methods, and the card of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from motet._cli import options
from motet._cli.completion import COMPLETIONS

if TYPE_CHECKING:  # rich and torch are loaded when the command is called
    from rich.table import Table

    from motet.method import AnyMethod


LEGEND = """\
Down and up: what crosses the network per round, in models, for each client.
K: clients keep state between rounds.  S: the server needs single uploads, so
secure aggregation cannot hide them.  `motet methods NAME` shows the paper."""


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show the card of one method.",
            show_default=False,
            autocompletion=COMPLETIONS["method"],
        ),
    ] = None,
    *,
    _seed: options.UnusedSeed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List the methods, or show one with all its hyperparameters and their defaults."""
    from motet._cli.terminal import console, show, write_json
    from motet.methods._catalog import method_class, method_names

    classes = [method_class(each) for each in ([name] if name else method_names())]
    if as_json:
        cards = [_as_dict(each) for each in classes]
        write_json(cards[0] if name else cards)
    elif quiet:
        show("\n".join(each.name for each in classes))
    elif name:
        _show_card(classes[0])
    else:
        console().print(_table(classes))
        show(LEGEND)


def _table(classes: list[type[AnyMethod]]) -> Table:
    from rich.table import Table

    rows = ("", "dim")  # told apart without a line between them
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", width=80, row_styles=rows)
    drawn.add_column("method", min_width=max(len(each.name) for each in classes))
    drawn.add_column("year", min_width=4)
    drawn.add_column("shared / private", ratio=4)
    drawn.add_column("down / up", ratio=3)
    drawn.add_column("", min_width=2)
    drawn.add_column("a new client", ratio=4)
    for each in classes:
        card = each.card
        drawn.add_row(
            each.name,
            str(card.year or ""),
            f"{card.shared} / {card.private}",
            f"{card.down} / {card.up}",
            _letters(each),
            card.new_client,
        )
    return drawn


def _letters(method: type[AnyMethod]) -> str:
    keeps = "K" if method.stateful else ""
    return keeps + ("S" if method().reduce.needs_single_uploads else "")


def _show_card(method: type[AnyMethod]) -> None:
    from rich.table import Table
    from rich.text import Text

    from motet._cli.terminal import console, show
    from motet.config._hyperparameters import hyperparameters

    card, screen = method.card, console()
    screen.print(Text(f"{card.title}  ({method.name})", style="bold"))
    screen.print(f"{card.idea}\n")
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0), width=80)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for what, text in _facts(method).items():
        facts.add_row(what, Text(text))
    screen.print(facts)
    screen.print(Text("\nHyperparameters", style="bold"))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), width=80)
    table.add_column(no_wrap=True)
    table.add_column(max_width=24, overflow="fold")
    table.add_column(ratio=1)
    for each in hyperparameters(method):
        table.add_row(each.name, Text(each.default), Text(each.meaning, style="dim"))
    screen.print(table)
    show(f"\nmotet run --method {method.name} --set method.KEY=VALUE")


def _facts(method: type[AnyMethod]) -> dict[str, str]:
    from motet._core.points import MEANING

    card = method.card
    paper = f"{card.paper}, {card.year}" if card.year else card.paper
    single = method().reduce.needs_single_uploads
    return {
        "paper": f"{paper}  {card.link}".strip(),
        "shared": card.shared,
        "private": card.private,
        "down / up": f"{card.down} / {card.up} models per round and client",
        "a new client": card.new_client,
        "scored": f"{MEANING[method.reported]} ({method.reported})",
        "clients": "keep state between rounds"
        if method.stateful
        else "keep nothing between rounds",
        "uploads": "compared one by one"
        if single
        else "averaged: secure aggregation can hide them",
    }


def _as_dict(method: type[AnyMethod]) -> dict[str, Any]:
    from dataclasses import asdict

    from motet.config import method_to_dict
    from motet.config._hyperparameters import hyperparameters

    return {
        "name": method.name,
        "card": asdict(method.card),
        "defaults": method_to_dict(method()),
        "hyperparameters": {each.name: each.meaning for each in hyperparameters(method)},
        "single_uploads": method().reduce.needs_single_uploads,
        "stateful": method.stateful,
        "reported": method.reported,
    }
