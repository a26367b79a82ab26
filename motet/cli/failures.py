"""How a command ends badly: one sentence, and an exit code that says whose turn it is."""

from __future__ import annotations

import os
from typing import Any

import typer

from motet.errors import one_line as one_line

DONE, FAILED, WRONG, STOPPED = 0, 1, 2, 130
HINT = "Set MOTET_TRACEBACK=1 (or call `motet --traceback ...`) to see where it happened."


class RunFailedError(Exception):
    """The request was right, and the run failed all the same."""


class RunStoppedError(Exception):
    """The user stopped the run."""


def report(error: BaseException) -> int:
    """Say what happened in one sentence, and return the exit code."""
    from motet.errors import MotetError, WireError

    if isinstance(error, RunStoppedError):
        typer.echo(str(error), err=True)
        return STOPPED
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        typer.echo("stopped.", err=True)
        return STOPPED
    if isinstance(error, MotetError):
        sentence = " ".join([str(error), *getattr(error, "__notes__", [])])
        # Damaged bytes are nobody's wrong request.
        return _say(sentence, FAILED if isinstance(error, WireError) else WRONG)
    if isinstance(error, RunFailedError):
        return _say(str(error), FAILED)
    if isinstance(error, _usage_error()):
        return _say(_usage(error), WRONG)
    return _say(f"unexpected {type(error).__name__}: {one_line(error)}. {HINT}", FAILED)


def wants_traceback() -> bool:
    """Tell whether errors are to be shown as Python shows them."""
    return os.environ.get("MOTET_TRACEBACK", "") not in ("", "0")


def _say(sentence: str, code: int) -> int:
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(sentence, err=True)
    return code


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "motet"
    return f"{error.format_message().rstrip('.')}; see `{command} --help`."


def _usage_error() -> type[BaseException]:
    """Find the ancestor of what the parser raises; typer does not export it."""
    return next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
