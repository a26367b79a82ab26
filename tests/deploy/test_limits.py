"""The path filter against strangers who hold connections, over real sockets on loopback."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import ExitStack, suppress

import pytest
import uvicorn
from federation import await_that, superlink

from motet.deploy import _limits as limits
from motet.deploy._certificates import write_certificates
from motet.deploy._layout import LOOPBACK
from motet.deploy._limits import PER_ADDRESS, LimitedSocket
from motet.deploy._logs import LogWriter
from motet.deploy._loopback import free_ports
from motet.deploy._path_filter import PathFilter

STRANGER, SITE = LOOPBACK, "127.0.0.2"  # on Linux the whole of 127.0.0.0/8 is loopback
HALF = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: localhost\r\nx-more:"
WHOLE = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi"

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "SO_REUSEPORT"), reason="needs several loopback addresses"
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder, [LOOPBACK, SITE])
    return folder


@pytest.fixture(scope="module")
def behind(certificates):
    with superlink(certificates) as port:
        yield port


class Door:
    """A filter that listens, and the sockets of those who call it."""

    def __init__(self, port, certificates):
        self.port = port
        self.trust = ssl.create_default_context(cafile=certificates / "ca.crt")

    def connect(self, origin, stack):
        plainly = socket.create_connection(
            (LOOPBACK, self.port), timeout=30, source_address=(origin, 0)
        )
        return stack.enter_context(self.trust.wrap_socket(plainly, server_hostname=LOOPBACK))

    def status(self, origin):
        with ExitStack() as stack:
            connection = self.connect(origin, stack)
            connection.sendall(WHOLE)
            return int(connection.recv(1000).split()[1])


@pytest.fixture
def door(certificates, behind, monkeypatch):
    """A filter in this process, and a way to reach it."""
    servers = []
    make = uvicorn.Server
    monkeypatch.setattr(
        uvicorn, "Server", lambda config: servers.append(make(config)) or servers[0]
    )
    (number,) = free_ports(1)
    settings = PathFilter(
        host="0.0.0.0",
        port=number,
        superlink=f"https://{LOOPBACK}:{behind}",
        certificate=certificates / "server.pem",
        key=certificates / "server.key",
        authority=certificates / "ca.crt",
    )
    thread = threading.Thread(target=settings.serve, args=(LogWriter("filter", "error"),))
    thread.start()
    await_that(lambda: servers and servers[0].started)
    yield Door(number, certificates)
    servers[0].should_exit = True
    thread.join()


def test_a_thousand_half_sent_requests_of_a_stranger_take_nothing_from_others(door):
    with ExitStack() as held:
        open_ = 0
        for _ in range(1010):
            with suppress(OSError):  # turned away
                door.connect(STRANGER, held).sendall(HALF)
                open_ += 1
        assert open_ <= PER_ADDRESS
        assert door.status(SITE) == 200
    await_that(lambda: allows(door, STRANGER))  # once they are closed


def allows(door, origin):
    try:
        return door.status(origin) == 200
    except OSError:
        return False


def test_silent_connections_that_never_shake_hands_are_counted_too(door):
    with ExitStack() as held:
        for _ in range(PER_ADDRESS + 10):
            held.enter_context(
                socket.create_connection((LOOPBACK, door.port), source_address=(STRANGER, 0))
            )
        await_that(lambda: not allows(door, STRANGER))
        assert door.status(SITE) == 200


def test_a_header_that_does_not_end_is_not_waited_for(door, monkeypatch):
    monkeypatch.setattr(limits, "HEADER_S", 0.3)
    with ExitStack() as stack:
        connection = door.connect(STRANGER, stack)
        connection.sendall(HALF)
        connection.settimeout(20)
        with suppress(ConnectionResetError, ssl.SSLError):
            assert connection.recv(100) == b""


def test_a_second_request_on_a_connection_has_the_same_limit(door, monkeypatch):
    monkeypatch.setattr(limits, "HEADER_S", 0.3)
    with ExitStack() as stack:
        connection = door.connect(STRANGER, stack)
        connection.sendall(WHOLE)
        assert b" 200 " in connection.recv(1000)
        connection.sendall(HALF)
        with suppress(ConnectionResetError, ssl.SSLError):
            assert connection.recv(100) == b""


def test_a_body_that_does_not_come_is_not_waited_for(door, monkeypatch):
    monkeypatch.setattr(limits, "BODY_S", 0.3)
    with ExitStack() as stack:
        connection = door.connect(STRANGER, stack)
        connection.sendall(WHOLE[:-1])
        assert b" 408 " in connection.recv(1000)


def test_a_body_that_comes_drop_by_drop_is_not_waited_for(door, monkeypatch):
    monkeypatch.setattr(limits, "WHOLE_BODY_S", 0.5)
    with ExitStack() as stack:
        connection = door.connect(STRANGER, stack)
        connection.sendall(WHOLE[:-2].replace(b"length: 2", b"length: 9999"))
        connection.settimeout(0.05)
        answer = b""
        for _ in range(600):
            with suppress(TimeoutError):
                answer += connection.recv(1000)
                break
            with suppress(OSError):  # closed since; the answer is still to be read
                connection.sendall(b"x")
        assert b" 408 " in answer


def test_connections_are_counted_per_address_and_released():
    said = []
    listening = LimitedSocket.listening(LOOPBACK, 0, per_address=2, turned_away=said.append)
    with listening, ExitStack() as stack:
        where = listening.getsockname()
        for _ in range(2):
            stack.enter_context(socket.create_connection(where))
        first, second = listening.accept()[0], listening.accept()[0]
        assert listening.held == {LOOPBACK: 2}
        stack.enter_context(socket.create_connection(where))
        stack.enter_context(socket.create_connection(where, source_address=(SITE, 0)))
        third, address = listening.accept()
        assert address[0] == SITE
        assert "127.0.0.1 holds 2 connections" in said[0]
        for connection in (first, second, third):
            connection.close()
            connection.close()  # once more changes nothing
        assert listening.held == {}
