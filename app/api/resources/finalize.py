"""Namespace finalization: PUT namespaces/NAME/finalize, the only way to change spec.finalizers. Called by `kubernetes`."""

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from app.api.http import content
from app.api.http.query import query_of, update_options
from app.api.resources.field_manager import edit_options, writer
from app.api.resources.routes import RequestInfo
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import on_finalize
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry

_FINALIZED = replace(NAMESPACES, on_update=on_finalize)


async def answer(registry: Registry, request: Request, found: RequestInfo) -> Response:
    """Store the finalizers. Without any left, a terminating namespace is removed."""
    options = update_options(query_of(request))
    decoded = await content.read_object(request, found.kind, content.validation_of(options))
    by = edit_options(request, writer(registry, request, options, found.subresource), options)
    made = await objects.edit(registry, _FINALIZED, "", found.name, lambda _: decoded.object, by)
    return content.answer_response(request, found.kind, made, registry.now, warnings=decoded.warnings)
