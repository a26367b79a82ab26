"""What holds for every sink."""

import subprocess
import sys

import pytest
from watched import a_look, a_round, a_row

from motet._engine.observers import Several, Watcher
from motet.tracking import Tolerant, sinks
from motet.tracking._numbers import HarmedShares


class Breaks(Watcher):
    def __init__(self, at):
        self.heard = []
        setattr(self, at, self.fail)

    def fail(self, *about):
        self.heard.append(about)
        raise OSError("no space left\non device")


def tell_everything(watcher):
    watcher.began("fedavg", 0, 1)
    watcher.round_done("fedavg", 0, a_round(1), a_look(1, 0.5))
    watcher.finished("fedavg", 0, a_row("fedavg", 0))
    watcher.failed("fedavg", 1, "diverged")
    watcher.close()


@pytest.mark.parametrize("at", ["began", "round_done", "finished", "failed", "close"])
def test_a_sink_that_breaks_warns_once_and_never_stops_a_run(at):
    said, broken = [], Breaks(at)
    tolerant = Tolerant(broken, "The log", said.append)
    tell_everything(tolerant)
    tell_everything(tolerant)
    assert said == ["The log could not be written and is disabled: no space left."]
    assert len(broken.heard) == 1


def test_several_watchers_hear_everything_in_their_order():
    heard = []

    class Hears(Watcher):
        def __init__(self, name):
            for event in ("began", "round_done", "finished", "failed", "close"):
                setattr(self, event, lambda *about, event=event: heard.append((name, event)))

    tell_everything(Several([Hears("a"), Hears("b")]))
    events = ("began", "round_done", "finished", "failed", "close")
    assert heard == [(name, event) for event in events for name in "ab"]


def test_harm_is_known_as_soon_as_both_have_finished_whichever_came_first():
    harms = HarmedShares()
    assert harms.add(a_row("fedper", 0, (0.5, 0.9), method="fedper")) == {}
    assert harms.add(a_row("local", 1, (0.7, 0.7), method="local")) == {}  # another seed
    found = harms.add(a_row("local", 0, (0.7, 0.7), method="local"))
    assert found == {("fedper", 0): {"test/harmed_vs_local": 0.5}}
    found = harms.add(a_row("fedavg-ft", 0, (0.4, 0.4), method="fedavg-ft"))
    assert found["fedavg-ft", 0] == {"test/harmed_vs_local": 1.0}
    assert found["fedper", 0]["test/harmed_vs_fedavg_ft"] == 0.0


def test_no_package_is_loaded_before_its_sink_is_made():
    script = (
        "import sys, motet.tracking, motet._engine.observers, motet._cli.live\n"
        "motet.tracking.sinks()\n"
        "print({'torch', 'tensorboard', 'mlflow', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_nothing_asked_for_is_nothing_made():
    assert sinks() == []
