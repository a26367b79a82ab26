"""How each program of a federation is started: in a trial, as a service, and on a page to read.

Programs are named without a path: `environment` says where they are. TLS and keys are not optional:
Flower knows a site's name by its key, and has keys only over TLS.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

LOOPBACK = "127.0.0.1"


def superlink(certificates: Path, *, port: int, database: Path) -> list[str]:
    """Start the SuperLink. It listens on loopback: the path filter is the only door."""
    return [
        "flower-superlink",
        *("--host", LOOPBACK, "--port", str(port)),
        *("--database", str(database)),
        *("--ssl-ca-certfile", str(certificates / "ca.crt")),
        *("--ssl-certfile", str(certificates / "server.pem")),
        *("--ssl-keyfile", str(certificates / "server.key")),
        "--enable-supernode-auth",
    ]


def resumable(superlink: list[str], secret: Path) -> list[str]:
    """Let a SuperLink's runs live in an executor of their own, so that they outlive it."""
    return [*superlink, "--isolation", "process", "--superexec-auth-secret-file", str(secret)]


def superexec(certificates: Path, *, port: int, secret: Path) -> list[str]:
    """Start the executor of a resumable SuperLink."""
    return [
        "flower-superexec",
        *("--runtime-api-address", f"{LOOPBACK}:{port}"),
        *("--root-certificates", str(certificates / "ca.crt")),
        *("--superexec-auth-secret-file", str(secret)),
    ]


def supernode(folder: Path, *, server: str, port: int) -> list[str]:
    """Start a site from its folder. `port` is for its own programs, on loopback."""
    return [
        "flower-supernode",
        *("--superlink", server),
        *("--root-certificates", str(folder / "ca.crt")),
        *("--auth-supernode-private-key", str(folder / "site.key")),
        *("--host", LOOPBACK, "--port", str(port)),
    ]


def path_filter(folder: Path, *, host: str, port: int, superlink_port: int) -> list[str]:
    """Start the door in front of the SuperLink of a deployment."""
    ports = ("--port", str(port), "--superlink-port", str(superlink_port))
    return ["motet", "deploy", "filter", str(folder), "--host", host, *ports]


def node_config(settings: Mapping[str, object]) -> list[str]:
    """Write a site's settings as Flower reads them.

    >>> node_config({"client": "north", "share-scores": False})
    ['--node-config', 'client="north" share-scores=false']
    """
    written = (f"{name}={json.dumps(value)}" for name, value in settings.items())
    return ["--node-config", " ".join(written)]
