"""Command lines of the programs of a federation, for trials, services and generated pages.

Programs are named without a path: `environment` puts their folder on PATH. TLS and keys are not
optional: Flower identifies a site by its key, and supports keys only over TLS.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from motet.deploy._layout import KEY, LOOPBACK


def superlink(certificates: Path, *, port: int, database: Path) -> list[str]:
    """Start the SuperLink. It listens on loopback: sites reach it only through the path filter."""
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
    """Move a SuperLink's runs to a separate executor, so that they survive a crash of it."""
    return [*superlink, "--isolation", "process", "--superexec-auth-secret-file", str(secret)]


def superexec(certificates: Path, *, port: int, secret: Path) -> list[str]:
    """Start the executor of a resumable SuperLink."""
    return [
        "flower-superexec",
        *("--runtime-api-address", f"{LOOPBACK}:{port}"),
        *("--root-certificates", str(certificates / "ca.crt")),
        *("--superexec-auth-secret-file", str(secret)),
    ]


def supernode(folder: Path, *, server: str, port: int, key: Path | None = None) -> list[str]:
    """Start a site from its folder. `port`, on loopback, is for its own processes."""
    return [
        "flower-supernode",
        *("--superlink", server),
        *("--root-certificates", str(folder / "ca.crt")),
        *("--auth-supernode-private-key", str(key or folder / KEY)),
        *("--host", LOOPBACK, "--port", str(port)),
    ]


def path_filter(folder: Path, *, host: str, port: int, superlink_port: int) -> list[str]:
    """Start the path filter in front of a deployment's SuperLink."""
    ports = ("--port", str(port), "--superlink-port", str(superlink_port))
    return ["motet", "deploy", "filter", str(folder), "--host", host, *ports]


def start(folder: Path) -> list[str]:
    """Start a site as its settings say, or the SuperLink of a deployment."""
    return ["motet", "deploy", "start", str(folder)]


def node_config(settings: Mapping[str, object]) -> list[str]:
    """Format a site's settings for Flower.

    >>> node_config({"client": "Köln", "share-scores": False})
    ['--node-config', 'client="Köln" share-scores=false']
    """
    written = (
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()
    )
    return ["--node-config", " ".join(written)]
