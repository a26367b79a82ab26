"""The process of a service: its socket, its server, and its end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from motet.errors import RequestError, StateError

MOST_CONNECTIONS = 100  # at once; the others are answered 503
GRACE_S = 10  # for requests under way when the service is stopped


def listen(host: str, port: int) -> socket.socket:
    """Open the socket of a service, or say why that is not possible."""
    if not 0 <= port <= 65535:
        raise RequestError(f"--port expects a number from 0 to 65535; got {port}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as reason:
        why = (reason.strerror or str(reason)).lower()
        raise StateError(
            f"the service cannot listen on {host}, port {port}: {why}. Choose another one with "
            "--port (0: any free one) or --host."
        ) from reason


def url_of(opened: socket.socket) -> str:
    """Write the address of a socket as a URL."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Tell whether only programs on this machine can reach a host."""
    return host in ("localhost", "::1") or host.startswith("127.")


def run(app: Any, opened: socket.socket, *, started: Callable[[], None]) -> None:
    """Serve until a signal asks to stop; requests under way are finished."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # rows stay out of logs, and so do the addresses of callers
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_S,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    started()
    try:
        server.run(sockets=[opened])
    except KeyboardInterrupt:
        if not server.started:
            raise
    finally:
        opened.close()
