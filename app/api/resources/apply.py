"""PATCH with a server-side apply: the body is what the client wants, and from then on owns. Called by `single_object`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.api.auth import rbac_escalation
from app.api.auth.authenticator import Action, check
from app.api.http import content
from app.api.http.query import WriteOptions
from app.api.resources.field_manager import edit_options, writer
from app.api.resources.routes import Target
from app.machinery import json_document, server_side_apply
from app.machinery.base import Kind, Object
from app.machinery.conversion import Fit, MisfitError
from app.machinery.decode import convert
from app.machinery.errors import ApiError, bad_request, conflict
from app.machinery.managed_fields import with_entries
from app.machinery.shape import shape_of
from app.registry import apply_or_create, offload
from app.registry.objects import Registry


async def answer(registry: Registry, request: Request, found: Target, options: WriteOptions) -> Response:
    """The object as it is after the apply; 201 if there was none."""
    body = await content.read_body(request)
    configuration, warnings = await offload.run(_weight(body), _read, found.kind, body, options)
    by = writer(registry, request, options, found.subresource)._replace(applies=True)
    stored, namespace = content.stored_kind(found.kind), found.namespace or ""
    grants = await rbac_escalation.check_of(registry, request.state.user, stored, namespace, found.name)

    def change(old: Object | None) -> Object:
        seen = found.kind.outward(old) if old is not None and found.kind.outward else old
        result = server_side_apply.applied(found.kind, seen, configuration, by, force=bool(options.force))
        if old is None:
            _check_new(found, result.document)
        made = _object(found.kind, result)
        if grants:
            grants(made, old)
        return made

    async def may_create(_: Object) -> None:
        action = Action("create", stored.group, stored.plural, found.subresource, namespace, found.name)
        await check(registry, request.state.user, action)

    key = (namespace, found.name)
    made, is_new = await apply_or_create.apply(
        registry, stored, key, change, edit_options(request, by, options), may_create
    )
    code = 201 if is_new else 200
    return content.one(request, found.kind, made.body, registry.now(), code, (*warnings, *made.warnings))


def _read(kind: Kind, body: bytes, options: WriteOptions) -> tuple[Any, list[str]]:
    """The configuration, and what to warn of."""
    configuration = _parsed(body)
    server_side_apply.check(kind, configuration)
    return configuration, _repeated(kind, configuration, options)


def _is_json(body: bytes) -> bool:
    return body.lstrip()[:1] == b"{"


def _weight(body: bytes) -> int:
    return len(body) if _is_json(body) else len(body) * offload.YAML_WEIGHT


def _parsed(body: bytes) -> Any:
    """JSON is YAML, too, and much faster to read."""
    if _is_json(body):
        try:
            return json_document.value_with_duplicates(json_document.json_of(body, "json"))
        except ApiError as error:
            if error.code != 400:
                raise
    return json_document.value_with_duplicates(json_document.json_of(body, "yaml"))


def _repeated(kind: Kind, configuration: dict[str, Any], options: WriteOptions) -> list[str]:
    """Fields that are there twice: refused, warned of or ignored. Unknown ones never come this far."""
    validation = content.validation_of(options)
    if validation == "Ignore":
        return []
    fit = Fit()
    type_: type = kind.type
    try:
        fit.document(configuration, shape_of(type_))
    except MisfitError:
        return []  # the object that it is merged into will not fit either, and that tells it better
    if fit.faults and validation == "Strict":
        raise bad_request(f"error strict decoding YAML: {', '.join(fit.faults)}")
    return fit.faults


def _check_new(found: Target, made: dict[str, Any]) -> None:
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


def _object(kind: Kind, result: server_side_apply.Applied) -> Object:
    decoded = convert(result.document, kind.type, api_version=kind.api_version)
    made: Object = decoded.object
    return content.inward(kind, with_entries(made, result.entries))
