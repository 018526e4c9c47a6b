"""Server-side apply over HTTP: PATCH with application/apply-patch+yaml. Called by `patch`.

`app.machinery.apply.server_side_apply` merges; this reads the configuration and checks rights and the name.
"""

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.api.auth import rbac_escalation
from app.api.auth.authenticator import Action, check
from app.api.auth.certificate_requests import with_requester
from app.api.http import content
from app.api.http.query import WriteOptions
from app.api.resources.field_manager import edit_options, writer
from app.api.resources.routes import RequestInfo
from app.machinery.apply import server_side_apply
from app.machinery.apply.field_ownership import Comparison
from app.machinery.apply.managed_fields import FieldManager, with_entries
from app.machinery.base import Kind, Object
from app.machinery.custom.object_body import convert_document
from app.machinery.decoding import json_document
from app.machinery.decoding.strict_decoding import ConversionError, Converter
from app.machinery.errors import ApiError, bad_request, conflict
from app.machinery.object_codec import encode_object
from app.machinery.shape import shape_of
from app.registry import offload
from app.registry.verbs import apply_or_create
from app.registry.verbs.objects import Registry
from app.registry.verbs.other_versions import compare_in_other_versions


async def answer(registry: Registry, request: Request, found: RequestInfo, options: WriteOptions) -> Response:
    """Apply the body and return the object; 201 if the apply created it."""
    body = await content.read_body(request)
    configuration, warnings = await offload.run(_weight(body), _read_configuration, found.kind, body, options)
    by = writer(registry, request, options, found.subresource)._replace(applies=True)
    stored, namespace = content.stored_kind(found.kind), found.namespace or ""
    grants = await rbac_escalation.escalation_check(registry, request.state.user, stored, namespace, found.name)

    others: dict[str, Comparison] = {}

    async def compare_versions(old: Object) -> None:
        """Find out what the apply changes in the versions of other managers: the conversion is a call."""
        others.clear()
        size = max(len(body), len(encode_object(old)))
        made = await offload.run(size, _apply_by_force, found.kind, old, configuration, by)
        others.update(await compare_in_other_versions(registry, found.kind, old, made, by))

    def change(old: Object | None) -> Object:
        seen = found.kind.outward(old) if old is not None and found.kind.outward else old
        result = server_side_apply.apply(found.kind, seen, configuration, by, force=bool(options.force), others=others)
        if old is None:
            _check_create(found, result.document)
        made = _decode_result(found.kind, result)
        made = with_requester(made, request.state.user) if old is None else made
        if grants:
            grants(made, old)
        return made

    async def may_create(_: Object) -> None:
        action = Action("create", stored.group, stored.plural, found.subresource, namespace, found.name)
        await check(registry, request.state.user, action)

    key, edit = (namespace, found.name), edit_options(request, by, options)
    if found.kind.conversion is not None:
        edit = replace(edit, before_change=compare_versions)
    made, is_new = await apply_or_create.apply(registry, stored, key, change, edit, may_create)
    code = 201 if is_new else 200
    return content.answer_response(request, found.kind, made, registry.now, code, warnings)


def _read_configuration(kind: Kind, body: bytes, options: WriteOptions) -> tuple[Any, list[str]]:
    """Parse and validate the configuration; return it with warnings."""
    configuration = _parse(body)
    server_side_apply.validate_configuration(kind, configuration)
    return configuration, _find_duplicates(kind, configuration, options)


def _is_json(body: bytes) -> bool:
    return body.lstrip()[:1] == b"{"


def _weight(body: bytes) -> int:
    return len(body) if _is_json(body) else len(body) * offload.YAML_WEIGHT


def _parse(body: bytes) -> Any:
    """Parse the body, JSON first: it is YAML, too, and much faster to read."""
    if _is_json(body):
        try:
            return json_document.decode_with_duplicates(json_document.to_json(body, "json"))
        except ApiError as error:
            if error.code != 400:
                raise
    return json_document.decode_with_duplicates(json_document.to_json(body, "yaml"))


def _find_duplicates(kind: Kind, configuration: dict[str, Any], options: WriteOptions) -> list[str]:
    """Return warnings of duplicate fields; 400 if they are refused. Unknown fields were refused before."""
    validation = content.validation_of(options)
    if validation == "Ignore":
        return []
    fit = Converter()
    type_: type = kind.type
    try:
        fit.convert_document(configuration, shape_of(type_))
    except ConversionError:
        return []  # decoding the merged object fails, too, with a better message
    if fit.faults and validation == "Strict":
        raise bad_request(f"error strict decoding YAML: {', '.join(fit.faults)}")
    return fit.faults


def _check_create(found: RequestInfo, made: dict[str, Any]) -> None:
    metadata = made.get("metadata") or {}
    if not metadata.get("name"):
        why = "name must be provided"
        raise bad_request(f"the name of the object ({found.name} based on URL) was undeterminable: {why}")
    if metadata["name"] != found.name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({found.name})"
        )
    if metadata.get("uid"):
        why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
        raise conflict(found.kind.resource, found.name, why)


def _apply_by_force(kind: Kind, old: Object, configuration: dict[str, Any], by: FieldManager) -> Object:
    return _decode_result(kind, server_side_apply.apply(kind, old, configuration, by, force=True))


def _decode_result(kind: Kind, result: server_side_apply.ApplyResult) -> Object:
    decoded = convert_document(kind, result.document)
    made: Object = decoded.object
    return content.convert_to_stored(kind, with_entries(made, result.entries))
