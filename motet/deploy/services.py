"""How the server and the sites run when nobody watches: scripts, nginx and systemd."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from motet.deploy import commands
from motet.deploy.certificates import VALID_FOR, write_shared_secret
from motet.deploy.environment import SWITCHES
from motet.deploy.layout import SITE_PORT, SUPERLINK_PORT, Deployment
from motet.deploy.pages import write_page

PLACE, PROGRAMS = Path("/opt/motet/deployment"), Path("/opt/motet/venv/bin")  # on a server
SITE_PLACE = Path("/opt/motet/site")
SECRET, DATABASE = "superexec.secret", "superlink.db"


def write(deployment: Deployment, *, own_code: str) -> None:
    """Write the scripts, the service files and the page about them."""
    _write_server_script(deployment)
    _write_nginx(deployment)
    _write_units(deployment)
    _write_production_page(deployment, own_code)


def _write_server_script(deployment: Deployment) -> None:
    here = replace(deployment, path=Path())  # the script goes to its own folder first
    command = commands.superlink(here.certificates, port=SUPERLINK_PORT, database=Path(DATABASE))
    write_page(
        deployment.path / "server.sh",
        "server.sh",
        program=True,
        switches=SWITCHES,
        command=shlex.join(command),
    )


def _write_nginx(deployment: Deployment) -> None:
    write_page(
        deployment.path / "nginx.conf",
        "nginx.conf",
        host=deployment.host,
        port=deployment.port,
        certificates=PLACE / "certificates",
        superlink_port=SUPERLINK_PORT,
    )


def _write_units(deployment: Deployment) -> None:
    """Write a unit per program. Runs live in an executor of their own: they outlive a SuperLink."""
    there = replace(deployment, path=PLACE)
    trust, secret = there.certificates, PLACE / SECRET
    write_shared_secret(deployment.path / SECRET)
    superlink = commands.superlink(trust, port=SUPERLINK_PORT, database=PLACE / DATABASE)
    settings = {
        "client": "NAME",
        "data": str(SITE_PLACE / deployment.data(deployment.sites[0]).name),
        "state-dir": str(SITE_PLACE / "state"),
    }
    site = commands.supernode(SITE_PLACE, server=deployment.address, port=SITE_PORT)
    units = {
        "superlink": (PLACE, commands.resumable(superlink, secret)),
        "superexec": (PLACE, commands.superexec(trust, port=SUPERLINK_PORT, secret=secret)),
        "filter": (
            PLACE,
            commands.path_filter(
                PLACE, host="0.0.0.0", port=deployment.port, superlink_port=SUPERLINK_PORT
            ),
        ),
        "site": (SITE_PLACE, [*site, *commands.node_config(settings)]),
    }
    for name, (folder, command) in units.items():
        write_page(
            deployment.path / "systemd" / f"motet-{name}.service",
            "unit.service",
            description=f"Motet federation: {name}",
            folder=folder,
            programs=PROGRAMS,
            switches=SWITCHES,
            command=shlex.join(command),
        )


def _write_production_page(deployment: Deployment, own_code: str) -> None:
    write_page(
        deployment.path / "PRODUCTION.md",
        "PRODUCTION.md",
        own_code=own_code,
        address=deployment.address,
        host=deployment.host,
        port=deployment.port,
        superlink_port=SUPERLINK_PORT,
        place=PLACE,
        programs=PROGRAMS.parent,
        ends=(datetime.now(UTC) + VALID_FOR).date().isoformat(),
    )
