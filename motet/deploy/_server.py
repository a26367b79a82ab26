"""The operator's actions on the server: registering sites and submitting the run."""

from __future__ import annotations

import shlex

from motet.deploy._control import Control
from motet.deploy._keys import fingerprint, public_of
from motet.deploy._layout import KEY, LOOPBACK, Deployment
from motet.deploy._submission import app_settings, check_request, write_settings
from motet.errors import StateError


def control_of(deployment: Deployment) -> Control:
    """Connect to the SuperLink of a deployment on this machine."""
    address = f"{LOOPBACK}:{deployment.superlink_port}"
    return Control.of(deployment.home, address, deployment.authority)


def register_sites(deployment: Deployment) -> list[str]:
    """Register the sites that are not registered yet, and return their names.

    Args:
        deployment: A deployment whose server is running.

    Returns:
        The names of the sites that are new.

    Raises:
        StateError: A registered site has another key in its folder now.

    Example:
        >>> import motet
        >>> from pathlib import Path
        >>> net = motet.deploy.Deployment.open(Path("net"))  # doctest: +SKIP
        >>> motet.deploy.register_sites(net)  # doctest: +SKIP
    """
    control = control_of(deployment)
    known = {node.name: control.key_of(node) for node in control.nodes()}
    keys = {site: public_of(deployment.site(site) / KEY) for site in deployment.sites}
    new = [site for site in deployment.sites if site not in known]
    changed = [
        site
        for site in deployment.sites
        if known.get(site) is not None and known[site] != fingerprint(keys[site])
    ]
    for site in new:
        control.register(site, keys[site])
    if changed:
        raise StateError(
            f"{', '.join(changed)}: the key in the folder is not the registered one, which stays "
            f"valid. Replace it with `motet deploy site rekey {shlex.quote(changed[0])} "
            f"{deployment.path} --key FILE`."
        )
    return new


def stop_runs(deployment: Deployment) -> list[int]:
    """Stop all runs that have not ended, and return their numbers."""
    control = control_of(deployment)
    alive = [run.number for run in control.runs() if not run.is_over]
    for number in alive:
        control.stop(number)
    return alive


def submit_run(
    deployment: Deployment,
    *,
    min_clients: int,
    deadline_s: float | None,
    evaluate_only: bool = False,
    cross_site: bool = False,
) -> int:
    """Start the run, or resume it from the state in its run directory.

    Args:
        deployment: A deployment whose server is running.
        min_clients: Sites that a round needs at least.
        deadline_s: Seconds that a round waits; None: the default.
        evaluate_only: Whether to ask for scores only, and train nothing.
        cross_site: Whether to also score each site's model at each site that has agreed to it.

    Returns:
        The number of the run at the server.

    Raises:
        StateError: An earlier run has not ended.
        CapabilityError: Models of this method cannot be scored elsewhere.

    Example:
        >>> import motet
        >>> from pathlib import Path
        >>> net = motet.deploy.Deployment.open(Path("net"))  # doctest: +SKIP
        >>> motet.deploy.submit_run(net, min_clients=3, deadline_s=600)  # doctest: +SKIP
    """
    check_request(len(deployment.sites), min_clients, deadline_s)
    if cross_site:
        require_models_that_travel(deployment)
    control = control_of(deployment)
    alive = [run for run in control.runs() if not run.is_over]
    if alive:
        path = shlex.quote(str(deployment.path))
        raise StateError(
            f"run {alive[0].number} has not ended ({alive[0].status}). Wait for it (`motet deploy "
            f"status {path}`), or stop it with `motet deploy stop {path}`."
        )
    settings = deployment.path / "settings.toml"
    write_settings(
        settings,
        deployment,
        out=deployment.out,
        sites=deployment.sites,
        min_clients=min_clients,
        deadline_s=deadline_s,
        evaluate_only=evaluate_only,
        cross_site=cross_site,
    )
    return control.submit(deployment.app, settings)


def require_models_that_travel(deployment: Deployment) -> None:
    """Refuse a cross-site matrix of a method whose models stay where they are."""
    # Here, since everything else that an operator does works without torch.
    from motet.deploy._runtime.agreement import Agreement
    from motet.deploy._runtime.site import require_one_network

    config = app_settings(deployment)["config"]
    require_one_network(Agreement.from_text(deployment.experiment, config).method)
