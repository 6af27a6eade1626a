"""Around every request: a limit on its body, and one line in the log of requests for those that a model answered."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import Request

from mlcost_pipeline.clock import Clock
from mlcost_pipeline.inference.lookup_log import LineLog

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def begin(request: Request, endpoint: str, clock: Clock, batch_size: int = 1) -> None:
    """Note, at the start of a handler, who answers; the time before it is queueing."""
    request.state.answered = {
        "arrived_at": clock.now().isoformat(),
        "endpoint": endpoint,
        "batch_size": batch_size,
        "began": time.perf_counter(),
    }


class Guard:
    """ASGI middleware: refuses bodies over `max_bytes` whatever their headers promise, and logs what was answered."""

    def __init__(self, app: App, *, max_bytes: int, log: LineLog) -> None:
        self._app, self._max_bytes, self._log = app, max_bytes, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        if scope["method"] not in ("GET", "HEAD"):
            body = await self._body(receive)
            if body is None:
                await _refuse(send, f"a body is at most {self._max_bytes} bytes")
                return
            receive = _replayed(body, receive)
        await self._app(scope, receive, send)
        answered = scope.get("state", {}).get("answered")
        if answered is not None:
            began = answered.pop("began")
            timed = {"queue_seconds": began - started, "service_seconds": time.perf_counter() - began}
            self._log.write({"request_id": uuid.uuid4().hex, **answered, **timed})

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, or None as soon as it is too long."""
        chunks, size, more = [], 0, True
        while more:
            message = await receive()
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
            if size > self._max_bytes:
                return None
        return b"".join(chunks)


def _replayed(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


async def _refuse(send: Send, why: str) -> None:
    body = json.dumps({"detail": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
