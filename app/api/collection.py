"""Collections: list, create, delete all that is selected."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from app.api import content, escalation, lists
from app.api.auth import Action, User, check
from app.api.item import delete_demand
from app.api.query import create_options, list_options
from app.api.routes import Target
from app.api.writers import writer
from app.kinds.base import Kind
from app.kinds.errors import ApiError, bad_request
from app.registry import objects
from app.registry.deletion import Demand
from app.registry.objects import Preconditions, Registry
from app.store import Head

AT_ONCE = 50  # deletions that share a few commits


async def answer(registry: Registry, request: Request, found: Target, verb: str) -> Response:
    if verb == "list":
        return await _list(registry, request, found)
    if verb == "create":
        return await _create(registry, request, found)
    return await _delete_all(registry, request, found)


async def _create(registry: Registry, request: Request, found: Target) -> Response:
    if found.kind.namespaced and found.namespace is None:
        raise bad_request("an empty namespace may not be set during creation")
    options = create_options(request.query_params.multi_items())
    decoded = await content.read_object(request, found.kind, content.validation_of(options))
    name = decoded.object.metadata.name
    user: User = request.state.user
    action = Action("create", found.kind.group, found.kind.plural, "", found.namespace or "", name)
    await check(registry, user, action)
    stored = content.stored_kind(found.kind)
    obj = content.inward(found.kind, decoded.object)
    grants = await escalation.check_of(registry, user, stored, found.namespace or "")
    if grants:
        grants(obj, None)
    by = writer(registry, request, options)
    made = await objects.create(registry, stored, found.namespace or "", obj, by=by, dry_run=options.is_dry_run)
    warnings = (*decoded.warnings, *made.warnings)
    return content.one(request, found.kind, made.body, registry.now(), 201, warnings)


async def _list(registry: Registry, request: Request, found: Target) -> Response:
    return await lists.answer(registry, request, found, list_options(request.query_params.multi_items()))


async def _delete_all(registry: Registry, request: Request, found: Target) -> Response:
    """Delete what is selected, some at a time; objects that go meanwhile are nobody's problem."""
    options = list_options(request.query_params.multi_items())
    asked = await delete_demand(request)
    page = await lists.found(registry, found, options)
    stored = content.stored_kind(found.kind)
    for start in range(0, len(page.heads), AT_ONCE):
        some = page.heads[start : start + AT_ONCE]
        await asyncio.gather(*(_delete(registry, stored, head, *asked) for head in some))
    return lists.whole(content.shape_of(request, found.kind), page, found.namespace, options, registry.now())


async def _delete(
    registry: Registry, kind: Kind, head: Head, demand: Demand, preconditions: Preconditions, dry_run: bool
) -> None:
    try:
        await objects.delete(registry, kind, head.key.namespace, head.key.name, demand, preconditions, dry_run=dry_run)
    except ApiError as error:
        if error.reason != "NotFound":
            raise
