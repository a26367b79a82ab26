"""Programs of a real federation are killed and restarted, and the result stays the same.

`benchmarks/kill_schedules.py` draws any number of schedules; these three run side by side, because
Flower refuses a restarted SuperNode for up to a minute.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from kill_schedules import SERVER, Kill, play_schedule, schedule

from motet.deploy._loopback import SUPERLINK, site_process

SCHEDULES = {
    "superlink, then server": [Kill(SUPERLINK, 0, 1.0, 0.5), Kill(SERVER, 1, 0.5, 0.0)],
    "a site": [Kill(site_process("0"), 0, 1.0, 0.5)],
    "server, then superlink": [Kill(SERVER, 0, 1.0, 0.0), Kill(SUPERLINK, 1, 0.5, 0.5)],
}


@pytest.mark.distributed
def test_killing_any_program_of_a_federation_does_not_change_its_result(tmp_path):
    def play(name):
        done = play_schedule(tmp_path / name.replace(" ", "-"), SCHEDULES[name])
        return [kill.program for kill in done.killed]

    with ThreadPoolExecutor(len(SCHEDULES)) as pool:
        killed = dict(zip(SCHEDULES, pool.map(play, SCHEDULES), strict=True))
    assert all(killed.values()), killed


def test_a_schedule_depends_on_its_seed_alone():
    assert schedule(3, ("a", "b")) == schedule(3, ("a", "b"))
    drawn = {kill.program for seed in range(20) for kill in schedule(seed, ("a", "b"))}
    assert drawn == {SUPERLINK, SERVER, "site-a", "site-b"}
