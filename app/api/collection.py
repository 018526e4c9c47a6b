"""Collections: list, create, delete all that is selected."""

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api import content, errors
from app.api.auth import Action, check
from app.api.item import delete_demand
from app.api.query import ListOptions, create_options, list_options
from app.api.routes import Target
from app.api.selection import scope_of
from app.kinds.base import Kind
from app.kinds.errors import ApiError, bad_request
from app.registry import objects
from app.registry.objects import Registry
from app.registry.watch import list_page
from app.store import Page, Store


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
    check(request.state.user, Action("create", found.kind.group, found.kind.plural, "", found.namespace or "", name))
    stored = content.stored_kind(found.kind)
    obj = content.inward(found.kind, decoded.object)
    made = await objects.create(registry, stored, found.namespace or "", obj, dry_run=options.is_dry_run)
    warnings = (*decoded.warnings, *made.warnings)
    return content.one(request, found.kind, made.body, registry.now(), 201, warnings)


async def _list(registry: Registry, request: Request, found: Target) -> Response:
    options = list_options(request.query_params.multi_items())
    page = await read_page(registry.store, found, options)
    return _page(request, found.kind, page, list_meta(page, options), registry.now())


async def read_page(store: Store, found: Target, options: ListOptions) -> Page:
    """One page; the pages after the first keep the first one's revision, from which a watch loses nothing."""
    scope = scope_of(content.stored_kind(found.kind), found.namespace, options.label_selector, options.field_selector)
    first, after = _continued(options.continue_)
    page = await list_page(store, scope, after, options.limit or None)
    if options.revision and options.revision > page.revision:
        raise errors.too_new(options.revision, page.revision)
    return page if first is None else Page(page.heads, first, page.more, page.remaining)


class _Token(msgspec.Struct, array_like=True):
    revision: int
    namespace: str
    name: str


def _continued(token: str) -> tuple[int | None, tuple[str, str] | None]:
    if not token:
        return None, None
    try:
        read = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Token)
    except (ValueError, msgspec.MsgspecError) as error:
        raise _not_ours() from error
    if "\0" in read.namespace + read.name:
        raise _not_ours()
    return read.revision, (read.namespace, read.name)


def _not_ours() -> ApiError:
    return bad_request("continue key is not valid: it must be one that a list has returned")


def list_meta(page: Page, options: ListOptions) -> dict[str, Any]:
    meta: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.more:
        last = page.heads[-1].key
        token = msgspec.json.encode(_Token(page.revision, last.namespace, last.name))
        meta["continue"] = base64.urlsafe_b64encode(token).decode()
        if not (options.label_selector or options.field_selector):
            meta["remainingItemCount"] = page.remaining
    return meta


def _page(request: Request, kind: Kind, page: Page, meta: dict[str, Any], now: datetime) -> Response:
    """The page in the form that the client wants. Plain lists are joined bytes: nothing is parsed."""
    form = content.form_of(request)
    wires: Sequence[bytes] = [head.wire for head in page.heads]
    if form.form == "table":
        body = content.as_table(request, kind, wires, now, meta)
    elif form.form in {"partial", "partial-list"}:
        items = [content.as_partial(kind, wire, form.version) for wire in wires]
        body = _joined("PartialObjectMetadataList", f"meta.k8s.io/{form.version}", meta, items)
    else:
        body = _joined(f"{kind.name}List", kind.api_version, meta, [content.outward(kind, wire) for wire in wires])
    return Response(body, media_type=form.content_type)


def _joined(kind: str, api_version: str, meta: dict[str, Any], items: Sequence[bytes]) -> bytes:
    head = msgspec.json.encode({"kind": kind, "apiVersion": api_version, "metadata": meta})
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


async def _delete_all(registry: Registry, request: Request, found: Target) -> Response:
    """Delete what is selected, one by one; objects that go meanwhile are nobody's problem."""
    options = list_options(request.query_params.multi_items())
    demand, preconditions, dry_run = await delete_demand(request)
    page = await read_page(registry.store, found, options)
    stored = content.stored_kind(found.kind)
    for head in page.heads:
        try:
            await objects.delete(
                registry, stored, head.key.namespace, head.key.name, demand, preconditions, dry_run=dry_run
            )
        except ApiError as error:
            if error.reason != "NotFound":
                raise
    return _page(request, found.kind, page, list_meta(page, options), registry.now())
