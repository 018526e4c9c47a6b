"""Kubernetes' paths as one ASGI application: authenticate, resolve, authorize, dispatch, and answer with bytes.

A dict and a few string splits replace hundreds of routes, whose matching would cost more than the requests themselves.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.audit.annotations import annotate_refusal
from app.api.audit.middleware import note_action
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
from app.api.resources.routes import RequestInfo, parse_request_info
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
        user = await self._authenticate(request)
        found = await self._find(request.scope["path"])
        if found is None or _has_unknown_subresource(found):
            return await self._answer_ephemeral(request, user)
        selection = _selection_of(request, found)
        verb = _verb_of(request, found, selection)
        note_target(request.scope, found, verb)
        check_timeout(request)
        action = _action_of(verb, found, selection.fields)
        note_action(request.scope, action, found.kind.version)
        is_stream = verb == "watch" or found.subresource not in _SUBRESOURCES
        if is_stream:
            self.fairness.check_streams(user)
        await self.fairness.take(request.scope, user, seats_of(verb, selection))
        request.scope["grant"] = await _authorize(self.registry, user, action, found)
        if request.method != "GET":
            REQUESTER.set(user)
        if selection is not EVERY_OBJECT:
            selection.check()
        if is_stream:
            request.state.stream_access = self._stream_access(request, user, action, found)
        if found.subresource not in _SUBRESOURCES:
            return await self._answer_subresource(request, found)
        if found.subresource == "status" and not found.kind.has_status:
            raise errors.no_such_path()
        if verb == "watch":
            stream = await watch.open_watch(self.registry, request, found, selection)
            return watch_websocket.upgrade_to_websocket(request, stream) if websocket.is_requested(request) else stream
        if found.name:
            return await single_object.answer(self.registry, request, found, verb)
        return await collection.answer(self.registry, request, found, verb, selection)

    async def _find(self, path: str) -> RequestInfo | None:
        """Parse the path. A kind that is not known here may have been defined through another process just now."""
        found = parse_request_info(path)
        if found is not None and not is_enabled(found.kind, self.registry.features):
            return None
        if found is not None or not _may_be_custom(path):
            return found
        table = await self.registry.kinds.table()
        found = parse_request_info(path, table.by_resource)
        if found is not None:
            return found
        table = await self.registry.kinds.newest_table()
        return parse_request_info(path, table.by_resource)

    async def _authenticate(self, request: Request) -> User:
        return await impersonation.user_of(self.registry, self.authenticator, request)

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
    """Return the rule that allows it, None if fixed rights do. 403 unless the user may."""
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
