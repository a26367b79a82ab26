"""Interruptions: Ctrl-C leaves a run that goes on to the same numbers."""

import signal
import time

import pytest
from events import result
from saved import assert_same_run, saved_state

from motet.checkpoint import read_meta
from motet.cli.interrupt import Interrupt

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
    assert "go on with `motet resume broken`" in err
    assert 2 <= read_meta(tmp_path / "broken" / "checkpoint")["finished"] < 80

    resumed = motet("resume", "broken", "--json")
    whole = motet("run", *LONG, "--out", "whole", "--json")
    assert result(resumed.out)["results"] == result(whole.out)["results"]
    assert_same_run(tmp_path / "broken", tmp_path / "whole")


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
    from motet.federation import Run

    advance = Run.advance

    def interrupted_in_round_3(self):
        if self.finished == 2:
            raise KeyboardInterrupt
        return advance(self)

    small = ("--method", "local", "--clients", 4, "--rounds", 4, "--set", "run.checkpoint_every=1")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "advance", interrupted_in_round_3)
        stopped = motet("run", *small, "--out", "run")
    assert stopped.code == 130
    assert "stopped after round 2 of 4; go on with `motet resume run`." in stopped.err
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
