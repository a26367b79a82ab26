"""Limits of the server for each peer: connections, seconds for a header, seconds for a body.

Connections are counted when they are accepted, before TLS: a stranger who never says a word is
counted, too. uvicorn has a limit for all connections together, which one stranger could use up.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from motet._core.text import plural

PER_ADDRESS = 64  # connections at once; a site needs about two
HEADER_S = 15.0  # from the first byte of a request to the end of its header
BODY_S = 30.0  # between two pieces of a body
WHOLE_BODY_S = 600.0  # for all of it: 5 MiB at 70 kbit/s
BURST = 100  # connections that are turned away before others get a turn
FILES = 8192  # open files; each request needs two connections


class LimitedSocket(socket.socket):
    """A listening socket that holds few connections of one address, and closes others at once."""

    def __init__(
        self, *args: Any, per_address: int, turned_away: Callable[[str], None], **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.per_address, self.turned_away = per_address, turned_away
        self.held: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    @classmethod
    def listening(
        cls, host: str, port: int, *, per_address: int, turned_away: Callable[[str], None]
    ) -> LimitedSocket:
        """Listen on an address."""
        plainly = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
        return cls(fileno=plainly.detach(), per_address=per_address, turned_away=turned_away)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection of an address that does not hold too many."""
        for _ in range(BURST):
            plainly, address = super().accept()
            origin = origin_of(address[0])
            if self.held[origin] < self.per_address:
                self.held[origin] += 1
                held = _Held(fileno=plainly.detach(), release=lambda: self._release(origin))  # noqa: B023 - returned at once
                return held, address
            plainly.close()
            self._note(origin)
        raise BlockingIOError  # the event loop asks again

    def _release(self, origin: str) -> None:
        self.held[origin] -= 1
        if not self.held[origin]:
            del self.held[origin], self.refused[origin]

    def _note(self, origin: str) -> None:
        """Say it the first time, and then every time that there are ten times as many."""
        self.refused[origin] += 1
        count = self.refused[origin]
        if str(count).strip("0") == "1":
            self.turned_away(
                f"{origin} holds {self.per_address} connections, the most for one address; "
                f"{plural(count, 'further one')} turned away (--per-address changes the limit)."
            )


class _Held(socket.socket):
    """A connection that is counted until it is closed."""

    def __init__(self, *args: Any, release: Callable[[], None], **more: Any) -> None:
        super().__init__(*args, **more)
        self._do_release: Callable[[], None] | None = release

    def close(self) -> None:
        """Close it, and count it no more."""
        super().close()
        release, self._do_release = self._do_release, None
        if release is not None:
            release()


def origin_of(address: str) -> str:
    """Return whom an address belongs to: for IPv6 a network, since everybody has many addresses.

    >>> origin_of("192.0.2.7"), origin_of("2001:db8::7"), origin_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7')
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


class TimedProtocol(H11Protocol):
    """uvicorn's protocol, with a time limit for the header of every request."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read more of a request, and wait for its header until it is complete."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop_timer()

    def _watch(self) -> None:
        # After an answer, whatever comes belongs to the next request (or to a body nobody reads).
        # uvicorn sets `cycle` with the first request.
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        if cycle is not None and not cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEADER_S, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def allow_many_files() -> None:
    """Raise the limit of open files of this process, where the system lets it."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
