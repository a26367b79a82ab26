"""`motet deploy status`: the run that is alive, the sites, keys and certificates, and troubles."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from motet.deploy import _results as results
from motet.deploy._control import Control, Node, Submitted
from motet.deploy._layout import Deployment
from motet.deploy._preflight import read_certificate
from motet.deploy._server import control_of
from motet.deploy._submission import rounds_in
from motet.errors import StateError

SOON_DAYS = 30  # a certificate that expires earlier is trouble
# A site that was lost or rejected, or the reason why the run failed.
ERROR = re.compile(r"(round \d+: .+ (?:lost|rejected): .+|(?<=failed: ).+|(?<=Error: ).+)")


@dataclass(frozen=True)
class SiteStatus:
    """The status of one site.

    Attributes:
        state: "online", "offline", "registered" (never seen), "not registered" or "unknown".
        last_contact: When the SuperLink last heard of it, in UTC; None: never, or unknown.
        key_days: Days since its key was registered; None: it is not registered, or unknown.
    """

    state: str
    last_contact: str | None = None
    key_days: int | None = None


@dataclass(frozen=True)
class CertificateStatus:
    """Until when a certificate is valid; `days` is negative once it has expired."""

    expires: str
    days: int


@dataclass(frozen=True)
class Status:
    """The status of a federation.

    Attributes:
        of: "trial" or "server".
        reachable: Whether the SuperLink answers; if not, the rest is read from the run directory.
        sites: The status of each site.
        run: The status of the run that is alive, else of the last one; None if there was none.
        number: The number of that run.
        queue: The numbers of further runs that have not ended, oldest first.
        round: The last recorded round.
        rounds: The number of rounds of the run; None if there was no run.
        scores: The last recorded scores, summarized.
        last_error: The last error in the log of the run.
        certificates: The server's certificate and the authority's.
        troubles: What needs attention, in sentences.

    Example:
        >>> status = Status("server", reachable=True, sites={}, run="running", round=3, rounds=10)
        >>> status.to_dict()["round"], status.troubles
        (3, ())
    """

    of: str
    reachable: bool
    sites: dict[str, SiteStatus]
    run: str | None = None
    number: int | None = None
    queue: tuple[int, ...] = ()
    round: int = 0
    rounds: int | None = None
    scores: dict[str, Any] | None = None
    last_error: str | None = None
    certificates: dict[str, CertificateStatus] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return asdict(self)


def read_status(deployment: Deployment) -> Status:
    """Read the status of the trial if one is running or there is no run; else of the server.

    Args:
        deployment: A deployment.

    Returns:
        Sites, progress and the last error.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from motet.deploy import Deployment
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     read_status(Deployment(Path(folder), "heart", ("basel",), "localhost")).reachable
        False
    """
    trial, out = Control(deployment.trial / "flower"), deployment.trial / "run"
    if trial.is_set_up and (_answers(trial) or not deployment.out.exists()):
        return _status("trial", trial, deployment, out)
    return _status("server", control_of(deployment), deployment, deployment.out)


def _answers(control: Control) -> bool:
    try:
        control.runs()
    except StateError:
        return False
    return True


def _status(of: str, control: Control, deployment: Deployment, out: Path) -> Status:
    lines = results.rounds(out)
    written = Status(
        of=of,
        reachable=False,
        sites=dict.fromkeys(deployment.sites, SiteStatus("unknown")),
        round=len(lines),
        rounds=rounds_in(out.parent / "settings.toml"),
        scores=results.last_scores(out),
    )
    troubles: list[str] = []
    try:
        found = _reached(written, control)
    except StateError as reason:
        found = written
        if of == "server":  # the programs of a trial have ended with it
            troubles.append(f"the SuperLink does not answer: {reason}")
    found, expiring = _with_certificates(found, deployment)
    troubles += [*site_troubles(found), *_round_troubles(lines), *expiring]
    if found.run == "finished:failed":
        troubles.append(f"run {found.number} failed: {found.last_error or 'its log has no error.'}")
    return replace(found, troubles=tuple(troubles))


def _reached(written: Status, control: Control) -> Status:
    nodes, runs = control.nodes(), control.runs()
    sites = dict.fromkeys(written.sites, SiteStatus("not registered"))
    sites |= {node.name or f"node {node.number}": _site(node) for node in nodes}
    found = replace(written, reachable=True, sites=sites)
    shown, queue = run_and_queue(runs)
    if shown is None:
        return found
    error = last_error(control.log(shown.number))
    return replace(found, run=shown.status, number=shown.number, queue=queue, last_error=error)


def run_and_queue(runs: list[Submitted]) -> tuple[Submitted | None, tuple[int, ...]]:
    """Choose the run to show, and list those that wait behind it; `runs` has the newest first.

    A run that is being run comes before those that wait, and these before runs that have ended.
    """
    alive = [run for run in reversed(runs) if not run.is_over]
    alive.sort(key=lambda run: run.status == "pending")  # stable: oldest first
    if alive:
        return alive[0], tuple(run.number for run in alive[1:])
    return (runs[0] if runs else None), ()


def _site(node: Node) -> SiteStatus:
    seen = node.last_contact
    return SiteStatus(
        node.status,
        None if seen is None else seen.astimezone(UTC).isoformat(timespec="seconds"),
        None if node.registered_at is None else (datetime.now(UTC) - node.registered_at).days,
    )


def site_troubles(found: Status) -> list[str]:
    """Name the sites that should be there and are not."""
    troubles = []
    for name, site in found.sites.items():
        if site.state == "offline":
            troubles.append(f"{name} is offline; last contact: {site.last_contact or 'unknown'}.")
        elif found.of == "server" and site.state == "registered":
            troubles.append(f"{name} is registered, but has never connected.")
        elif found.of == "server" and site.state == "not registered":
            troubles.append(f"{name} is not registered; use `motet deploy register`.")
    return troubles


def _round_troubles(lines: list[dict[str, Any]]) -> list[str]:
    """Say who was missing in the last round."""
    if not lines:
        return []
    last = lines[-1]
    lost = [f"round {last['round']}: {site} was lost." for site in last.get("lost", ())]
    refused = last.get("rejected", {}).items()
    return lost + [f"round {last['round']}: {site} was rejected: {why}" for site, why in refused]


def _with_certificates(found: Status, deployment: Deployment) -> tuple[Status, list[str]]:
    """Add the certificates, and say which are missing or about to expire."""
    certificates, troubles = {}, []
    for name, file in {"server": "server.pem", "authority": "ca.crt"}.items():
        try:
            ends = read_certificate(deployment.certificates / file).not_valid_after_utc
        except StateError as reason:
            troubles.append(str(reason))
            continue
        days = (ends - datetime.now(UTC)).days
        certificates[name] = CertificateStatus(ends.date().isoformat(), days)
        if days < SOON_DAYS:
            verb = "expired" if days < 0 else "expires"
            flag = " --authority" if name == "authority" else ""
            troubles.append(
                f"the certificate {file} {verb} on {ends:%Y-%m-%d}; run `motet deploy renew "
                f"{deployment.path}{flag}`."
            )
    return replace(found, certificates=certificates), troubles


def last_error(log: str) -> str | None:
    """Find the last error in the log of a run's server app."""
    errors = [match[1] for line in log.splitlines() if (match := ERROR.search(line))]
    return errors[-1] if errors else None
