"""Endpoints for logs of pods that may be gone: a list for each namespace, and each log, for users who may read pods/log there.

Under /apis/logs.jobplane.dev/v1/namespaces/NAMESPACE/logs. A pod's name may have been used before: without `uid` the newest
pod of that name is meant.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from datetime import datetime
from typing import Annotated, NoReturn

import msgspec
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from app.api.auth.authenticator import Action
from app.api.dependencies import CurrentUser, RegistryDep, authorize, current_user
from app.api.http import errors
from app.api.http.query import first_value, query_of
from app.api.middleware import LOGS
from app.api.openapi.meta import ListMeta
from app.api.streams.logs import log_response, parse_log_options
from app.api.struct_route import EVERY_METHOD, FromQuery, StructRoute
from app.machinery.base import Int32, Int64, Struct, at, wire_name
from app.machinery.errors import bad_request, not_found
from app.registry import After, KeptLog

_API_VERSION = "logs.jobplane.dev/v1"
_PAGE, _MOST = 500, 5_000
_ALL = 10_000  # runs of one pod
_LIST, _ONE = "/namespaces/{namespace}/logs", "/namespaces/{namespace}/logs/{pod}"
router = APIRouter(prefix=LOGS.rstrip("/"), tags=["logs"], route_class=StructRoute)


class ListQuery(Struct):
    """The query of a list."""

    pod: Annotated[str, at(0, "Only logs of pods of this name.")] = ""
    job: Annotated[str, at(0, "Only logs of pods of this Job.")] = ""
    limit: Annotated[Int64, at(0, f"At most so many logs in one answer, up to {_MOST}; 0 is {_PAGE}.")] = 0
    continue_: Annotated[str, at(0, "The token of the page before, to get the next.")] = ""


class LogQuery(Struct):
    """The query of one log."""

    uid: Annotated[str, at(0, "UID of the pod; without it, the newest pod of the name.")] = ""
    container: Annotated[str, at(0, "The container; needed where the pod has several.")] = ""
    attempt: Annotated[Int64 | None, at(0, "The run of the container, from 0; without it, the newest.")] = None
    previous: Annotated[bool, at(0, "The run before the newest.")] = False
    tail_lines: Annotated[Int64 | None, at(0, "Only so many lines from the end.")] = None
    since_time: Annotated[str, at(0, "Only lines from this moment on, in RFC 3339.")] = ""
    since_seconds: Annotated[Int64 | None, at(0, "Only lines of the last so many seconds.")] = None
    limit_bytes: Annotated[Int64 | None, at(0, "At most so many bytes.")] = None
    timestamps: Annotated[bool, at(0, "Begin each line with its time.")] = False


class ItemMeta(msgspec.Struct):
    """The pod that wrote the log."""

    name: str
    namespace: str
    uid: str


class Item(msgspec.Struct, kw_only=True, omit_defaults=True, rename=wire_name):
    """One run of a container, and how much of its log is kept: `size` bytes, from `keptFrom` on."""

    metadata: ItemMeta
    container: str
    attempt: int
    job: str = ""
    kept_from: int
    size: int
    started_at: datetime
    ended_at: datetime | None = None


class KeptLogList(msgspec.Struct, tag_field="kind", tag="KeptLogList", kw_only=True, rename=wire_name):
    """A page of kept logs."""

    api_version: str = _API_VERSION
    metadata: ListMeta
    items: list[Item]


async def require_pod_logs(request: Request, user: CurrentUser, namespace: str) -> None:
    """403 unless the user may read logs of the pod that the path or query names, or of all pods of the namespace."""
    named = request.path_params.get("pod") or first_value(query_of(request), "pod") or ""
    await authorize(request, user, Action("get", "", "pods", "log", namespace, named))


_RIGHTS = [Depends(require_pod_logs)]


@router.get(_LIST, summary="List kept logs", dependencies=_RIGHTS)
@router.head(_LIST, include_in_schema=False, dependencies=_RIGHTS)
async def list_kept_logs(
    registry: RegistryDep, namespace: str, options: Annotated[ListQuery, Depends(FromQuery(ListQuery))]
) -> KeptLogList:
    """Return what there is, page by page: one item for each run of a container."""
    limit = options.limit or _PAGE
    if not 0 < limit <= _MOST:
        raise bad_request(f"limit must be between 1 and {_MOST}")
    after = _read_token(options.continue_)
    logs = await registry.kept_logs.of(namespace, options.pod or None, options.job or None, after, limit + 1)
    metadata = ListMeta(continue_=_token(logs[limit - 1].place)) if len(logs) > limit else ListMeta()
    return KeptLogList(metadata=metadata, items=[_item(log) for log in logs[:limit]])


@router.get(_ONE, summary="Read a kept log", dependencies=_RIGHTS)
@router.head(_ONE, include_in_schema=False, dependencies=_RIGHTS)
async def read_kept_log(
    request: Request,
    registry: RegistryDep,
    namespace: str,
    pod: str,
    options: Annotated[LogQuery, Depends(FromQuery(LogQuery))],
) -> Response:
    """The text of one run, whether its pod is there or not."""
    log_options = parse_log_options(query_of(request), pod, registry.now())
    logs = await registry.kept_logs.of(namespace, pod, limit=_ALL)
    uid = options.uid or (max(logs, key=lambda log: log.started_at).pod_uid if logs else "")
    mine = [log for log in logs if log.pod_uid == uid]
    if not mine:
        raise not_found("logs.logs.jobplane.dev", pod)
    run = _run(_of_container(mine, options.container, pod), options, pod)
    return log_response(registry, request, run.stream, log_options)


@router.api_route(_LIST, methods=EVERY_METHOD, include_in_schema=False, dependencies=_RIGHTS)
@router.api_route(_ONE, methods=EVERY_METHOD, include_in_schema=False, dependencies=_RIGHTS)
async def refuse_method() -> NoReturn:
    """405: logs are only read."""
    raise errors.no_such_method()


@router.api_route("/{path:path}", methods=EVERY_METHOD, include_in_schema=False, dependencies=[Depends(current_user)])
async def refuse_path() -> NoReturn:
    """404 for any other path, after authentication."""
    raise errors.no_such_path()


def _of_container(logs: list[KeptLog], asked: str | None, pod: str) -> list[KeptLog]:
    """The runs of one container: of the only one, if none is asked for."""
    names = sorted({log.container for log in logs})
    if asked and asked not in names:
        raise bad_request(f"container {asked} is not valid for pod {pod}")
    if not asked and len(names) > 1:
        raise bad_request(f"a container name must be specified for pod {pod}, choose one of: [{' '.join(names)}]")
    return [log for log in logs if log.container == (asked or names[0])]


def _run(runs: list[KeptLog], options: LogQuery, pod: str) -> KeptLog:
    """The newest, the one before it, or the one that was asked for."""
    newest = max(log.attempt for log in runs)
    attempt = options.attempt
    if attempt is None:
        attempt = newest - 1 if options.previous else newest
    found = next((log for log in runs if log.attempt == attempt), None)
    if found is None:
        raise bad_request(f'previous terminated container "{runs[0].container}" in pod "{pod}" not found')
    return found


def _item(log: KeptLog) -> Item:
    return Item(
        metadata=ItemMeta(log.pod, log.namespace, log.pod_uid),
        container=log.container,
        attempt=log.attempt,
        job=log.job,
        kept_from=log.kept_from,
        size=log.size,
        started_at=log.started_at,
        ended_at=log.ended_at,
    )


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
