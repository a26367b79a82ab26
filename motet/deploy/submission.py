"""What is handed over when a run is submitted: the app's settings, as far as they change."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from motet.deploy.layout import Deployment
from motet.errors import RequestError


def app_settings(deployment: Deployment) -> dict[str, Any]:
    """Read the settings that stand in the app."""
    project = tomllib.loads((deployment.app / "pyproject.toml").read_text(encoding="utf-8"))
    settings: dict[str, Any] = project["tool"]["flwr"]["app"]["config"]
    return settings


def write_settings(
    path: Path,
    deployment: Deployment,
    *,
    out: Path,
    sites: Sequence[str],
    min_clients: int = 1,
    deadline_s: float | None = None,
    rounds: int | None = None,
) -> int:
    """Write the settings of one run, and return how many rounds it has."""
    settings = app_settings(deployment)
    config = tomllib.loads(settings["config"])
    if rounds is not None:
        config["run"]["rounds"] = rounds
        config["run"]["evaluate_every"] = min(config["run"]["evaluate_every"], rounds)
    changed = {
        "config": tomli_w.dumps(config),
        "out": str(out),
        "clients": ",".join(sites),
        "min-clients": min_clients,
        "deadline-s": settings["deadline-s"] if deadline_s is None else deadline_s,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomli_w.dumps(changed), encoding="utf-8")
    return int(config["run"]["rounds"])


def chosen_sites(deployment: Deployment, count: int | None) -> tuple[str, ...]:
    """Take the first so many sites of a deployment; all of them if no number is given."""
    if count is not None and not 1 <= count <= len(deployment.sites):
        raise RequestError(
            f"--sites is a number from 1 to {len(deployment.sites)}, the sites of this deployment; "
            f"{count} came."
        )
    return deployment.sites[:count]
