"""Run worlds once in peace, and again with `kill -9`; all of it in child processes.

    python killing.py FOLDER KILLS SEED         # kills for each of 4 methods and 2 stores

Kills take turns: right before a random change on disk, counted from the start of the process, and
at a random instant. A save is a small part of a run, so the clock alone seldom meets the middle of
one; and only the clock meets the inside of a commit. Then one short run is killed before each
change of its beginning and of its last save, so that no gap in them is left to luck.

Everything is imported once and inherited by the children, so that a kill costs a fraction of a
second and not the start of an interpreter. No child shares anything else with another one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet  # noqa: F401  (what a run imports late)
import sklearn.datasets  # noqa: F401
import torch._dynamo  # noqa: F401
from fuses import Fuse
from worlds import METHODS, STORES, world

from motet._core.keys import Key
from motet._runs.recorded_run import begin, resume

Work = Callable[[Path, Any], None]  # (directory, what to run)
BEGINNING = 16  # changes that make the directory and the first tables


def work(path: Path, experiment: Any) -> None:
    """Begin the run, or go on with it, to its end."""
    session = resume(path) if (path / "config.toml").exists() else begin(experiment, path)
    with session.directory:
        for _ in session.rounds():
            pass
        session.conclude()


def child(path: Path, experiment: Any, fuse: Fuse | None, work: Work = work) -> int:
    """Start a process that works; return its id."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            if fuse is not None:
                fuse.light(path)
            work(path, experiment)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return process


def finished(
    path: Path,
    experiment: Any,
    *,
    fuse: Fuse | None = None,
    patience: float = float("inf"),
    work: Work = work,
) -> bool:
    """Let a child work until it ends, its fuse kills it, or the patience is over."""
    process, started = child(path, experiment, fuse, work), time.monotonic()
    while time.monotonic() - started < patience:
        done, status = os.waitpid(process, os.WNOHANG)
        if done and fuse is not None and status == signal.SIGKILL:
            return False
        if done:
            assert status == 0, f"the run in {path} failed: exit status {status}"
            return True
        time.sleep(0.0005)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False


def torment(root: Path, experiment: Any, kills: int, rng: np.random.Generator) -> int:
    """Kill runs until there were enough kills, end each in peace at last, and count them."""
    root.mkdir(parents=True)
    started, counter = time.monotonic(), Fuse()
    finished(root / "whole", experiment, fuse=counter)
    longest, changes = time.monotonic() - started, counter.burnt
    runs = done = 0
    while done < kills:
        path, runs, ended = root / f"broken-{runs}", runs + 1, False
        while done < kills and not ended:
            if done % 2:
                ended = finished(path, experiment, patience=rng.uniform(0, longest))
            else:
                ended = finished(path, experiment, fuse=Fuse(int(rng.integers(changes))))
            done += not ended
        if not ended:
            finished(path, experiment)
    return runs


def sweep(root: Path, experiment: Any) -> int:
    """Kill a run of two rounds before each change of its beginning and of its second half."""
    root.mkdir(parents=True)  # made once, by no run, so that every run makes the same changes
    counter = Fuse()
    finished(root / "whole", experiment, fuse=counter)
    changes = (*range(BEGINNING), *range(counter.burnt // 2, counter.burnt))
    for number in changes:
        path = root / f"broken-{number}"
        assert not finished(path, experiment, fuse=Fuse(number)), f"no change number {number}"
        finished(path, experiment)
    return len(changes)


def main(folder: str, kills: str, seed: str) -> None:
    """Torment every method with every store, and one with every gap in a save."""
    sys.dont_write_bytecode = True  # compiled modules would count among the changes on disk
    for method, store in product(METHODS, STORES):
        rng = Key(int(seed)).fold("kills", method, store).numpy()
        runs = torment(Path(folder, method, store), world(method, store), int(kills), rng)
        sys.stdout.write(f"{method}, {store}: {kills} kills in {runs} runs\n")
    swept = sweep(Path(folder, "swept"), world("scaffold", "disk", rounds=2))
    sys.stdout.write(f"sweep: {swept} kills\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
