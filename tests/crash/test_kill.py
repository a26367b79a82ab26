"""Killed at any instant, a run goes on to the same bytes as one that was never stopped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from saved import assert_same_run, saved_state
from worlds import METHODS, STORES

HERE = Path(__file__).parent
KILLS = 5  # for each of 4 methods and 2 stores: 40 in all, 24 of them before a change on disk


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Runs that were killed again and again, each beside one that was not."""
    root = tmp_path_factory.mktemp("killed")
    killing = subprocess.run(
        [sys.executable, HERE / "killing.py", root, str(KILLS), "0"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)},
    )
    assert killing.returncode == 0, killing.stderr
    assert killing.stdout.count(f": {KILLS} kills") == len(METHODS) * len(STORES)
    return root


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("method", METHODS)
def test_killed_at_any_instant_a_run_goes_on_to_the_same_bytes(killed, method, store):
    broken = sorted((killed / method / store).glob("broken-*"))
    assert broken
    for path in broken:
        assert_same_run(killed / method / store / "whole", path)


def test_killed_before_any_change_of_a_save_a_run_goes_on_to_the_same_bytes(killed):
    broken = sorted((killed / "swept").glob("broken-*"))
    assert len(broken) > 40  # a save has so many statements
    for path in broken:
        assert_same_run(killed / "swept" / "whole", path)


@pytest.mark.parametrize("method", METHODS)
def test_both_stores_give_the_same_bytes(killed, method):
    memory, disk = (killed / method / store / "whole" for store in STORES)
    for name in ("rounds.jsonl", "clients.parquet"):
        assert (memory / name).read_bytes() == (disk / name).read_bytes()
    assert saved_state(memory) == saved_state(disk)
