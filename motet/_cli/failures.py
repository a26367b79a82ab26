"""Errors of a command: one sentence on stderr, and an exit code for each kind of error."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextvars import ContextVar

import typer

from motet._cli.stopping import exit_code, sentence
from motet._cli.terminal import say, say_error
from motet._cli.usage import in_flags, usage
from motet._core.visible_text import excerpt, visible
from motet.errors import one_line as one_line

DONE, FAILED, WRONG = 0, 1, 2
TRACEBACK = ContextVar("TRACEBACK", default=False)  # --traceback, for one call
HINT = "Set MOTET_TRACEBACK=1 (or call `motet --traceback ...`) to see where it happened."


class RunFailedError(Exception):
    """The request was right, and the run failed all the same."""


class RunStoppedError(Exception):
    """The user stopped the run, or a batch system did."""

    def __init__(self, sentence: str, stop: BaseException) -> None:
        super().__init__(sentence)
        self.code = exit_code(stop)


def report(error: BaseException, arguments: Sequence[str] = ()) -> int:
    """Say what happened in one sentence, and return the exit code."""
    from motet.errors import MotetError, WireError

    if isinstance(error, RunStoppedError):
        say(visible(str(error)))
        return error.code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        say(visible(sentence(error)))
        return exit_code(error)
    if isinstance(error, MotetError):
        text = " ".join([in_flags(error, arguments), *getattr(error, "__notes__", [])])
        # Damaged files are not a wrong request.
        return _say(text, FAILED if isinstance(error, WireError) else WRONG)
    if isinstance(error, RunFailedError):
        return _say(str(error), FAILED)
    if isinstance(error, _usage_error()):
        return _say(usage(error, arguments), WRONG)
    return _say(*_unforeseen(error))


def wants_traceback() -> bool:
    """Tell whether errors are to be shown as Python shows them."""
    return TRACEBACK.get() or os.environ.get("MOTET_TRACEBACK", "") not in ("", "0")


def _say(text: str, code: int) -> int:
    say_error(text)
    return code


def _unforeseen(error: BaseException) -> tuple[str, int]:
    """Describe an error that no command expects: by its file, if it is about one."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = "" if error.filename is None else f" for {excerpt(str(error.filename))}"
        return f"the disk is full{where}. Free some space, or write to another disk.", FAILED
    if isinstance(error, FileExistsError | NotADirectoryError) and error.filename is not None:
        where = excerpt(str(error.filename))
        return f"{where} is a file, or lies below one; expected a directory.", WRONG
    if isinstance(error, OSError) and error.filename is not None:
        why = (error.strerror or type(error).__name__).lower()
        return f"{excerpt(str(error.filename))} cannot be used: {why}. {HINT}", WRONG
    return f"unexpected {type(error).__name__}: {one_line(error)}. {HINT}", FAILED


def _usage_error() -> type[BaseException]:
    """Find the ancestor of what the parser raises; typer does not export it."""
    return next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
