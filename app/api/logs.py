"""GET pods/NAME/log: what containers wrote, from the store, whether the pod still runs or not.

The agent ships lines as `<time> stdout|stderr F|P <text>`, before it reports that a container has ended. So once a status
says terminated, all of its log is here.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.api.query import Query, first, flag, number
from app.api.routes import Target
from app.kinds.container import ContainerStatus
from app.kinds.errors import ApiError, bad_request, invalid, unprocessable
from app.kinds.pod import Pod
from app.registry.codec import decode
from app.registry.objects import Registry, find
from app.store import Stream

FOLLOW_SECONDS = 1.0  # how long one wait lasts before the pod is looked at again
CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What the query asks for. `since` is a moment; lines before it are left out."""

    container: str
    follow: bool
    previous: bool
    timestamps: bool
    tail: int | None
    limit: int | None
    since: datetime | None


async def answer(registry: Registry, request: Request, found: Target) -> Response:
    pod = cast("Pod", decode(found.kind, await find(registry, found.kind, found.namespace or "", found.name)))
    options = _options(request.query_params.multi_items(), pod, registry.now())
    status = _status(pod, options.container)
    stream = await _stream(registry, pod, status, options)
    body = _text(registry, found, stream, options)
    return StreamingResponse(body, media_type="text/plain")


def _options(query: Query, pod: Pod, now: datetime) -> LogOptions:
    tail, limit, seconds, moment = (
        number(query, "tailLines"),
        number(query, "limitBytes"),
        number(query, "sinceSeconds"),
        first(query, "sinceTime"),
    )
    causes = [invalid("tailLines", tail, "must be greater than or equal to 0")] if tail is not None and tail < 0 else []
    for name, value in (("limitBytes", limit), ("sinceSeconds", seconds)):
        if value is not None and value < 1:
            causes.append(invalid(name, value, "must be greater than 0"))
    if causes:
        raise unprocessable("PodLogOptions", "", pod.metadata.name, causes)
    since = now - timedelta(seconds=min(seconds, 10**9)) if seconds else None
    if moment:
        since = _moment(moment)
    return LogOptions(
        container=_container(pod, first(query, "container")),
        follow=flag(query, "follow"),
        previous=flag(query, "previous"),
        timestamps=flag(query, "timestamps"),
        tail=tail,
        limit=limit,
        since=since,
    )


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise bad_request(f'parsing time "{text}": it must be RFC 3339') from error


def _container(pod: Pod, asked: str | None) -> str:
    names = [container.name for container in (*pod.spec.containers, *pod.spec.init_containers)]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {pod.metadata.name}")
        return asked
    if len(pod.spec.containers) == 1:
        return pod.spec.containers[0].name
    raise bad_request(
        f"a container name must be specified for pod {pod.metadata.name}, choose one of: [{' '.join(names)}]"
    )


def _status(pod: Pod, container: str) -> ContainerStatus | None:
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return next((status for status in statuses if status.name == container), None)


async def _stream(registry: Registry, pod: Pod, status: ContainerStatus | None, options: LogOptions) -> Stream:
    """Which run's log: the newest, or the one before it."""
    attempts = await registry.store.logs.attempts(pod.metadata.uid, options.container)
    newest = max([status.restart_count if status else 0, *attempts])
    where = f'container "{options.container}" in pod "{pod.metadata.name}"'
    if options.previous:
        if newest == 0:
            raise bad_request(f"previous terminated {where} not found")
        return Stream(pod.metadata.uid, options.container, newest - 1)
    waiting = status.state.waiting if status and status.state else None
    if not attempts and (status is None or waiting) and not _is_over(pod):
        reason = waiting.reason if waiting else ("ContainerCreating" if pod.spec.node_name else "")
        raise bad_request(
            f"{where} is waiting to start: {reason}" if reason else f"{where} is not available: the pod is pending"
        )
    return Stream(pod.metadata.uid, options.container, newest)


def _is_over(pod: Pod) -> bool:
    return pod.status.phase in {"Succeeded", "Failed"}


async def _text(registry: Registry, found: Target, stream: Stream, options: LogOptions) -> AsyncIterator[bytes]:
    """The lines as the client sees them, cut to what it asked for."""
    left = options.limit
    async for line in _tailed(_lines(registry, found, stream, options), options):
        shown = line.shown(options.timestamps)
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

    def shown(self, timestamps: bool) -> bytes:
        end = b"\n" if self.full else b""
        return b"%b %b%b" % (self.at, self.text, end) if timestamps else self.text + end


def parse(records: bytes) -> Iterator[Line]:
    """Records as the agent ships them; what does not look like one is shown as it is."""
    for record in records.split(b"\n")[:-1]:
        at, _, rest = record.partition(b" ")
        _stream, _, rest = rest.partition(b" ")
        tag, _, text = rest.partition(b" ")
        yield Line(at, tag != b"P", text) if tag in {b"F", b"P"} else Line(b"", True, record)


async def _tailed(lines: AsyncIterator[Line | None], options: LogOptions) -> AsyncIterator[Line]:
    """Hold back all but the last lines of what is there already (None marks its end), then let everything through."""
    held: list[Line] | None = [] if options.tail is not None else None
    async for line in lines:
        if line is None:
            for each in (held or [])[-options.tail :] if options.tail else []:
                yield each
            held = None
        elif held is None:
            yield line
        else:
            held.append(line)


async def _lines(registry: Registry, found: Target, stream: Stream, options: LogOptions) -> AsyncIterator[Line | None]:
    since = options.since.isoformat().encode()[:19] if options.since else b""
    offset, rest, caught_up = 0, b"", False
    while True:
        over = not options.follow or await _has_ended(registry, found, stream)
        while data := await registry.store.logs.read(stream, offset, CHUNK):
            offset += len(data)
            whole, _, rest = (rest + data).rpartition(b"\n")
            for line in parse(whole + b"\n") if whole else ():
                if line.at[:19] >= since or not line.at:
                    yield line
        if not caught_up:
            caught_up = True
            yield None
        if over:
            return
        await registry.store.logs_grew(FOLLOW_SECONDS)


async def _has_ended(registry: Registry, found: Target, stream: Stream) -> bool:
    """True when no more can come: this run has ended, or the pod has gone."""
    try:
        head = await find(registry, found.kind, found.namespace or "", found.name)
    except ApiError:
        return True
    pod = cast("Pod", decode(found.kind, head))
    status = _status(pod, stream.container)
    if head.uid != stream.pod_uid or _is_over(pod) or status is None:
        return head.uid != stream.pod_uid or _is_over(pod)
    ended = status.state is not None and status.state.terminated is not None
    return status.restart_count > stream.attempt or ended
