"""ASGI middleware of the application: Kubernetes' paths leave for their own application, and a stopped request gets an answer.

`app.api.app` puts it around FastAPI's router. It is plain ASGI: Starlette's BaseHTTPMiddleware would copy every stream.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.auth.authenticator import HEALTH, is_for_everyone
from app.api.http import errors
from app.client.protocol import BASE

AGENTS, LOGS = f"{BASE}/", "/apis/logs.jobplane.dev/v1/"
HISTORY = "/apis/history.jobplane.dev/v1/"
NODES = f"{AGENTS}nodes/"
_OWN = (AGENTS, LOGS, HISTORY)


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
