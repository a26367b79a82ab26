"""A site that the server takes for connected is started again, until it is accepted or stopped."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from motet.deploy import _start as starting
from motet.deploy._logs import LogWriter
from motet.deploy._start import Program, run_program

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")

# Counts its starts in a file; the first ones are refused as the SuperLink refuses.
SITE = """
import sys
from pathlib import Path
starts, refused, words = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
count = int(starts.read_text() or 0) + 1 if starts.exists() else 1
starts.write_text(str(count))
if count <= refused:
    print("ERROR :", words)
    sys.exit(1)
print("INFO : connected")
"""


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(starting, "AGAIN_S", 0.01)


@pytest.fixture
def start(tmp_path):
    """Run a site whose first starts are refused; return its code, its starts and its log."""

    def call(refused, words=f"[code: 101] {starting.REFUSED}."):
        log, starts = io.StringIO(), tmp_path / "starts"
        command = [sys.executable, "-c", SITE, str(starts), str(refused), words]
        program = Program("site north", command, tmp_path / "home")
        code = run_program(program, LogWriter("site north", stream=log))
        return code, int(Path(starts).read_text()), log.getvalue()

    return call


def test_a_site_that_was_killed_comes_back_as_soon_as_the_server_lets_it(start):
    code, starts, log = start(refused=2)
    assert (code, starts) == (0, 3)
    assert "connected" in log
    assert log.count("Trying again") == 2


def test_a_site_that_is_refused_for_another_reason_is_not_started_again(start):
    code, starts, log = start(refused=9, words="the port is in use")
    assert (code, starts) == (1, 1)
    assert "Trying again" not in log


def test_a_site_that_is_never_let_in_ends_with_a_sentence_that_says_why(start, monkeypatch):
    monkeypatch.setattr(starting, "PATIENCE_S", 0.3)
    code, starts, log = start(refused=10**6)
    assert code == 1
    assert starts >= 2
    assert (
        "its key is not registered, or no longer, or the site also runs on another machine" in log
    )


def test_a_signal_ends_the_waiting_at_once(start, monkeypatch):
    monkeypatch.setattr(starting, "AGAIN_S", 600.0)
    stop, sleep = threading.Event(), starting._Stop.sleep

    def asked_while_sleeping(self, seconds):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        stop.set()
        return sleep(self, seconds)

    monkeypatch.setattr(starting._Stop, "sleep", asked_while_sleeping)
    code, starts, _ = start(refused=9)
    assert stop.is_set()
    assert (code, starts) == (0, 1)
