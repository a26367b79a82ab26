"""Interruptions: Ctrl-C leaves a run that goes on to the same numbers."""

import os
import signal
import subprocess
import sys
import time

import pytest
from events import result
from saved import assert_same_run, saved_state

from motet._cli.interrupt import Interrupt
from motet._runs.checkpoint import read_meta

LONG = ("--method", "fedavg", "--model", "logistic", "--clients", 4, "--rounds", 80)


def wait_for_rounds(directory, rounds, process):
    lines = directory / "rounds.jsonl"
    deadline = time.monotonic() + 60
    while not lines.exists() or lines.read_text().count("\n") < rounds:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no rounds were run"
        time.sleep(0.005)


def test_an_interrupted_process_leaves_a_run_that_resumes_to_the_same_bits(
    motet, process, tmp_path
):
    running = process("run", *LONG, "--out", "broken")
    wait_for_rounds(tmp_path / "broken", 2, running)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert "continue with `motet resume broken`" in err
    assert 2 <= read_meta(tmp_path / "broken" / "checkpoint")["finished"] < 80

    resumed = motet("resume", "broken", "--json")
    whole = motet("run", *LONG, "--out", "whole", "--json")
    assert result(resumed.out)["results"] == result(whole.out)["results"]
    assert_same_run(tmp_path / "broken", tmp_path / "whole")


# A process that sends itself a signal when it begins to load a module.
STOPPED_AT = """
import os, sys
from motet._cli.entry import main

class Sender:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number:d})

sys.meta_path.insert(0, Sender())
main(sys.argv[1:])
"""
SMALL = ("--model", "logistic", "--clients", "4", "--rounds", "1", "--data", "digits")


def stopped_at(module, number, folder, *arguments):
    script = STOPPED_AT.format(module=module, number=number)
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("motet._cli.main", signal.SIGTERM),  # the first of all
        ("numpy", signal.SIGINT),
        ("torch._C", signal.SIGTERM),  # raising here would abort the process
        ("motet.data._sets.digits", signal.SIGINT),  # the data are loaded
        ("motet._engine.backends.vectorized", signal.SIGTERM),  # the run is planned
    ],
)
def test_a_run_stopped_while_it_begins_says_so_and_that_nothing_is_saved(tmp_path, module, number):
    asked = ("run", "--method", "local", *SMALL, "--out", "run")
    stopped = stopped_at(module, number, tmp_path, *asked)
    assert stopped.returncode == 128 + number, stopped.stderr
    assert stopped.stderr == (
        f"stopped by {number.name}; nothing was saved. Run the same command again.\n"
    )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_comparison_stopped_while_it_begins_says_how_to_go_on(tmp_path, motet):
    asked = ("compare", "--seeds", "1", "--methods", "local", *SMALL, "--out", "both")
    stopped = stopped_at("motet.data._sets.digits", signal.SIGTERM, tmp_path, *asked)
    assert (stopped.returncode, stopped.stdout) == (143, "")
    assert "nothing was saved" in stopped.stderr
    assert motet(*asked, "--quiet").code == 0


def test_a_resumption_stopped_while_it_begins_leaves_what_was_there(motet, tmp_path):
    assert motet("run", "--method", "local", *SMALL, "--out", "run", "--quiet").code == 0
    stopped = stopped_at("motet.data._sets.digits", signal.SIGTERM, tmp_path, "resume", "run")
    assert stopped.returncode == 143
    assert stopped.stderr == (
        "stopped by SIGTERM; what run holds is unchanged. Go on with `motet resume run`.\n"
    )
    assert motet("resume", "run", "--quiet").code == 0


def test_a_stop_says_which_round_is_saved(motet, monkeypatch):
    from motet._cli.stopping import StoppedError
    from motet._engine.federation import Run

    advance = Run.advance

    def stopped_in_round_4(self):
        if self.rounds_done == 3:
            raise StoppedError(signal.SIGTERM)
        return advance(self)

    for every, kept in ((2, "round 2 is saved; "), (9, "none is saved; "), (1, "")):
        small = ("run", "--method", "local", *SMALL, "--rounds", 5, "--overwrite", "--out", "run")
        with monkeypatch.context() as patch:
            patch.setattr(Run, "advance", stopped_in_round_4)
            stopped = motet(*small, "--set", f"run.checkpoint_every={every}")
        assert stopped.code == 143
        said = f"stopped after round 3 of 5; {kept}continue with `motet resume run`."
        assert said in stopped.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_first_signal_is_a_wish_and_the_second_an_order(number, capfd):
    before = signal.getsignal(number)
    with Interrupt("Saving.") as interrupt:
        signal.raise_signal(number)
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before
    assert "Saving. Once more to stop at once." in capfd.readouterr().err


def test_a_second_interrupt_stops_at_once_and_keeps_the_last_checkpoint(motet, monkeypatch):
    from motet._engine.federation import Run

    advance = Run.advance

    def interrupted_in_round_3(self):
        if self.rounds_done == 2:
            raise KeyboardInterrupt
        return advance(self)

    small = ("--method", "local", "--clients", 4, "--rounds", 4, "--set", "run.checkpoint_every=1")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "advance", interrupted_in_round_3)
        stopped = motet("run", *small, "--out", "run")
    assert stopped.code == 130
    assert "stopped after round 2 of 4; continue with `motet resume run`." in stopped.err
    resumed = motet("resume", "run", "--json")
    assert resumed.code == 0
    assert "From round 3." in resumed.err
    again = motet("run", *small, "--out", "whole", "--json")
    assert result(resumed.out)["results"] == result(again.out)["results"]


def test_resuming_what_is_no_run_is_one_sentence_and_code_2(motet):
    failed = motet("resume", "nothing")
    assert failed.code == 2
    assert "nothing holds no run" in failed.err


def test_a_resumed_run_keeps_its_seed(motet):
    motet("run", "--method", "local", "--clients", 4, "--rounds", 1, "--seed", 4, "--out", "run")
    assert motet("resume", "run", "--seed", 4, "--quiet").code == 0
    refused = motet("resume", "run", "--seed", 5)
    assert refused.code == 2
    assert "has seed 4" in refused.err


def test_an_edited_config_that_is_wrong_is_one_sentence_and_code_2(motet, tmp_path):
    motet("run", "--method", "local", "--clients", 4, "--rounds", 1, "--out", "run")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("rounds = 1", "round = 1"))
    refused = motet("resume", "run")
    assert refused.code == 2
    assert 'did you mean "rounds"' in refused.err


def test_a_damaged_checkpoint_is_one_sentence_and_code_1(motet, tmp_path):
    motet("run", "--method", "local", "--clients", 4, "--rounds", 1, "--out", "run")
    saved = tmp_path / "run" / "checkpoint" / "state.sqlite"
    saved.write_bytes(saved.read_bytes()[: saved.stat().st_size // 2])
    failed = motet("resume", "run")
    assert failed.code == 1
    assert "is damaged" in failed.err
    assert failed.err.count("\n") == 1


def test_a_config_cut_short_is_one_sentence_and_code_2(motet, tmp_path):
    motet("run", "--method", "local", "--clients", 4, "--rounds", 1, "--out", "run")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text()[:-60])
    refused = motet("resume", "run")
    assert refused.code == 2
    assert "config.toml is cut short" in refused.err


def test_private_states_on_disk_change_nothing(motet, tmp_path):
    small = ("run", "--method", "fedper", "--clients", 4, "--rounds", 2, "--out")
    for store in ("memory", "disk"):
        assert motet(*small, store, "--store", store, "--quiet").code == 0
    assert saved_state(tmp_path / "memory") == saved_state(tmp_path / "disk")
    refused = motet(*small, "other", "--store", "dsik")
    assert refused.code == 2
    assert "disk" in refused.err
