"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import typer

from motet._core.visible_text import visible, visible_json

if TYPE_CHECKING:  # rich is loaded when something is drawn, not for `--help` of a script
    from rich.console import Console

WIDTH = 80


def console(*, stderr: bool = False) -> Console:
    """Open a console that is 80 columns wide at most."""
    from rich.console import Console

    wide = Console(stderr=stderr, highlight=False)
    return Console(stderr=stderr, highlight=False, width=min(WIDTH, wide.width))


def show(text: str) -> None:
    """Write a result, of one line or several.

    Nothing in it can steer the terminal. What must not even end a line (a name in a table) goes
    through `visible` before.
    """
    typer.echo(visible(text, keep="\n"))


def say(text: str) -> None:
    """Write a remark to stderr."""
    # Named, because err=True would go past a table that is being drawn there.
    typer.echo(visible(text, keep="\n"), file=sys.stderr)


def write_now(text: str) -> None:
    """Write a remark past every buffer: a signal handler may interrupt a print under way."""
    os.write(2, f"\n{visible(text)}\n".encode())


def warn(text: str) -> None:
    """Write a warning, on one line."""
    typer.secho(f"warning: {visible(text)}", fg="yellow", file=sys.stderr)


def say_error(sentence: str) -> None:
    """Write why a command failed, on one line."""
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(visible(sentence), err=True)


def write_json(value: Any) -> None:
    """Write the one JSON document of a command."""
    from motet._engine.records import json_text

    typer.echo(visible_json(json_text(value, indent=2)))


def write_json_line(value: Any) -> None:
    """Write one of several JSON documents, on a line of its own."""
    from motet._engine.records import json_text

    typer.echo(visible_json(json_text(value)))  # flushes: a reader may be waiting for the line


def can_draw(text: str) -> bool:
    """Tell whether stdout can show these characters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
