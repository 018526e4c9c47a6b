"""The HTTP application: FastAPI for endpoints of our own, one plain ASGI application for Kubernetes' paths.

Made by the command line with an open store; nothing here is global.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.agents import PREFIX, Agents
from app.api.auth import impersonation, join
from app.api.auth.authenticator import Authenticator, check_path, is_for_everyone
from app.api.auth.join import JoinApi
from app.api.auth.tokens import StoredTokens
from app.api.http import errors, static_documents
from app.api.http.accept import DISCOVERY, OPENAPI, wanted
from app.api.openapi import v2 as openapi_v2
from app.api.openapi import v3 as openapi
from app.api.resources import ephemeral_resources, version
from app.api.resources.discovery import Discovery
from app.api.resources.kubernetes import Kubernetes
from app.api.resources.unsupported_kinds import ABSENT
from app.api.streams import kept_logs
from app.api.streams.agent_calls import Calls, Origin
from app.api.streams.kept_logs import KeptLogs
from app.api.streams.revocation import Revocations
from app.kinds import KINDS
from app.registry.objects import Registry
from app.store import READ_ONLY

Answering = Callable[[Request], Awaitable[ASGIApp]]
HEALTH = {"/livez", "/readyz", "/healthz"}


def create_app(registry: Registry, origin: Origin | None = None, authority: Callable[[], str] = str) -> "Application":
    """The application of one API process, which others reach at `origin`. `authority`: whom its clients are to trust, PEM."""
    tokens = Authenticator(StoredTokens(registry), time.monotonic)
    ours = FastAPI(title="Jobplane", docs_url=None, redoc_url=None, openapi_url=None)
    ours.add_exception_handler(HTTPException, _as_status)
    ours.state.streams = set()  # tasks of the open watches; whoever stops the server ends them first
    ours.state.revocations = _revocations(registry)
    ours.state.calls = Calls(registry.store.calls, origin or Origin())
    return Application(Front(registry, tokens, authority), ours)


def _revocations(registry: Registry) -> Revocations:
    async def ended(digests: Collection[bytes]) -> Collection[bytes]:
        return await registry.store.tokens.ended(digests, registry.now())

    return Revocations(ended, registry.policy.rights.policies)


async def _as_status(_: Request, error: Exception) -> Response:
    """What FastAPI refuses leaves as a Status, too."""
    return errors.response(error)


@dataclass(frozen=True)
class Application:
    """HTTP goes to `front`, for whose requests FastAPI would only be a tax; all else to FastAPI."""

    front: "Front"
    ours: FastAPI

    @property
    def state(self) -> State:
        return self.ours.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self.ours
        try:
            app: ASGIApp = self.front if scope["type"] == "http" else self.ours
            await app(scope, receive, send)
        except asyncio.CancelledError:  # the server stops, and this took longer than the second that it waits
            if scope["type"] != "http":
                raise
            with suppress(RuntimeError):  # a part of the answer was sent
                await errors.response(errors.cut_short(scope["method"]))(scope, receive, send)


class Front:
    """Kubernetes' own paths: health, version, discovery, OpenAPI, and the objects."""

    def __init__(self, registry: Registry, tokens: Authenticator, authority: Callable[[], str] = str) -> None:
        self._registry = registry
        self._tokens = tokens
        self._discovery = Discovery((*KINDS, *ABSENT), ephemeral_resources.VIRTUAL)
        self._openapi = openapi.OpenApi((*KINDS, *ABSENT), ephemeral_resources.VIRTUAL)
        self._openapi_v2 = openapi_v2.OpenApiV2(self._openapi)
        self._kubernetes = Kubernetes(registry, tokens)
        self._agents = Agents(registry, tokens)
        self._joining = JoinApi(registry, tokens, authority)
        self._kept_logs = KeptLogs(registry, tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith(PREFIX):
            await self._guarded(self._agents.answer, scope, receive, send)
        elif path.startswith(join.PREFIX):
            await self._guarded(self._joining.answer, scope, receive, send)
        elif path.startswith(kept_logs.PREFIX):
            await self._guarded(self._kept_logs.answer, scope, receive, send)
        elif path.rstrip("/") in HEALTH:
            await self._guarded(self._health, scope, receive, send)
        elif is_for_everyone(path):
            await self._guarded(self._document, scope, receive, send)
        elif path.startswith(("/api/", "/apis/")):
            await self._kubernetes(scope, receive, send)
        else:
            await self._guarded(self._unknown, scope, receive, send)

    async def _guarded(self, answer: Answering, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response: ASGIApp
        try:
            response = await answer(request)
        except Exception as error:
            response = errors.response(error)
        await response(scope, receive, send)

    async def _unknown(self, request: Request) -> Response:
        """404 for those who may GET such a path, else 401 or 403, as in Kubernetes."""
        user = await impersonation.user_of(self._registry, self._tokens, request)
        await check_path(self._registry, user, request.method.lower(), request.scope["path"])
        raise errors.no_such_path()

    async def _health(self, request: Request) -> Response:
        """Live while the process turns; ready while the database takes writes and the feed follows it."""
        if request.scope["path"].startswith("/livez"):
            return PlainTextResponse("ok")
        broken = self._registry.store.feed.broken
        if broken is not None:
            raise errors.unavailable(f"the change feed waits for the database: {type(broken).__name__}")
        if await self._registry.store.is_read_only():
            raise errors.unavailable(READ_ONLY)
        return PlainTextResponse("ok")

    async def _document(self, request: Request) -> Response:
        user = await impersonation.user_of(self._registry, self._tokens, request)
        path: str = request.scope["path"]
        await check_path(self._registry, user, request.method.lower(), path)
        if request.method not in {"GET", "HEAD"}:
            raise errors.no_such_method()
        path = path.rstrip("/")
        if path == "/version":
            return Response(version.document(), media_type="application/json")
        if path.startswith("/openapi"):
            return self._specification(request, path)
        form = wanted(request.headers.get("accept"), DISCOVERY)
        document = self._discovery.document(path, form)
        if document is None:
            raise errors.no_such_path()
        return static_documents.answer(request, document, {"Cache-Control": "public"})

    def _specification(self, request: Request, path: str) -> Response:
        if path == "/openapi/v2":
            form = wanted(request.headers.get("accept"), OPENAPI)
            return static_documents.answer(request, self._openapi_v2.document(form), {})
        document = self._openapi.document(path)
        if document is None:
            raise errors.no_such_path()
        asked = request.query_params.get("hash")
        if asked and asked != document.digest:
            return RedirectResponse(f"{path}?hash={document.digest}", 301)
        return static_documents.answer(
            request, document, static_documents.for_ever(self._registry.now()) if asked else {}
        )
