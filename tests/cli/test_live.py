"""What is seen in a real pseudo-terminal, and what is seen without one."""

import json
import re

import pytest
from screen import Terminal

# Runs that cost nothing: so many methods, seeds and rounds, each round of so many seconds.
PRETEND = """
import sys, time
from dataclasses import make_dataclass
from types import SimpleNamespace as Pretended
from motet._cli.live import watching
from motet._cli.terminal import warn

methods, seeds, rounds, seconds, *what = sys.argv[1:]
labels = [f"method-{number}" for number in range(int(methods))]
seeds, rounds = range(int(seeds)), int(rounds)
quiet, as_json = "quiet" in what, "json" in what
task = Pretended(criterion=Pretended(kind="logits"))
metric = Pretended(name="accuracy", higher_is_better=True)
run = Pretended(setting=Pretended(task=task), metrics=[metric])
spent = dict(bytes_up=1, bytes_down=2, gradients=3.0, seconds=0.1)
Look = make_dataclass("Look", ["round", "mean", "diverged"])
bad = {"c": "w holds a NaN or an infinity"} if "diverge" in what else {}
faults = dict(lost=(), rejected={}, diverged=bad, failed="")
print("ready", flush=True)
with watching(labels, seeds, rounds, quiet=quiet, as_json=as_json) as view:
    if "tell" in what:
        view.tell("Stopping soon.")
    for label in labels:
        for seed in seeds:
            view.began(label, seed, rounds)
            for number in range(1, rounds + 1):
                time.sleep(float(seconds))
                done = Pretended(number=number, cohort=["c"], run=run, **spent, **faults)
                view.round_done(label, seed, done, Look(number, number / rounds, 0))
            if "fail" in what and label == "method-1":
                view.failed(label, seed, "training diverged")
                warn("something else")
            elif not as_json:
                view.finished(label, seed, None)
print("the result")
"""


def pretend(methods, seeds, rounds, seconds, *what, **settings):
    return Terminal(PRETEND, methods, seeds, rounds, seconds, *what, **settings)


def test_the_table_shows_every_method_with_its_state_and_gives_way_to_the_result():
    terminal = pretend(3, 2, 6, 0.1)  # a frame takes 0.25 s, so that none of the states is missed
    shown = terminal.read_until(r"method-1 +✓▸ +[1-6]/6")
    lines = shown.splitlines()
    assert lines[0] == "ready"
    assert re.search(r"3 of 6 runs, \d s, about \d s left", lines[1])
    assert re.fullmatch("method +seeds +round +best val +last val +seconds", lines[2])
    assert re.search(r"method-0 +✓✓ +1.000 +1.000 +\d", shown)
    assert re.search(r"method-2 +··$", shown, re.MULTILINE)
    assert "val: mean validation accuracy" in lines[-1]
    assert not terminal.screen.is_cursor_shown
    assert terminal.end() == 0
    assert terminal.screen.text.split() == ["ready", "the", "result"]
    assert terminal.screen.is_cursor_shown


def test_with_one_seed_the_state_is_a_word():
    terminal = pretend(2, 1, 6, 0.1)
    shown = terminal.read_until(r"method-1 +running +\d/6")
    assert re.search(r"method-0 +done", shown)
    terminal.end()


def test_what_is_told_stands_below_the_table():
    terminal = pretend(2, 1, 6, 0.1, "tell")
    shown = terminal.read_until(r"method-1 +running")
    assert shown.splitlines()[-1] == "Stopping soon."
    terminal.end()


def test_a_failure_stays_on_the_screen_with_its_reason_and_so_does_a_warning():
    terminal = pretend(3, 1, 6, 0.1, "fail")
    terminal.read_until(r"method-2 +running")
    assert re.search(r"method-1 +failed", terminal.screen.text)
    assert terminal.end() == 0
    lines = terminal.screen.text.split("\n")
    assert lines[1] == "method-1, seed 0: failed: training diverged"
    assert lines[2] == "warning: something else"
    assert "the result" in lines[3]


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (80, 12), (60, 10), (40, 8), (20, 5)])
def test_forty_methods_fold_into_any_terminal(columns, lines):
    terminal = pretend(40, 3, 2, 0.006, columns=columns, lines=lines)
    shown = terminal.read_until(r"▸(.*\n)+\d+ methods above").removeprefix("ready\n")
    assert len(shown.splitlines()) < lines
    terminal.end()
    assert terminal.screen.widest < columns
    assert terminal.raw.count("\x1b[2J") == 0


def test_a_terminal_that_changes_its_size_gets_a_table_of_that_size():
    terminal = pretend(4, 1, 100, 0.05)
    terminal.read_until(r"last val +seconds")
    terminal.screen.widest = 0
    terminal.resize(44, 9)
    terminal.read_until(r"state +round +last val\n")
    assert terminal.raw.count("\x1b[2J") == 1
    assert len(terminal.screen.text.splitlines()) < 9
    terminal.press_ctrl_c()
    terminal.end()


def test_ctrl_c_shows_the_cursor_again_and_leaves_the_table():
    terminal = pretend(3, 1, 100, 0.05)
    terminal.read_until(r"running +\d+/100")
    terminal.press_ctrl_c()
    assert terminal.end() != 0
    assert terminal.screen.is_cursor_shown
    assert "KeyboardInterrupt" in terminal.screen.text
    assert re.search(r"method-0 +running", terminal.screen.text)


def test_colours_are_left_out_where_they_are_not_wanted():
    coloured, plain = pretend(1, 1, 2, 0.1), pretend(1, 1, 2, 0.1, NO_COLOR="1")
    assert coloured.end() == plain.end() == 0
    assert coloured.screen.is_coloured
    assert not plain.screen.is_coloured
    assert "running" in plain.raw


def test_a_terminal_that_cannot_redraw_gets_lines():
    terminal = pretend(2, 1, 2, 0.01, TERM="dumb")
    assert terminal.end() == 0
    assert "\x1b" not in terminal.raw
    assert "method-1, seed 0: done in" in terminal.screen.text


def test_without_unicode_everything_is_ascii():
    terminal = pretend(2, 2, 6, 0.1, PYTHONIOENCODING="ascii")
    shown = terminal.read_until(r"method-0 +\+>")
    assert shown.isascii()
    assert ". waiting  > running  + done  x failed" in shown
    terminal.end()


def test_json_lines_on_a_terminal_come_alone():
    terminal = pretend(2, 1, 2, 0.01, "json")
    assert terminal.end() == 0
    assert "\x1b" not in terminal.raw
    events = [json.loads(line) for line in terminal.raw.splitlines()[1:-1]]
    kinds = ["begin", "round", "look", "round", "look"]
    assert [event["event"] for event in events] == 2 * kinds


def test_json_lines_in_a_file_leave_the_table_on_the_terminal(tmp_path):
    with (tmp_path / "lines.jsonl").open("w") as file:
        terminal = pretend(2, 1, 6, 0.1, "json", stdout=file)
        terminal.read_until(r"method-1 +running +\d/6")
        assert terminal.end() == 0
    lines = (tmp_path / "lines.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines[1:-1]]) == 2 * (1 + 6 * 2)


def test_quiet_shows_nothing():
    terminal = pretend(2, 1, 2, 0.01, "quiet")
    assert terminal.end() == 0
    assert terminal.raw.split() == ["ready", "the", "result"]


def test_a_run_that_diverges_says_so_once_above_the_table():
    terminal = pretend(1, 1, 4, 0.05, "diverge")
    assert terminal.end() == 0
    assert terminal.screen.text.count("round 1 diverged at 1 of 1 clients") == 1
    assert "round 2 diverged" not in terminal.screen.text
