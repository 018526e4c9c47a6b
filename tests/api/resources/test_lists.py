"""Lists over HTTP: which revision they show, pages, tokens, long ones that are sent while they are read, and gzip."""

import asyncio
import base64
import gzip
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import Message

from app.api.http import response_streams
from app.api.resources import lists
from app.api.resources.lists import LongAnswer
from app.api.resources.routes import RequestInfo
from app.api.resources.selection import read_selection
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.registry.verbs import lists as registry_lists
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Page, Query, Unavailable
from app.store.compaction import compact
from tests.registry.examples import create

MAPS = "/api/v1/namespaces/default/configmaps"
EVERYWHERE = "/api/v1/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
every_form = pytest.mark.parametrize(
    "accept",
    [
        pytest.param("application/json", id="as JSON"),
        pytest.param(TABLE, id="as a Table"),
        pytest.param(PARTIAL, id="as bare metadata"),
    ],
)


async def make(registry: Registry, *names: str, namespace: str = "default", text: str = "1", **labels: str) -> int:
    """The revision of the last."""
    made = None
    for name in names:
        metadata = ObjectMeta(name=name, namespace=namespace, labels=labels)
        made = await create(registry, CONFIGMAPS, ConfigMap(metadata=metadata, data={"text": text}))
    return int(made.metadata.resource_version) if made else 0


async def change(registry: Registry, name: str, text: str = "2") -> None:
    await objects.edit(registry, CONFIGMAPS, "default", name, lambda old: replace(old, data={"text": text}))


async def remove(registry: Registry, name: str) -> None:
    await objects.delete(registry, CONFIGMAPS, "default", name, Demand())


async def read(admin: httpx.AsyncClient, path: str = MAPS, accept: str = "application/json", **query: Any) -> Any:
    answer = await admin.get(path, params=query, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refusal(admin: httpx.AsyncClient, path: str = MAPS, **query: Any) -> dict[str, Any]:
    answer = await admin.get(path, params=query)
    status: dict[str, Any] = answer.json()
    assert status["code"] == answer.status_code
    return status


async def answered(registry: Registry, **query: Any) -> Any:
    """As `read`, without a server between."""
    scope = {"type": "http", "method": "GET", "path": MAPS, "headers": [], "query_string": b""}
    selection = read_selection([(name, str(value)) for name, value in query.items()])
    selection.check()
    answer = await lists.answer(registry, Request(scope), RequestInfo(CONFIGMAPS, "default", "", ""), selection)
    return msgspec.json.decode(answer.body)


def texts(listed: dict[str, Any]) -> dict[str, str]:
    return {item["metadata"]["name"]: item["data"]["text"] for item in listed["items"]}


# --- revisions


@pytest.fixture
async def changed(registry: Registry) -> int:
    """The revision of a and b; since then a has changed, b is gone and c is new."""
    revision = await make(registry, "a", "b")
    await change(registry, "a")
    await remove(registry, "b")
    await make(registry, "c")
    return revision


THEN, NOW = {"a": "1", "b": "1"}, {"a": "2", "c": "1"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, NOW, id="no revision is now"),
        pytest.param({"resourceVersion": ""}, NOW, id="an empty revision is now"),
        pytest.param({"resourceVersion": "0"}, NOW, id="revision 0 is any, so now"),
        pytest.param({"resourceVersion": "0", "limit": 10}, NOW, id="a page of any is now"),
        pytest.param({"resourceVersion": "N"}, NOW, id="a revision is at least that"),
        pytest.param({"resourceVersion": "N", "resourceVersionMatch": "NotOlderThan"}, NOW, id="not older is now"),
        pytest.param(
            {"resourceVersion": "N", "resourceVersionMatch": "NotOlderThan", "limit": 10}, NOW, id="nor a page"
        ),
        pytest.param({"resourceVersion": "N", "resourceVersionMatch": "Exact"}, THEN, id="exactly is then"),
        pytest.param({"resourceVersion": "N", "limit": 10}, THEN, id="a page of a revision is then"),
    ],
)
async def test_a_list_shows_what_was(
    changed: int, registry: Registry, query: dict[str, Any], expected: dict[str, str]
) -> None:
    asked = {name: str(changed) if value == "N" else value for name, value in query.items()}

    listed = await answered(registry, **asked)

    assert {name: text for name, text in texts(listed).items() if name in "abc"} == expected
    shown = changed if expected is THEN else await registry.store.revision()
    assert listed["metadata"] == {"resourceVersion": str(shown)}


async def test_a_revision_that_was_not_given_out_is_too_large(
    admin: httpx.AsyncClient, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "CATCH_UP_SECONDS", 0.01)
    current = await registry.store.revision()
    for query in ({}, {"resourceVersionMatch": "NotOlderThan"}, {"resourceVersionMatch": "Exact"}, {"limit": 1}):
        status = await refusal(admin, resourceVersion=str(current + 5), **query)

        assert (status["code"], status["reason"]) == (504, "Timeout")
        assert status["message"] == f"Timeout: Too large resource version: {current + 5}, current: {current}"
        assert status["details"]["causes"] == [
            {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        ]
        assert status["details"]["retryAfterSeconds"] == 1


async def test_a_revision_that_comes_soon_is_waited_for(admin: httpx.AsyncClient, registry: Registry) -> None:
    current = await registry.store.revision()
    listing = asyncio.ensure_future(read(admin, resourceVersion=str(current + 1)))
    await registry.store.feed.changed_within(0.05)
    await make(registry, "late")

    assert "late" in texts(await listing)


async def test_what_compaction_took_is_expired(admin: httpx.AsyncClient, changed: int, registry: Registry) -> None:
    await compact(registry.store.pool, timedelta(0))

    status = await refusal(admin, resourceVersion=str(changed), resourceVersionMatch="Exact")

    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"] == "The resourceVersion for the provided list is too old."


# --- pages


async def pages(admin: httpx.AsyncClient, path: str = MAPS, **query: Any) -> AsyncIterator[dict[str, Any]]:
    while True:
        page = await read(admin, path, **query)
        yield page
        token = page["metadata"].get("continue")
        if token is None:
            return
        query["continue"] = token


async def test_all_pages_show_what_was_when_the_first_was_read(admin: httpx.AsyncClient, registry: Registry) -> None:
    await make(registry, *"bdfhjl", namespace="kube-system")
    seen: list[str] = []
    revisions, left = set(), []
    async for page in pages(admin, EVERYWHERE, limit=2, fieldSelector="metadata.namespace=kube-system"):
        seen += [item["metadata"]["name"] for item in page["items"]]
        revisions.add(page["metadata"]["resourceVersion"])
        left.append(page["metadata"].get("remainingItemCount"))
        await make(registry, f"c{len(seen)}", f"k{len(seen)}", namespace="kube-system")
        await objects.delete(registry, CONFIGMAPS, "kube-system", "bdfhjl"[6 - len(seen)], Demand())

    assert seen[:6] == list("bdfhjl")
    assert len(revisions) == 1
    assert set(left) == {None}


async def test_pages_say_how_many_are_left(admin: httpx.AsyncClient, registry: Registry) -> None:
    await make(registry, *"abcde")
    left = []
    async for page in pages(admin, limit=2):
        left.append(page["metadata"].get("remainingItemCount"))
        await make(registry, f"new{len(left)}")

    assert left == [3 + 0, 1, None]


@pytest.mark.parametrize("selector", [{"labelSelector": "team=red"}, {"fieldSelector": "metadata.namespace=default"}])
async def test_pages_of_what_is_selected_do_not_say_how_many_are_left(
    admin: httpx.AsyncClient, registry: Registry, selector: dict[str, str]
) -> None:
    await make(registry, *"abcde", team="red")

    page = await read(admin, limit=2, **selector)

    assert "continue" in page["metadata"]
    assert "remainingItemCount" not in page["metadata"]


@pytest.mark.parametrize("path", [pytest.param(MAPS, id="in a namespace"), pytest.param(EVERYWHERE, id="everywhere")])
async def test_pages_together_are_the_list(admin: httpx.AsyncClient, registry: Registry, path: str) -> None:
    await make(registry, *"abc")
    await make(registry, *"abc", namespace="kube-system")
    whole = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in (await read(admin, path))["items"]]

    for limit in (1, 2, 4):
        parts = [item["metadata"] async for page in pages(admin, path, limit=limit) for item in page["items"]]
        assert [(each["namespace"], each["name"]) for each in parts] == whole


async def test_pages_of_a_kind_without_namespaces(admin: httpx.AsyncClient) -> None:
    names = [
        item["metadata"]["name"] async for page in pages(admin, "/api/v1/namespaces", limit=1) for item in page["items"]
    ]

    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_an_expired_token_comes_with_one_that_goes_on_at_another_revision(
    admin: httpx.AsyncClient, registry: Registry
) -> None:
    await make(registry, *"abcd")
    first = await read(admin, limit=2)
    await change(registry, "c")
    await compact(registry.store.pool, timedelta(0))

    status = await refusal(admin, limit=2, **{"continue": first["metadata"]["continue"]})

    assert (status["code"], status["reason"], status["message"]) == (410, "Expired", lists.INCONSISTENT)
    rest = await read(admin, limit=2, **{"continue": status["metadata"]["continue"]})
    assert texts(rest) == {"c": "2", "d": "1"}
    assert int(rest["metadata"]["resourceVersion"]) == await registry.store.revision()


def token(**content: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(content)).decode()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param("%", "continue key is not valid", id="no base64"),
        pytest.param("ü", "continue key is not valid", id="no ASCII"),
        pytest.param("abcd", "continue key is not valid", id="no JSON"),
        pytest.param(
            base64.urlsafe_b64encode(b'{"x":' + b"[" * 5_000).decode(), "continue key is not valid", id="a deep one"
        ),
        pytest.param(token(v="x", rv=1, start="a"), "server does not recognize this encoded version x", id="a version"),
        pytest.param(
            token(v="meta.k8s.io/v1", rv=0, start="a\0"),
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            id="no revision",
        ),
        pytest.param(
            token(v="meta.k8s.io/v1", rv=1 << 70, start="a\0"),
            "continue key is not valid",
            id="a revision that is none",
        ),
        pytest.param(
            token(v="meta.k8s.io/v1", rv=5),
            "encoded start key empty (version meta.k8s.io/v1)",
            id="no place",
        ),
        pytest.param(
            token(v="meta.k8s.io/v1", rv=5, start="a\0b\0"), "continue key is not valid", id="a place with NUL"
        ),
    ],
)
async def test_a_token_is_refused_with(registry: Registry, given: str, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        await answered(registry, **{"continue": given})

    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    assert caught.value.message.startswith("invalid continue token: ")
    assert message in caught.value.message


# --- long lists


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of more than three objects are long."""
    monkeypatch.setattr(registry_lists, "ROWS", 3)
    monkeypatch.setattr(registry_lists, "ROWS_AT_LEAST", 2)
    monkeypatch.setattr(registry_lists, "PAGE_BYTES", 1)
    monkeypatch.setattr(lists, "ONE_PIECE", 1)


@every_form
async def test_a_long_list_is_the_same_document(
    admin: httpx.AsyncClient, registry: Registry, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    for number in range(10):
        await make(registry, f"m{number}", team="red" if number % 3 else "blue")
    selectors: list[dict[str, str]] = [{}, {"labelSelector": "team=red"}, {"labelSelector": "team notin (red, blue)"}]
    whole = [await read(admin, accept=accept, **selector) for selector in selectors]
    monkeypatch.setattr(registry_lists, "ROWS", 3)
    monkeypatch.setattr(registry_lists, "ROWS_AT_LEAST", 2)
    monkeypatch.setattr(registry_lists, "PAGE_BYTES", 1)

    for selector, expected in zip(selectors, whole, strict=True):
        answer = await admin.get(MAPS, params=selector, headers={"Accept": accept})

        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == expected
        assert list(answer.json()) == list(expected)


@every_form
@pytest.mark.usefixtures("short_pages")
async def test_a_long_page_tells_in_the_end_how_it_goes_on(
    admin: httpx.AsyncClient, registry: Registry, accept: str
) -> None:
    await make(registry, *"abcdefghij")

    for limit in (2, 3, 4, 7):
        page = await read(admin, accept=accept, limit=limit)
        rest = await read(admin, limit=20, **{"continue": page["metadata"]["continue"]})

        assert len(page["rows"] if accept == TABLE else page["items"]) == limit
        assert page["metadata"]["remainingItemCount"] == 10 - limit
        assert list(texts(rest)) == list("abcdefghij"[limit:])
        assert rest["metadata"] == {"resourceVersion": page["metadata"]["resourceVersion"]}
    for limit in (10, 20):
        assert list((await read(admin, accept=accept, limit=limit))["metadata"]) == ["resourceVersion"]


@pytest.mark.usefixtures("short_pages")
async def test_a_long_list_shows_one_moment(admin: httpx.AsyncClient, registry: Registry) -> None:
    await make(registry, *(f"m{number:02}" for number in range(20)))
    read_before = registry.store.list

    async def list_and_meddle(query: Query) -> Page:
        page = await read_before(query)
        name = page.heads[-1].key.name
        await make(registry, f"{name}-new")
        await change(registry, f"m{19 - int(name[1:3]) // 2:02}")
        return page

    registry.store.list = list_and_meddle  # type: ignore[method-assign] - between any two pages something happens
    listed = await read(admin)

    assert texts(listed) == {f"m{number:02}": "1" for number in range(20)}


def failing_after(registry: Registry, pages: int) -> list[Query]:
    """The store answers so many queries for lists, then goes away."""
    asked: list[Query] = []
    answers = registry.store.list

    async def answer(query: Query) -> Page:
        asked.append(query)
        if len(asked) > pages:
            raise Unavailable("gone")
        return await answers(query)

    registry.store.list = answer  # type: ignore[method-assign] - a database that goes away at a known moment
    return asked


@pytest.mark.usefixtures("short_pages")
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_long_list_that_fails_breaks_off(admin: httpx.AsyncClient, registry: Registry, encoding: str) -> None:
    await make(registry, *"abcdefghij")
    failing_after(registry, 2)

    with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
        await admin.get(MAPS, headers={"Accept-Encoding": encoding})


@pytest.mark.usefixtures("short_pages")
async def test_a_long_list_that_fails_at_once_is_refused(admin: httpx.AsyncClient, registry: Registry) -> None:
    await make(registry, *"abcdefghij")
    failing_after(registry, 0)

    assert (await refusal(admin))["reason"] == "ServiceUnavailable"


async def in_pieces(asked: list[int]) -> Any:
    for number in range(1_000):
        asked.append(number)
        yield b"x"


async def nothing_comes() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_reading_stops_when_the_client_goes() -> None:
    asked: list[int] = []
    took = asyncio.Event()

    async def send(message: Message) -> None:
        if message.get("body"):
            took.set()
            await asyncio.Event().wait()

    async def receive() -> Message:
        await took.wait()
        return {"type": "http.disconnect"}

    async with asyncio.timeout(5):
        await LongAnswer(in_pieces(asked), "application/json", about="things")({"headers": []}, receive, send)
    assert asked == [0]


async def test_a_client_that_stops_to_read_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_streams, "SEND_SECONDS", 0.02)
    asked: list[int] = []
    ended: list[Message] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            if not message["more_body"]:
                ended.append(message)
            await asyncio.Event().wait()

    async with asyncio.timeout(5):
        await LongAnswer(in_pieces(asked), "application/json", about="things")({"headers": []}, nothing_comes, send)
    assert asked == [0]
    assert not ended


# --- gzip


async def raw(admin: httpx.AsyncClient, path: str, encoding: str | None, **query: Any) -> tuple[httpx.Response, bytes]:
    headers = {} if encoding is None else {"Accept-Encoding": encoding}
    async with admin.stream("GET", path, params=query, headers=headers) as answer:
        return answer, b"".join([piece async for piece in answer.aiter_raw()])


@pytest.mark.parametrize(
    ("encoding", "size", "is_gzip"),
    [
        pytest.param("gzip", 200_000, True, id="large"),
        pytest.param("deflate, gzip;q=0.5", 200_000, True, id="large for one who reads both"),
        pytest.param("gzip", 1_000, False, id="small"),
        pytest.param("identity", 200_000, False, id="for one who reads none"),
        pytest.param("gzip;q=0, br", 200_000, False, id="for one who reads another"),
    ],
)
async def test_answers_are_compressed_if(
    admin: httpx.AsyncClient, registry: Registry, encoding: str, size: int, is_gzip: bool
) -> None:
    await make(registry, "a", text="x" * size)

    for path in (MAPS, f"{MAPS}/a"):
        answer, body = await raw(admin, path, encoding)

        assert (answer.headers.get("content-encoding") == "gzip") == is_gzip
        assert ("Accept-Encoding" in answer.headers.get("vary", "")) == is_gzip
        assert int(answer.headers["content-length"]) == len(body)
        assert b"x" * size in (gzip.decompress(body) if is_gzip else body)


@pytest.mark.usefixtures("short_pages")
async def test_a_long_list_is_compressed_while_it_is_sent(admin: httpx.AsyncClient, registry: Registry) -> None:
    await make(registry, *"abcdefgh", text="x" * 50_000)
    plain = await read(admin)

    answer, body = await raw(admin, MAPS, "gzip")

    assert answer.headers["content-encoding"] == "gzip"
    assert len(body) < 10_000
    assert msgspec.json.decode(gzip.decompress(body)) == plain


# --- delete all


async def test_deleting_all_that_is_selected_answers_with_it(admin: httpx.AsyncClient, registry: Registry) -> None:
    await make(registry, *"abc", team="red")
    await make(registry, "d")

    answer = await admin.delete(MAPS, params={"labelSelector": "team=red"})

    assert answer.json()["kind"] == "ConfigMapList"
    assert list(texts(answer.json())) == ["a", "b", "c"]
    assert "d" in [item["metadata"]["name"] for item in (await read(admin))["items"]]
    assert not (await read(admin, labelSelector="team=red"))["items"]
