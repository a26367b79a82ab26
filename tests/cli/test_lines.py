"""Progress as lines, for people and for machines."""

import json
import math

import pytest
from test_standings import Clock
from watched import a_look, a_round, a_row, world

import motet
from motet._cli.lines import JsonLines, PlainLines
from motet._cli.standings import Standings
from motet._engine.observers import Several


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def told(clock):
    """Two methods with one seed of ten rounds, and the lines about them."""
    lines = []
    standings = Standings([("local", 0), ("fedper", 0)], 10, clock=clock)
    return Several([standings, PlainLines(standings, lines.append)]), lines


def test_there_is_a_line_for_every_run_and_one_every_few_seconds(told, clock):
    watchers, lines = told
    watchers.began("local", 0, 10)
    for number in range(1, 11):
        clock.now += 1.0
        look = a_look(number, 0.05 * number) if number % 2 == 0 else None
        watchers.round_done("local", 0, a_round(number), look)
    watchers.finished("local", 0, a_row("local", 0))
    assert lines == [
        "local, seed 0: round 5/10, validation accuracy 0.200 (round 4); about 15 s left",
        "local, seed 0: round 10/10, validation accuracy 0.500 (round 10); about 10 s left",
        "local, seed 0: done in 10 s, best validation accuracy 0.500 (round 10); 1 of 2 runs; "
        "about 10 s left",
    ]


def test_a_failure_is_a_line_with_its_reason(told):
    watchers, lines = told
    watchers.began("local", 0, 10)
    watchers.failed("local", 0, "training diverged")
    assert lines == ["local, seed 0: failed: training diverged; 1 of 2 runs"]


def test_every_event_is_a_json_object_and_what_is_not_a_number_is_null(capfd):
    lines = JsonLines()
    lines.began("fedper", 3, 2)
    lines.round_done("fedper", 3, a_round(1), a_look(1, math.nan))
    lines.finished("fedper", 3, a_row("fedper", 3))
    lines.failed("fedper", 4, 'out of "memory"')
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["begin", "round", "look", "finished", "failed"]
    assert events[0] == {"event": "begin", "label": "fedper", "seed": 3, "rounds": 2}
    assert (events[1]["round"], events[1]["clients"]) == (1, 4)
    assert events[1]["bytes_up"] > 0
    assert events[2]["mean"] is None
    assert events[2]["seconds"] == 0.5
    assert events[3]["evaluation"]["mean"] == 0.625
    assert events[3]["cost"]["private_bytes"] == 50.0
    assert events[4]["reason"] == 'out of "memory"'


def test_a_comparison_tells_everything_in_order():
    events = []
    task, data = world()
    methods = [motet.Local(), motet.FedAvg(), motet.FedAvgFT()]
    watcher = JsonLines(events.append)
    motet.compare(methods, task, data, rounds=2, seeds=[5], evaluate_every=1, watcher=watcher)
    for label in ("local", "fedavg", "fedavg-ft"):
        own = [event for event in events if event["label"] == label]
        kinds = ["begin", "round", "look", "round", "look", "finished"]
        assert [event["event"] for event in own] == kinds
        assert {event["seed"] for event in own} == {5}
        rounds, looks = own[1:5:2], own[2:5:2]
        assert looks[-1]["bytes_up"] == sum(event["bytes_up"] for event in rounds)
        assert own[-1]["evaluation"]["method"] == label
