"""Lines out of a stream that is cut anywhere, and what is made of each."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.client.watch import FIRST_PAUSE, LONGEST_PAUSE, follow, lines
from app.kinds.core.configmap import ConfigMap
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError


async def chunks(data: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        yield data[start:end]


@given(
    wanted=some.lists(some.binary(min_size=1, max_size=8).map(lambda line: line.replace(b"\n", b"x")), max_size=6),
    cuts=some.lists(some.integers(0, 60), max_size=8),
)
async def test_lines_are_whole_wherever_the_stream_is_cut(wanted: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in wanted)

    assert [line async for line in lines(chunks(data, cuts))] == wanted


class Server:
    """Plays lists and watches from a script; a watch is lines, which an error may end, or an error."""

    def __init__(self, *watches: list[bytes | Exception] | Exception) -> None:
        self.watches = list(watches)
        self.asked: list[str] = []
        self.revision = 1

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> bytes:
        self.revision += 10
        self.asked.append("list")
        metadata = {"resourceVersion": str(self.revision)}
        return msgspec.json.encode({"metadata": metadata, "items": [config_map("a", self.revision), {"data": 7}]})

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str] | None = None):
        self.asked.append(f"watch from {(params or {})['resourceVersion']}")
        script = self.watches.pop(0)
        if isinstance(script, Exception):
            raise script
        yield played(script)


async def played(script: list[bytes | Exception]) -> AsyncIterator[bytes]:
    for part in script:
        if isinstance(part, Exception):
            raise part
        yield part


def config_map(name: str, revision: int) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, resource_version=str(revision)))


def line(change: str, found: Any) -> bytes:
    return msgspec.json.encode({"type": change, "object": found}) + b"\n"


async def events(server: Server, count: int) -> list[str]:
    seen = []
    async with aclosing(follow(server, "/api/v1/configmaps", ConfigMap, {})) as found:
        async for event in found:
            names = [event.object, *event.items] if event.object else event.items
            seen.append(" ".join([event.type, *(each.metadata.name for each in names)]))
            if len(seen) == count:
                return seen
    return seen


async def test_lists_and_then_watches_from_there() -> None:
    server = Server([line("ADDED", config_map("b", 12)), line("DELETED", config_map("b", 13))])

    assert await events(server, 3) == ["LISTED a", "ADDED b", "DELETED b"]
    assert server.asked == ["list", "watch from 11"]


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(ConnectionError("lost"), id="the connection is lost"),
        pytest.param(ApiError(503, "ServiceUnavailable", "later"), id="the server is busy"),
        pytest.param([], id="the window ends"),
    ],
)
async def test_goes_on_where_it_was_when(trouble: Exception | list[bytes]) -> None:
    bookmark = line("BOOKMARK", config_map("", 20))
    server = Server([line("ADDED", config_map("b", 12)), bookmark], trouble, [line("ADDED", config_map("c", 21))])

    assert await events(server, 3) == ["LISTED a", "ADDED b", "ADDED c"]
    assert server.asked[1:] == ["watch from 11", "watch from 20", "watch from 20"]


async def test_a_watch_that_heard_anything_comes_back_soon_and_others_ever_later() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    lost = ConnectionError("lost")
    server = Server(*[lost] * 8, [line("BOOKMARK", config_map("", 20)), lost], [line("ADDED", config_map("b", 21))])
    async with aclosing(follow(server, "/api/v1/configmaps", ConfigMap, {}, sleep)) as found:
        assert [(await anext(found)).type for _ in range(2)] == ["LISTED", "ADDED"]

    most = [min(FIRST_PAUSE * 2**turn, LONGEST_PAUSE) for turn in range(8)]
    assert all(limit / 2 <= pause <= limit for pause, limit in zip(pauses, [*most, FIRST_PAUSE], strict=True))


@pytest.mark.parametrize(
    "too_old",
    [
        pytest.param(ApiError(410, "Expired", "too old"), id="as the answer"),
        pytest.param([line("ERROR", {"kind": "Status", "status": "Failure", "code": 410})], id="as an event"),
        pytest.param(ApiError(504, "Timeout", "Too large resource version"), id="too new, for the database is another"),
    ],
)
async def test_lists_again_when_told_that_it_is_too_late(too_old: Exception | list[bytes]) -> None:
    server = Server(too_old, [line("ADDED", config_map("b", 22))])

    assert await events(server, 3) == ["LISTED a", "LISTED a", "ADDED b"]
    assert server.asked == ["list", "watch from 11", "list", "watch from 21"]


async def test_leaves_alone_what_it_cannot_read() -> None:
    strange = line("MODIFIED", {"metadata": {"name": "b", "resourceVersion": "12"}, "data": 7})
    server = Server([strange], [line("ADDED", config_map("c", 13))])

    assert await events(server, 2) == ["LISTED a", "ADDED c"]
    assert server.asked[-1] == "watch from 12"


async def test_gives_up_when_it_has_no_right() -> None:
    with pytest.raises(ApiError):
        await events(Server(ApiError(403, "Forbidden", "no")), 2)


async def test_a_watch_whose_token_has_ended_is_opened_again_and_fails_if_there_is_no_other() -> None:
    ended = [line("ERROR", {"kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized"})]
    server = Server(ended, [line("ADDED", config_map("b", 20))], ApiError(401, "Unauthorized", "Unauthorized"))
    with pytest.raises(ApiError, match="Unauthorized"):
        await events(server, 3)
    assert server.asked == ["list", "watch from 11", "watch from 11", "watch from 20"]
