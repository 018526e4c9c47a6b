"""Pod logs: GET pods/NAME/log, read from the store, whether the pod still runs or not. `kubernetes` calls `answer`.

The agent ships lines as `<time> stdout|stderr F|P <text>` (CRI's format), before it reports that a container has ended. So
once a status is terminated, the log is complete here.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

from app.api.http.query import Query, first_value, parse_flag, parse_number, query_of
from app.api.resources.routes import RequestInfo
from app.api.streams.revocation import Revoked, watch_revocation
from app.api.streams.stream_options import resolve_container
from app.kinds.pod.container import ContainerStatus
from app.kinds.pod.pod import Pod, is_terminal
from app.machinery.errors import ApiError, Cause, bad_request, forbidden, invalid, unprocessable
from app.registry import Logs, Stream
from app.registry.codec import decode
from app.registry.verbs.objects import Registry, find

FOLLOW_SECONDS = 1.0  # between two checks of the pod while following
CHUNK = 1 << 20  # of a log in memory


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """PodLogOptions of a query. `since`: drop lines before this UTC second, `YYYY-MM-DDTHH:MM:SS`; empty for all lines."""

    container: str
    follow: bool
    previous: bool
    timestamps: bool
    tail: int | None
    limit: int | None
    since: bytes


async def answer(registry: Registry, request: Request, found: RequestInfo) -> Response:
    pod = cast("Pod", decode(found.kind, await find(registry, found.kind, found.namespace or "", found.name)))
    query = query_of(request)
    options = parse_log_options(query, pod.metadata.name, registry.now())
    options = replace(options, container=resolve_container(pod, first_value(query, "container") or ""))
    if not pod.spec.node_name:
        return Response(status_code=204)  # not scheduled: as Kubernetes
    stream = await _find_run(registry, pod, _find_status(pod, options.container), options)
    return log_response(registry, request, stream, options, found)


def log_response(
    registry: Registry, request: Request, stream: Stream, options: LogOptions, found: RequestInfo | None = None
) -> Response:
    """Return the response with the log of one run. `found`: its pod, which `follow` needs."""
    return StreamingResponse(_format_log(registry, request.scope, found, stream, options), media_type="text/plain")


def parse_log_options(query: Query, pod: str, now: datetime) -> LogOptions:
    """Parse the options of a query, without the container; 422 for invalid ones."""
    tail, limit, seconds, moment = (
        parse_number(query, "tailLines"),
        parse_number(query, "limitBytes"),
        parse_number(query, "sinceSeconds"),
        first_value(query, "sinceTime"),
    )
    since = _parse_time(moment) if moment else None
    if causes := list(_validate(tail, limit, seconds, since)):
        raise unprocessable("PodLogOptions", "", pod, causes)
    if seconds:
        since = now - timedelta(seconds=min(seconds, 10**9))
    return LogOptions(
        container="",
        follow=parse_flag(query, "follow"),
        previous=parse_flag(query, "previous"),
        timestamps=parse_flag(query, "timestamps"),
        tail=tail,
        limit=limit,
        since=since.isoformat()[:19].encode() if since else b"",
    )


def _validate(tail: int | None, limit: int | None, seconds: int | None, since: datetime | None) -> Iterator[Cause]:
    if tail is not None and tail < 0:
        yield invalid("tailLines", tail, "must be greater than or equal to 0")
    if limit is not None and limit < 1:
        yield invalid("limitBytes", limit, "must be greater than 0")
    if seconds is not None and since is not None:
        yield forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif seconds is not None and seconds < 1:
        yield invalid("sinceSeconds", seconds, "must be greater than 0")


def _parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise bad_request(f'parsing time "{text}": it must be RFC 3339')


def _find_status(pod: Pod, container: str) -> ContainerStatus | None:
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return next((status for status in statuses if status.name == container), None)


async def _find_run(registry: Registry, pod: Pod, status: ContainerStatus | None, options: LogOptions) -> Stream:
    """Return which run's log: the newest, or the one before it."""
    attempts = await registry.logs.attempts(pod.metadata.uid, options.container)
    newest = max([status.restart_count if status else 0, *attempts])
    where = f'container "{options.container}" in pod "{pod.metadata.name}"'
    waiting = status.state.waiting if status and status.state else None
    if options.previous:
        before = newest if waiting and _has_last_run(status) else newest - 1
        if before < 0:
            raise bad_request(f"previous terminated {where} not found")
        return Stream(pod.metadata.uid, options.container, before)
    if not attempts and (status is None or waiting):
        if waiting is None and is_terminal(pod):
            raise bad_request(f"{where} is not available")
        reason = waiting.reason if waiting else "ContainerCreating"
        raise bad_request(f"{where} is waiting to start: {_NO_IMAGE.get(reason, reason)}")
    return Stream(pod.metadata.uid, options.container, newest)


def _has_last_run(status: ContainerStatus | None) -> bool:
    """Return whether the container waits for a restart: then its last run is the previous one."""
    return bool(status and status.last_state and status.last_state.terminated)


_NO_IMAGE = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


async def _format_log(
    registry: Registry, scope: Scope, found: RequestInfo | None, stream: Stream, options: LogOptions
) -> AsyncIterator[bytes]:
    """Yield formatted lines, limited to `limitBytes`, in batches as they are read.

    Ends early if the client's access is revoked.
    """
    left = options.limit
    with watch_revocation(scope) as refused:
        async for lines in _read_lines(registry, found, stream, options, refused):
            shown = b"".join(line.format(options.timestamps) for line in lines)
            if left is not None:
                shown, left = shown[:left], left - len(shown)
            yield shown
            if left is not None and left <= 0:
                return


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log record; `full` is False for a part of a longer line (CRI's tag P)."""

    at: bytes
    full: bool
    text: bytes

    def is_since(self, second: bytes) -> bool:
        """Return whether the line is not before `second` (see LogOptions). Lines without a time always count."""
        return not second or not self.at or _to_utc_second(self.at) >= second

    def format(self, timestamps: bool) -> bytes:
        end = b"\n" if self.full else b""
        return b"%b %b%b" % (self.at, self.text, end) if timestamps else self.text + end


def _to_utc_second(at: bytes) -> bytes:
    """Convert a time to UTC, to the second. Engines write local time with its offset."""
    if not at.endswith(b"Z"):
        with suppress(ValueError):
            at = datetime.fromisoformat(at.decode()).astimezone(UTC).isoformat().encode()
    return at[:19]


def parse_records(records: bytes) -> Iterator[LogLine]:
    """Parse records as the agent ships them; a malformed record is a line of its own."""
    for record in records.split(b"\n")[:-1]:
        at, _, rest = record.partition(b" ")
        _stream, _, rest = rest.partition(b" ")
        tag, _, text = rest.partition(b" ")
        yield LogLine(at, tag != b"P", text) if tag in {b"F", b"P"} else LogLine(b"", True, record)


async def _read_lines(
    registry: Registry, found: RequestInfo | None, stream: Stream, options: LogOptions, refused: Revoked
) -> AsyncIterator[Sequence[LogLine]]:
    """Yield the log, and what is added to it, a chunk at a time: no more of a log is ever in memory."""
    offset = 0 if options.tail is None else await _find_tail(registry.logs, stream, options.tail)
    since, rest = options.since, b""
    while not refused.done():
        growth = registry.log_growth  # noted first: what is added while this reads must not wait
        over = not options.follow or found is None or await _has_ended(registry, found, stream)
        while not refused.done() and (piece := await registry.logs.read(stream, offset, CHUNK)).data:
            if piece.offset > offset:
                rest = b""  # its second half was deleted by retention
            offset = piece.end
            whole, rest = _split_records(rest + piece.data)
            if lines := [line for line in parse_records(whole) if line.is_since(since)]:
                yield lines
        if over:
            return
        await registry.logs_grew(growth, FOLLOW_SECONDS)


def _split_records(data: bytes) -> tuple[bytes, bytes]:
    """Split data into complete records and a rest. A record of CHUNK bytes without an end is cut, to bound memory."""
    end = data.rfind(b"\n") + 1
    return (data[:end], data[end:]) if end or len(data) < CHUNK else (data + b"\n", b"")


async def _find_tail(logs: Logs, stream: Stream, count: int) -> int:
    """Return the offset of the last `count` records, searching backwards a chunk at a time."""
    (first_kept, end), missing = await logs.span(stream), count + 1  # + 1: the newline at the end starts no record
    while end > first_kept:
        start = max(first_kept, end - CHUNK)
        piece = await _read_span(logs, stream, start, end)
        ends = piece.count(b"\n")
        if ends >= missing:
            return start + len(piece.rsplit(b"\n", missing)[0]) + 1
        missing -= ends
        end = start
    return 0


async def _read_span(logs: Logs, stream: Stream, start: int, end: int) -> bytes:
    data = b""
    while (at := start + len(data)) < end:
        piece = await logs.read(stream, at, end - at)
        if not piece.data or piece.offset > at:  # no longer kept
            break
        data += piece.data
    return data[: end - start]


async def _has_ended(registry: Registry, found: RequestInfo, stream: Stream) -> bool:
    """Return whether the log is complete: this run has ended, or the pod is gone."""
    try:
        head = await find(registry, found.kind, found.namespace or "", found.name)
    except ApiError:
        return True
    pod = cast("Pod", decode(found.kind, head))
    status = _find_status(pod, stream.container)
    if head.uid != stream.pod_uid or is_terminal(pod):
        return True
    ended = status is not None and status.state is not None and status.state.terminated is not None
    return ended or (status is not None and status.restart_count > stream.attempt)
