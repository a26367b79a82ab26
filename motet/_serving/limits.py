"""Limits on the size of a request body and on the time a client takes to send it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOO_LARGE, TOO_SLOW = 413, 408


class BodyLimit:
    """Middleware that answers 413 to large bodies and 408 to slow ones.

    A declared size is checked before anything is read. A body without one (chunked) is counted
    while it arrives, so at most `max_bytes` and one chunk are ever in memory.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, seconds: float) -> None:
        self.app, self.max_bytes, self.seconds = app, max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = _declared_size(scope)
        if declared is not None and declared > self.max_bytes:
            answer = JSONResponse({"detail": self._sentence()}, status_code=TOO_LARGE)
            await answer(scope, receive, send)
            return
        await self.app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        deadline, read, complete = time.monotonic() + self.seconds, 0, False

        async def counted() -> Message:
            nonlocal read, complete
            if complete:  # what follows is the wait for a disconnect
                return await receive()
            try:
                left = max(0.0, deadline - time.monotonic())
                message = await asyncio.wait_for(receive(), timeout=left)
            except TimeoutError:
                raise HTTPException(
                    TOO_SLOW, f"the body did not arrive within {self.seconds:g} s."
                ) from None
            read += len(message.get("body", b""))
            complete = message["type"] != "http.request" or not message.get("more_body", False)
            if read > self.max_bytes:
                raise HTTPException(TOO_LARGE, self._sentence())
            return message

        return counted

    def _sentence(self) -> str:
        return (
            f"the request body is larger than {self.max_bytes} bytes. Send fewer rows at once, or "
            "start the service with a larger --max-bytes."
        )


def _declared_size(scope: Any) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            try:
                return int(value)
            except ValueError:
                return None  # the server has refused it already, or will
    return None
