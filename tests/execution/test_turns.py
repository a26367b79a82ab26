"""Tracing and running networks never overlap."""

from __future__ import annotations

import threading
import time

import pytest

from motet.execution.turns import running, tracing


def test_nobody_runs_a_network_while_somebody_traces():
    seen, busy = [], []

    def run():
        for _ in range(20):
            with running():
                busy.append("run")
                seen.append("trace" in busy)
                time.sleep(0.001)
                busy.remove("run")

    def trace():
        for _ in range(10):
            with running(), tracing():  # as a worker that meets a step it does not know
                busy.append("trace")
                seen.append(len(busy) > 1)
                time.sleep(0.001)
                busy.remove("trace")

    threads = [threading.Thread(target=work) for work in (run, run, trace, trace)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    assert len(seen) == 60
    assert not any(seen)


def test_running_may_be_nested_and_an_error_gives_the_stage_back():
    with pytest.raises(ZeroDivisionError), running(), running():
        _ = 1 / 0
    with tracing():
        pass
