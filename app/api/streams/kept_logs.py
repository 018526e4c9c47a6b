"""Logs of pods that may be gone: what there is of a namespace, and each of them, for whoever may read pods/log there.

    GET /apis/logs.jobplane.dev/v1/namespaces/NAMESPACE/logs[?pod=NAME][&job=NAME][&limit=N][&continue=TOKEN]
    GET /apis/logs.jobplane.dev/v1/namespaces/NAMESPACE/logs/POD[?uid=UID][&container=NAME][&attempt=N | &previous=true]
        [&tailLines=N][&sinceTime=TIME | &sinceSeconds=N][&limitBytes=N][&timestamps=true]

A pod's name may have been used before: without `uid` the newest pod of that name is meant.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api.auth import impersonation
from app.api.auth.authenticator import Action, Authenticator, check
from app.api.http import errors
from app.api.http.query import Query, first, flag, number
from app.api.streams.logs import options_of, shown
from app.machinery.base import Int32
from app.machinery.errors import bad_request, not_found
from app.registry.objects import Registry
from app.store.kept_logs import After, KeptLog

PREFIX = "/apis/logs.jobplane.dev/v1/"
_API_VERSION = "logs.jobplane.dev/v1"
_PAGE, _MOST = 500, 5_000
_ALL = 10_000  # runs of one pod


class _Place(NamedTuple):
    namespace: str
    pod: str


@dataclass(frozen=True)
class KeptLogs:
    """The application under `PREFIX`."""

    registry: Registry
    authenticator: Authenticator

    async def answer(self, request: Request) -> Response:
        user = await impersonation.user_of(self.registry, self.authenticator, request)
        place = _place(request.scope["path"])
        query = request.query_params.multi_items()
        named = place.pod or first(query, "pod") or ""
        await check(self.registry, user, Action("get", "", "pods", "log", place.namespace, named))
        if request.method not in {"GET", "HEAD"}:
            raise errors.no_such_method()
        return await (self._one(request, place, query) if place.pod else self._list(place.namespace, query))

    async def _list(self, namespace: str, query: Query) -> Response:
        limit = number(query, "limit") or _PAGE
        if not 0 < limit <= _MOST:
            raise bad_request(f"limit must be between 1 and {_MOST}")
        after = _read_token(first(query, "continue") or "")
        pod, job = first(query, "pod") or None, first(query, "job") or None
        logs = await self.registry.store.kept_logs.of(namespace, pod, job, after, limit + 1)
        more = {"continue": _token(logs[limit - 1].place)} if len(logs) > limit else {}
        items = [_item(log) for log in logs[:limit]]
        body = {"kind": "KeptLogList", "apiVersion": _API_VERSION, "metadata": more, "items": items}
        return Response(msgspec.json.encode(body), media_type="application/json")

    async def _one(self, request: Request, place: _Place, query: Query) -> Response:
        options = options_of(query, place.pod, self.registry.now())
        logs = await self.registry.store.kept_logs.of(place.namespace, place.pod, limit=_ALL)
        uid = first(query, "uid") or (max(logs, key=lambda log: log.started_at).pod_uid if logs else "")
        mine = [log for log in logs if log.pod_uid == uid]
        if not mine:
            raise not_found("logs.logs.jobplane.dev", place.pod)
        runs = _of_container(mine, first(query, "container"), place.pod)
        return shown(self.registry, request, _run(runs, query, place.pod).stream, options)


def _place(path: str) -> _Place:
    """Where a path leads."""
    match path.removeprefix(PREFIX).strip("/").split("/"):
        case ["namespaces", namespace, "logs"]:
            return _Place(namespace, "")
        case ["namespaces", namespace, "logs", pod]:
            return _Place(namespace, pod)
    raise errors.no_such_path()


def _of_container(logs: list[KeptLog], asked: str | None, pod: str) -> list[KeptLog]:
    """The runs of one container: of the only one, if none is asked for."""
    names = sorted({log.container for log in logs})
    if asked and asked not in names:
        raise bad_request(f"container {asked} is not valid for pod {pod}")
    if not asked and len(names) > 1:
        raise bad_request(f"a container name must be specified for pod {pod}, choose one of: [{' '.join(names)}]")
    return [log for log in logs if log.container == (asked or names[0])]


def _run(runs: list[KeptLog], query: Query, pod: str) -> KeptLog:
    """The newest, the one before it, or the one that was asked for."""
    newest = max(log.attempt for log in runs)
    attempt = number(query, "attempt")
    if attempt is None:
        attempt = newest - 1 if flag(query, "previous") else newest
    found = next((log for log in runs if log.attempt == attempt), None)
    if found is None:
        raise bad_request(f'previous terminated container "{runs[0].container}" in pod "{pod}" not found')
    return found


def _item(log: KeptLog) -> dict[str, Any]:
    item = {
        "metadata": {"name": log.pod, "namespace": log.namespace, "uid": log.pod_uid},
        "container": log.container,
        "attempt": log.attempt,
        "job": log.job,
        "keptFrom": log.kept_from,
        "size": log.size,
        "startedAt": log.started_at,
        "endedAt": log.ended_at,
    }
    return {name: value for name, value in item.items() if value not in ("", None)}


def _token(place: After) -> str:
    return urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _read_token(token: str) -> After | None:
    """The end of the page before. 400 for a token that no page can have ended with, such as one with a NUL."""
    if not token:
        return None
    try:
        after = msgspec.json.decode(urlsafe_b64decode(token), type=tuple[str, str, str, Int32])
    except (msgspec.MsgspecError, NotBase64, ValueError, RecursionError):
        raise bad_request("continue key is not valid") from None
    if any("\0" in str(part) for part in after):
        raise bad_request("continue key is not valid")
    return after
