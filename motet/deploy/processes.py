"""Processes that end when they should, with everything they have started.

Flower's programs start others, some in sessions of their own, and a program that is killed leaves
its children to nobody. So each process of a federation carries a mark in its environment, which its
descendants inherit: whoever carries the mark belongs to the federation, wherever it hangs now.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import psutil

from motet.closing import Closing

MARK = "MOTET_FEDERATION"
GRACE_S = 15.0  # to end after a request to do so
PR_SET_CHILD_SUBREAPER = 36  # of Linux' <sys/prctl.h>


class Processes(Closing):
    """The processes of one federation, by name; all of them end with the `with` block."""

    def __init__(self, logs: Path) -> None:
        self.logs, self.mark = logs, uuid4().hex
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._sessions: set[int] = set()
        logs.mkdir(parents=True, exist_ok=True)
        adopt_orphans()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a program whose output goes to NAME.log."""
        with self.log(name).open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches us alone, and we end it in order.
            process = subprocess.Popen(
                command,
                env={**environment, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running[name] = process
        self._sessions.add(process.pid)

    def log(self, name: str) -> Path:
        """Say where a program's output goes."""
        return self.logs / f"{name}.log"

    def ended(self) -> dict[str, int]:
        """Return the exit codes of those that have ended by themselves, by name."""
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def stop(self, name: str) -> None:
        """Ask a program to end, and see to it."""
        self._end([name], grace_s=GRACE_S)

    def kill(self, name: str) -> None:
        """End a program and all it has started at once, as a power failure would."""
        self._end([name], grace_s=None)

    def close(self) -> None:
        """End everything: the youngest first, so that nobody loses what it depends on."""
        self._end(list(reversed(self._running)), grace_s=GRACE_S)
        end_marked(self.mark, self._sessions)

    def _end(self, names: Sequence[str], *, grace_s: float | None) -> None:
        leaders = [self._running[name] for name in names]
        families = [member for leader in leaders for member in _descendants(leader.pid)]
        if grace_s is not None:
            for leader in leaders:
                leader.terminate()
            _await_all(leaders, grace_s)
        for leader in leaders:
            leader.kill()
            leader.wait()
        _kill(families)
        for name in names:  # last: an interruption above leaves them for `close`
            del self._running[name]


def end_marked(mark: str, sessions: Collection[int] = ()) -> None:
    """Kill whoever carries the mark, and leave no zombie of these sessions or of theirs."""
    marked = [process for process in psutil.process_iter() if _carries(process, mark)]
    theirs = {_session(process.pid) for process in marked}
    _kill(marked)
    _reap(theirs.union(sessions))


def adopt_orphans() -> None:
    """Become the parent of what our children leave behind, where the system can (Linux).

    In a container whose first process does not bury the dead, orphans would stay zombies, and
    Flower takes a zombie for a parent that is alive.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return process.pid != os.getpid() and process.environ().get(MARK) == mark
    except (psutil.Error, OSError):  # another user's, or gone in the meantime
        return False


def _descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def _await_all(processes: Sequence[subprocess.Popen[bytes]], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=GRACE_S)


def _session(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return pid


def _reap(sessions: Collection[int]) -> None:
    """Bury zombies of these sessions that we have adopted."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE and _session(child.pid) in sessions:
                os.waitpid(child.pid, os.WNOHANG)
