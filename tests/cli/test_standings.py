"""Where runs stand, and the prediction of the rest."""

import math

import pytest
from watched import a_look, a_round, a_row

from motet._cli.standings import Standings


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def standings_of(labels, seeds, rounds, clock, **more):
    pairs = [(label, seed) for label in labels for seed in seeds]
    return Standings(pairs, rounds, clock=clock, **more)


def run_rounds(standings, clock, label, seed, seconds, numbers):
    for number in numbers:
        clock.now += seconds
        standings.round_done(label, seed, a_round(number), None)


def test_every_method_is_predicted_by_its_own_rounds_and_an_unknown_one_by_the_mean(clock):
    standings = standings_of("abc", [0, 1], 10, clock)
    assert standings.seconds_left is None
    standings.began("a", 0, 10)
    run_rounds(standings, clock, "a", 0, 1.0, range(1, 11))
    standings.finished("a", 0, a_row("a", 0))
    standings.began("b", 0, 10)
    run_rounds(standings, clock, "b", 0, 3.0, range(1, 6))
    # a: 10 rounds of 1 s; b: 5 + 10 rounds of 3 s; c: 20 rounds of 2 s, the mean.
    assert standings.seconds_left == pytest.approx(10 + 45 + 40)
    clock.now += 2  # of the round under way
    assert standings.seconds_left == pytest.approx(10 + 45 + 40 - 2)
    assert standings.share_done == pytest.approx(15 / 60)
    assert standings.seconds_gone == pytest.approx(10 + 15 + 2)


def test_the_rounds_before_a_resumption_cost_nothing_now(clock):
    standings = standings_of("a", [0], 50, clock)
    standings.began("a", 0, 50)
    run_rounds(standings, clock, "a", 0, 2.0, range(41, 46))
    assert standings.seconds_left == pytest.approx(5 * 2.0)


def test_what_had_finished_before_is_not_waited_for(clock):
    standings = standings_of("ab", [0], 10, clock, finished=[("a", 0)])
    assert standings.runs["a", 0].state == "done"
    assert standings.share_done == 0.5
    standings.began("b", 0, 10)
    run_rounds(standings, clock, "b", 0, 1.0, [1])
    assert standings.seconds_left == pytest.approx(9.0)


def test_a_failed_run_is_not_waited_for(clock):
    standings = standings_of("ab", [0], 10, clock)
    standings.began("a", 0, 10)
    run_rounds(standings, clock, "a", 0, 1.0, [1, 2])
    standings.failed("a", 0, "out of memory")
    assert standings.seconds_left == pytest.approx(10.0)
    assert standings.count("failed") == 1
    assert standings.running is None


def test_a_run_that_ends_early_predicts_that_its_next_seed_does_so_too(clock):
    standings = standings_of("a", [0, 1], 10, clock)
    standings.began("a", 0, 10)
    run_rounds(standings, clock, "a", 0, 1.0, [1, 2, 3])
    standings.finished("a", 0, a_row("a", 0))
    assert standings.seconds_left == pytest.approx(3.0)
    assert standings.share_done == 0.5


def test_methods_that_share_a_training_add_up_to_the_time_it_took(clock):
    standings = standings_of("ab", [0], 10, clock)
    standings.began("a", 0, 10)
    standings.began("b", 0, 10)
    for number in (1, 2):
        clock.now += 2.0  # the training, and a's look
        standings.round_done("a", 0, a_round(number), None)
        clock.now += 0.5  # b's look
        standings.round_done("b", 0, a_round(number), None)
    assert standings.seconds_left == pytest.approx(8 * 2.5)


def test_the_best_look_is_the_highest_accuracy_and_the_lowest_error(clock):
    for regression, best in ((False, 0.9), (True, 0.2)):
        standings = standings_of("a", [0], 3, clock)
        standings.began("a", 0, 3)
        for number, mean in enumerate((math.nan, 0.2, 0.9, 0.5), start=1):
            look = a_look(number, mean)
            standings.round_done("a", 0, a_round(number, regression=regression), look)
        assert standings.runs["a", 0].best.mean == best
        assert standings.runs["a", 0].last.mean == 0.5
        assert standings.metric == ("rmse" if regression else "accuracy")
