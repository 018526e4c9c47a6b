"""GET pods/NAME/log: what containers wrote, from the store, whether the pod still runs or not.

The agent ships lines as `<time> stdout|stderr F|P <text>`, before it reports that a container has ended. So once a status
says terminated, all of its log is here.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

from app.api.http.query import Query, first, flag, number
from app.api.resources.containers import chosen
from app.api.resources.routes import Target
from app.api.streams.revocation import Refused, refusal
from app.kinds.pod.container import ContainerStatus
from app.kinds.pod.pod import Pod, is_terminal
from app.machinery.errors import ApiError, Cause, bad_request, forbidden, invalid, unprocessable
from app.registry import Logs, Stream
from app.registry.codec import decode
from app.registry.objects import Registry, find

FOLLOW_SECONDS = 1.0  # how long one wait lasts before the pod is looked at again
CHUNK = 1 << 20  # of a log in memory


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What the query asks for. Lines before `since` are left out: UTC as lines have it, to the second, or nothing."""

    container: str
    follow: bool
    previous: bool
    timestamps: bool
    tail: int | None
    limit: int | None
    since: bytes


async def answer(registry: Registry, request: Request, found: Target) -> Response:
    pod = cast("Pod", decode(found.kind, await find(registry, found.kind, found.namespace or "", found.name)))
    query = request.query_params.multi_items()
    options = options_of(query, pod.metadata.name, registry.now())
    options = replace(options, container=chosen(pod, first(query, "container") or ""))
    if not pod.spec.node_name:
        return Response(status_code=204)  # nowhere to ask, as Kubernetes has it
    stream = await _stream(registry, pod, _status(pod, options.container), options)
    return shown(registry, request, stream, options, found)


def shown(
    registry: Registry, request: Request, stream: Stream, options: LogOptions, found: Target | None = None
) -> Response:
    """The log of one run. `found`: its pod, if it is to be followed."""
    return StreamingResponse(_text(registry, request.scope, found, stream, options), media_type="text/plain")


def options_of(query: Query, pod: str, now: datetime) -> LogOptions:
    """What a query asks for, but which container's; 422 if that cannot be."""
    tail, limit, seconds, moment = (
        number(query, "tailLines"),
        number(query, "limitBytes"),
        number(query, "sinceSeconds"),
        first(query, "sinceTime"),
    )
    since = _moment(moment) if moment else None
    if causes := list(_causes(tail, limit, seconds, since)):
        raise unprocessable("PodLogOptions", "", pod, causes)
    if seconds:
        since = now - timedelta(seconds=min(seconds, 10**9))
    return LogOptions(
        container="",
        follow=flag(query, "follow"),
        previous=flag(query, "previous"),
        timestamps=flag(query, "timestamps"),
        tail=tail,
        limit=limit,
        since=since.isoformat()[:19].encode() if since else b"",
    )


def _causes(tail: int | None, limit: int | None, seconds: int | None, since: datetime | None) -> Iterator[Cause]:
    if tail is not None and tail < 0:
        yield invalid("tailLines", tail, "must be greater than or equal to 0")
    if limit is not None and limit < 1:
        yield invalid("limitBytes", limit, "must be greater than 0")
    if seconds is not None and since is not None:
        yield forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif seconds is not None and seconds < 1:
        yield invalid("sinceSeconds", seconds, "must be greater than 0")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise bad_request(f'parsing time "{text}": it must be RFC 3339')


def _status(pod: Pod, container: str) -> ContainerStatus | None:
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return next((status for status in statuses if status.name == container), None)


async def _stream(registry: Registry, pod: Pod, status: ContainerStatus | None, options: LogOptions) -> Stream:
    """Which run's log: the newest, or the one before it."""
    attempts = await registry.logs.attempts(pod.metadata.uid, options.container)
    newest = max([status.restart_count if status else 0, *attempts])
    where = f'container "{options.container}" in pod "{pod.metadata.name}"'
    waiting = status.state.waiting if status and status.state else None
    if options.previous:
        before = newest if waiting and _ended_before(status) else newest - 1
        if before < 0:
            raise bad_request(f"previous terminated {where} not found")
        return Stream(pod.metadata.uid, options.container, before)
    if not attempts and (status is None or waiting):
        if waiting is None and is_terminal(pod):
            raise bad_request(f"{where} is not available")
        reason = waiting.reason if waiting else "ContainerCreating"
        raise bad_request(f"{where} is waiting to start: {_NO_IMAGE.get(reason, reason)}")
    return Stream(pod.metadata.uid, options.container, newest)


def _ended_before(status: ContainerStatus | None) -> bool:
    """While it waits to run again, its last run is the one before."""
    return bool(status and status.last_state and status.last_state.terminated)


_NO_IMAGE = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


async def _text(
    registry: Registry, scope: Scope, found: Target | None, stream: Stream, options: LogOptions
) -> AsyncIterator[bytes]:
    """The lines as the client sees them, cut to what it asked for; those that are read together are sent together.

    Ends early if the client may no longer read them.
    """
    left = options.limit
    with refusal(scope) as refused:
        async for lines in _lines(registry, found, stream, options, refused):
            shown = b"".join(line.shown(options.timestamps) for line in lines)
            if left is not None:
                shown, left = shown[:left], left - len(shown)
            yield shown
            if left is not None and left <= 0:
                return


@dataclass(frozen=True, slots=True)
class Line:
    """One record: `full` is False for a piece of a longer line."""

    at: bytes
    full: bool
    text: bytes

    def is_since(self, second: bytes) -> bool:
        """`second` as in LogOptions. What has no time of its own is not left out."""
        return not second or not self.at or _utc(self.at) >= second

    def shown(self, timestamps: bool) -> bytes:
        end = b"\n" if self.full else b""
        return b"%b %b%b" % (self.at, self.text, end) if timestamps else self.text + end


def _utc(at: bytes) -> bytes:
    """To the second. Engines write the time of their machine, with its offset."""
    if not at.endswith(b"Z"):
        with suppress(ValueError):
            at = datetime.fromisoformat(at.decode()).astimezone(UTC).isoformat().encode()
    return at[:19]


def parse(records: bytes) -> Iterator[Line]:
    """Records as the agent ships them; what does not look like one is shown as it is."""
    for record in records.split(b"\n")[:-1]:
        at, _, rest = record.partition(b" ")
        _stream, _, rest = rest.partition(b" ")
        tag, _, text = rest.partition(b" ")
        yield Line(at, tag != b"P", text) if tag in {b"F", b"P"} else Line(b"", True, record)


async def _lines(
    registry: Registry, found: Target | None, stream: Stream, options: LogOptions, refused: Refused
) -> AsyncIterator[Sequence[Line]]:
    """What is there, and what comes, a chunk at a time: no more of a log is ever in memory."""
    offset = 0 if options.tail is None else await _tail_at(registry.logs, stream, options.tail)
    since, rest = options.since, b""
    while not refused.done():
        over = not options.follow or found is None or await _has_ended(registry, found, stream)
        while not refused.done() and (piece := await registry.logs.read(stream, offset, CHUNK)).data:
            if piece.offset > offset:
                rest = b""  # its other half is no longer kept
            offset = piece.end
            whole, rest = _cut(rest + piece.data)
            if lines := [line for line in parse(whole) if line.is_since(since)]:
                yield lines
        if over:
            return
        await registry.logs_grew(FOLLOW_SECONDS)


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """Whole records, and the beginning of the next. What never ends is no record: it may not fill the memory."""
    end = data.rfind(b"\n") + 1
    return (data[:end], data[end:]) if end or len(data) < CHUNK else (data + b"\n", b"")


async def _tail_at(logs: Logs, stream: Stream, count: int) -> int:
    """Where the last so many records begin: looked for from the end, a piece at a time."""
    (first_kept, end), missing = await logs.span(stream), count + 1  # the last one's own end is no beginning
    while end > first_kept:
        start = max(first_kept, end - CHUNK)
        piece = await _span(logs, stream, start, end)
        ends = piece.count(b"\n")
        if ends >= missing:
            return start + len(piece.rsplit(b"\n", missing)[0]) + 1
        missing -= ends
        end = start
    return 0


async def _span(logs: Logs, stream: Stream, start: int, end: int) -> bytes:
    data = b""
    while (at := start + len(data)) < end:
        piece = await logs.read(stream, at, end - at)
        if not piece.data or piece.offset > at:  # no longer kept
            break
        data += piece.data
    return data[: end - start]


async def _has_ended(registry: Registry, found: Target, stream: Stream) -> bool:
    """True when no more can come: this run has ended, or the pod has gone."""
    try:
        head = await find(registry, found.kind, found.namespace or "", found.name)
    except ApiError:
        return True
    pod = cast("Pod", decode(found.kind, head))
    status = _status(pod, stream.container)
    if head.uid != stream.pod_uid or is_terminal(pod):
        return True
    ended = status is not None and status.state is not None and status.state.terminated is not None
    return ended or (status is not None and status.restart_count > stream.attempt)
