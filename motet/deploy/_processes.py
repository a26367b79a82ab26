"""Processes that are reliably stopped together with everything they have started.

Flower's programs start others, some in sessions of their own, and a program that is killed leaves
orphans behind. So each process of a federation has a mark in its environment, which its descendants
inherit: every process with the mark belongs to the federation, whatever its parent is now.
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

MARK = "MOTET_FEDERATION"
GRACE_S = 15.0  # for a program to end after SIGTERM
PR_SET_CHILD_SUBREAPER = 36  # from Linux's <sys/prctl.h>


class Processes(contextlib.AbstractContextManager["Processes"]):
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
            # A session of its own, so that Ctrl-C in the terminal reaches only this process, which
            # then stops the others in order.
            process = subprocess.Popen(
                command,
                env={**environment, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,  # databases and private states are for this account alone
            )
        self._running[name] = process
        self._sessions.add(process.pid)

    def log(self, name: str) -> Path:
        """Return the path of a program's log."""
        return self.logs / f"{name}.log"

    def ended(self) -> dict[str, int]:
        """Return the exit codes of programs that have ended on their own, by name."""
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def members(self, name: str, word: str) -> list[psutil.Process]:
        """List the processes below a program whose command contains a word."""
        if name not in self._running:
            return []
        found = _descendants(self._running[name].pid)
        return [process for process in found if word in _command(process)]

    def stop(self, name: str) -> None:
        """Ask a program to end, and kill it if it does not."""
        self._end([name], grace_s=GRACE_S)

    def kill(self, name: str) -> None:
        """Kill a program and everything it has started, as a power failure would."""
        self._end([name], grace_s=None)

    def close(self) -> None:
        """End everything, the newest first, since it may depend on the older ones."""
        self._end(list(reversed(self._running)), grace_s=GRACE_S)
        end_marked(self.mark, self._sessions)

    def __exit__(self, *_: object) -> None:
        self.close()

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
        for name in names:  # last, so that after an interruption `close` still ends them
            del self._running[name]


def end_marked(mark: str, sessions: Collection[int] = ()) -> None:
    """Kill all processes with the mark, and reap zombies of their sessions and of `sessions`."""
    marked = [process for process in psutil.process_iter() if _has_mark(process, mark)]
    theirs = {_session(process.pid) for process in marked}
    _kill(marked)
    _reap(theirs.union(sessions))


def adopt_orphans() -> None:
    """Become the parent of our children's orphans, where the system supports it (Linux).

    In a container whose first process does not reap its children, orphans would remain zombies, and
    Flower treats a zombie parent as alive.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.pid != os.getpid() and process.environ().get(MARK) == mark
    except (psutil.Error, OSError):  # another user's process, or one that has just ended
        return False


def _descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""


def _await_all(processes: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
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
    """Reap the zombies of these sessions that this process has adopted."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE and _session(child.pid) in sessions:
                os.waitpid(child.pid, os.WNOHANG)
