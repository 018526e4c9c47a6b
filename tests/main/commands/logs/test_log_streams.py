"""Logs that are followed, when the connection breaks: each line is printed once, whatever part of the log was asked for."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from urllib.parse import parse_qs, urlsplit

import pytest

from app.client.api import Api
from app.kinds.pod.container import Container, ContainerState, ContainerStateRunning, ContainerStatus
from app.kinds.pod.pod import Pod, PodSpec, PodStatus
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.main.commands.logs import log_streams
from app.main.commands.logs.log_choice import Following

POD = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u"), spec=PodSpec(containers=(Container(name="c"),)))
_RUNNING = ContainerState(running=ContainerStateRunning())
STARTED = Pod(
    metadata=POD.metadata,
    spec=POD.spec,
    status=PodStatus(container_statuses=(ContainerStatus(name="c", state=_RUNNING),)),
)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
# Two of them at the same moment, and all in one second, from before the end that is asked for.
LINES = [
    (b"2026-03-01T12:00:00.100000000Z", b"before"),
    (b"2026-03-01T12:00:00.200000000Z", b"one"),
    (b"2026-03-01T12:00:00.300000000Z", b"two"),
    (b"2026-03-01T12:00:00.300000000Z", b"two"),
    (b"2026-03-01T12:00:00.400000000Z", b"three"),
    (b"2026-03-01T12:00:01.000000000Z", b"four"),
]
HEAD = b"HTTP/1.1 %b\r\nTransfer-Encoding: chunked\r\n\r\n"


class BreakingApi:
    """Serves the log of a pod as the API does, to the second; each connection breaks after so many bytes of it."""

    def __init__(self, *breaks: int) -> None:
        self._breaks = list(breaks)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        url = urlsplit(target)
        if not url.path.endswith("/log"):  # the pod is gone
            writer.write(HEAD % b"404 Not Found" + b"0\r\n\r\n")
        else:
            body = self._select({name: values[0] for name, values in parse_qs(url.query).items()})
            if self._breaks:
                part = body[: self._breaks.pop(0)]
                writer.write(HEAD % b"200 OK" + b"%x\r\n%b\r\n" % (len(part), part))
            else:
                writer.write(HEAD % b"200 OK" + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        await writer.drain()
        writer.close()

    @staticmethod
    def _select(query: Mapping[str, str]) -> bytes:
        since = query.get("sinceTime", "")[:19].encode()  # in the time zone of the lines
        assert not since or query["sinceTime"].endswith(("Z", "+01:00"))
        lines = [each for each in LINES if not each[0] or each[0][:19] >= since][-int(query.get("tailLines", "99")) :]
        return b"".join(b"%b %b\n" % each if "timestamps" in query else each[1] + b"\n" for each in lines)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_streams, "RETRY_SECONDS", 0)


@asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[Api]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    api = Api(f"http://127.0.0.1:{port}", "", tls=ssl.create_default_context())
    try:
        yield api
    finally:
        await api.close()
        server.close()


async def printed(query: dict[str, str], *breaks: int) -> AsyncIterator[bytes]:
    said: list[bytes] = []
    async with connected(BreakingApi(*breaks).serve) as api:
        await log_streams.print_log(api, POD, said.append, Following(query=query))
    for each in b"".join(said).splitlines():
        yield each


async def refuse(status: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(HEAD % status + b"0\r\n\r\n")
    await writer.drain()
    writer.close()


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        pytest.param(b"404 Not Found", nullcontext(), id="not found"),
        pytest.param(b"403 Forbidden", pytest.raises(ApiError), id="forbidden"),
    ],
)
async def test_a_pod_that_was_deleted_before_it_printed_has_nothing_to_show(
    status: bytes, outcome: AbstractContextManager[object]
) -> None:
    """A deadline deletes such pods. Any other refusal is an error."""
    said: list[bytes] = []
    async with connected(partial(refuse, status)) as api:
        streams = log_streams.LogStreams(api, said.append, has_many=False)
        streams.start([STARTED])
        with outcome:
            await streams.finish()

    assert said == []


LONG = [(b"2026-03-01T13:00:00.5+01:00", b"x" * 16384 + b"2026-03-01T13:00:00.6+01:00 " + b"y" * 9), (b"", b"no time")]


@pytest.mark.parametrize("after", [0, 3, 16_450])
async def test_times_that_were_not_asked_for_are_not_printed(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Nor those within a line that is kept in pieces; lines without a time, and times with an offset, are printed as well."""
    monkeypatch.setattr(sys.modules[__name__], "LINES", LONG)

    found = [line async for line in printed({"tailLines": "2"}, *([after] if after else []))]

    assert found == [b"x" * 16384 + b"y" * 9, b"no time"]


@pytest.mark.parametrize("after", range(1, 200, 11))
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, [text for _, text in LINES], id="whole"),
        pytest.param({"tailLines": "5"}, [text for _, text in LINES[1:]], id="the end"),
        pytest.param({"sinceTime": "2026-03-01T12:00:00Z"}, [text for _, text in LINES], id="since"),
        pytest.param(
            {"tailLines": "2", "timestamps": "true"}, [b" ".join(each) for each in LINES[-2:]], id="with their times"
        ),
    ],
)
async def test_each_line_is_printed_once(query: dict[str, str], expected: list[bytes], after: int) -> None:
    """The connection breaks twice, in the middle of lines and between them."""
    assert [line async for line in printed(query, after, after + 20)] == expected
