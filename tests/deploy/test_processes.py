"""Processes end with everything they have started, even in other sessions."""

from __future__ import annotations

import os
import sys

import pytest
from federation import await_that, carriers

from motet.deploy._processes import Processes, end_marked

SLEEP = "import time; time.sleep(600)"
# A child in a session of its own, which starts a grandchild; then it waits, or ends.
CHILD = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {SLEEP!r}])\n{SLEEP}"
PARENT = (
    f"import subprocess, sys, time\n"
    f"subprocess.Popen([sys.executable, '-c', {CHILD!r}], start_new_session=True)\n"
    "time.sleep({patience})"
)
DEAF = (
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('deaf', flush=True)\n"
    "time.sleep(600)"
)


@pytest.mark.parametrize("patience", [600, 0.1], ids=["waiting", "gone"])
def test_descendants_in_other_sessions_end_too(tmp_path, patience):
    with Processes(tmp_path) as processes:
        script = PARENT.replace("{patience}", str(patience))
        processes.start("parent", [sys.executable, "-c", script], os.environ)
        expected = 3 if patience == 600 else 2
        await_that(lambda: len(carriers(processes.mark)) == expected)
        started = {process.pid for process in carriers(processes.mark)}
        assert {found.pid for found in processes.members("parent", "sleep")} <= started
        assert processes.members("parent", "no such word") == processes.members("nobody", "") == []
        if expected == 2:
            await_that(processes.ended)
    assert carriers(processes.mark) == []


def test_killing_one_leaves_the_others(tmp_path):
    with Processes(tmp_path) as processes:
        script = PARENT.replace("{patience}", "600")
        for name in ("a", "b"):
            processes.start(name, [sys.executable, "-c", script], os.environ)
        await_that(lambda: len(carriers(processes.mark)) == 6)
        processes.kill("a")
        assert len(carriers(processes.mark)) == 3
        assert processes.ended() == {}


def test_a_program_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("motet.deploy._processes.GRACE_S", 0.2)
    with Processes(tmp_path) as processes:
        processes.start("deaf", [sys.executable, "-c", DEAF], os.environ)
        await_that(lambda: "deaf" in processes.log("deaf").read_text())
    assert carriers(processes.mark) == []


def test_everything_ends_when_the_block_fails(tmp_path):
    processes = Processes(tmp_path)

    def interrupted():
        with processes:
            processes.start("a", [sys.executable, "-c", SLEEP], os.environ)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert carriers(processes.mark) == []


def test_output_and_exit_code_are_kept(tmp_path):
    with Processes(tmp_path) as processes:
        processes.start("a", [sys.executable, "-c", "print('hello'); exit(3)"], os.environ)
        await_that(processes.ended)
        assert processes.ended() == {"a": 3}
    assert processes.log("a").read_text() == "hello\n"


def test_what_a_killed_owner_has_left_is_found_by_its_mark(tmp_path):
    processes = Processes(tmp_path)
    processes.start("a", [sys.executable, "-c", SLEEP], os.environ)
    await_that(lambda: carriers(processes.mark))
    end_marked(processes.mark)
    assert carriers(processes.mark) == []
    processes.close()
