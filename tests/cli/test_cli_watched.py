"""Whole commands as they are seen: in a terminal, interrupted, and by those who log them."""

import json
import re
import signal
import sys
import time

import pytest
from events import events, result
from screen import Terminal

MOTET = "from motet._cli.main import main; main()"
SMALL = ("--model", "logistic", "--clients", 4, "--cohort", 0.5)
LONG = (*SMALL, "--methods", "fedper", "--rounds", 60)


def results(written):
    return [(run["label"], run["seed"], run["scores"]) for run in written["runs"]]


def wait_for_rows(path, running):
    deadline = time.monotonic() + 120
    while not path.exists() or "\n" not in path.read_text():
        assert running.poll() is None, running.stderr.read()
        assert time.monotonic() < deadline, "no method has finished"
        time.sleep(0.005)


def interrupted(process, tmp_path, number):
    """Stop a comparison after its first method, and return how many runs it says had finished."""
    running = process("compare", "--seeds", "1", *LONG, "--out", "kept")
    wait_for_rows(tmp_path / "kept" / "results.jsonl", running)
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (128 + number, "")
    assert "Traceback" not in err
    said = r"stopped; (\d) of 4 runs have finished. Go on with `motet resume kept`.\n$"
    return int(re.search(said, err)[1])


def test_a_comparison_stopped_in_the_middle_says_how_to_go_on_and_does(motet, process, tmp_path):
    done = interrupted(process, tmp_path, signal.SIGINT)
    assert 1 <= done < 4
    assert not (tmp_path / "kept" / "comparison.json").exists()
    resumed = motet("resume", "kept", "--json")
    assert resumed.code == 0
    began = [event["label"] for event in events(resumed.out) if event["event"] == "begin"]
    assert len(began) == 4 - done
    whole = result(motet("compare", "--seeds", "1", *LONG, "--json", "--quiet").out)
    assert results(result(resumed.out)) == results(whole)


def test_a_batch_system_that_ends_a_comparison_is_told_the_same(process, tmp_path):
    assert 1 <= interrupted(process, tmp_path, signal.SIGTERM) < 4


def test_a_comparison_in_a_terminal_is_a_table_that_the_result_replaces(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(MOTET, "compare", "--seeds", "1", *LONG)
    shown = terminal.read_until(r"running +\d+/60 +0\.\d{3} +0\.\d{3} +\d+\n", 120)
    assert re.search(r"[0-3] of 4 runs, .* left", shown)
    assert re.search(r"fedper +(waiting|running)", shown)
    assert terminal.end() == 0
    assert "running" not in terminal.screen.text
    assert "Accuracy on each client's own test data" in terminal.screen.text
    assert terminal.screen.is_cursor_shown


def test_ctrl_c_in_a_terminal_finishes_the_round_and_leaves_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ("--method", "fedavg", "--clients", 20, "--rounds", 2000, "--out", "run")
    terminal = Terminal(MOTET, "run", *arguments)
    terminal.read_until(r"fedavg +running +\d+/2000", 120)
    terminal.press_ctrl_c()
    assert terminal.end() == 130
    assert terminal.screen.is_cursor_shown
    last = terminal.screen.text.strip().splitlines()[-1]
    assert re.fullmatch(r"stopped after round \d+ of 2000; continue with `motet resume run`.", last)
    assert re.search(r"fedavg +running +\d+/2000", terminal.screen.text)


def test_a_reader_gets_every_line_as_soon_as_it_is_known(process):
    running = process("run", "--method", "fedavg", *SMALL, "--rounds", 2000, "--json")
    assert json.loads(running.stdout.readline())["event"] == "begin"
    assert json.loads(running.stdout.readline())["round"] == 1
    assert running.poll() is None
    running.kill()
    running.communicate()


def test_a_run_is_logged_and_goes_on_being_logged_after_an_interruption(motet, monkeypatch):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from motet._engine.federation import Run

    advance = Run.advance

    def interrupted_in_round_3(self):
        if self.rounds_done == 2:
            raise KeyboardInterrupt
        return advance(self)

    small = ("--method", "fedavg", *SMALL, "--rounds", 4, "--set", "run.checkpoint_every=1")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "advance", interrupted_in_round_3)
        stopped = motet("run", *small, "--out", "run", "--tensorboard", "logs")
    assert stopped.code == 130
    assert motet("resume", "run", "--tensorboard", "logs").code == 0
    read = accumulators.EventAccumulator("logs/fedavg/seed-0")
    read.Reload()
    assert [point.step for point in read.Scalars("val/mean")] == [1, 2, 3, 4]
    assert [point.step for point in read.Scalars("test/mean")] == [4]


def test_a_missing_package_is_one_sentence_and_code_2_and_leaves_nothing(
    motet, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for command in (
        ("run", "--method", "fedavg"),
        ("compare", "--seeds", "1", "--methods", "fedavg"),
    ):
        failed = motet(*command, *SMALL, "--rounds", 1, "--out", "kept", "--tensorboard", "logs")
        assert (failed.code, failed.out) == (2, "")
        assert "motet[tracking]" in failed.err
        assert failed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_written_is_a_warning_and_the_run_goes_on(motet, tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "logs").write_text("a file, not a directory")
    shown = motet("run", "--method", "fedavg", *SMALL, "--rounds", 2, "--tensorboard", "logs")
    assert shown.code == 0
    assert shown.err.count("warning: TensorBoard could not be written") == 1
