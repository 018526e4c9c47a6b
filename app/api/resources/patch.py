"""PATCH: JSON patch, merge patch, strategic merge patch and server-side apply, by Content-Type. Called by `single_object`."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api.auth import rbac_escalation
from app.api.http import content
from app.api.http.accept import patch_body
from app.api.http.query import patch_options
from app.api.resources import apply
from app.api.resources.field_manager import edit_options, writer
from app.api.resources.routes import Target
from app.machinery.base import Kind, Object
from app.machinery.decode import convert
from app.machinery.json_patch import json_patch, merge_patch
from app.machinery.strategic_merge_patch import strategic_patch
from app.registry import objects
from app.registry.objects import Registry


async def answer(registry: Registry, request: Request, found: Target) -> Response:
    """Patch an object, by the form that the Content-Type names; 415 for any other."""
    form = patch_body(request.headers.get("content-type"))
    options = patch_options(request.query_params.multi_items(), apply=form == "apply-patch")
    if form == "apply-patch":
        return await apply.answer(registry, request, found, options)
    sent = await content.read_document(request)
    warnings: list[str] = []

    def change(old: Object) -> Object:
        patched = _patched(form, found.kind, _document(found.kind, old), sent)
        decoded = convert(
            patched, found.kind.type, api_version=found.kind.api_version, validation=content.validation_of(options)
        )
        warnings[:] = decoded.warnings
        return content.inward(found.kind, decoded.object)

    made = await objects.edit(
        registry,
        content.stored_kind(found.kind),
        found.namespace or "",
        found.name,
        await checked(registry, request, found, change),
        edit_options(request, writer(registry, request, options, found.subresource), options),
    )
    return content.one(request, found.kind, made.body, registry.now(), warnings=(*warnings, *made.warnings))


async def checked(registry: Registry, request: Request, found: Target, change: objects.Edit) -> objects.Edit:
    """The change, but that it may not grant more than the user has."""
    kind, namespace = content.stored_kind(found.kind), found.namespace or ""
    check = await rbac_escalation.check_of(registry, request.state.user, kind, namespace, found.name)
    return rbac_escalation.checked(check, change)


def _document(kind: Kind, old: Object) -> dict[str, Any]:
    """The object as the client that patches it sees it."""
    seen = kind.outward(old) if kind.outward else old
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(seen))  # lists, which to_builtins leaves tuples
    return {**document, "apiVersion": kind.api_version, "kind": kind.name}


def _patched(form: str, kind: Kind, document: dict[str, Any], patch: Any) -> dict[str, Any]:
    if form == "json-patch":
        return json_patch(document, patch)
    if form == "merge-patch":
        return merge_patch(document, patch)
    return strategic_patch(document, patch, kind.type)
