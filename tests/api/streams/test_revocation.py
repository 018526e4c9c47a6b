"""Streams end with the token or the right that they were opened by, and cost next to nothing until then."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from app.api.auth.authenticator import NODE_PREFIX, NODES, User
from app.api.auth.tokens import issue, issue_for_account
from app.api.http.query import ListOptions
from app.api.http.response_streams import PART_BYTES, Sender, send_stream
from app.api.streams import revocation
from app.api.streams.revocation import Revocations, StreamAccess
from app.api.streams.watch import MOST_SECONDS, timeout_of
from app.machinery.errors import ApiError
from app.registry.verbs.objects import Registry
from app.store import Append, Stream
from tests.api.people import RBAC, People, bind, cluster_role, meeting, rule
from tests.conftest import Clock
from tests.registry.examples import PODS, a_pod, create

PATIENCE = 20
SPACE = "/api/v1/namespaces/default"
SECRETS = f"{SPACE}/secrets"
ACCOUNT = f"{SPACE}/serviceaccounts/robot"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "SECONDS", 0.05)


@pytest.fixture
async def people(registry: Registry, url: str, admin: httpx.AsyncClient) -> AsyncIterator[People]:
    """And two roles: one reads secrets and logs, the other lets its holder act as ada."""
    await cluster_role(admin, "reads", rule("get,list,watch", "secrets,pods,pods/log"))
    await cluster_role(admin, "acts", rule("impersonate", "users", resourceNames=["ada"]))
    async with meeting(registry, url) as found:
        yield found


async def unbind(admin: httpx.AsyncClient, name: str = "b") -> None:
    assert (await admin.delete(f"{RBAC}/namespaces/default/rolebindings/{name}")).status_code == 200


@asynccontextmanager
async def over_http(client: httpx.AsyncClient) -> AsyncIterator[AsyncIterator[str]]:
    async with client.stream("GET", SECRETS, params={"watch": "1", "timeoutSeconds": "300"}) as answer:
        assert answer.status_code == 200, await answer.aread()
        yield answer.aiter_lines()


@asynccontextmanager
async def over_a_socket(client: httpx.AsyncClient) -> AsyncIterator[AsyncIterator[str]]:
    url = str(client.base_url).replace("http", "ws").rstrip("/")
    headers = {name: client.headers[name] for name in ("authorization", "impersonate-user") if name in client.headers}
    async with connect(f"{url}{SECRETS}?watch=1&timeoutSeconds=300", additional_headers=headers) as socket:
        yield (str(message) async for message in socket)


ways = pytest.mark.parametrize("way", [over_http, over_a_socket], ids=["HTTP", "WebSocket"])
Way = Callable[[httpx.AsyncClient], Any]


async def put(admin: httpx.AsyncClient, name: str) -> None:
    assert (await admin.post(SECRETS, json={"metadata": {"name": name}})).status_code == 201


async def named(lines: AsyncIterator[str]) -> str:
    """The next event's object."""
    async with asyncio.timeout(PATIENCE):
        return json.loads(await anext(lines))["object"]["metadata"]["name"]


async def ended(lines: AsyncIterator[str]) -> tuple[str, int, str]:
    """What a watch says at its end, and nothing more."""
    async with asyncio.timeout(PATIENCE):
        (event,) = [json.loads(line) async for line in lines]
    return event["type"], event["object"]["code"], event["object"]["reason"]


@ways
async def test_a_watch_ends_with_the_binding_that_allowed_it(
    people: People, admin: httpx.AsyncClient, way: Way
) -> None:
    await put(admin, "a")
    for name in ("ada", "bob"):
        await bind(admin, "reads", [f"User:{name}"], "default", name)
    ada, bob = await people.user("ada"), await people.user("bob")
    async with way(ada) as hers, way(bob) as his:
        assert (await named(hers), await named(his)) == ("a", "a")
        await unbind(admin, "ada")
        assert await ended(hers) == ("ERROR", 403, "Forbidden")
        await put(admin, "b")
        assert await named(his) == "b"


@ways
async def test_a_watch_ends_with_the_service_account_whose_token_opened_it(
    registry: Registry, people: People, admin: httpx.AsyncClient, way: Way
) -> None:
    await put(admin, "a")
    await admin.post(f"{SPACE}/serviceaccounts", json={"metadata": {"name": "robot"}})
    await bind(admin, "reads", ["ServiceAccount:default/robot"], "default")
    robot = await people.holder(await issue_for_account(registry, "default", "robot", None))
    async with way(robot) as lines:
        assert await named(lines) == "a"
        assert (await admin.delete(ACCOUNT)).status_code == 200
        assert await ended(lines) == ("ERROR", 401, "Unauthorized")


async def test_a_watch_ends_when_its_token_expires(
    registry: Registry, people: People, admin: httpx.AsyncClient, clock: Clock
) -> None:
    await put(admin, "a")
    await bind(admin, "reads", ["User:ada"], "default")
    ada = await people.holder(await issue(registry, User(name="ada"), clock.move(seconds=1)))
    clock.move(seconds=-1)
    async with over_http(ada) as lines:
        assert await named(lines) == "a"
        clock.move(seconds=2)
        assert await ended(lines) == ("ERROR", 401, "Unauthorized")


async def test_a_watch_as_somebody_else_ends_with_the_right_to_act_as_them(
    people: People, admin: httpx.AsyncClient
) -> None:
    await put(admin, "a")
    await bind(admin, "reads", ["User:ada"], "default")
    await bind(admin, "acts", ["User:eve"])
    eve = await people.user("eve")
    eve.headers["impersonate-user"] = "ada"
    async with over_http(eve) as lines:
        assert await named(lines) == "a"
        assert (await admin.delete(f"{RBAC}/clusterrolebindings/b")).status_code == 200
        assert await ended(lines) == ("ERROR", 403, "Forbidden")


async def test_a_log_that_is_followed_ends_with_the_right_to_read_it(
    registry: Registry, people: People, admin: httpx.AsyncClient
) -> None:
    pod = await create(registry, PODS, a_pod("p", node_name="n"))
    line = b"2026-03-01T12:00:00.123456789Z stdout F hello\n"
    await registry.store.logs.append([Append(Stream(pod.metadata.uid, "main", 0), "default", "p", 0, line)])
    await bind(admin, "reads", ["User:ada"], "default")
    ada = await people.user("ada")
    async with asyncio.timeout(PATIENCE), ada.stream("GET", f"{SPACE}/pods/p/log?follow=1") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "hello"
        await unbind(admin)
        assert [each async for each in lines] == []


async def test_an_agents_open_request_ends_with_its_credential(registry: Registry, people: People) -> None:
    agent = await people.user(f"{NODE_PREFIX}n", NODES)
    async with asyncio.timeout(PATIENCE):
        async with agent.stream("GET", "/apis/agents.jobplane.dev/v1/nodes/n/calls") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == ""
            assert await registry.store.tokens.revoke(f"{NODE_PREFIX}n") == 1
            assert [each async for each in lines if each] == []


async def test_a_request_as_an_agent_ends_with_the_right_to_act_as_it(people: People, admin: httpx.AsyncClient) -> None:
    agent = (rule("impersonate", "users", resourceNames=[f"{NODE_PREFIX}n"]), rule("impersonate", "groups"))
    await cluster_role(admin, "acts-as-n", *agent)
    await bind(admin, "acts-as-n", ["User:eve"])
    eve = await people.user("eve")
    eve.headers.update({"impersonate-user": f"{NODE_PREFIX}n", "impersonate-group": NODES})
    async with asyncio.timeout(PATIENCE):
        async with eve.stream("GET", "/apis/agents.jobplane.dev/v1/nodes/n/calls") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == ""
            assert (await admin.delete(f"{RBAC}/clusterrolebindings/b")).status_code == 200
            assert [each async for each in lines if each] == []


async def test_the_database_away_ends_no_stream() -> None:
    async def away(_: Collection[bytes]) -> Collection[bytes]:
        raise ConnectionError

    revocations = Revocations(away, _no_policies)
    with revocations.watch(StreamAccess(b"")) as refused:
        with pytest.raises(ConnectionError):
            await revocations.check_streams()
        assert not refused.done()


async def _no_policies() -> object:
    return None


async def test_a_stream_ends_whose_right_was_withdrawn_before_it_was_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "SECONDS", 3600)

    async def none_has_ended(_: Collection[bytes]) -> Collection[bytes]:
        return ()

    async def forbidden() -> None:
        raise ApiError(403, "Forbidden", "no longer")

    revocations = Revocations(none_has_ended, _no_policies)
    with revocations.watch(StreamAccess(b"")):
        await revocations.check_streams()
        with revocations.watch(StreamAccess(b"", forbidden)) as refused:
            await revocations.check_streams()
            assert refused.result().code == 403


@pytest.mark.parametrize(("size", "told"), [(PART_BYTES, True), (3 * PART_BYTES, False)])
async def test_the_last_words_are_not_sent_in_the_middle_of_an_event(size: int, told: bool) -> None:
    """The client has taken one part when its right ends, and takes no other until then."""
    sent: list[bytes] = []
    refused: revocation.Revoked = asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        if sent and not refused.done():
            refused.set_result(ApiError(403, "Forbidden", "no longer"))
            await asyncio.Event().wait()
        sent.append(message["body"])

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def work(sender: Sender) -> None:
        await sender(b"x" * size)
        await sender(b"next")

    await send_stream(work, receive, send, refused=refused, last_words=lambda _: b"ERROR")
    assert (b"ERROR" in sent) is told


async def test_many_streams_cost_one_query_a_look_and_no_judgement_while_roles_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(revocation, "SECONDS", 3600)
    asked: list[int] = []
    judged: list[int] = []
    policies = [object()]

    async def none_has_ended(digests: Collection[bytes]) -> Collection[bytes]:
        asked.append(len(digests))
        return ()

    async def current() -> object:
        return policies[-1]

    def of(number: int) -> StreamAccess:
        async def judge() -> None:
            judged.append(number)
            if number == 1 and len(policies) > 1:
                raise ApiError(403, "Forbidden", "no longer")

        return StreamAccess(b"%d" % (number % 500), judge if number % 2 else None)

    revocations = Revocations(none_has_ended, current)
    open_now = [revocations.watch(of(number)) for number in range(1_000)]
    futures = [each.__enter__() for each in open_now]
    for _ in range(5):
        await revocations.check_streams()
    assert asked == [500] * 5
    assert len(judged) == 500  # once each, of those whom roles allow

    policies.append(object())
    await revocations.check_streams()
    await revocations.check_streams()
    assert len(judged) == 1_000
    assert [number for number, each in enumerate(futures) if each.done()] == [1]

    for each in open_now:
        each.__exit__(None, None, None)
    assert revocations._checking is None


@pytest.mark.parametrize(("asked", "seconds"), [(5, 5), (2**63 - 1, MOST_SECONDS)])
def test_a_watch_lasts_as_long_as_its_client_asks_up_to_a_day(asked: int, seconds: float) -> None:
    assert timeout_of(ListOptions(timeout_seconds=asked)) == seconds


def test_a_watch_lasts_half_an_hour_to_one_if_its_client_says_nothing() -> None:
    assert 1800 <= timeout_of(ListOptions()) <= 3600
