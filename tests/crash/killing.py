"""Run worlds once in peace, and again with `kill -9` at random instants; both in child processes.

    python killing.py FOLDER KILLS SEED         # kills for each of 4 methods and 2 stores

Everything is imported once and inherited by the children, so that a kill costs a fraction of a
second and not the start of an interpreter. No child shares anything else with another one.
"""

import os
import signal
import sys
import time
import traceback
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet  # noqa: F401  (what a run imports late)
import sklearn.datasets  # noqa: F401
import torch._dynamo  # noqa: F401
from worlds import METHODS, STORES, world

from motet.keys import Key
from motet.session import begin, resume


def work(path: Path, experiment) -> None:
    """Begin the run, or go on with it, to its end."""
    session = resume(path) if (path / "config.toml").exists() else begin(experiment, path)
    with session.directory:
        for _ in session.rounds():
            pass
        session.conclude()


def child(path: Path, experiment) -> int:
    """Start a process that works; return its id."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work(path, experiment)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return process


def finished(path: Path, experiment, patience: float = float("inf")) -> bool:
    """Let a child work, and kill it when the patience ends."""
    process, started = child(path, experiment), time.monotonic()
    while time.monotonic() - started < patience:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            assert status == 0, f"the run in {path} failed: exit status {status}"
            return True
        time.sleep(0.0005)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False


def torment(root: Path, experiment, kills: int, rng: np.random.Generator) -> int:
    """Kill runs until there were enough kills, end each in peace at last, and count them."""
    started = time.monotonic()
    finished(root / "whole", experiment)
    longest = time.monotonic() - started
    runs = done = 0
    while done < kills:
        path, runs, ended = root / f"broken-{runs}", runs + 1, False
        while done < kills and not ended:
            ended = finished(path, experiment, rng.uniform(0, longest))
            done += not ended
        if not ended:
            finished(path, experiment)
    return runs


def main(folder: str, kills: str, seed: str) -> None:
    """Torment every method with every store."""
    for method, store in product(METHODS, STORES):
        rng = Key(int(seed)).fold("kills", method, store).numpy()
        runs = torment(Path(folder, method, store), world(method, store), int(kills), rng)
        sys.stdout.write(f"{method}, {store}: {kills} kills in {runs} runs\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
