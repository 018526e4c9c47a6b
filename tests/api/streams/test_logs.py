"""The log of a pod as a client reads it: which lines, and that no more of it is held than a chunk."""

import pytest
from starlette.requests import Request

from app.api.resources.routes import RequestInfo
from app.api.streams import logs
from app.api.streams.logs import answer
from app.machinery.errors import ApiError
from app.registry.verbs.objects import Registry
from app.store import Append, Stream
from tests.registry.examples import PODS, a_pod, create

NOON = "2026-03-01T12:00:0{second}.123456789Z stdout {tag} {text}\n"


def record(second: int, text: str, tag: str = "F") -> bytes:
    return NOON.format(second=second, text=text, tag=tag).encode()


@pytest.fixture
async def stream(registry: Registry) -> Stream:
    pod = await create(registry, PODS, a_pod("p", node_name="n"))
    return Stream(pod.metadata.uid, "main", 0)


async def write(registry: Registry, stream: Stream, *pieces: bytes) -> None:
    offset = 0
    for piece in pieces:
        await registry.store.logs.append([Append(stream, "default", "p", offset, piece)])
        offset += len(piece)


async def read(registry: Registry, query: str = "") -> bytes:
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": query.encode()}
    response = await answer(registry, Request(scope), RequestInfo(PODS, "default", "p", "log"))
    return b"".join([part async for part in response.body_iterator])


LINES = (record(0, "a"), record(1, "b"), record(2, "c", "P"), record(3, "d"), record(4, ""))


@pytest.mark.parametrize("chunk", [pytest.param(1 << 20, id="in one piece"), pytest.param(50, id="in many")])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("", b"a\nb\ncd\n\n", id="all of it"),
        pytest.param("tailLines=0", b"", id="no lines"),
        pytest.param("tailLines=1", b"\n", id="the last record"),
        pytest.param("tailLines=4", b"b\ncd\n\n", id="some records"),
        pytest.param("tailLines=5", b"a\nb\ncd\n\n", id="as many as there are"),
        pytest.param("tailLines=1000000000", b"a\nb\ncd\n\n", id="more than there are"),
        pytest.param("limitBytes=3", b"a\nb", id="some bytes"),
        pytest.param("tailLines=4&limitBytes=3", b"b\nc", id="some bytes of the tail"),
        pytest.param("sinceTime=2026-03-01T12:00:02Z", b"cd\n\n", id="since a moment"),
        pytest.param("sinceTime=2026-03-01T14:00:02%2B02:00", b"cd\n\n", id="since a moment in another zone"),
        pytest.param("sinceTime=2026-03-01T12:00:02Z&tailLines=5", b"cd\n\n", id="of the tail, what is new"),
        pytest.param("timestamps=true&tailLines=1", b"2026-03-01T12:00:04.123456789Z \n", id="with its time"),
    ],
)
async def test_a_log_shows(
    registry: Registry, stream: Stream, monkeypatch: pytest.MonkeyPatch, query: str, expected: bytes, chunk: int
) -> None:
    monkeypatch.setattr(logs, "CHUNK", chunk)
    whole = b"".join(LINES)
    await write(registry, stream, whole[:70], whole[70:75], whole[75:])

    assert await read(registry, query) == expected


@pytest.mark.parametrize("moment", ["2026-03-01T12:00:02", "0001-01-01T00:00:00%2B14:00", "yesterday"])
async def test_a_moment_without_a_zone_is_refused(registry: Registry, stream: Stream, moment: str) -> None:
    await write(registry, stream, *LINES)

    with pytest.raises(ApiError, match="RFC 3339"):
        await read(registry, f"sinceTime={moment}")


async def test_what_never_ends_does_not_fill_the_memory(
    registry: Registry, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "CHUNK", 10)
    await write(registry, stream, b"x" * 25, b"y" * 3)

    assert (await read(registry)).replace(b"\n", b"").startswith(b"x" * 25)


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        pytest.param("+00:00", b"c\n", id="in UTC"),
        pytest.param("-05:00", b"b\nc\n", id="behind UTC, so that all was later than it reads"),
        pytest.param("+05:30", b"", id="ahead of UTC"),
    ],
)
async def test_times_of_lines_are_of_the_zone_of_their_node(
    registry: Registry, stream: Stream, zone: str, expected: bytes
) -> None:
    """As containerd and conmon write them."""
    lines = [record(0, "a"), record(1, "b"), record(2, "c")]
    await write(registry, stream, b"".join(line.replace(b"Z ", f"{zone} ".encode()) for line in lines))

    second = {"-05:00": "17:00:01", "+00:00": "12:00:02", "+05:30": "06:30:03"}[zone]
    assert await read(registry, f"sinceTime=2026-03-01T{second}Z") == expected
