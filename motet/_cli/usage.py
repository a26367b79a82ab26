"""Errors of the parser, with what to write instead."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from motet._core.option_table import ROWS

# Sections of a config that `--set` of a command reaches.
SETTABLE = {
    "data": ("data",),
    "run": ("method", "model", "data", "run"),
    "compare": ("method", "model", "data", "run", "compare"),
}
ALIKE = 0.75  # of difflib: --metod is alike --method, --workers is not alike --store


def usage(error: Any) -> str:
    """Describe a mistake in the arguments in one sentence, and say where to look."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "motet"
    name = getattr(error, "option_name", None)
    if name is not None and hasattr(error, "possibilities"):
        known = [o for p in context.command.params for o in p.opts] if context is not None else []
        message = f"there is no option {name}{_instead(name, command.split()[-1], known)}"
    else:
        message = error.format_message().rstrip(".")
    return f"{message}{' See' if message.endswith('?') else '; see'} `{command} --help`."


def _instead(name: str, command: str, known: list[str]) -> str:
    """Say what the option is called, or which key of a config it is.

    >>> _instead("--client", "run", [])
    '; use --client-column'
    >>> _instead("--workers", "run", ["--store"])
    '; use `--set run.workers=VALUE`'
    >>> _instead("--budget", "compare", ["--budget-bytes"])
    '. Did you mean --budget-bytes?'
    >>> _instead("--metod", "run", ["--method", "--model"])
    '. Did you mean --method?'
    """
    key = name.lstrip("-").replace("-", "_")
    rows = [row for row in ROWS if row.key is not None and row.key.rpartition(".")[2] == key]
    for row in rows:
        if row.flag and command in row.commands:
            return f"; use {row.flag.partition('/')[0]}"
    longer = [option for option in known if option.startswith(f"{name}-")][:3]
    if longer:
        return f". Did you mean {' or '.join(longer)}?"
    for row in rows:
        if row.key and row.key.partition(".")[0] in SETTABLE.get(command, ()):
            return f"; use `--set {row.key}=VALUE`"
    close = get_close_matches(name, known, n=2, cutoff=ALIKE)
    if close:
        return f". Did you mean {' or '.join(close)}?"
    if command in ("run", "compare"):
        return f"; a hyperparameter of a method is set by `--set method.{key}=VALUE`"
    return ""
