"""Kubernetes' paths as one ASGI application: authenticate, resolve, authorize, dispatch, and answer with bytes.

A dict and a few string splits replace hundreds of routes, whose matching would cost more than the requests themselves.
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.audit.annotations import annotate_refusal
from app.api.audit.auditor import note_action
from app.api.auth import impersonation, token_requests
from app.api.auth.authenticator import NODES, Action, Authenticator, User, check, is_for_everyone, may
from app.api.http import errors, websocket
from app.api.http.query import query_of
from app.api.http.request_timeout import check_timeout
from app.api.priority_and_fairness import Fairness, release, seats_of
from app.api.request_metrics import RequestMetrics, is_long_running, note_target
from app.api.resources import (
    approval,
    collection,
    ephemeral_resources,
    eviction,
    finalize,
    scale,
    single_object,
    unsupported_kinds,
)
from app.api.resources.discovery import verbs
from app.api.resources.routes import RequestInfo, parse_built_in, parse_request_info
from app.api.resources.selection import EVERY_OBJECT, Selection, read_selection
from app.api.streams import logs, pod_streams, proxy, watch, watch_websocket
from app.api.streams.revocation import StreamAccess
from app.kinds import KINDS, is_enabled
from app.kinds.auth.certificate_signing_request import KIND as REQUESTS
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.storage.persistentvolume import KIND as VOLUMES
from app.machinery.selectors import FieldSelector
from app.plans.admission.rbac import Grant
from app.registry.admission.requester import REQUESTER
from app.registry.authorization.node_authorizer import is_referenced, is_volume_referenced
from app.registry.verbs.objects import Registry

_BUILT_IN_GROUPS = {kind.group for kind in KINDS} | {each.group for each in ephemeral_resources.EPHEMERAL}
_OF_PODS = {"configmaps", "persistentvolumeclaims", "secrets"}  # that agents read if their pods refer to them
_SUBRESOURCES = {"", "status"}
_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Kubernetes:
    """The application for objects, under /api and /apis. `documents` answers for what describes them, such as discovery."""

    registry: Registry
    authenticator: Authenticator
    documents: Callable[[Request], Awaitable[ASGIApp]]
    metrics: RequestMetrics
    fairness: Fairness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            is_document = is_for_everyone(scope["path"])
            answer = await (self._describe(request) if is_document else self._answer(request))
        except Exception as error:
            annotate_refusal(scope, error)
            answer = errors.response(error)
        try:
            if is_long_running(scope):
                if not isinstance(answer, watch.WatchStream):  # which is a list until its existing objects are sent
                    release(scope)
                with self.metrics.count_open(scope), self.fairness.stream(request.state.user):
                    await answer(scope, receive, send)
            else:
                await answer(scope, receive, send)
        finally:
            release(scope)

    async def _describe(self, request: Request) -> ASGIApp:
        check_timeout(request)
        return await self.documents(request)

    async def _answer(self, request: Request) -> ASGIApp:
        user = await impersonation.user_of(self.registry, self.authenticator, request)
        found = parse_built_in(request.scope["path"])
        if found is None or not is_enabled(found.kind, self.registry.features):
            found = await self._find_custom(request.scope["path"])
        if found is None or _has_unknown_subresource(found):
            return await self._answer_ephemeral(request, user)
        selection = _selection_of(request, found)
        verb = _verb_of(request, found, selection)
        note_target(request.scope, found, verb)
        check_timeout(request)
        action = _action_of(verb, found, selection.fields)
        note_action(request.scope, action, found.kind.version)
        if _is_stream(verb, found):
            self.fairness.check_streams(user)
        seats = seats_of(verb, selection)
        if not self.fairness.take_free(request.scope, user, seats):
            await self.fairness.take(request.scope, user, seats)
        if not may(user, action):
            request.scope["grant"] = await _authorize(self.registry, user, action, found)
        self._prepare(request, user, action, found, selection)
        return await self._dispatch(request, found, verb, selection)

    def _prepare(self, request: Request, user: User, action: Action, found: RequestInfo, selection: Selection) -> None:
        """Check what needs no database, and note the user, before a request is executed."""
        if request.method != "GET":
            REQUESTER.set(user)
        if selection is not EVERY_OBJECT:
            selection.check()
        if _is_stream(action.verb, found):
            request.state.stream_access = self._stream_access(request, user, action, found)
        if found.subresource == "status" and not found.kind.has_status:
            raise errors.no_such_path()

    def _dispatch(
        self, request: Request, found: RequestInfo, verb: str, selection: Selection
    ) -> Coroutine[Any, Any, ASGIApp]:
        if found.subresource not in _SUBRESOURCES:
            return self._answer_subresource(request, found)
        if verb == "watch":
            return self._answer_watch(request, found, selection)
        if found.name:
            return single_object.answer(self.registry, request, found, verb)
        return collection.answer(self.registry, request, found, verb, selection)

    async def _answer_watch(self, request: Request, found: RequestInfo, selection: Selection) -> ASGIApp:
        stream = await watch.open_watch(self.registry, request, found, selection)
        return watch_websocket.upgrade_to_websocket(request, stream) if websocket.is_requested(request) else stream

    async def _find_custom(self, path: str) -> RequestInfo | None:
        """Parse the path of a custom kind, which may have been defined through another process just now."""
        if not _may_be_custom(path):
            return None
        table = await self.registry.kinds.table()
        found = parse_request_info(path, table.by_resource)
        if found is not None:
            return found
        table = await self.registry.kinds.newest_table()
        return parse_request_info(path, table.by_resource)

    def _stream_access(self, request: Request, user: User, action: Action, found: RequestInfo) -> StreamAccess:
        """Return what revocation checks for a stream. Fixed rights of agents and administrators are not checked again."""
        credential: impersonation.Credential = request.state.credential
        if user is credential.holder and may(user, action):
            return StreamAccess(credential.digest, expires_at=credential.holder.expires_at)

        async def authorize() -> None:
            acting_user = await impersonation.impersonate(self.registry, credential.holder, request.headers)
            await _authorize(self.registry, acting_user, action, found)

        return StreamAccess(credential.digest, authorize, credential.holder.expires_at)

    async def _answer_ephemeral(self, request: Request, user: User) -> Response:
        """Answer for an ephemeral resource."""
        place = ephemeral_resources.parse_path(request.scope["path"])
        if place is None:
            raise errors.no_such_path()
        check_timeout(request)
        verb = ephemeral_resources.verb_of(request.method, place)
        each = place.resource
        action = Action(verb, each.group, each.plural, "", place.namespace or "", place.name)
        note_action(request.scope, action, each.version)
        request.scope["grant"] = await check(self.registry, user, action)
        return await ephemeral_resources.ANSWERS[each](self.registry, request, place.namespace, place.name)

    async def _answer_subresource(self, request: Request, found: RequestInfo) -> ASGIApp:
        answer = _SPECIAL.get((found.kind.resource, found.subresource, request.method))
        if found.subresource == "scale" and found.kind.scale is not None:
            answer = scale.answer
        if answer is None:
            raise errors.no_such_path()
        return await answer(self.registry, request, found)


_SPECIAL: dict[tuple[str, str, str], Callable[[Registry, Request, RequestInfo], Awaitable[ASGIApp]]] = {
    ("pods", "log", "GET"): logs.answer,
    ("pods", "binding", "POST"): single_object.bind,
    ("pods", "eviction", "POST"): eviction.answer,
    **pod_streams.SPECIAL,
    **proxy.SPECIAL,
    **{("pods", "ephemeralcontainers", each): eviction.refuse_ephemeral_containers for each in ("GET", "PATCH", "PUT")},
    ("namespaces", "finalize", "PUT"): finalize.answer,
    ("serviceaccounts", "token", "POST"): token_requests.answer,
    **{(REQUESTS.resource, "approval", each): approval.answer for each in ("GET", "PATCH", "PUT")},
}


def _is_stream(verb: str, found: RequestInfo) -> bool:
    return verb == "watch" or found.subresource not in _SUBRESOURCES


def _may_be_custom(path: str) -> bool:
    """Return whether a path is in a group that no built-in kind has."""
    prefix, _, rest = path.removeprefix("/").partition("/")
    return prefix == "apis" and rest.partition("/")[0] not in _BUILT_IN_GROUPS


def _has_unknown_subresource(found: RequestInfo) -> bool:
    """Return whether a namespace's path goes on with an unknown kind."""
    return found.kind is NAMESPACES and found.subresource not in {*_SUBRESOURCES, "finalize"}


def _selection_of(request: Request, found: RequestInfo) -> Selection:
    """Read list options and selectors of a list, watch or deletecollection. The verbs do not read them again."""
    if found.name or request.method not in {"GET", "DELETE"}:
        return EVERY_OBJECT
    return read_selection(query_of(request))


def _verb_of(request: Request, found: RequestInfo, selection: Selection) -> str:
    """Return the verb for authorization; 405 if the kind does not have it. A single object is watched by a selector only."""
    if request.method == "POST" and (not found.name or found.subresource):
        verb = "create"
        if found.kind in unsupported_kinds.UNSUPPORTED:
            raise unsupported_kinds.not_supported_error(found.kind, verb)
        return verb
    if request.method == "GET":
        return "get" if found.name else "watch" if selection.options.watch else "list"
    if found.subresource == "proxy":
        return "get" if request.method == "HEAD" else _VERBS.get(request.method, "")
    verb = _VERBS.get(request.method, "")
    if not found.name:
        verb = {"delete": "deletecollection"}.get(verb, "")
    if verb not in verbs(found.kind):
        raise (
            unsupported_kinds.not_supported_error(found.kind, verb)
            if found.kind in unsupported_kinds.UNSUPPORTED and verb
            else errors.no_such_method()
        )
    return verb


async def _authorize(registry: Registry, user: User, action: Action, found: RequestInfo) -> Grant | None:
    """Return the rule that allows what fixed rights do not; None if a pod of the node does. 403 unless the user may."""
    if NODES in user.groups:
        verb = action.verb
        if verb == "create" and not found.name:
            return None  # authorization needs the name in the body: `collection` checks it
        if verb == "get" and found.name and found.kind.resource in _OF_PODS:
            wanted = (found.kind.resource, found.name)
            if await is_referenced(registry, found.namespace or "", wanted, user.is_node):
                return None
        is_volume = verb == "get" and found.name and found.kind is VOLUMES and not found.subresource
        if is_volume and await is_volume_referenced(registry, found.name, user.is_node):
            return None
        if verb == "create" and (found.kind.resource, found.subresource) == ("serviceaccounts", "token"):
            return None  # authorization needs the pod in the body: `token_requests` checks it
    return await check(registry, user, action)


def _action_of(verb: str, found: RequestInfo, fields: FieldSelector) -> Action:
    """The action to authorize. A namespace lies within itself; a list by a name needs the right to that object only."""
    kind, name, namespace = found.kind, found.name, found.namespace or ""
    if kind is NAMESPACES:
        namespace = name
    if verb in ("list", "watch"):
        name = fields.requirement("metadata.name") or ""
    return Action(verb, kind.group, kind.plural, found.subresource, namespace, name, fields)
