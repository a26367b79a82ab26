"""A federation of real programs from its first site to its end, with a site that comes later."""

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

pytestmark = pytest.mark.distributed

FIRST, LATE = "0", "1"


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """What is left of a federation whose second site came during the first of two rounds."""
    folder = tmp_path_factory.mktemp("joining")
    deployment = write_deployment(folder / "small", small_experiment(rounds=2)).deployment
    app, is_there = hostile_app(deployment, folder / "app"), folder / "is-there"
    with Programs(deployment, folder / "programs") as programs:
        programs.begin([FIRST])
        tricks = json.dumps({FIRST: ["held_back"]})  # round 1 lasts until the second site is there
        number = programs.submit("open", app=app, clients="", tricks=tricks, until=str(is_there))
        await_that(lambda: programs.workers(FIRST))
        programs.register([LATE])
        programs.start_site(LATE)
        programs.await_online([LATE])
        is_there.touch()
        programs.completed(number)
        yield SimpleNamespace(
            rounds=programs.rounds("open"),
            log=programs.control.log(number),
            close=programs.close,
            mark=programs.processes.mark,
        )


def test_a_site_that_comes_during_a_run_takes_part_from_the_next_round(ended):
    assert [line["replied"] for line in ended.rounds] == [[FIRST], [FIRST, LATE]]
    assert f"{LATE} joined" in ended.log


def test_no_process_is_left(ended):
    ours = {process.pid for process in carriers(ended.mark)}
    assert ours
    ended.close()
    assert carriers(ended.mark) == []
    assert zombies_among(ours) == []
