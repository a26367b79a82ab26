"""The one door of a federation: forwards what sites send to the SuperLink, and nothing else.

Flower's SuperLink serves three interfaces on one port, and asks for a key on one of them only.
Whoever reaches the control interface may start a run, which is code at every site. So the SuperLink
listens on loopback, and this filter, or nginx with the same rule, stands in front.
"""

from __future__ import annotations

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

from motet.deploy.commands import LOOPBACK
from motet.deploy.layout import Deployment

# A whole path, not a prefix: "/v1/fleet/../control/start-run" starts well, and ends elsewhere.
ALLOWED = re.compile(r"/v1/fleet/[a-z-]+")
LARGEST_BODY = 64 * 2**20  # Flower cuts what it sends into pieces of 5 MiB
TIMEOUT = httpx.Timeout(120.0, connect=10.0)
MOST_CONNECTIONS = 1000
# Of one connection, not of the message (RFC 9110, section 7.6.1).
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
class Door:
    """Where the filter listens, what it shows there, and where it forwards to.

    Attributes:
        host: Address to listen on.
        port: Port to listen on.
        superlink: Where the SuperLink is, as a URL on loopback.
        certificate: Shown to the sites.
        key: The certificate's key.
        authority: Who must have signed the SuperLink's certificate.
    """

    host: str
    port: int
    superlink: str
    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def of(cls, deployment: Deployment, host: str, port: int, superlink_port: int) -> Door:
        """Make the door of a deployment."""
        return cls(
            host=host,
            port=port,
            superlink=f"https://{LOOPBACK}:{superlink_port}",
            certificate=deployment.certificates / "server.pem",
            key=deployment.certificates / "server.key",
            authority=deployment.authority,
        )

    def serve(self) -> None:
        """Forward until the process is told to end."""
        verify = ssl.create_default_context(cafile=self.authority)
        uvicorn.run(
            make_filter(
                httpx.AsyncHTTPTransport(verify=verify, limits=_no_limits()), self.superlink
            ),
            host=self.host,
            port=self.port,
            ssl_certfile=self.certificate,
            ssl_keyfile=self.key,
            log_level="warning",
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
        )


def make_filter(transport: httpx.AsyncBaseTransport, superlink: str) -> Starlette:
    """Make the application: it forwards calls of sites, and answers 404 to everything else."""
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
    except (httpx.TransportError, ClientDisconnect):
        return PlainTextResponse("the SuperLink does not answer\n", 502)
    kept = {k: v for k, v in answer.headers.items() if k not in HOP_BY_HOP}
    return StreamingResponse(_relayed(answer), answer.status_code, headers=kept)


async def _bounded(request: Request) -> AsyncIterator[bytes]:
    """Hand a body on as it comes; one that announced no size is counted."""
    seen = 0
    async for piece in request.stream():
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
    """A body grew beyond what a site ever sends."""
