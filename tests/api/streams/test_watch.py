"""Watches over HTTP: where they begin, in which form, how they end, and what becomes of those who do not read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import Message

from app.api.http import content, response_streams
from app.api.http.content_negotiation import negotiate_media_type
from app.api.resources import lists
from app.api.resources.routes import RequestInfo
from app.api.resources.selection import read_selection
from app.api.streams import watch
from app.api.streams.watch import WatchStream
from app.kinds import KINDS
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.machinery.base import Kind, ObjectMeta
from app.machinery.errors import ApiError
from app.registry.verbs import lists as registry_lists
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Unavailable, open_store
from app.store.compaction import compact
from tests.registry.examples import create, named

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PATIENCE = 60


async def make(registry: Registry, *names: str, namespace: str = "default", **labels: str) -> int:
    """The revision of the last."""
    made = None
    for name in names:
        metadata = ObjectMeta(name=name, namespace=namespace, labels=labels)
        made = await create(registry, CONFIGMAPS, ConfigMap(metadata=metadata, data={"text": "1"}))
    return int(made.metadata.resource_version) if made else 0


async def relabel(registry: Registry, name: str, **labels: str) -> None:
    def change(old: Any) -> Any:
        return replace(named(old, labels=labels), data={"text": str(int(old.data["text"]) + 1)})

    await objects.edit(registry, CONFIGMAPS, "default", name, change)


async def remove(registry: Registry, name: str) -> None:
    await objects.delete(registry, CONFIGMAPS, "default", name, Demand())


async def opened(
    registry: Registry, accept: str = "application/json", namespace: str | None = "default", **query: Any
) -> WatchStream:
    """A watch without a server."""
    pairs = "&".join(f"{name}={value}" for name, value in {"watch": "1", **query}.items())
    headers = [(b"accept", accept.encode())]
    scope = {"type": "http", "method": "GET", "path": MAPS, "headers": headers, "query_string": pairs.encode()}
    request = Request(scope)
    selection = read_selection(request.query_params.multi_items())
    selection.check()
    return await watch.open_watch(registry, request, RequestInfo(CONFIGMAPS, namespace, "", ""), selection)


async def told(stream: WatchStream, count: int) -> list[dict[str, Any]]:
    """Its next events."""
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        async for line in stream.events():
            assert line.endswith(b"\n")
            events.append(msgspec.json.decode(line))
            if len(events) == count:
                return events
    return events


def said(events: list[dict[str, Any]]) -> list[str]:
    return [f"{each['type']} {each['object']['metadata'].get('name', '')}".strip() for each in events]


async def refused(registry: Registry, **query: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await opened(registry, **query)
    return caught.value


# --- where it begins

INITIAL = {"resourceVersionMatch": "NotOlderThan", "sendInitialEvents": "true"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, ["ADDED a", "ADDED b", "ADDED c"], id="what there is, without a revision"),
        pytest.param({"resourceVersion": "0"}, ["ADDED a", "ADDED b", "ADDED c"], id="what there is, from 0"),
        pytest.param({"resourceVersion": "N"}, ["ADDED b", "ADDED c"], id="what came after a revision"),
        pytest.param(
            {**INITIAL, "allowWatchBookmarks": "1"},
            ["ADDED a", "ADDED b", "BOOKMARK", "ADDED c"],
            id="what there is, and a bookmark after it",
        ),
        pytest.param(
            {**INITIAL, "allowWatchBookmarks": "1", "resourceVersion": "N"},
            ["ADDED a", "ADDED b", "BOOKMARK", "ADDED c"],
            id="what there is, not older than a revision",
        ),
        pytest.param(INITIAL, ["ADDED a", "ADDED b", "ADDED c"], id="no bookmark for one who knows none"),
        pytest.param({**INITIAL, "sendInitialEvents": "false"}, ["ADDED c"], id="what comes, if that is asked for"),
        pytest.param(
            {**INITIAL, "sendInitialEvents": "false", "resourceVersion": "N"},
            ["ADDED b", "ADDED c"],
            id="what came after a revision, if that is asked for",
        ),
        pytest.param({"fieldSelector": "metadata.name=b"}, ["ADDED b"], id="one object"),
    ],
)
async def test_a_watch_tells(registry: Registry, query: dict[str, str], expected: list[str]) -> None:
    first = await make(registry, "a", part="this")
    await make(registry, "b", part="this")
    asked = {name: str(first) if value == "N" else value for name, value in query.items()}
    stream = await opened(registry, labelSelector="part", **asked)
    await make(registry, "c", part="this")

    assert said(await told(stream, len(expected))) == expected


async def test_the_bookmark_after_what_there_is_says_so(registry: Registry) -> None:
    await make(registry, "a")
    revision = await registry.store.revision()
    stream = await opened(registry, **INITIAL, allowWatchBookmarks="1", labelSelector="no=body")
    await make(registry, "b")

    (bookmark,) = await told(stream, 1)

    assert bookmark["object"] == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "resourceVersion": str(revision),
            "creationTimestamp": None,
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    }


async def test_what_there_is_comes_in_pages_of_one_moment(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_lists, "ROWS", 2)
    monkeypatch.setattr(registry_lists, "ROWS_AT_MOST", 2)
    names = [f"m{number}" for number in range(9)]
    await make(registry, *names, team="red")
    stream = await opened(registry, labelSelector="team=red")
    batches = stream.batches()
    seen = [msgspec.json.decode(line) for line in await anext(batches)]
    await remove(registry, "m8")
    await make(registry, "m55", team="red")
    async with asyncio.timeout(PATIENCE):
        while len(seen) < 11:
            seen += [msgspec.json.decode(line) for line in await anext(batches)]
    await batches.aclose()

    assert said(seen) == [*(f"ADDED {name}" for name in names), "DELETED m8", "ADDED m55"]


async def test_seats_are_held_until_what_there_is_has_been_sent(registry: Registry) -> None:
    await make(registry, "a")
    stream, released = await opened(registry), asyncio.Event()
    stream.on_initialized = released.set
    batches = stream.batches()
    await anext(batches)
    assert not released.is_set()  # the client has not taken them

    following = asyncio.ensure_future(anext(batches))
    async with asyncio.timeout(PATIENCE):
        await released.wait()
    following.cancel()
    await asyncio.wait([following])
    await batches.aclose()


async def test_what_there_is_is_encoded_some_at_a_time(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.api.resources.lists.ROWS_AT_ONCE", 2)
    await make(registry, *"abcde")
    batches = (await opened(registry)).batches()
    sizes = [len(await anext(batches)) for _ in range(3)]
    await batches.aclose()
    assert sizes == [2, 2, 1]


async def test_across_all_namespaces(registry: Registry) -> None:
    stream = await opened(registry, namespace=None, resourceVersion=await registry.store.revision())
    await make(registry, "a")
    await make(registry, "a", namespace="kube-system")

    spaces = [each["object"]["metadata"]["namespace"] for each in await told(stream, 2)]
    assert spaces == ["default", "kube-system"]


async def test_a_revision_that_was_not_given_out_is_too_large(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "CATCH_UP_SECONDS", 0.01)
    error = await refused(registry, resourceVersion=await registry.store.revision() + 7)

    assert (error.code, error.reason) == (504, "Timeout")
    assert error.details["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_revision_of_which_nothing_is_known_ends_the_watch_with_an_error(dsn: str, registry: Registry) -> None:
    old = await make(registry, "a")
    await remove(registry, "a")
    await compact(registry.store.pool, timedelta(0))
    async with open_store(dsn, ring_bytes=1) as store:
        stream = await opened(replaced(registry, store), resourceVersion=old)
        (event,) = await told(stream, 2)
        floor = await store.pool.fetchval("select floor from counter")

    assert event["type"] == "ERROR"
    assert event["object"] == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"too old resource version: {old} ({floor})",
        "reason": "Expired",
        "code": 410,
    }


def replaced(registry: Registry, store: Any) -> Registry:
    return Registry(store, registry.clock)


# --- what is told


async def test_what_leaves_is_shown_as_it_was_when_it_was_selected(registry: Registry) -> None:
    await make(registry, "a", team="red")
    stream = await opened(registry, labelSelector="team=red", resourceVersion=await registry.store.revision())
    await relabel(registry, "a", team="red", more="x")
    await relabel(registry, "a", team="blue")
    revision = await registry.store.revision()
    await relabel(registry, "a", team="red")

    _, left, entered = await told(stream, 3)

    assert said([left, entered]) == ["DELETED a", "ADDED a"]
    assert left["object"]["metadata"]["labels"] == {"team": "red", "more": "x"}
    assert left["object"]["data"] == {"text": "2"}
    assert left["object"]["metadata"]["resourceVersion"] == str(revision)


async def test_the_columns_of_a_table_are_told_once(registry: Registry) -> None:
    await make(registry, "a")
    stream = await opened(registry, TABLE, fieldSelector="metadata.name=a")
    await relabel(registry, "a", x="y")

    first, second = (each["object"] for each in await told(stream, 2))

    assert [column["name"] for column in first["columnDefinitions"]][:1] == ["Name"]
    assert second["columnDefinitions"] is None
    assert [each["rows"][0]["cells"][0] for each in (first, second)] == ["a", "a"]
    inside = second["rows"][0]["object"]["metadata"]["resourceVersion"]
    assert (
        second["metadata"] == {"resourceVersion": inside} == {"resourceVersion": str(await registry.store.revision())}
    )


async def test_bare_metadata(registry: Registry) -> None:
    await make(registry, "a", team="red")
    stream = await opened(registry, PARTIAL, labelSelector="team=red")

    (event,) = await told(stream, 1)

    assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert event["object"]["metadata"]["labels"] == {"team": "red"}
    assert set(event["object"]) == {"kind", "apiVersion", "metadata"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource)
def test_a_bookmark_has_the_form_of_the_watch(kind: Kind[Any]) -> None:
    def bookmark(accept: str) -> Any:
        shape = content.ResponseShape(kind, negotiate_media_type(accept))
        return msgspec.json.decode(shape.encode_bookmark({"resourceVersion": "7", "creationTimestamp": None}))

    plain, partial, table = (bookmark(accept) for accept in ("application/json", PARTIAL, TABLE))

    assert (plain["kind"], plain["apiVersion"]) == (kind.name, kind.api_version)
    assert (partial["kind"], partial["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": "7"}
    assert table["rows"][0]["object"] == partial
    assert plain["metadata"] == partial["metadata"] == {"resourceVersion": "7", "creationTimestamp": None}


@pytest.mark.parametrize("accept", ["application/json", TABLE, PARTIAL])
async def test_what_many_are_told_is_made_once(registry: Registry, accept: str) -> None:
    revision = await make(registry, "a")
    several = [await opened(registry, accept, resourceVersion=revision) for _ in range(3)]
    await relabel(registry, "a", x="y")
    await relabel(registry, "a", x="z")

    lines = [[line for batch in [await anext(stream.batches())] for line in batch] for stream in several]

    assert len(lines[0]) == 2
    assert all(each[1] is lines[0][1] for each in lines[1:])


async def test_who_is_told_otherwise_is_not_told_the_same(registry: Registry) -> None:
    revision = await make(registry, "a", team="red")
    red, all_of_them = [
        await opened(registry, resourceVersion=revision, **query) for query in ({"labelSelector": "team=red"}, {})
    ]
    await relabel(registry, "a", team="blue")

    assert said(await told(red, 1)) == ["DELETED a"]
    assert said(await told(all_of_them, 1)) == ["MODIFIED a"]


# --- how it ends


async def test_it_ends_after_its_time_with_a_bookmark(registry: Registry) -> None:
    await make(registry, "a")
    revision = await registry.store.revision()

    events = await told(await opened(registry, resourceVersion=revision, timeoutSeconds=1, allowWatchBookmarks=1), 5)

    assert said(events) == ["BOOKMARK"]
    assert events[0]["object"]["metadata"]["resourceVersion"] == str(revision)


async def test_quiet_times_have_bookmarks(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BOOKMARK_SECONDS", 0.01)
    stream = await opened(registry, resourceVersion=await registry.store.revision(), allowWatchBookmarks=1)

    assert said(await told(stream, 3)) == ["BOOKMARK"] * 3


async def test_it_ends_without_a_word_when_the_database_is_away(registry: Registry) -> None:
    stream = await opened(registry, resourceVersion=await registry.store.revision(), allowWatchBookmarks=1)

    async def away(_: float) -> Any:
        raise Unavailable("gone")

    stream.watch.next_events = away  # type: ignore[method-assign] - a database that is away

    assert await told(stream, 1) == []


@asynccontextmanager
async def watching(admin: httpx.AsyncClient, **query: Any) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
    async with admin.stream("GET", MAPS, params={"watch": "1", **query}) as answer, asyncio.timeout(PATIENCE):
        yield answer, answer.aiter_lines()


async def test_a_watch_on_the_wire(admin: httpx.AsyncClient, registry: Registry) -> None:
    revision = await make(registry, "a")
    async with watching(admin, resourceVersion=revision, timeoutSeconds=2) as (answer, lines):
        await make(registry, "b")
        first = msgspec.json.decode(await anext(lines))
        rest = [line async for line in lines]

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert "content-encoding" not in answer.headers
    assert said([first]) == ["ADDED b"]
    assert rest == []


async def test_a_bad_watch_is_refused_before_it_begins(admin: httpx.AsyncClient) -> None:
    for query in ({"resourceVersion": "x"}, {"labelSelector": "(("}, {"fieldSelector": "spec.nothing=1"}):
        answer = await admin.get(MAPS, params={"watch": "1", **query})
        assert answer.status_code == 400
        assert answer.json()["kind"] == "Status"


async def no_client() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def scope_of(app: FastAPI) -> dict[str, Any]:
    app.state.streams = set()
    return {"type": "http", "app": app, "headers": []}


async def test_a_client_that_stops_to_read_is_cut_off(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_streams, "SEND_SECONDS", 0.05)
    stream = await opened(registry, resourceVersion=await registry.store.revision())
    sent: list[bytes] = []
    app = FastAPI()

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        if sent[-1]:
            await asyncio.Event().wait()

    running = asyncio.ensure_future(stream(scope_of(app), no_client, send))
    await make(registry, "a")
    async with asyncio.timeout(PATIENCE):
        await running

    assert [bool(piece) for piece in sent] == [False, False, True]
    assert not app.state.streams


async def test_one_who_is_slow_is_given_no_more_than_some_at_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await opened(registry, resourceVersion=await registry.store.revision())
    monkeypatch.setattr("app.registry.verbs.watch.REPLAYED_BYTES", 700)
    await make(registry, *"abcdefghij")

    sizes = []
    batches = stream.batches()
    async with asyncio.timeout(PATIENCE):
        while sum(sizes) < 10:
            sizes.append(len(await anext(batches)))
    await batches.aclose()

    assert max(sizes) < 5


async def test_a_client_that_goes_ends_it(registry: Registry) -> None:
    stream = await opened(registry, resourceVersion=await registry.store.revision())
    app, sent = FastAPI(), []

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    async with asyncio.timeout(PATIENCE):
        await stream(scope_of(app), gone, send)
    assert not app.state.streams


async def test_it_ends_well_when_the_server_stops(registry: Registry) -> None:
    stream = await opened(registry, resourceVersion=await registry.store.revision())
    app, sent = FastAPI(), []
    begun = asyncio.Event()

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            begun.set()

    running = asyncio.ensure_future(stream(scope_of(app), no_client, send))
    await begun.wait()
    for task in list(app.state.streams):
        task.cancel()
    async with asyncio.timeout(PATIENCE):
        await running

    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
