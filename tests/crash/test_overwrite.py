"""Killed while it replaces another run, a run still ends with the bytes of a clean one.

`MOTET_CHANGES=1000` tries every change until the end, not only those that replace the old run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from overwriting import CHANGES
from saved import assert_same_run

HERE = Path(__file__).parent
OF_A_COMPARISON = ("config.toml", "data.json", "comparison.json", "results.jsonl")


@pytest.fixture(scope="module")
def replaced(tmp_path_factory):
    root = tmp_path_factory.mktemp("replaced")
    asked = os.environ.get("MOTET_CHANGES")
    changes = [str(CHANGES)] if asked is None else [asked, "all"]
    done = subprocess.run(
        [sys.executable, HERE / "overwriting.py", root, *changes],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path_here()},
    )
    assert done.returncode == 0, done.stderr
    return root


def path_here():
    return os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))


@pytest.mark.parametrize("kind", ["run-memory", "run-disk"])
def test_killed_while_it_replaces_a_run_the_command_given_again_ends_as_a_clean_one(replaced, kind):
    broken = sorted((replaced / kind).glob("broken-*"))
    assert len(broken) >= CHANGES // 2
    for path in broken:
        assert_same_run(replaced / kind / "whole", path)
        assert names(path) == names(replaced / kind / "whole")
        timings = (path / "timings.jsonl").read_text().splitlines()
        assert len(timings) == 1, "the old run had other rounds"


def test_killed_while_it_replaces_a_comparison_the_command_given_again_ends_as_a_clean_one(
    replaced,
):
    broken = sorted((replaced / "compare").glob("broken-*"))
    assert len(broken) >= CHANGES // 2
    for path in broken:
        assert names(path) == names(replaced / "compare" / "whole")
        for name in OF_A_COMPARISON:
            assert without_times(path / name) == without_times(replaced / "compare/whole" / name)


def names(path):
    return sorted(str(below.relative_to(path)) for below in path.rglob("*"))


def without_times(path):
    return re.sub(r'"seconds": [0-9.e-]+', "", path.read_text())
