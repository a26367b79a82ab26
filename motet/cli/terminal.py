"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
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
    # Named, because err=True would go past a table that is being drawn there.
    typer.echo(text, file=sys.stderr)


def write_now(text: str) -> None:
    """Write a remark past every buffer: a signal handler may interrupt a print under way."""
    os.write(2, f"\n{text}\n".encode())


def warn(text: str) -> None:
    """Write a warning."""
    typer.secho(f"warning: {text}", fg="yellow", file=sys.stderr)


def write_json(value: Any) -> None:
    """Write the one JSON document of a command."""
    from motet.records import json_text

    typer.echo(json_text(value, indent=2))


def write_json_line(value: Any) -> None:
    """Write one of several JSON documents, on a line of its own."""
    from motet.records import json_text

    typer.echo(json_text(value))  # flushes: somebody may be waiting for the line


def can_draw(text: str) -> bool:
    """Tell whether stdout can show these characters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
