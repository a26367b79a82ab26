"""A newcomer's trial with four sites: the commands at the top of the guide, as they are written."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from motet.deploy._environment import program_folder

pytestmark = pytest.mark.distributed

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "deploy.md"


def commands():
    block = re.search(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    return [shlex.split(line) for line in block.splitlines()]


def test_five_commands_of_the_guide_lead_from_nothing_to_a_report_of_four_sites(tmp_path):
    install, *others = commands()
    assert len(others) + 1 <= 5
    # Installed already, with what this extra asks for; a test uses no network.
    assert install[:2] == ["pip", "install"]
    assert install[-1] == ".[flower]"
    assert (
        "flower"
        in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    path = f"{program_folder()}{os.pathsep}{os.environ['PATH']}"
    for words in others:
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr)
        assert "Traceback" not in done.stderr
    run = tmp_path / "net" / "trial" / "run"
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert [len(line["replied"]) for line in rounds] == [4, 4]
    assert (run / "report.html").stat().st_size > 100_000
