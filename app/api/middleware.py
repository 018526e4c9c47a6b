"""ASGI middleware of the application: every request is counted and audited, Kubernetes' paths leave for their own application,
and a stopped request gets an answer.

`app.api.app` puts it around FastAPI's router. It is plain ASGI: Starlette's BaseHTTPMiddleware would copy every stream.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.audit.auditor import AuditedRequest, Auditor
from app.api.auth.authenticator import HEALTH, is_for_everyone
from app.api.http import errors
from app.api.request_metrics import RequestMetrics, kind_of
from app.client.protocol import BASE
from app.registry.uids import new_uid

AGENTS, LOGS = f"{BASE}/", "/apis/logs.jobplane.dev/v1/"
HISTORY = "/apis/history.jobplane.dev/v1/"
NODES = f"{AGENTS}nodes/"
_OWN = (AGENTS, LOGS, HISTORY)


class RequestMiddleware:
    """Gives each request its Audit-Id, counts it when it has been answered, and tells the auditor of it.

    One middleware for all of it: a wrapper of `send` runs for every event of every watch, so there is one only, and it is neither
    a task nor a coroutine.
    """

    def __init__(self, app: ASGIApp, metrics: RequestMetrics, auditor: Auditor | None) -> None:
        self._app, self._metrics, self._auditor = app, metrics, auditor
        # An Audit-Id is a UUID that no other process gives out: to make a random one takes five times as long.
        self._audit_prefix, self._numbers = new_uid()[:24].encode(), count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        metrics, kind, code = self._metrics, kind_of(scope["method"]), 0
        followed: AuditedRequest | None = None
        keep_body: Callable[[Message], None] | None = None

        def note_message(message: Message) -> Awaitable[None]:
            nonlocal code, keep_body
            if not code:
                if message["type"] == "http.response.start":
                    code = message["status"]
                    message["headers"] = [*message["headers"], (b"audit-id", audit_id)]
                    if followed is not None and followed.begin_response(code):
                        keep_body = followed.keep_body
            elif keep_body is not None:
                keep_body(message)
            return send(message)

        audit_id = scope["audit_id"] = self._audit_prefix + b"%012x" % next(self._numbers)
        began = time.perf_counter()
        metrics.inflight[kind] += 1
        try:
            if (auditor := self._auditor) is None:
                await self._app(scope, receive, note_message)
            elif auditor.buffer.is_full and not await auditor.wait_for_room(scope["path"]):
                refusal = errors.response(errors.unavailable("the audit log cannot be written, try again"))
                await refusal(scope, receive, note_message)
            else:
                followed = auditor.follow(scope)
                await self._app(
                    scope, followed.keep_request(receive) if auditor.wants_bodies else receive, note_message
                )
        finally:
            metrics.inflight[kind] -= 1
            if followed is not None:
                followed.complete()
            metrics.count_answered(scope, code, time.perf_counter() - began)


class StopMiddleware:
    """Answers with a Status a request that a stopping server cancels because it takes too long."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise
            with suppress(RuntimeError):  # a part of the answer was sent
                await errors.response(errors.cut_short(scope["method"]))(scope, receive, send)


class KubernetesMiddleware:
    """Hands Kubernetes' paths to `kubernetes`, all else to FastAPI: its router would cost more than a GET takes.

    A mount after the routers would do the same, but every request would first be compared with every route of ours.
    """

    def __init__(self, app: ASGIApp, kubernetes: ASGIApp) -> None:
        self._app, self._kubernetes = app, kubernetes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            path: str = scope["path"]
            if not path.startswith(_OWN) and (path.startswith(("/api/", "/apis/")) or is_for_everyone(path)):
                return self._kubernetes(scope, receive, send)
            scope["path"] = route_path(path)
        return self._app(scope, receive, send)


def route_path(path: str) -> str:
    """A path as routes spell it: slashes after /v1/ and at the end do not count, except in what agents call."""
    if path.startswith(_OWN) and not path.startswith(NODES):
        group, version, rest = path.partition("/v1/")
        trimmed = group + version + rest.strip("/")
        return path if trimmed.startswith(NODES) else trimmed
    trimmed = path.rstrip("/")
    return trimmed if trimmed in HEALTH else path
