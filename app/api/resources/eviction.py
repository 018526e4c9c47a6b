"""Eviction API: POST pods/NAME/eviction, and the refusal of ephemeral containers. Called by `kubernetes`."""

from typing import Annotated, Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api.http import content
from app.api.http.query import DeleteOptions, WriteOptions, create_options, delete_options, query_of
from app.api.resources.routes import RequestInfo
from app.machinery.base import Object, at
from app.machinery.errors import ApiError, bad_request
from app.registry.verbs import eviction
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Preconditions, Registry


class Eviction(Object):
    """Deletes a pod, unless that would take more than a PodDisruptionBudget allows."""

    delete_options: Annotated[DeleteOptions | None, at(2, "How to delete it.")] = None


VERSIONS = ("policy/v1", "policy/v1beta1")


async def answer(registry: Registry, request: Request, found: RequestInfo) -> Response:
    """Evict the pod; 201 and a Status, or 429 if a PodDisruptionBudget forbids it. Both versions of Eviction are equal."""
    query = create_options(query_of(request))
    sent = await _read_eviction(request, query)
    if sent.metadata.name != found.name:
        raise bad_request("name in URL does not match name in Eviction object")
    if sent.metadata.namespace not in ("", found.namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    options = _merge_options(sent.delete_options, query)
    wanted = options.preconditions
    await eviction.evict(
        registry,
        found.namespace or "",
        found.name,
        Demand(grace_seconds=options.grace_period_seconds, propagation=cast("Any", options.policy) or None),
        Preconditions(uid=(wanted and wanted.uid) or "", resource_version=(wanted and wanted.resource_version) or ""),
        dry_run=options.is_dry_run,
    )
    done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return Response(msgspec.json.encode(done), 201, media_type="application/json")


async def _read_eviction(request: Request, query: WriteOptions) -> Eviction:
    """Decode the Eviction in the body, of either version."""
    decoded = await content.read_struct(request, Eviction, "", content.validation_of(query))
    sent = decoded.object
    if sent.kind not in ("", "Eviction"):
        raise bad_request(f"the kind in the data ({sent.kind}) does not match the expected kind (Eviction)")
    if sent.api_version not in ("", *VERSIONS):
        raise bad_request(
            f"the API version in the data ({sent.api_version}) does not match the expected API version ({VERSIONS[0]})"
        )
    return sent


def _merge_options(given: DeleteOptions | None, query: WriteOptions) -> DeleteOptions:
    """Return the checked DeleteOptions of the Eviction; dryRun counts from the body or the query."""
    options = delete_options((), msgspec.to_builtins(given)) if given else DeleteOptions()
    if options.dry_run and query.dry_run and options.dry_run != query.dry_run:
        raise bad_request("Non-matching dry-run options in request and content")
    return msgspec.structs.replace(options, dry_run=options.dry_run or query.dry_run)


async def refuse_ephemeral_containers(*_: object) -> Response:
    """Refuse `kubectl debug` with 404. It needs `details` in the Status, and crashes without."""
    why = "ephemeral containers are not served by Jobplane: a pod's containers are those that it was created with"
    raise ApiError(404, "NotFound", why, kind="pods")
