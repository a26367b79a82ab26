"""Settings of a submitted run: those of the app, with the changes for this run."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from motet.deploy._layout import Deployment
from motet.deploy._runtime.pinning import hash_of_text
from motet.errors import RequestError, StateError

LONGEST_S = 30 * 86_400.0  # of a round
MOST_ROUNDS = 1_000_000  # of a trial


def app_settings(deployment: Deployment) -> dict[str, Any]:
    """Read the settings of the app."""
    return _settings_of(_project(deployment))


def change_settings(deployment: Deployment, **changed: Any) -> None:
    """Change settings of the app."""
    project = _project(deployment)
    _settings_of(project).update(changed)
    text = tomli_w.dumps(project, multiline_strings=True)
    (deployment.app / "pyproject.toml").write_text(text, encoding="utf-8")


def _project(deployment: Deployment) -> dict[str, Any]:
    """Read the description of the app, which people edit."""
    path = deployment.app / "pyproject.toml"
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8"))
        tomllib.loads(_settings_of(project)["config"])
    except OSError as reason:
        said = (reason.strerror or str(reason)).lower()
    except ValueError as reason:
        said = str(reason).lower().rstrip(".")
    except (KeyError, TypeError, AttributeError):  # not a table, or config is no text
        said = "[tool.flwr.app.config] with the entry config is missing"
    else:
        return project
    raise StateError(
        f"{path} cannot be used: {said}. Restore it from a backup, or write the deployment again "
        "with `motet deploy init`."
    )


def _settings_of(project: Mapping[str, Any]) -> dict[str, Any]:
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
    evaluate_only: bool = False,
    cross_site: bool = False,
) -> int:
    """Write the settings of one run, and return its number of rounds."""
    check_request(len(sites), min_clients, deadline_s, rounds)
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
        "evaluate-only": evaluate_only,
        "deadline-s": settings["deadline-s"] if deadline_s is None else deadline_s,
    }
    if cross_site:  # an app that was written before there was this choice refuses to be told "no"
        changed["cross-site"] = True
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tomli_w.dumps(changed), encoding="utf-8")
    return int(config["run"]["rounds"])


def check_request(
    sites: int,
    min_clients: int = 1,
    deadline_s: float | None = None,
    rounds: int | None = None,
) -> None:
    """Refuse what would end a run after it has begun."""
    if not 1 <= min_clients <= sites:
        raise RequestError(
            f"--min-clients expects a number from 1 to {sites}, the number of sites; got "
            f"{min_clients}."
        )
    if deadline_s is not None and not 0 < deadline_s <= LONGEST_S:
        raise RequestError(
            f"--deadline expects seconds, above 0 and at most {LONGEST_S:.0f}; got {deadline_s:g}."
        )
    if rounds is not None and not 1 <= rounds <= MOST_ROUNDS:
        raise RequestError(f"--rounds expects a number from 1 to {MOST_ROUNDS:,}; got {rounds}.")


def rounds_in(settings: Path) -> int | None:
    """Return the number of rounds of the run with these settings; None if there was no run."""
    if not settings.exists():
        return None
    config = tomllib.loads(tomllib.loads(settings.read_text(encoding="utf-8"))["config"])
    return int(config["run"]["rounds"])


def agreed_in(settings: Path, deployment: Deployment) -> str:
    """Return the hash of the experiment that a run with these settings offers to the sites."""
    config = tomllib.loads(settings.read_text(encoding="utf-8"))["config"]
    return hash_of_text(deployment.experiment, config)


def chosen_sites(deployment: Deployment, count: int | None) -> tuple[str, ...]:
    """Take the first `count` sites of a deployment, by default all of them."""
    if count is not None and not 1 <= count <= len(deployment.sites):
        raise RequestError(
            f"--sites expects a number from 1 to {len(deployment.sites)}, the number of sites of "
            f"this deployment; got {count}."
        )
    return deployment.sites[:count]
