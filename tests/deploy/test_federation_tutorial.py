"""The commands of the tutorial "From simulation to a federation", with real programs over TLS."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from federation import answers, await_run, await_that, run_command

from motet.deploy._environment import environment
from motet.deploy._layout import Deployment
from motet.deploy._loopback import free_ports
from motet.deploy._processes import Processes
from motet.deploy._server import control_of
from motet.deploy._site_settings import SiteSettings

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(os.name != "posix", reason="scripts are POSIX"),
]

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "federation.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def steps(port: int, superlink_port: int) -> list[list[list[str]]]:
    """The commands of each block; fewer sites and rounds, and a server on this machine."""
    text = PAGE.read_text(encoding="utf-8")
    for written, here in (
        ("--clients 4 --rounds 10", "--clients 2 --rounds 1"),
        ("--host fl.example.org", f"--port {port} --superlink-port {superlink_port}"),
        ("sites/00", "sites/0"),
    ):
        assert written in text
        text = text.replace(written, here)
    return [[shlex.split(line) for line in block.splitlines()] for block in BLOCK.findall(text)]


def run_all(commands: list[list[str]], folder: Path) -> None:
    for words in commands:
        run_command(words, folder)


def replies(run: Path) -> list[int]:
    lines = (run / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    return [len(json.loads(line)["replied"]) for line in lines]


def test_the_trial_of_the_tutorial_is_that_of_the_guide():
    """`test_newcomer` runs the commands of the guide as they are written."""
    guide = BLOCK.search((PAGE.parents[1] / "guides" / "deploy.md").read_text(encoding="utf-8"))
    written = [
        line
        for block in BLOCK.findall(PAGE.read_text(encoding="utf-8"))[:3]
        for line in block.splitlines()
    ]
    assert guide[1].splitlines()[1:4] == written


def test_the_tutorial_leads_from_a_simulation_to_a_federation_of_real_sites(tmp_path):
    port, superlink_port, *site_ports = free_ports(4)
    run, init, _, check, started = steps(port, superlink_port)
    run_all([*run, *init, *check], tmp_path)
    net = Deployment.open(tmp_path / "net")
    home = environment(tmp_path / "home", OMP_NUM_THREADS="1")
    with Processes(tmp_path / "logs") as processes:
        processes.start("server", [str(net.path / "server.sh")], home)
        await_that(lambda: answers(net))
        register, *others = started
        run_all([register], tmp_path)
        for site, site_port in zip(net.sites, site_ports, strict=True):
            # Each has this port to itself on its own machine.
            replace(SiteSettings.read(net.site(site)), port=site_port).write(net.site(site))
            processes.start(site, [str(net.site(site) / "start.sh")], home)
        run_all(others, tmp_path)
        await_run(processes, "server", control_of(net))
    assert replies(net.out) == [2]
    assert all([*(net.site(site) / "state").rglob("*.safetensors")] for site in net.sites)
