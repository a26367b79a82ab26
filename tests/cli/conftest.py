"""The command line in this process, and in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from motet._cli.main import call

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in the background of a shell; the programs that are tested here must hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def motet(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Outcome]:
    """Call `motet` in this process, in an empty directory, on 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("MOTET_TRACEBACK", raising=False)

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = call([str(argument) for argument in arguments])
        return Outcome(code, *capfd.readouterr())

    return run


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start `motet` as a process of its own."""

    def start(*arguments: object, **settings: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from motet._cli.entry import main; main()",
                *map(str, arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", **settings},
        )

    return start
