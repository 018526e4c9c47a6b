"""Documents of Kubernetes' API that any known user may read: version, discovery and OpenAPI.

`app.api.resources.kubernetes` calls `Documents` for the paths of which `is_for_everyone` is true.
"""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.api.auth import impersonation
from app.api.auth.authenticator import Authenticator, check_path
from app.api.http import errors, static_documents
from app.api.http.accept import DISCOVERY, OPENAPI, negotiate_media_type
from app.api.openapi import v2 as openapi_v2
from app.api.openapi import v3 as openapi
from app.api.resources import ephemeral_resources, version
from app.api.resources.discovery import Discovery
from app.api.resources.unsupported_kinds import UNSUPPORTED
from app.kinds import KINDS
from app.registry.verbs.objects import Registry


class Documents:
    """The documents of one API process; each is made once."""

    def __init__(self, registry: Registry, authenticator: Authenticator) -> None:
        self._registry, self._authenticator = registry, authenticator
        self._discovery = Discovery((*KINDS, *UNSUPPORTED), ephemeral_resources.EPHEMERAL)
        self._openapi = openapi.OpenApi((*KINDS, *UNSUPPORTED), ephemeral_resources.EPHEMERAL)
        self._openapi_v2 = openapi_v2.OpenApiV2(self._openapi)

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
        if path.startswith("/openapi"):
            return self._specification(request, path)
        form = negotiate_media_type(request.headers.get("accept"), DISCOVERY)
        document = self._discovery.document(path, form)
        if document is None:
            raise errors.no_such_path()
        return static_documents.answer(request, document, {"Cache-Control": "public"})

    def _specification(self, request: Request, path: str) -> Response:
        if path == "/openapi/v2":
            form = negotiate_media_type(request.headers.get("accept"), OPENAPI)
            return static_documents.answer(request, self._openapi_v2.document(form), {})
        document = self._openapi.document(path)
        if document is None:
            raise errors.no_such_path()
        asked = request.query_params.get("hash")
        if asked and asked != document.digest:
            return RedirectResponse(f"{path}?hash={document.digest}", 301)
        headers = static_documents.immutable_headers(self._registry.now()) if asked else {}
        return static_documents.answer(request, document, headers)
