"""The path filter: what passes, what does not, and that bodies pass unchanged."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from motet.deploy import _path_filter as path_filter
from motet.deploy._path_filter import make_filter

FLEET = "/v1/fleet/pull-messages"


class SuperLink(httpx.AsyncBaseTransport):
    """Records the requests that reach it, and echoes them."""

    def __init__(self):
        self.seen = []

    async def handle_async_request(self, request):
        body = await request.aread()
        self.seen.append(
            (request.method, request.url.raw_path.decode(), dict(request.headers), body)
        )
        return httpx.Response(207, headers={"x-answer": "yes"}, content=streamed(body[::-1]))


async def streamed(*pieces):
    for piece in pieces:
        yield piece


class Down(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request):
        raise httpx.ConnectError("nobody listens")


@pytest.fixture
def superlink():
    return SuperLink()


class FilterClient:
    """Calls the filter of a SuperLink, in this process."""

    def __init__(self, superlink):
        self.app = make_filter(superlink, "https://127.0.0.1:8000")

    def call(self, method, path, **more):
        return asyncio.run(self._call(method, path, **more))

    async def _call(self, method, path, **more):
        # The raw path: a client library would tidy it up before it is sent.
        url = httpx.URL("https://localhost").copy_with(raw_path=path.encode())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app)) as client:
            return await client.request(method, url, **more)

    def post(self, path, **more):
        return self.call("POST", path, **more)


@pytest.fixture
def door(superlink):
    return FilterClient(superlink)


def test_a_call_of_a_site_passes_with_its_headers_and_its_body(door, superlink):
    answer = door.post(FLEET, content=b"abc", headers={"flwr-signature": "s"})
    assert (answer.status_code, answer.content, answer.headers["x-answer"]) == (207, b"cba", "yes")
    ((method, path, headers, body),) = superlink.seen
    assert (method, path, body) == ("POST", FLEET, b"abc")
    assert headers["flwr-signature"] == "s"
    assert headers["host"] == "127.0.0.1:8000"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol/start-run",
        "/v1/fleet/pull-messages/../../control/start-run",
        "/v1/fleet/",
        "/v1/fleet",
        "//v1/control/start-run",
        "/V1/FLEET/pull-messages",
        "/docs",
        "/openapi.json",
        "/health",
        "/",
    ],
)
def test_nothing_else_passes(door, superlink, path):
    assert door.post(path).status_code == 404
    assert superlink.seen == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_posts_pass(door, superlink, method):
    assert door.call(method, FLEET).status_code == 405
    assert superlink.seen == []


def test_a_query_string_is_dropped(door, superlink):
    door.post(f"{FLEET}?run=1")
    assert superlink.seen[0][1] == FLEET


def test_a_body_that_announces_too_much_is_refused_unread(door, superlink, monkeypatch):
    monkeypatch.setattr(path_filter, "LARGEST_BODY", 10)
    assert door.post(FLEET, content=b"x" * 11).status_code == 413
    assert superlink.seen == []


def test_a_body_that_grows_too_large_on_the_way_is_refused(door, superlink, monkeypatch):
    monkeypatch.setattr(path_filter, "LARGEST_BODY", 10)
    pieces = [b"x" * 4] * 4  # no length is announced
    assert door.post(FLEET, content=streamed(*pieces)).status_code == 413
    assert superlink.seen == []


def test_a_body_at_the_limit_passes(door, superlink, monkeypatch):
    monkeypatch.setattr(path_filter, "LARGEST_BODY", 10)
    assert door.post(FLEET, content=b"x" * 10).status_code == 207


def test_a_superlink_that_is_down_is_a_bad_gateway():
    assert FilterClient(Down()).post(FLEET).status_code == 502
