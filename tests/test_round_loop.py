"""The round loop: what observers may count on."""

from __future__ import annotations

import pytest

from motet import FedAvg
from motet._engine.federation import start
from motet._engine.looks import is_due, looked_at
from motet._engine.round_loop import RoundObserver, play_rounds
from motet.testing import ragged
from motet.testing._comparing import require_same

ROUNDS = 4


class Diary(RoundObserver):
    """Writes down what it is called for; stops, fails and forgives as it is told."""

    def __init__(self, run, name="", *, stop_after=ROUNDS, forgives=False, diary=None):
        self.run, self.name, self.stop_after, self.forgives = run, name, stop_after, forgives
        self.diary = [] if diary is None else diary

    def is_done(self):
        return self.run.rounds_done >= self.stop_after

    def before_round(self):
        self.diary.append(f"before{self.name}")

    def after_round(self, done):
        self.diary.append(f"after{self.name} {done.number}")

    def handles(self, error):
        self.diary.append(f"error{self.name}")
        return self.forgives


@pytest.fixture
def run():
    world = ragged()
    return start(FedAvg(), world.task, world.data, rounds=ROUNDS, backend="serial")


def failing(run, monkeypatch, *times):
    """Let some calls of `advance` fail (from 1)."""
    calls, advance = [], run.advance

    def advance_or_fail():
        calls.append(1)
        if len(calls) in times:
            raise ArithmeticError(f"call {len(calls)}")
        return advance()

    monkeypatch.setattr(run, "advance", advance_or_fail)


def test_observers_are_called_in_their_order_before_the_round_is_yielded(run):
    first = Diary(run, " a")
    rounds = play_rounds(run, [first, Diary(run, " b", diary=first.diary)])
    assert next(rounds).number == 1
    assert first.diary == ["before a", "before b", "after a 1", "after b 1"]


def test_the_loop_runs_what_is_left(run):
    run.advance()
    assert [done.number for done in play_rounds(run, [])] == [2, 3, 4]
    assert list(play_rounds(run, [])) == []


@pytest.mark.parametrize("last", range(ROUNDS + 1))
def test_any_observer_ends_the_loop(run, last):
    observers = [Diary(run), Diary(run, stop_after=last)]
    assert [done.number for done in play_rounds(run, observers)] == list(range(1, last + 1))


def test_a_caller_may_stop_between_two_rounds_and_go_on_later(run):
    for done in play_rounds(run, []):
        if done.number == 2:
            break
    assert [done.number for done in play_rounds(run, [])] == [3, 4]


def test_an_error_that_no_observer_handles_is_raised(run, monkeypatch):
    failing(run, monkeypatch, 2)
    observer = Diary(run)
    with pytest.raises(ArithmeticError, match="call 2"):
        list(play_rounds(run, [observer]))
    assert observer.diary == ["before", "after 1", "before", "error"]


def test_a_round_whose_error_is_handled_is_run_again_to_the_same_end(run, monkeypatch):
    world = ragged()
    calm = start(FedAvg(), world.task, world.data, rounds=ROUNDS, backend="serial")
    assert len(list(play_rounds(calm, []))) == ROUNDS
    failing(run, monkeypatch, 2, 3)
    observer = Diary(run, forgives=True)
    assert [done.number for done in play_rounds(run, [observer])] == [1, 2, 3, 4]
    assert observer.diary.count("before") == ROUNDS + 2
    require_same(calm.server, run.server, "the server")


@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_the_last_round_is_always_due(every):
    assert [n for n in range(1, 6) if is_due(n, every, 5)] == list(looked_at(5, every))
    assert is_due(5, every, 5)
