"""Scripts, nginx configuration and systemd units of a deployment, and the page about them."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from pathlib import Path

from motet._core.version import __version__
from motet.deploy import _commands as commands
from motet.deploy._certificates import write_shared_secret
from motet.deploy._environment import SWITCHES
from motet.deploy._layout import LOOPBACK, Deployment
from motet.deploy._limits import BODY_S, HEADER_S, PER_ADDRESS
from motet.deploy._pages import write_page
from motet.deploy._preflight import read_certificate
from motet.deploy._site_settings import SETTINGS
from motet.deploy._start import SECRET

PLACE, PROGRAMS = Path("/opt/motet"), Path("/opt/motet/venv/bin")  # on a server and at a site
USER = "motet"  # the account of all services


def server_place(deployment: Deployment) -> Path:
    """Return where the units of the server expect the deployment."""
    return PLACE / deployment.experiment / "server"


def site_place(deployment: Deployment) -> Path:
    """Return where the unit of a site expects the site's folder."""
    return PLACE / deployment.experiment / "site"


def write(deployment: Deployment, *, own_code: str) -> None:
    """Write the scripts and services of the server, and the page about them."""
    write_page(deployment.path / "server.sh", "server.sh", program=True)
    write_shared_secret(deployment.path / SECRET)
    _write_nginx(deployment)
    _write_firewall(deployment, deployment.path)
    for name, command in _server_commands(deployment).items():
        _write_unit(deployment, deployment.path / "systemd", name, command)
    write_production_page(deployment, own_code)


def write_site(deployment: Deployment, site: str) -> None:
    """Write what starts a site: a script, a systemd unit and a container, each from site.toml."""
    folder = deployment.site(site)
    write_page(folder / "start.sh", "start.sh", program=True)
    _write_unit(deployment, folder, "site", commands.start(site_place(deployment)))
    _write_firewall(deployment, folder)
    write_page(
        folder / "Containerfile",
        "Containerfile",
        image=f"{unit_name(deployment, 'site').lower()}:{__version__}",
        settings=SETTINGS,
        version=__version__,
        user=USER,
        switches=SWITCHES,
        command=commands.start(Path("/site")),
    )


def unit_name(deployment: Deployment, name: str) -> str:
    """Name a unit after its deployment: a machine may take part in several."""
    return f"motet-{deployment.experiment}-{name}"


def _server_commands(deployment: Deployment) -> dict[str, list[str]]:
    """List the programs of a server. An executor of their own lets runs survive the SuperLink."""
    place, port = server_place(deployment), deployment.superlink_port
    trust, secret = place / "certificates", place / SECRET
    return {
        "superlink": [*commands.start(place), "--resumable"],
        "superexec": commands.superexec(trust, port=port, secret=secret),
        "filter": commands.path_filter(
            place, host=deployment.listen, port=deployment.port, superlink_port=port
        ),
    }


def _write_unit(deployment: Deployment, folder: Path, name: str, command: list[str]) -> None:
    place = site_place(deployment) if name == "site" else server_place(deployment)
    write_page(
        folder / f"{unit_name(deployment, name)}.service",
        "unit.service",
        description=f"Motet federation {deployment.experiment}: {name}",
        folder=place,
        programs=PROGRAMS,
        user=USER,
        switches=SWITCHES,
        command=shlex.join(command),
    )


def _write_nginx(deployment: Deployment) -> None:
    write_page(
        deployment.path / "nginx.conf",
        "nginx.conf",
        name=_identifier(deployment),
        host=deployment.host,
        port=deployment.port,
        certificates=server_place(deployment) / "certificates",
        superlink=f"{LOOPBACK}:{deployment.superlink_port}",
        header_s=int(HEADER_S),
        body_s=int(BODY_S),
        per_address=PER_ADDRESS,
    )


def _write_firewall(deployment: Deployment, folder: Path) -> None:
    write_page(
        folder / "firewall.nft",
        "firewall.nft",
        name=_identifier(deployment),
        superlink_port=deployment.superlink_port,
        site_port=deployment.site_port,
        user=USER,
    )


def _identifier(deployment: Deployment) -> str:
    """Name something of nginx or nftables after the deployment."""
    return re.sub(r"\W", "_", deployment.experiment)


def write_production_page(deployment: Deployment, own_code: str) -> None:
    """Write the page about production."""
    write_page(
        deployment.path / "PRODUCTION.md",
        "PRODUCTION.md",
        own_code=own_code,
        address=deployment.address,
        host=deployment.host,
        port=deployment.port,
        superlink_port=deployment.superlink_port,
        site_port=deployment.site_port,
        place=server_place(deployment),
        site_place=site_place(deployment),
        units=[unit_name(deployment, name) for name in ("superlink", "superexec", "filter")],
        site_unit=unit_name(deployment, "site"),
        user=USER,
        programs=PROGRAMS.parent,
        per_address=PER_ADDRESS,
        server_ends=_ends(deployment.certificates / "server.pem"),
        authority_ends=_ends(deployment.authority),
    )


def _ends(certificate: Path) -> str:
    ends: datetime = read_certificate(certificate).not_valid_after_utc
    return ends.date().isoformat()
