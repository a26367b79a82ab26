"""start.sh, the systemd unit and the container of a site start it with the same choices."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from federation import write_deployment

from motet.deploy import _services as services
from motet.deploy._environment import program_folder
from motet.deploy._loopback import free_ports
from motet.deploy._site_settings import SiteSettings

pytestmark = pytest.mark.skipif(os.name != "posix", reason="scripts, modes and umasks are POSIX")

SUPERNODE = (
    '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done; umask; env | grep FLWR_ | sort\n'
)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    port, site_port = free_ports(2)
    folder = tmp_path_factory.mktemp("starting") / "small"
    return write_deployment(folder, host="127.0.0.1", port=port, site_port=site_port).deployment


@pytest.fixture
def site(deployment, tmp_path):
    """The folder of a site, as it was handed over to it."""
    return shutil.copytree(deployment.site("0"), tmp_path / "given")


@pytest.fixture
def run(tmp_path):
    """Run a command with a SuperNode in the place of Flower's that says how it was called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "flower-supernode").write_text(SUPERNODE)
    (programs / "flower-supernode").chmod(0o755)
    # `motet deploy start` puts the folder of its own Python first.
    python = programs / "python"
    python.symlink_to(program_folder() / "python")
    code = "import sys; sys.executable = sys.argv.pop(1); from motet._cli.main import main; main()"
    motet = f'#!/bin/sh\nexec {program_folder()}/python -c "{code}" {python} "$@"\n'
    (programs / "motet").write_text(motet)
    (programs / "motet").chmod(0o755)

    def call(command, folder, **more):
        path = f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin"
        done = subprocess.run(
            command,
            cwd=folder,
            env={"PATH": path, "HOME": str(tmp_path), **more},
            capture_output=True,
            text=True,
            check=False,
            umask=0,
        )
        assert done.returncode in (0, 1), done.stderr
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        return [line["message"] for line in lines if line["level"] == "info"]

    return call


def by_script(site):
    return ["./start.sh", "--json"]


def by_unit(site):
    """What the unit of the site says, with this test's places in the place of a machine's."""
    (path,) = site.glob("*.service")
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str
    unit.read(path)
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).parent == services.PROGRAMS
    place = unit["Service"]["WorkingDirectory"]
    return [Path(program).name, *(str(site) if word == place else word for word in words), "--json"]


def by_container(site):
    lines = (site / "Containerfile").read_text().splitlines()
    (entry,) = [line.removeprefix("ENTRYPOINT ") for line in lines if line.startswith("ENTRYPOINT")]
    return [str(site) if word == "/site" else word for word in json.loads(entry)] + ["--json"]


CHOICES = {
    "share_scores": False,
    "max_clients": 77,
    "name": "St. Mary east-wing",
    "data": "my data/visits.csv",
    "state": "kept",
}


def test_all_three_ways_hand_the_same_choices_to_the_site(site, run):
    settings = replace(SiteSettings.read(site), **CHOICES)
    settings.write(site)
    (site / settings.data).parent.mkdir()
    (site / settings.data).touch()
    pinned = (site / "experiment.sha256").read_text().split()[0]
    expected = [*settings.command(site, pinned)[1:], "0077"]
    said = [run(way(site), site) for way in (by_script, by_unit, by_container)]
    assert said[0] == said[1] == said[2]
    assert said[0][: len(expected)] == expected
    assert f"FLWR_HOME={site}/flower" in said[0]
    assert "FLWR_TELEMETRY_ENABLED=0" in said[0]
    config = expected[-2]
    assert "share-scores=false" in config
    assert f"client={json.dumps(settings.name)}" in config
    assert f'agreed="{pinned}"' in config
    assert stat.S_IMODE((site / settings.state).stat().st_mode) == 0o700


def test_the_unit_and_the_container_run_as_the_account_that_the_pages_name(deployment, site):
    (unit,) = site.glob("*.service")
    assert f"User={services.USER}\n" in unit.read_text()
    container = (site / "Containerfile").read_text()
    assert f"USER {services.USER}\n" in container
    assert f"useradd --create-home {services.USER}" in container
    for page in (site / "README.md", deployment.path / "PRODUCTION.md"):
        assert "useradd --system" in page.read_text()
        assert services.USER in page.read_text()


def test_nothing_of_a_site_is_left_to_be_filled_in(deployment):
    for name in deployment.sites:
        folder = deployment.site(name)
        assert SiteSettings.read(folder).name == name
        for path in (*folder.glob("*.service"), folder / "Containerfile", folder / "start.sh"):
            text = path.read_text()
            assert not {"NAME", "{{", "CHANGE", "TODO", "<"} & set(text.replace("=", " ").split())
            assert "NAME" not in text


def test_two_deployments_on_one_machine_share_no_port_unit_or_folder(tmp_path):
    (port, superlink_port, site_port) = free_ports(3)
    ports = {"port": port, "superlink_port": superlink_port, "site_port": site_port}
    texts = []
    for name, more in {"first": {}, "second": ports}.items():
        made = write_deployment(tmp_path / name, name=name, **more).deployment
        paths = [made.path / "nginx.conf", made.path / "firewall.nft"]
        paths += [*made.path.rglob("*.service"), *made.path.rglob("site.toml")]
        texts.append({path.name: path.read_text() for path in paths})
    units = [{name for name in some if name.endswith("service")} for some in texts]
    assert not units[0] & units[1]
    second = "".join(texts[1].values())
    for word in ("8000", "8443", "9094", "/opt/motet/first", "motet_first"):
        assert word in "".join(texts[0].values())
        assert word not in second
    for number in (port, superlink_port, site_port):
        assert str(number) in second
