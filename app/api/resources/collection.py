"""Verbs of collections: list, create, deletecollection. Called by `kubernetes`."""

import asyncio
from contextlib import aclosing, suppress

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api.auth import rbac_escalation
from app.api.auth.authenticator import Action, User, check
from app.api.auth.certificate_requests import with_requester
from app.api.http import content
from app.api.http.query import create_options, query_of
from app.api.resources import lists
from app.api.resources.field_manager import writer
from app.api.resources.routes import RequestInfo
from app.api.resources.selection import Selection
from app.api.resources.single_object import read_delete_options
from app.machinery.base import Kind
from app.machinery.errors import ApiError, bad_request
from app.registry import Page, StoredObject, offload
from app.registry.conversion import ConversionFailedError
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Preconditions, Registry

AT_ONCE = 50  # concurrent deletions, which share a few commits
MOST_LISTED = 4 << 20  # bytes of deleted objects that the answer lists; of more it is a Status


async def answer(registry: Registry, request: Request, found: RequestInfo, verb: str, selection: Selection) -> Response:
    if verb == "list":
        return await lists.answer(registry, request, found, selection)
    if verb == "create":
        return await _create(registry, request, found)
    return await _delete_all(registry, request, found, selection)


async def _create(registry: Registry, request: Request, found: RequestInfo) -> Response:
    if found.kind.namespaced and found.namespace is None:
        raise bad_request("an empty namespace may not be set during creation")
    options = create_options(query_of(request))
    decoded = await content.read_object(request, found.kind, content.validation_of(options))
    name = decoded.object.metadata.name
    user: User = request.state.user
    action = Action("create", found.kind.group, found.kind.plural, "", found.namespace or "", name)
    request.scope["action"] = action  # now with the name, for audit
    await check(registry, user, action)
    stored = content.stored_kind(found.kind)
    obj = with_requester(content.convert_to_stored(found.kind, decoded.object), user)
    grants = await rbac_escalation.escalation_check(registry, user, stored, found.namespace or "")
    size = content.body_size(request)
    if grants:
        await offload.run(size, grants, obj, None)
    by = writer(registry, request, options)
    made = await objects.create(
        registry, stored, found.namespace or "", obj, by=by, dry_run=options.is_dry_run, size=size
    )
    request.scope["created"] = made.created
    return content.answer_response(request, found.kind, made, registry.now, 201, decoded.warnings)


async def _delete_all(registry: Registry, request: Request, found: RequestInfo, selection: Selection) -> Response:
    """Delete the selected objects, `AT_ONCE` at a time; skip those that are gone meanwhile."""
    asked = await read_delete_options(request)
    listing = await lists.listing(registry, request, found, selection)
    stored = content.stored_kind(found.kind)
    listed: list[StoredObject] = []
    last, size = None, 0
    async with aclosing(listing.parts()) as parts:
        async for heads in parts:
            for start in range(0, len(heads), AT_ONCE):
                some = heads[start : start + AT_ONCE]
                await asyncio.gather(*(_delete(registry, stored, head, *asked) for head in some))
            size += sum(len(head.body) for head in heads)
            last = heads[-1] if heads else last
            listed += heads if size <= MOST_LISTED else ()
            heads.clear()
    if size <= MOST_LISTED:
        end = await listing.end(last)
        page = Page(listed, end.revision, end.more, end.remaining)
        with suppress(ConversionFailedError):  # they are deleted, whether they can be shown or not
            return await lists.whole_page(
                registry, listing.shape, page, found.namespace, selection.options, registry.now()
            )
    done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return Response(msgspec.json.encode(done), media_type="application/json")


async def _delete(
    registry: Registry, kind: Kind, head: StoredObject, demand: Demand, preconditions: Preconditions, dry_run: bool
) -> None:
    try:
        await objects.delete(registry, kind, head.key.namespace, head.key.name, demand, preconditions, dry_run=dry_run)
    except ApiError as error:
        if error.reason != "NotFound":
            raise
