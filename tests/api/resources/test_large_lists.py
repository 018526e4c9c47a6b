"""Lists of large objects: their pages are bounded in bytes, and a reader that reads nothing costs little."""

import asyncio
import socket
import tracemalloc
from typing import Any

import httpx
import pytest

from app.api.http import response_streams
from app.api.http.connection_limits import UNREAD
from app.api.resources import collection
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.registry.verbs import lists as registry_lists
from app.registry.verbs.objects import Registry
from app.store import Query
from tests.api.resources.test_lists import MAPS, PARTIAL, TABLE, every_form, make, read

NAMES = tuple(f"m{number:02}" for number in range(12))
LENGTH = 30_000


@pytest.fixture
async def large(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> int:
    """Twelve objects of which three fill a page; their revision."""
    monkeypatch.setattr(registry_lists, "PAGE_BYTES", 2 * LENGTH + 5_000)
    return await make(registry, *NAMES, text="x" * LENGTH, team="red")


@pytest.mark.parametrize("at", [False, True], ids=["now", "as of a revision"])
@pytest.mark.parametrize("with_selector_index", [False, True], ids=["without selector index", "with selector index"])
async def test_a_page_ends_at_its_bytes(registry: Registry, large: int, at: bool, with_selector_index: bool) -> None:
    async def names(**demands: Any) -> tuple[list[str], bool]:
        query = Query(
            kind=CONFIGMAPS.resource,
            namespace="default",
            at=large if at else None,
            with_selector_index=with_selector_index,
            **demands,
        )
        page = await registry.store.list(query)
        assert all(head.body for head in page.heads)
        return [head.key.name for head in page.heads if head.key.name in NAMES], page.more

    assert await names(limit=500, size=2 * LENGTH, after=("default", "m")) == (list(NAMES[:2]), True)
    assert await names(limit=500, size=1, after=("default", "m")) == (["m00"], True)
    assert await names(limit=1, size=2 * LENGTH, after=("default", "m")) == (["m00"], True)
    assert await names(limit=500, size=100 * LENGTH, after=("default", "m")) == (list(NAMES), False)
    assert await names(limit=500, size=2 * LENGTH, after=("default", "m10")) == (["m11"], False)
    assert await names(limit=500, size=1, after=("default", "m11")) == ([], False)


@every_form
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("selector", [{}, {"labelSelector": "team=red"}], ids=["all", "selected"])
async def test_a_page_of_large_objects_has_as_many_as_were_asked_for(
    admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, accept: str, selector: dict[str, str]
) -> None:
    pages = [await read(admin, accept=accept, limit=7, **selector)]
    pages.append(
        await read(admin, accept=accept, limit=7, **selector, **{"continue": pages[0]["metadata"]["continue"]})
    )
    monkeypatch.setattr(registry_lists, "PAGE_BYTES", 1 << 30)
    whole = [await read(admin, accept=accept, limit=7, **selector)]
    whole.append(
        await read(admin, accept=accept, limit=7, **selector, **{"continue": whole[0]["metadata"]["continue"]})
    )

    assert pages == whole
    assert len(pages[0]["rows" if accept == TABLE else "items"]) == 7


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("accept", ["application/json", PARTIAL])
async def test_a_list_of_large_objects_is_sent_while_it_is_read(admin: httpx.AsyncClient, accept: str) -> None:
    answer = await admin.get(MAPS, headers={"Accept": accept})

    assert answer.headers["transfer-encoding"] == "chunked"
    assert {item["metadata"]["name"] for item in answer.json()["items"]} >= set(NAMES)


@pytest.mark.usefixtures("large")
async def test_all_large_objects_are_deleted_but_not_listed(
    admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MOST_LISTED", LENGTH)

    answer = await admin.delete(MAPS, params={"labelSelector": "team=red"})

    assert answer.json()["status"] == "Success"
    assert not (await read(admin, labelSelector="team=red"))["items"]


async def test_readers_that_read_nothing_hold_little(
    registry: Registry, admin: httpx.AsyncClient, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_lists, "PAGE_BYTES", 500_000)
    monkeypatch.setattr(registry_lists, "MOST_AHEAD", 4)
    await make(registry, *(f"m{number}" for number in range(40)), text="x" * 250_000)
    token, port = admin.headers["authorization"], int(url.rpartition(":")[2])
    request = f"GET {MAPS}?limit=100 HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode()
    sockets = []
    tracemalloc.start()
    try:
        for _ in range(20):
            sockets.append(socket.socket())
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sockets[-1].setblocking(False)
            await asyncio.get_running_loop().sock_connect(sockets[-1], ("127.0.0.1", port))
            await asyncio.get_running_loop().sock_sendall(sockets[-1], request)
        async with asyncio.timeout(60):
            while len(UNREAD._sizes) < 20:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.01)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        for each in sockets:
            each.close()

    # 10 MB each are to be sent: a page and what is on its way of it, and the next page for four of them.
    assert held < 20 * (750_000 + response_streams.PART_BYTES * 2) + 4 * 1_000_000 + 10_000_000
