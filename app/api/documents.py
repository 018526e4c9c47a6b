"""Documents of Kubernetes' API that any known user may read: version, discovery and OpenAPI.

`app.api.resources.kubernetes` calls `Documents` for the paths of which `is_for_everyone` is true.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.api.auth import impersonation
from app.api.auth.authenticator import Authenticator, check_path
from app.api.http import errors, static_documents
from app.api.http.content_negotiation import DISCOVERY, OPENAPI, negotiate_media_type
from app.api.openapi import v2 as openapi_v2
from app.api.openapi import v3 as openapi
from app.api.resources import ephemeral_resources, version
from app.api.resources.discovery import Discovery
from app.api.resources.unsupported_kinds import UNSUPPORTED
from app.kinds import KINDS, is_enabled
from app.machinery.base import Kind
from app.registry import Unavailable, offload
from app.registry.verbs.objects import Registry

T = TypeVar("T")


class Documents:
    """The documents of one API process; each is made once, and anew when a custom kind comes, goes or changes."""

    def __init__(self, registry: Registry, authenticator: Authenticator) -> None:
        self._registry, self._authenticator = registry, authenticator
        served = (kind for kind in KINDS if is_enabled(kind, registry.features))
        self._kinds = (*served, *UNSUPPORTED)
        self._openapi = openapi.OpenApi(self._kinds, ephemeral_resources.EPHEMERAL)
        self._building = asyncio.Lock()
        self._make(())
        self._generation = 0

    def _make(self, custom: tuple[Kind[Any], ...]) -> None:
        self._discovery = Discovery((*self._kinds, *custom), ephemeral_resources.EPHEMERAL)
        self._openapi = self._openapi.with_custom(custom)
        self._openapi_v2 = openapi_v2.OpenApiV2(self._openapi)

    async def _follow_kinds(self) -> None:
        """Make the documents anew if the custom kinds have changed. Without the database they stay as they are."""
        try:
            table = await self._registry.kinds.table()
        except Unavailable:
            return
        if table.generation != self._generation:
            self._make(table.custom)
            self._generation = table.generation

    async def answer(self, request: Request) -> Response:
        """The document at the path of the request. 401, 403, 404 or 405."""
        user = await impersonation.user_of(self._registry, self._authenticator, request)
        path: str = request.scope["path"]
        request.scope["grant"] = await check_path(self._registry, user, request.method.lower(), path)
        if request.method not in {"GET", "HEAD"}:
            raise errors.no_such_method()
        path = path.rstrip("/")
        if path == "/version":
            return Response(version.version_document(), media_type="application/json")
        await self._follow_kinds()
        if path.startswith("/openapi"):
            return await self._specification(request, path)
        form = negotiate_media_type(request.headers.get("accept"), DISCOVERY)
        document = self._discovery.document(path, form)
        if document is None:
            raise errors.no_such_path()
        return static_documents.answer(request, document, {"Cache-Control": "public"})

    async def _specification(self, request: Request, path: str) -> Response:
        if path == "/openapi/v2":
            form = negotiate_media_type(request.headers.get("accept"), OPENAPI)
            merged = self._openapi_v2
            made = await self._build(lambda: merged.is_made(form), lambda: merged.document(form))
            return static_documents.answer(request, made, {})
        newest = self._openapi
        document = await self._build(lambda: newest.is_made(path), lambda: newest.document(path))
        if document is None:
            raise errors.no_such_path()
        asked = request.query_params.get("hash")
        if asked and asked != document.digest:
            return RedirectResponse(f"{path}?hash={document.digest}", 301)
        headers = static_documents.immutable_headers(self._registry.now()) if asked else {}
        return static_documents.answer(request, document, headers)

    async def _build(self, is_made: Callable[[], bool], build: Callable[[], T]) -> T:
        """Build a document beside the event loop, one at a time: that of large schemas takes tenths of a second."""
        if is_made():
            return build()
        async with self._building:
            return build() if is_made() else await offload.run(offload.LARGE + 1, build)
