"""Verbs of single objects: get, update, patch, delete; and the binding of pods. Called by `kubernetes`."""

from contextlib import suppress
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api.http import content, errors
from app.api.http.content_negotiation import parse_object_content_type
from app.api.http.query import DeleteOptions, delete_options, query_of, update_options
from app.api.resources import patch
from app.api.resources.field_manager import edit_options, writer
from app.api.resources.routes import RequestInfo
from app.kinds.pod.pod import Pod
from app.machinery import name_validation
from app.machinery.base import Object
from app.machinery.errors import bad_request, conflict, invalid, unprocessable
from app.registry.conversion import ConversionFailedError
from app.registry.verbs import binding, objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Preconditions, Registry


async def answer(registry: Registry, request: Request, found: RequestInfo, verb: str) -> Response:
    """Execute `verb` on one object."""
    if verb == "get":
        stored = content.stored_kind(found.kind)
        head = await objects.find_in_version(registry, stored, found.namespace or "", found.name)
        return content.object_response(request, found.kind, head.wire, registry.now)
    if verb == "update":
        return await _update(registry, request, found)
    if verb == "patch":
        return await patch.answer(registry, request, found)
    if verb == "delete" and not found.subresource:
        return await _delete(registry, request, found)
    raise errors.no_such_method()


async def _update(registry: Registry, request: Request, found: RequestInfo) -> Response:
    options = update_options(query_of(request))
    decoded = await content.read_object(request, found.kind, content.validation_of(options))
    sent = content.convert_to_stored(found.kind, decoded.object)
    made = await objects.edit(
        registry,
        content.stored_kind(found.kind),
        found.namespace or "",
        found.name,
        await patch.with_escalation_check(registry, request, found, lambda _: sent),
        edit_options(request, writer(registry, request, options, found.subresource), options, sent.metadata.uid),
    )
    return content.answer_response(request, found.kind, made, registry.now, warnings=decoded.warnings)


async def read_delete_options(request: Request) -> tuple[Demand, Preconditions, bool]:
    """Read DeleteOptions from body or query: (demand, preconditions, dry run). 400 or 422 for invalid ones."""
    given = await content.read_options(request, DeleteOptions)
    if given is not None and not isinstance(given, dict):
        raise bad_request("the body of a DELETE must be DeleteOptions")
    options = delete_options(query_of(request), given)
    wanted = options.preconditions
    demand = Demand(grace_seconds=options.grace_period_seconds, propagation=cast("Any", options.policy) or None)
    preconditions = Preconditions(
        uid=(wanted and wanted.uid) or "", resource_version=(wanted and wanted.resource_version) or ""
    )
    return demand, preconditions, options.is_dry_run


ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
    "or set propagationPolicy=Orphan to suppress this warning"
)


async def _delete(registry: Registry, request: Request, found: RequestInfo) -> Response:
    kind = content.stored_kind(found.kind)
    demand, preconditions, dry_run = await read_delete_options(request)
    deleted = await objects.delete(
        registry, kind, found.namespace or "", found.name, demand, preconditions, dry_run=dry_run
    )
    warnings = [ORPHAN_WARNING] if kind.garbage_collection == "OrphanDependents" and demand.propagation is None else []
    if kind.returns_deleted or not deleted.is_over:
        with suppress(ConversionFailedError):  # it is being deleted, whether it can be shown or not
            (body,) = await registry.converter.convert(found.kind, [deleted.body])
            return content.object_response(request, found.kind, body, registry.now, warnings=warnings)
    details = {"name": found.name, "group": kind.group, "kind": kind.plural, "uid": deleted.uid}
    done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return Response(msgspec.json.encode(done), 200, content.warning_headers(warnings), "application/json")


async def bind(registry: Registry, request: Request, found: RequestInfo) -> Response:
    """Bind a pod to a node (POST pods/NAME/binding); 409 if it is bound already."""
    parse_object_content_type(request.headers.get("content-type"))
    given = await content.read_document(request)
    target = given.get("target") if isinstance(given, dict) else None
    node = target.get("name") if isinstance(target, dict) else None
    if not (node and isinstance(node, str)):
        raise bad_request("a Binding must name the node in target.name")
    if faults := name_validation.dns_subdomain(node):
        raise unprocessable("Binding", "", found.name, [invalid("target.name", node, each) for each in faults])

    def change(old: Object) -> Object:
        pod = cast("Pod", old)
        if why := _find_binding_fault(pod):
            raise conflict("pods/binding", found.name, why)
        return binding.bound(pod, node, registry.now())

    await objects.rewrite(registry, found.kind, found.namespace or "", found.name, change)
    done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return Response(msgspec.json.encode(done), 201, media_type="application/json")


def _find_binding_fault(pod: Pod) -> str:
    """Return why the pod cannot be bound; empty if it can."""
    name = pod.metadata.name
    if pod.metadata.deletion_timestamp is not None:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if pod.spec.node_name:
        return f'pod {name} is already assigned to node "{pod.spec.node_name}"'
    return f"pod {name} has non-empty .spec.schedulingGates" if pod.spec.scheduling_gates else ""
