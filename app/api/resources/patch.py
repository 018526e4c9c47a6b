"""PATCH: JSON patch, merge patch, strategic merge patch and server-side apply, by Content-Type. Called by `single_object`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.api.auth import rbac_escalation
from app.api.http import content
from app.api.http.content_negotiation import CUSTOM_PATCH_BODIES, PATCH_BODIES, parse_patch_content_type
from app.api.http.query import patch_options, query_of
from app.api.resources import apply
from app.api.resources.field_manager import edit_options, writer
from app.api.resources.routes import RequestInfo
from app.machinery.base import Kind, Object
from app.machinery.custom.object_body import convert_document, is_custom
from app.machinery.object_codec import json_document_of
from app.machinery.patch.json_patch import apply_json_patch, apply_merge_patch
from app.machinery.patch.strategic_merge_patch import apply_strategic_merge_patch
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry


async def answer(registry: Registry, request: Request, found: RequestInfo) -> Response:
    """Patch an object by the patch type in Content-Type; 415 for any other."""
    known = CUSTOM_PATCH_BODIES if is_custom(found.kind) else PATCH_BODIES
    form = parse_patch_content_type(request.headers.get("content-type"), known)
    options = patch_options(query_of(request), apply=form == "apply-patch")
    await content.compile_schema(found.kind)
    if form == "apply-patch":
        return await apply.answer(registry, request, found, options)
    sent = await content.read_document(request)
    warnings: list[str] = []

    def change(old: Object) -> Object:
        patched = apply_patch(form, found.kind, _to_document(found.kind, old), sent)
        decoded = convert_document(found.kind, patched, content.validation_of(options))
        warnings[:] = decoded.warnings
        return content.convert_to_stored(found.kind, decoded.object)

    made = await objects.edit(
        registry,
        content.stored_kind(found.kind),
        found.namespace or "",
        found.name,
        await with_escalation_check(registry, request, found, change),
        edit_options(request, writer(registry, request, options, found.subresource), options),
    )
    return content.answer_response(request, found.kind, made, registry.now, warnings=warnings)


async def with_escalation_check(
    registry: Registry, request: Request, found: RequestInfo, change: objects.Edit
) -> objects.Edit:
    """Return the change with the RBAC escalation check after it."""
    kind, namespace = content.stored_kind(found.kind), found.namespace or ""
    check = await rbac_escalation.escalation_check(registry, request.state.user, kind, namespace, found.name)
    return rbac_escalation.with_check(check, change)


def _to_document(kind: Kind, old: Object) -> dict[str, Any]:
    """Return the object as a plain document in the version that the client patches."""
    seen = kind.outward(old) if kind.outward else old
    document = json_document_of(seen)
    return {**document, "apiVersion": kind.api_version, "kind": kind.name}


def apply_patch(form: str, kind: Kind, document: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Apply a patch to a plain document."""
    if form == "json-patch":
        return apply_json_patch(document, patch)
    if form == "merge-patch":
        return apply_merge_patch(document, patch)
    return apply_strategic_merge_patch(document, patch, kind.type)
