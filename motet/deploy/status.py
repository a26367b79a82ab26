"""`motet deploy status`: who is online, how far the run is, what went wrong last."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet.deploy import results
from motet.deploy.control import Control
from motet.deploy.layout import Deployment
from motet.deploy.server import control_of
from motet.errors import StateError

# A site that was lost or rejected, or why the run failed.
COMPLAINT = re.compile(r"(round \d+: .+ (?:lost|rejected): .+|(?<=failed: ).+|(?<=Error: ).+)")


@dataclass(frozen=True)
class Status:
    """How a federation is.

    Attributes:
        of: "trial" or "server".
        reachable: Whether the SuperLink answers; if not, the rest is what was written down.
        sites: Each site's state.
        run: The state of the last run; None if there was none.
        round: The last round on record.
        scores: The last scores on record, summarized.
        trouble: The last complaint in the log of the run.
    """

    of: str
    reachable: bool
    sites: dict[str, str]
    run: str | None
    round: int
    scores: dict[str, Any] | None
    trouble: str | None


def look(deployment: Deployment) -> Status:
    """Look at the trial, if one is running or nothing else is there, and else at the server."""
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
    written = Status(
        of=of,
        reachable=False,
        sites=dict.fromkeys(deployment.sites, "unknown"),
        run=None,
        round=len(results.rounds(out)),
        scores=results.last_scores(out),
        trouble=None,
    )
    try:
        return _reached(written, control)
    except StateError:
        return written


def _reached(written: Status, control: Control) -> Status:
    nodes, runs = control.nodes(), control.runs()
    sites = dict.fromkeys(written.sites, "not registered")
    sites |= {node.name or f"node {node.number}": node.status for node in nodes}
    found = replace(written, reachable=True, sites=sites)
    if not runs:
        return found
    return replace(found, run=runs[0].status, trouble=trouble(control.log(runs[0].number)))


def trouble(log: str) -> str | None:
    """Find the last complaint in what the server of a run has written."""
    said = [match[1] for line in log.splitlines() if (match := COMPLAINT.search(line))]
    return said[-1] if said else None
