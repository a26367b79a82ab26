"""The path filter: forwards requests of sites to the SuperLink, and refuses everything else.

Flower's SuperLink serves three interfaces on one port, but requires a key on only one of them.
Anyone who can reach the control interface can start a run, which executes code at every site. So
the SuperLink listens on loopback, behind this filter or nginx with the same rule.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from motet.deploy import _limits as limits
from motet.deploy._layout import LOOPBACK, Deployment
from motet.deploy._limits import PER_ADDRESS, LimitedSocket, TimedProtocol, allow_many_files
from motet.deploy._logs import LogHandler, LogWriter
from motet.deploy._site_settings import plain
from motet.deploy._start import check_server_files
from motet.errors import StateError

# Matched against the whole path, not as a prefix: "/v1/fleet/../control/start-run" is refused.
ALLOWED = re.compile(r"/v1/fleet/[a-z-]+")
LARGEST_BODY = 64 * 2**20  # Flower sends messages in pieces of 5 MiB
TIMEOUT = httpx.Timeout(120.0, connect=10.0)
MOST_CONNECTIONS = 1000
GRACE_S = 10  # for requests under way when the filter is stopped
# Headers of a connection, not of the message (RFC 9110, section 7.6.1).
HOP_BY_HOP = {
    "connection",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}


@dataclass(frozen=True)
class PathFilter:
    """Settings of the path filter: its address, its certificate and the SuperLink behind it.

    Attributes:
        host: Address to listen on.
        port: Port to listen on.
        superlink: URL of the SuperLink, on loopback.
        certificate: Certificate to present to the sites.
        key: The certificate's key.
        authority: Certificate of the authority that signed the SuperLink's certificate.
        per_address: Most connections at once of one address.
    """

    host: str
    port: int
    superlink: str
    certificate: Path
    key: Path
    authority: Path
    per_address: int = PER_ADDRESS

    @classmethod
    def of(
        cls,
        deployment: Deployment,
        *,
        host: str | None = None,
        port: int | None = None,
        superlink_port: int | None = None,
        per_address: int = PER_ADDRESS,
    ) -> PathFilter:
        """Make the path filter of a deployment, at its address unless another one is given."""
        check_server_files(deployment)
        behind = deployment.superlink_port if superlink_port is None else superlink_port
        return cls(
            host=host or deployment.listen,
            port=deployment.port if port is None else port,
            per_address=per_address,
            superlink=f"https://{LOOPBACK}:{behind}",
            certificate=deployment.certificates / "server.pem",
            key=deployment.certificates / "server.key",
            authority=deployment.authority,
        )

    def serve(self, log: LogWriter) -> None:
        """Forward requests until the process is stopped."""
        _send_warnings_to(log)
        allow_many_files()
        verify = ssl.create_default_context(cafile=self.authority)
        transport = httpx.AsyncHTTPTransport(verify=verify, limits=_no_limits())
        config = uvicorn.Config(
            make_filter(transport, self.superlink),
            ssl_certfile=self.certificate,
            ssl_keyfile=self.key,
            loop="asyncio",  # another one would not accept connections through `LimitedSocket`
            http=TimedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_S,
        )
        with self._listening(log) as listening:
            log.write("info", f"forwarding {self.host}:{self.port} to {self.superlink}")
            uvicorn.Server(config).run(sockets=[listening])

    def _listening(self, log: LogWriter) -> LimitedSocket:
        try:
            return LimitedSocket.listening(
                self.host,
                self.port,
                per_address=self.per_address,
                turned_away=lambda sentence: log.write("warning", sentence),
            )
        except OSError as reason:
            raise StateError(
                f"port {self.port} of {self.host} cannot be used: {plain(reason)}. Change port in "
                "deployment.toml, or use --port."
            ) from None


def _send_warnings_to(log: LogWriter) -> None:
    for name in ("uvicorn", "httpx", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [LogHandler(log)]
        logger.propagate = False
        logger.setLevel(logging.INFO if log.level == "debug" else logging.WARNING)


def make_filter(transport: httpx.AsyncBaseTransport, superlink: str) -> Starlette:
    """Make the application: it forwards requests of sites and answers 404 to everything else."""
    client = httpx.AsyncClient(transport=transport, base_url=superlink, timeout=TIMEOUT)

    @asynccontextmanager
    async def closing(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    async def forward(request: Request) -> Response:
        if not ALLOWED.fullmatch(request.url.path):
            return PlainTextResponse("not found\n", 404)
        if int(request.headers.get("content-length", 0)) > LARGEST_BODY:
            return PlainTextResponse("too large\n", 413)
        return await _forwarded(client, request)

    return Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])], lifespan=closing)


async def _forwarded(client: httpx.AsyncClient, request: Request) -> Response:
    headers = [(k, v) for k, v in request.headers.items() if k not in HOP_BY_HOP]
    call = client.build_request(
        "POST", request.url.path, headers=headers, content=_bounded(request)
    )
    try:
        answer = await client.send(call, stream=True)
    except _TooLargeError:
        return PlainTextResponse("too large\n", 413)
    except TimeoutError:
        return PlainTextResponse("too slow\n", 408)
    except (httpx.TransportError, ClientDisconnect):
        return PlainTextResponse("the SuperLink does not answer\n", 502)
    kept = {k: v for k, v in answer.headers.items() if k not in HOP_BY_HOP}
    return StreamingResponse(_relayed(answer), answer.status_code, headers=kept)


async def _bounded(request: Request) -> AsyncIterator[bytes]:
    """Forward a body as it arrives, within limits: it may not have announced its size."""
    seen, pieces, loop = 0, request.stream(), asyncio.get_running_loop()
    end = loop.time() + limits.WHOLE_BODY_S
    while True:
        async with asyncio.timeout_at(min(end, loop.time() + limits.BODY_S)):
            piece = await anext(pieces, None)
        if piece is None:
            return
        seen += len(piece)
        if seen > LARGEST_BODY:
            raise _TooLargeError
        yield piece


async def _relayed(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()


def _no_limits() -> httpx.Limits:
    return httpx.Limits(max_connections=None, max_keepalive_connections=20)


class _TooLargeError(Exception):
    """A body is larger than anything that a site sends."""
