"""A namespace, or a node, that is made again: its new owners read nothing of the old one by old revisions."""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.api.auth.authenticator import NODE_PREFIX, NODES
from app.api.resources.lists import EXPIRED, INCONSISTENT
from app.registry.verbs.objects import Registry
from app.store import open_store
from app.store.compaction import compact
from tests.api.conftest import serving
from tests.api.people import People, bind, meeting
from tests.conftest import Clock

SPACE = "/api/v1/namespaces/proj"
SECRETS = f"{SPACE}/secrets"
OLD = "b2xkLXRlbmFudA=="  # what the old owners kept secret


async def made(client: httpx.AsyncClient, path: str, name: str, **body: Any) -> int:
    """The revision at which the object was made."""
    answer = await client.post(path, json={"metadata": {"name": name}, **body})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["metadata"]["resourceVersion"])


async def remove(admin: httpx.AsyncClient) -> None:
    """What the namespace controller does when a namespace is deleted."""
    assert (await admin.delete(f"{SECRETS}/db")).status_code == 200
    assert (await admin.delete(SPACE)).status_code == 200
    space = (await admin.get(SPACE)).json()
    space["spec"]["finalizers"] = []
    assert (await admin.put(f"{SPACE}/finalize", json=space)).status_code == 200
    assert (await admin.get(SPACE)).status_code == 404


@pytest.fixture
async def people(registry: Registry, url: str) -> AsyncIterator[People]:
    async with meeting(registry, url) as found:
        yield found


@dataclass
class Revisions:
    before: int  # the first namespace
    old: int  # its secret was there
    token: str  # of a list that was begun then
    new: int  # of a secret in the second namespace


@pytest.fixture
async def again(admin: httpx.AsyncClient) -> Revisions:
    """Two lives of a namespace, with a secret in each; `new@team` may edit the second."""
    before = await made(admin, "/api/v1/namespaces", "other")
    await made(admin, "/api/v1/namespaces", "proj")
    await made(admin, SECRETS, "ca", data={"text": OLD})
    old = await made(admin, SECRETS, "db", data={"text": OLD})
    first = (await admin.get(SECRETS, params={"limit": 1})).json()
    await admin.delete(f"{SECRETS}/ca")
    await remove(admin)
    await made(admin, "/api/v1/namespaces", "proj")
    await bind(admin, "edit", ["User:new@team"], "proj")
    return Revisions(before, old, first["metadata"]["continue"], await made(admin, SECRETS, "mine"))


READS = {
    "a list": {"resourceVersion": "{old}", "resourceVersionMatch": "Exact"},
    "a page": {"resourceVersion": "{old}", "limit": "1"},
    "a list from before the first life": {"resourceVersion": "{before}", "resourceVersionMatch": "Exact"},
    "a later page": {"continue": "{token}"},
    "one object": {"resourceVersion": "{old}", "resourceVersionMatch": "Exact", "fieldSelector": "metadata.name=db"},
    "a watch": {"watch": "1", "resourceVersion": "{old}", "timeoutSeconds": "5"},
    "a watch from before the first life": {"watch": "1", "resourceVersion": "{before}", "timeoutSeconds": "5"},
}


async def expired(client: httpx.AsyncClient, again: Revisions, query: dict[str, str]) -> None:
    """The read is refused with 410, before anything of the old namespace is shown."""
    answer = await client.get(SECRETS, params={key: value.format(**vars(again)) for key, value in query.items()})
    assert OLD not in answer.text
    if "watch" in query:
        (event,) = map(json.loads, answer.text.splitlines())
        assert event["type"] == "ERROR"
        status = event["object"]
        assert status["message"].startswith("too old resource version: ")
    else:
        assert answer.status_code == 410
        status = answer.json()
        assert status["message"] == (INCONSISTENT if "continue" in query else EXPIRED)
    assert (status["code"], status["reason"]) == (410, "Expired")


@pytest.mark.parametrize("query", READS.values(), ids=READS.keys())
async def test_its_new_owners_get_410_for_revisions_of_the_old_one(
    people: People, again: Revisions, query: dict[str, str]
) -> None:
    await expired(await people.user("new@team"), again, query)


@pytest.mark.parametrize("query", READS.values(), ids=READS.keys())
async def test_a_process_that_began_later_knows_that_too(
    dsn: str, clock: Clock, again: Revisions, query: dict[str, str]
) -> None:
    async with open_store(dsn) as store:
        registry = Registry(store, clock)
        async with serving(registry) as url, meeting(registry, url) as people:
            await expired(await people.user("new@team"), again, query)


@pytest.mark.parametrize("query", READS.values(), ids=READS.keys())
async def test_when_the_deletion_itself_is_forgotten_it_is_410_all_the_same(
    registry: Registry, people: People, again: Revisions, query: dict[str, str]
) -> None:
    await compact(registry.store.pool, timedelta(0))
    registry.store.feed.start_at(await registry.store.revision())

    await expired(await people.user("new@team"), again, query)


async def test_what_was_in_the_new_one_is_theirs_to_read(people: People, again: Revisions) -> None:
    user = await people.user("new@team")
    exact = await user.get(SECRETS, params={"resourceVersion": again.new, "resourceVersionMatch": "Exact"})
    watch = await user.get(SECRETS, params={"watch": "1", "resourceVersion": again.new - 1, "timeoutSeconds": "1"})

    assert [each["metadata"]["name"] for each in exact.json()["items"]] == ["mine"]
    assert json.loads(watch.text)["object"]["metadata"]["name"] == "mine"


async def test_a_watch_goes_on_into_a_namespace_that_is_made_for_the_first_time(admin: httpx.AsyncClient) -> None:
    begun = await made(admin, "/api/v1/namespaces", "other")
    await made(admin, "/api/v1/namespaces", "proj")
    await made(admin, SECRETS, "db")
    answer = await admin.get(SECRETS, params={"watch": "1", "resourceVersion": begun, "timeoutSeconds": "1"})

    assert json.loads(answer.text)["object"]["metadata"]["name"] == "db"


async def test_a_watch_that_is_open_does_not_go_on_into_the_next_life(admin: httpx.AsyncClient) -> None:
    await made(admin, "/api/v1/namespaces", "proj")
    await made(admin, SECRETS, "db")
    async with admin.stream("GET", SECRETS, params={"watch": "1", "timeoutSeconds": "20"}) as watch:
        lines = watch.aiter_lines()
        assert json.loads(await anext(lines))["type"] == "ADDED"
        await remove(admin)
        await made(admin, "/api/v1/namespaces", "proj")
        await made(admin, SECRETS, "theirs")
        told = [json.loads(line) async for line in lines]

    assert [each["type"] for each in told[-1:]] == ["ERROR"]
    assert told[-1]["object"]["code"] == 410
    assert "theirs" not in str(told)


@pytest.mark.parametrize("watch", [False, True], ids=["list", "watch"])
async def test_a_machine_that_joins_under_an_old_name_does_not_read_the_old_ones_pods(
    people: People, admin: httpx.AsyncClient, watch: bool
) -> None:
    await made(admin, "/api/v1/nodes", "n")
    spec = {"nodeName": "n", "containers": [{"name": "main", "image": "i", "env": [{"name": "A", "value": OLD}]}]}
    old = await made(admin, "/api/v1/namespaces/default/pods", "p", spec=spec)
    await admin.delete("/api/v1/namespaces/default/pods/p", params={"gracePeriodSeconds": "0"})
    assert (await admin.delete("/api/v1/nodes/n")).status_code == 200
    new = await made(admin, "/api/v1/nodes", "n")
    agent = await people.user(f"{NODE_PREFIX}n", NODES)
    query = {"fieldSelector": "spec.nodeName=n", "timeoutSeconds": "1"}
    how = {"watch": "1"} if watch else {"resourceVersionMatch": "Exact"}

    answer = await agent.get("/api/v1/pods", params={**query, **how, "resourceVersion": str(old - 1 if watch else old)})
    since = await agent.get("/api/v1/pods", params={**query, **how, "resourceVersion": str(new)})

    assert OLD not in answer.text
    assert '"code":410' in answer.text
    assert since.status_code == 200
    assert '"code":410' not in since.text


async def test_a_token_made_up_for_an_old_revision_is_refused(people: People, again: Revisions) -> None:
    token = base64.urlsafe_b64encode(
        json.dumps({"v": "meta.k8s.io/v1", "rv": again.old, "start": "a\0"}).encode()
    ).decode()

    await expired(await people.user("new@team"), again, {"continue": token})
