"""What an operator does on the server: let sites in, and begin the run."""

from __future__ import annotations

from motet.deploy.commands import LOOPBACK
from motet.deploy.control import Control
from motet.deploy.layout import SUPERLINK_PORT, Deployment
from motet.deploy.submission import write_settings


def control_of(deployment: Deployment) -> Control:
    """Find the SuperLink of a deployment, on this machine."""
    return Control.of(deployment.home, f"{LOOPBACK}:{SUPERLINK_PORT}", deployment.authority)


def register_sites(deployment: Deployment) -> list[str]:
    """Register the sites that are not registered yet, and return their names."""
    control = control_of(deployment)
    known = {node.name for node in control.nodes()}
    new = [site for site in deployment.sites if site not in known]
    for site in new:
        control.register(site, deployment.site(site) / "site.key.pub")
    return new


def submit_run(deployment: Deployment, *, min_clients: int, deadline_s: float | None) -> int:
    """Begin the run, or go on with it where its directory says it is."""
    settings = deployment.path / "settings.toml"
    write_settings(
        settings,
        deployment,
        out=deployment.out,
        sites=deployment.sites,
        min_clients=min_clients,
        deadline_s=deadline_s,
    )
    return control_of(deployment).submit(deployment.app, settings)
