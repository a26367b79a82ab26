"""`motet deploy trial` as a separate process that is stopped half-way, or killed.

`test_newcomer` runs a trial to its end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest
from federation import await_that, carriers, write_deployment, zombies_among

from motet.deploy._trial import MARK

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    return write_deployment(tmp_path_factory.mktemp("trials") / "net").deployment


def start_trial(deployment, *options):
    code = "from motet._cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "deploy", "trial", str(deployment.path), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def seen():
    """The ids of all processes seen in these trials."""
    return set()


@pytest.fixture
def programs_of(seen):
    """Look at the processes of the trial that wrote this mark."""

    def look(mark):
        found = carriers(mark.read_text()) if mark.exists() else []
        seen.update(process.pid for process in found)
        return found

    return look


def stopped_by(trial, number):
    trial.send_signal(number)
    _, err = trial.communicate()
    assert trial.returncode == 128 + number
    assert "all programs of the trial are ended" in err


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
def test_a_trial_that_is_killed_is_cleaned_up_by_the_next_and_one_that_is_stopped_by_itself(
    deployment, programs_of
):
    mark = deployment.trial / MARK
    killed = start_trial(deployment, "--sites", "1")
    await_that(lambda: programs_of(mark))
    killed.kill()
    killed.communicate()
    left, orphans = mark.read_text(), programs_of(mark)
    assert orphans
    following = start_trial(deployment, "--sites", "1", "--overwrite")
    await_that(lambda: mark.exists() and mark.read_text() not in ("", left))
    assert carriers(left) == []
    # Another test may have made this process adopt orphans: then it must reap them.
    psutil.wait_procs(zombies_among({orphan.pid for orphan in orphans}), timeout=30)
    await_that(lambda: len(programs_of(mark)) >= 3)  # a site is up, too
    stopped_by(following, signal.SIGINT)
    assert programs_of(mark) == []


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
def test_a_trial_that_a_service_manager_stops_leaves_no_process(deployment, programs_of):
    before = (deployment.trial / MARK).read_text() if deployment.trial.exists() else ""
    trial = start_trial(deployment, "--sites", "1", "--overwrite")
    mark = deployment.trial / MARK
    await_that(lambda: mark.exists() and mark.read_text() not in ("", before) and programs_of(mark))
    stopped_by(trial, signal.SIGTERM)
    assert programs_of(mark) == []


def test_nothing_of_ours_is_a_zombie(seen):
    assert zombies_among(seen) == []
