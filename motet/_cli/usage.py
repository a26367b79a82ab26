"""Errors of the parser, with what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from motet._core.option_table import ROWS

if TYPE_CHECKING:
    from motet.errors import MotetError

# Sections of a config that `--set` of a command reaches.
SETTABLE = {
    "data": ("data",),
    "run": ("method", "model", "data", "run"),
    "compare": ("method", "model", "data", "run", "compare"),
}
ALIKE = 0.75  # of difflib: --metod is alike --method, --workers is not alike --store


def usage(error: Any, arguments: Sequence[str] = ()) -> str:
    """Describe a mistake in the arguments in one sentence, and say where to look."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else _command(arguments)
    name = getattr(error, "option_name", None)
    if name is not None and hasattr(error, "possibilities"):
        known = [o for p in context.command.params for o in p.opts] if context is not None else []
        message = f"there is no option {name}{_instead(name, command.split()[-1], known)}"
    else:
        message = error.format_message().rstrip(".")
        if "unexpected extra argument" in message:
            message += ". Separate names by commas, and put quotes around text with spaces"
        elif name is not None and "requires an argument" in message:
            message = f"{name} expects a value, and nothing follows it"
    return f"{message}{' See' if message.endswith('?') else '; see'} `{command} --help`."


def _command(arguments: Sequence[str]) -> str:
    """Name the command that the arguments begin with.

    The parser does not say which one it was when an option has no value.
    """
    words = list(takewhile(lambda word: word[:1] != "-", arguments))
    depth = 3 if words[:2] == ["deploy", "site"] else 2 if words[:1] == ["deploy"] else 1
    return " ".join(["motet", *words[:depth]])


def in_flags(error: MotetError, arguments: Sequence[str]) -> str:
    """Say what an error says, with the flag that was typed instead of a key or an argument.

    >>> from motet.errors import RequestError
    >>> error = RequestError("Sgd(lr=) must be 0 or more; got -1.", option="method.optimizer.lr")
    >>> in_flags(error, ["run", "--lr", "-1"])
    '--lr must be 0 or more; got -1.'
    >>> in_flags(error, ["run", "--set", "method.optimizer.lr=-1"])
    '--set method.optimizer.lr must be 0 or more; got -1.'
    >>> in_flags(error, ["run", "study.toml"])
    'method.optimizer.lr must be 0 or more; got -1.'
    """
    from motet.errors import named

    if error.option is None:
        return str(error)
    typed = _typed(error.option, arguments)
    if typed is not None:
        return named(str(error.args[0]), error.option, typed)
    # Without a config, what was not typed as a flag is an argument of the command.
    has_config = any(argument.endswith(".toml") for argument in arguments)
    return str(error if has_config or not error.args else error.args[0])


def _typed(option: str, arguments: Sequence[str]) -> str | None:
    """Find what was typed for an option: a flag, or an assignment."""
    given = [argument.partition("=")[0] for argument in arguments]
    flags = [(row.key, row.flag.partition("/")[0]) for row in ROWS if row.key and row.flag]
    found = [(key, flag) for key, flag in flags if flag in given]
    found += [(text, f"--set {text}") for text in given if "." in text and text[0] != "-"]
    same = [name for key, name in found if key == option]
    # `--lr` sets method.lr, and the error is about methods.fedprox.optimizer.lr.
    chosen = same or [name for key, name in found if _alike(key, option)]
    flag = f"--{option.replace('_', '-')}"  # of a command without a config
    if not chosen and flag in given:
        return flag
    return chosen[0] if len(chosen) == 1 else None


def _alike(key: str, option: str) -> bool:
    *above, last = key.split(".")
    *sections, name = option.split(".")
    return last == name and (not sections or above[0] == sections[0].replace("methods", "method"))


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
    >>> _instead("-o", "run", ["--out", "--store"])
    '. Did you mean --out?'
    """
    key = name.lstrip("-").replace("-", "_")
    rows = [row for row in ROWS if row.key is not None and row.key.rpartition(".")[2] == key]
    for row in rows:
        if row.flag and command in row.commands:
            return f"; use {row.flag.partition('/')[0]}"
    start = f"{name}-" if name.startswith("--") else f"-{name[:2]}"
    longer = [option for option in known if option.startswith(start)][:3]
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
