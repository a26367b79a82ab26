"""A newcomer's trial with four sites: the commands at the top of the guide, as they are written."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from federation import carriers, run_command

from motet._cli.deploy_output import run_trial
from motet._engine.records import read_scores
from motet.deploy._layout import Deployment
from motet.deploy._trial import MARK, Trial

pytestmark = pytest.mark.distributed

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "deploy.md"


def commands():
    block = re.search(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    return [shlex.split(line) for line in block.splitlines()]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The folder after all commands but the installation, and what each of them said."""
    folder, said = tmp_path_factory.mktemp("newcomer"), {}
    for words in commands()[1:]:
        said[" ".join(words[1:3])] = run_command(words, folder)
    return folder, said


def test_five_commands_of_the_guide_lead_from_nothing_to_a_report_of_four_sites(told):
    install, *others = commands()
    assert len(others) + 1 <= 5
    # Installed already, with what this extra asks for; a test uses no network.
    assert install[:2] == ["pip", "install"]
    assert install[-1] == ".[flower]"
    assert (
        "flower"
        in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    run = told[0] / "net" / "trial" / "run"
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert [len(line["replied"]) for line in rounds] == [4, 4]
    assert (run / "report.html").stat().st_size > 100_000


def test_a_trial_says_how_it_goes_and_leaves_no_process(told, capsys, monkeypatch):
    folder, said = told
    assert "round 1 of 2: 4 of 4 sites replied" in said["deploy trial"]
    net = Deployment.open(folder / "net")
    assert carriers((net.trial / MARK).read_text()) == []
    scores = read_scores(net.trial / "run" / "clients.parquet")
    assert {row.client for row in scores} == set(net.sites)
    monkeypatch.setattr(Trial, "events", lambda _: (x for x in ()))  # it has ended already
    run_trial(Trial(net, net.sites), as_json=True, quiet=True)
    assert json.loads(capsys.readouterr().out)["cost"]["bytes_up"] > 0
