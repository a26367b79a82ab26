"""A federation of real programs whose second site joins late, is killed and comes back.

The story is played once, and its first site leaves before it ends.
"""

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
HELD = "held_back"  # until the file `may_go_on` exists
# The first site waits for the second in rounds 1 and 4, and is stopped at work in round 5.
TRICKS = {FIRST: [HELD, "honest", "honest", HELD, HELD]}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A finished federation; what happened in it."""
    folder = tmp_path_factory.mktemp("joining")
    experiment = small_experiment(clients=2, rounds=6)
    deployment = write_deployment(folder / "small", experiment).deployment
    app, may_go_on = hostile_app(deployment, folder / "app"), folder / "may-go-on"
    waiting = folder / "may-go-on.waiting"
    with Programs(deployment, folder / "programs") as programs:

        def come(site):
            programs.start_site(site)
            programs.await_online([site])
            may_go_on.touch()

        def await_work_of(site, after):
            await_that(lambda: len(programs.rounds("open")) == after and programs.workers(site))

        programs.begin([FIRST])
        settings = {"clients": "", "tricks": json.dumps(TRICKS), "until": str(may_go_on)}
        number = programs.submit("open", app=app, **settings)
        await_work_of(FIRST, after=0)
        programs.register([LATE])
        come(LATE)
        await_work_of(LATE, after=1)
        may_go_on.unlink()
        await_work_of(LATE, after=2)
        programs.processes.kill(site_process(LATE))
        await_work_of(FIRST, after=3)  # the SuperLink has noticed, so that it may come back
        come(LATE)
        await_that(lambda: len(programs.rounds("open")) == 4)
        waiting.unlink()
        may_go_on.unlink()
        await_that(waiting.exists)  # in round 5: a process of round 4 may still be ending
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


def test_a_site_that_is_killed_misses_its_round_and_comes_back(ended):
    third, fourth, fifth = ended.rounds[2:5]
    assert (third["replied"], third["lost"]) == ([FIRST], [LATE])
    assert (fourth["replied"], fourth["lost"]) == ([FIRST], [])
    assert LATE in fifth["replied"]


def test_a_site_that_leaves_during_a_run_misses_its_round_and_is_not_asked_again(ended):
    assert [line["replied"] for line in ended.rounds[4:]] == [[LATE], [LATE]]
    assert [line["lost"] for line in ended.rounds[4:]] == [[FIRST], []]


def test_no_process_is_left(ended):
    ours = {process.pid for process in carriers(ended.mark)}
    assert ours
    ended.close()
    assert carriers(ended.mark) == []
    assert zombies_among(ours) == []
