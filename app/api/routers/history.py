"""Endpoints for what stays of Jobs: records of Jobs that may be gone, with their attempts and events.

Under /apis/history.jobplane.dev/v1. A list has Jobs that have ended, those that ended last first; a record of its own has any Job
by its UID or name, also one that still runs. Needs `get` or `list` on `jobs` of the group history.jobplane.dev. A rerun makes a
Job of any record; it needs `get`, `create` on `jobs/rerun`, and the right to create what it makes.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate
from typing import Annotated, Any, NoReturn, cast

import msgspec
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from app.api.auth.authenticator import Action, check
from app.api.dependencies import CurrentUser, RegistryDep, authorize, current_user
from app.api.http import errors
from app.api.http.content import answer_response, body_size, read_body
from app.api.http.query import create_options, query_of
from app.api.middleware import HISTORY
from app.api.openapi.meta import ListMeta
from app.api.resources.field_manager import writer
from app.api.struct_route import EVERY_METHOD, FromBody, FromQuery, S, StructRoute
from app.kinds.batch.job import KIND as JOBS
from app.machinery import selectors
from app.machinery.base import Int64, Struct, at, wire_name
from app.machinery.decoding.decode import decode, decode_stored
from app.machinery.errors import bad_request, not_found
from app.plans.jobs.job_record import API_VERSION, JobRecord, JobSummary, build_record
from app.plans.jobs.rerun import rerun
from app.registry import ListedJob, RecordPlace, RecordQuery, job_history, offload
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry

GROUP = "history.jobplane.dev"
_PAGE, _MOST = 100, 500
_LIST_ATTEMPTS = 20  # of each record of a list
_TOGETHER = 50  # records built without a break for others, if their Jobs have fewer bytes than
_STEP_BYTES = 1 << 20
_MOST_BYTES = 16 << 20  # of the Jobs of a page
_MOST_READ = 5_000  # records that one request for a selector looks at
_RERUN = "/namespaces/{namespace}/jobs/{uid}/rerun"
_ALL, _LIST, _ONE = "/jobs", "/namespaces/{namespace}/jobs", "/namespaces/{namespace}/jobs/{uid}"
router = APIRouter(prefix=HISTORY.rstrip("/"), tags=["history"], route_class=StructRoute)


class RecordListQuery(Struct):
    """The query of a list."""

    name: Annotated[str, at(0, "Only Jobs of this name.")] = ""
    result: Annotated[str, at(0, "Only Jobs with this result: Complete, Failed or Deleted.")] = ""
    label_selector: Annotated[str, at(0, "Only Jobs whose labels match, such as `app=pi,tier!=test`.")] = ""
    limit: Annotated[Int64, at(0, f"At most so many records in one answer, up to {_MOST}; 0 is {_PAGE}.")] = 0
    continue_: Annotated[str, at(0, "The token of the page before, to get the next.")] = ""


class JobRecordList(msgspec.Struct, tag_field="kind", tag="JobRecordList", kw_only=True, rename=wire_name):
    """A page of records, without events, each with its newest attempts. A page may be empty and still have a next one."""

    api_version: str = API_VERSION
    metadata: ListMeta
    items: list[JobRecord]


class Rerun(Struct):
    """The body of a rerun. Without a name, the new Job is named after the old one."""

    name: Annotated[str, at(0, "Name of the new Job.")] = ""
    patch: Annotated[Any, at(0, "Strategic merge patch of the Job, as kubectl patch sends it.")] = None


class RerunBody(FromBody[S]):
    """Dependency: a name and a patch; none is a rerun as it was."""

    async def __call__(self, request: Request) -> S:
        body = await read_body(request)
        return (await offload.run(len(body), decode, body or b"{}", self.type)).object


async def require_list(request: Request, user: CurrentUser) -> None:
    """403 unless the user may list records in the namespace of the path, or in all."""
    namespace = request.path_params.get("namespace", "")
    await authorize(request, user, Action("list", GROUP, "jobs", namespace=namespace))


async def require_get(request: Request, user: CurrentUser, namespace: str, uid: str) -> None:
    """403 unless the user may get the record."""
    await authorize(request, user, Action("get", GROUP, "jobs", namespace=namespace, name=uid))


async def require_rerun(request: Request, registry: RegistryDep, user: CurrentUser, namespace: str, uid: str) -> None:
    """403 unless the user may run the Job again, and read its record: the answer shows what that says."""
    await check(registry, user, Action("get", GROUP, "jobs", namespace=namespace, name=uid))
    await authorize(request, user, Action("create", GROUP, "jobs", "rerun", namespace, uid))


_MAY_LIST, _MAY_GET, _MAY_RERUN = [Depends(require_list)], [Depends(require_get)], [Depends(require_rerun)]
_Options = Annotated[RecordListQuery, Depends(FromQuery(RecordListQuery))]


@router.get(_ALL, summary="List records of Jobs of all namespaces", dependencies=_MAY_LIST)
@router.head(_ALL, include_in_schema=False, dependencies=_MAY_LIST)
async def list_all_records(registry: RegistryDep, options: _Options) -> JobRecordList:
    """Return Jobs that have ended, in all namespaces, page by page."""
    return await _list(registry, "", options)


@router.get(_LIST, summary="List records of Jobs", dependencies=_MAY_LIST)
@router.head(_LIST, include_in_schema=False, dependencies=_MAY_LIST)
async def list_records(registry: RegistryDep, namespace: str, options: _Options) -> JobRecordList:
    """Return Jobs that have ended, page by page: those that ended last come first."""
    return await _list(registry, namespace, options)


@router.get(_ONE, summary="Read the record of a Job", dependencies=_MAY_GET)
@router.head(_ONE, include_in_schema=False, dependencies=_MAY_GET)
async def read_record(registry: RegistryDep, namespace: str, uid: str) -> JobRecord:
    """Return what is known of a Job, by its UID or name, whether it is there or not: spec, status, attempts, events."""
    found = await job_history.read_record(registry, namespace, uid)
    if found is None:
        raise not_found(f"jobs.{GROUP}", uid)
    return found


@router.post(
    _RERUN,
    status_code=201,
    summary="Run a Job again",
    dependencies=_MAY_RERUN,
    responses={201: {"description": "The new Job of batch/v1."}},
)
async def rerun_job(
    request: Request,
    registry: RegistryDep,
    user: CurrentUser,
    namespace: str,
    uid: str,
    asked: Annotated[Rerun, Depends(RerunBody(Rerun))],
) -> Response:
    """Create a Job like one of before, by its UID or name, as it was or with a patch; its annotation says what it repeats."""
    found = await job_history.find_job(registry, namespace, uid)
    if found is None:
        raise not_found(f"jobs.{GROUP}", uid)
    size = max(body_size(request), len(found.body))
    made = await offload.run(size, rerun, decode_stored(found.body, JOBS.type), asked.name, asked.patch)
    name = made.object.metadata.name
    await check(registry, user, Action("create", JOBS.group, JOBS.plural, namespace=namespace, name=name))
    options = create_options(query_of(request))
    by = writer(registry, request, options)
    answer = await objects.create(registry, JOBS, namespace, made.object, by=by, dry_run=options.is_dry_run, size=size)
    request.scope["created"] = answer.created
    return answer_response(request, JOBS, answer, registry.now, 201, made.warnings)


@router.api_route(_ALL, methods=EVERY_METHOD, include_in_schema=False, dependencies=_MAY_LIST)
@router.api_route(_LIST, methods=EVERY_METHOD, include_in_schema=False, dependencies=_MAY_LIST)
@router.api_route(_ONE, methods=EVERY_METHOD, include_in_schema=False, dependencies=_MAY_GET)
async def refuse_method() -> NoReturn:
    """405: records are only read."""
    raise errors.no_such_method()


@router.api_route(_RERUN, methods=EVERY_METHOD, include_in_schema=False, dependencies=_MAY_RERUN)
async def refuse_rerun_method() -> NoReturn:
    """405: a rerun is a POST."""
    raise errors.no_such_method()


@router.api_route("/{path:path}", methods=EVERY_METHOD, include_in_schema=False, dependencies=[Depends(current_user)])
async def refuse_path() -> NoReturn:
    """404 for any other path, after authentication."""
    raise errors.no_such_path()


async def _list(registry: Registry, namespace: str, options: RecordListQuery) -> JobRecordList:
    limit = options.limit or _PAGE
    if not 0 < limit <= _MOST:
        raise bad_request(f"limit must be between 1 and {_MOST}")
    if options.result not in ("", "Complete", "Failed", "Deleted"):
        raise bad_request("result must be Complete, Failed or Deleted")
    rows, following = _cut(*await _select(registry, namespace, options, limit))
    metadata = ListMeta(continue_=_token(following)) if following else ListMeta()
    return JobRecordList(metadata=metadata, items=await _records(registry, rows))


async def _select(
    registry: Registry, namespace: str, options: RecordListQuery, limit: int
) -> tuple[list[ListedJob], RecordPlace | None]:
    """The rows of a page and, if there may be more, where it ends. With a selector, at most `_MOST_READ` are looked at."""
    selector, after = selectors.parse_labels(options.label_selector), _read_token(options.continue_)
    size = limit + 1 if selector == selectors.EVERYTHING else _MOST
    found: list[ListedJob] = []
    for _ in range(0, _MOST_READ, _MOST):
        query = RecordQuery(namespace=namespace, name=options.name, result=options.result, after=after, limit=size)
        rows = await registry.job_records.page(query)
        found += [row for row in rows if selector.matches(row.summary.labels)]
        if len(found) > limit:
            return found[:limit], _place(found[limit - 1])
        if len(rows) < size:
            return found, None
        after = _place(rows[-1])
    return found, after


def _cut(rows: list[ListedJob], following: RecordPlace | None) -> tuple[list[ListedJob], RecordPlace | None]:
    """So many of the rows of a page, at least one, that their Jobs have no more than `_MOST_BYTES`."""
    for number, size in enumerate(accumulate(row.size for row in rows)):
        if number and size > _MOST_BYTES:
            return rows[:number], _place(rows[number - 1])
    return rows, following


async def _records(registry: Registry, rows: Sequence[ListedJob]) -> list[JobRecord]:
    """The records of a page, some at a time: others want to be answered meanwhile."""
    found: list[JobRecord] = []
    group: list[JobSummary] = []
    size = 0
    for row in rows:
        group.append(row.summary)
        size += row.size
        if len(group) == _TOGETHER or size > _STEP_BYTES:
            found += await _some_records(registry, group)
            group, size = [], 0
    return found + await _some_records(registry, group)


async def _some_records(registry: Registry, summaries: Sequence[JobSummary]) -> list[JobRecord]:
    """Those of them that are still there."""
    if not summaries:
        return []
    records = registry.job_records
    jobs = {each.uid: each.namespace for each in summaries}
    bodies, counts = await records.bodies(list(jobs)), await records.attempt_counts(jobs)
    attempts = await records.attempts(jobs, _LIST_ATTEMPTS)
    found = []
    for each in summaries:
        if body := bodies.get(each.uid):
            some = await job_history.with_outputs(attempts[each.uid])
            found.append(build_record(body, each, some, counts[each.uid] - len(some)))
    return found


def _place(row: ListedJob) -> RecordPlace:
    return RecordPlace(cast("datetime", row.summary.ended_at), row.summary.uid)  # what is stored has ended


def _token(place: RecordPlace) -> str:
    return urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _read_token(token: str) -> RecordPlace | None:
    """The end of the page before. 400 for a token that no page can have ended with, such as one with a NUL."""
    if not token:
        return None
    try:
        ended_at, uid = msgspec.json.decode(urlsafe_b64decode(token), type=tuple[datetime, str])
    except (msgspec.MsgspecError, NotBase64, ValueError, RecursionError):
        raise bad_request("continue key is not valid") from None
    if "\0" in uid or ended_at.tzinfo is None:
        raise bad_request("continue key is not valid")
    return RecordPlace(ended_at, uid)
