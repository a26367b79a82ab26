"""The command line on hostile files: in an empty place, under a clock, and what it writes."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from motet._cli.main import call

SECONDS = 60  # an answer takes well under one; machines are busy
CONFIG = """
[method]
name = "fedper"
epochs = 1
batch_size = 4
personal = ["head"]
optimizer = {kind = "sgd", lr = 0.1}

[data]
table = "t.csv"
client = "site"
target = "sick"
val = 0.2
test = 0.3

[model]
name = "mlp"
hidden = [4]

[run]
rounds = 1
cohort = 1.0
seed = 3
backend = "serial"
"""
TABLE = "site,age,dose,sick\n" + "".join(
    f"{site},{40 + row},{row / 7:.2f},{row % 2}\n" for site in "ab" for row in range(6)
)


class Outcome(NamedTuple):
    code: int
    err: str
    written: frozenset[str]  # outside the output directory, relative to the parent


def motet(files: Mapping[str, str | bytes], *arguments: object) -> Outcome:
    """Call `motet` beside these files; a call that takes too long is an error of its own."""
    with tempfile.TemporaryDirectory() as parent:
        work = Path(parent) / "work"
        work.mkdir()
        for name, contents in files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_bytes(
                contents if isinstance(contents, bytes) else contents.encode()
            )
        before = snapshot(parent)
        code, err = called(work, *arguments)
        after = snapshot(parent)
    changed = {path for path in before | after if before.get(path) != after.get(path)}
    return Outcome(code, err, frozenset(p for p in changed if not is_output(p)))


def called(place: Path, *arguments: object) -> tuple[int, str]:
    """Call `motet` in a folder; return its exit code and what it says."""
    err, quiet = io.StringIO(), contextlib.redirect_stdout(io.StringIO())
    with contextlib.chdir(place), contextlib.redirect_stderr(err), quiet, clock():
        code = call([str(argument) for argument in arguments])
    return code, err.getvalue()


def quietly(*arguments: object) -> int:
    """Call `motet` here, without a word."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        return call([str(argument) for argument in arguments])


def run(config: str | bytes = CONFIG, table: str | bytes = TABLE) -> Outcome:
    return motet({"c.toml": config, "t.csv": table}, "run", "c.toml", "--out", "out", "--quiet")


def snapshot(parent: str | Path) -> dict[str, bytes | None]:
    """Every path below a folder, with the bytes of files."""
    return {
        str(path.relative_to(parent)): path.read_bytes() if path.is_file() else None
        for path in Path(parent).rglob("*")
    }


def is_output(path: str) -> bool:
    return Path(path).parts[:2] in (("work", "out"), ("work", "page.html"))


def assert_civil(outcome: Outcome) -> None:
    """It worked, or one sentence says why not; nothing lies anywhere else."""
    assert not re.search(r"unexpected \w*(Error|Exception)|Traceback", outcome.err), outcome.err
    assert outcome.code in (0, 1, 2)
    told = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert len(told) == (outcome.code != 0), outcome.err
    assert not outcome.written


class TooLateError(BaseException):
    """Not an Exception: those are what `motet` turns into sentences."""


@contextlib.contextmanager
def clock() -> Iterator[None]:
    def too_late(*_: object) -> None:
        raise TooLateError(f"no answer after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
