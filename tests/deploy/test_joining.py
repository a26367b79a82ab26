"""A federation of real programs in which one site joins late and another leaves early."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from federation import (
    Programs,
    await_that,
    carriers,
    hostile_app,
    small_experiment,
    write_deployment,
    zombies_among,
)

from motet.deploy._loopback import site_process

pytestmark = pytest.mark.distributed

FIRST, LATE = "0", "1"


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A finished federation whose second site joined in round 1 and whose first left in round 3."""
    folder = tmp_path_factory.mktemp("joining")
    deployment = write_deployment(folder / "small", small_experiment(rounds=4)).deployment
    app, may_go_on = hostile_app(deployment, folder / "app"), folder / "may-go-on"
    with Programs(deployment, folder / "programs") as programs:
        programs.begin([FIRST])
        # Round 1 lasts until the second site is there; in round 3 the first is stopped at work.
        tricks = json.dumps({FIRST: ["held_back", "honest", "held_back"]})
        number = programs.submit("open", app=app, clients="", tricks=tricks, until=str(may_go_on))
        await_that(lambda: programs.workers(FIRST))
        programs.register([LATE])
        programs.start_site(LATE)
        programs.await_online([LATE])
        may_go_on.touch()
        await_that(lambda: programs.rounds("open"))
        may_go_on.unlink()
        await_that(lambda: len(programs.rounds("open")) == 2 and programs.workers(FIRST))
        programs.processes.stop(site_process(FIRST))
        programs.completed(number)
        yield SimpleNamespace(
            rounds=programs.rounds("open"),
            log=programs.control.log(number),
            close=programs.processes.close,
            mark=programs.processes.mark,
        )


def test_a_site_that_comes_during_a_run_takes_part_from_the_next_round(ended):
    assert [line["replied"] for line in ended.rounds[:2]] == [[FIRST], [FIRST, LATE]]
    assert f"{LATE} joined" in ended.log


def test_a_site_that_leaves_during_a_run_misses_its_round_and_is_not_asked_again(ended):
    assert [line["replied"] for line in ended.rounds[2:]] == [[LATE], [LATE]]
    assert [line["lost"] for line in ended.rounds[2:]] == [[FIRST], []]


def test_no_process_is_left(ended):
    ours = {process.pid for process in carriers(ended.mark)}
    assert ours
    ended.close()
    assert carriers(ended.mark) == []
    assert zombies_among(ours) == []
