"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:  # rich is loaded when something is drawn, not for `--help` of a script
    from rich.console import Console

WIDTH = 80


def console(*, stderr: bool = False) -> Console:
    """Open a console that is 80 columns wide at most."""
    from rich.console import Console

    wide = Console(stderr=stderr, highlight=False)
    return Console(stderr=stderr, highlight=False, width=min(WIDTH, wide.width))


def say(text: str) -> None:
    """Write a remark, which is no result."""
    typer.echo(text, err=True)


def warn(text: str) -> None:
    """Write a warning."""
    typer.secho(f"warning: {text}", fg="yellow", err=True)


def write_json(value: Any) -> None:
    """Write the one JSON document of a command."""
    from motet.records import json_text

    typer.echo(json_text(value, indent=2))


def can_draw(text: str) -> bool:
    """Tell whether stdout can show these characters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
