"""A parameter that is given twice: what is authorized is what is executed, whichever value comes first.

Every query parameter of every operation that is published for the core group is repeated, with values that suit the client
and values that would show or do more than it may. The answer must be that to the first value alone.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.api.auth.authenticator import NODE_PREFIX, NODES
from app.api.streams.exec_attach import parse_requested_streams
from app.store import Append, Stream
from tests.api.people import bind, cluster_role, meeting, rule
from tests.conftest import Lasting

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN, OTHER = "spec.nodeName=n-a", "spec.nodeName=n-b"
PODS, SECRETS = "/api/v1/pods", "/api/v1/namespaces/t1/secrets"
POD = "/api/v1/namespaces/t1/pods/p-a"
SECRET = f"{SECRETS}/s-one"
UNTIL_BOOKMARK = {
    "watch": "1",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "1",
    "timeoutSeconds": "1",
}
VALUES: dict[str, Sequence[str]] = {
    "labelSelector": ("", "a=b", "("),
    "fieldSelector": (
        OWN,
        OTHER,
        "metadata.name=n-a",
        "metadata.name=s-one",
        "metadata.name=s-two",
        "",
        "spec.nodeName",
    ),
    "limit": ("1", "0", "x"),
    "continue": ("", "x"),
    "resourceVersion": ("", "0", "x"),
    "resourceVersionMatch": ("", "Exact", "NotOlderThan"),
    "watch": ("0", "1"),
    "allowWatchBookmarks": ("0", "1"),
    "sendInitialEvents": ("true", "false"),
    "timeoutSeconds": ("1", "2", "x"),
    "fieldManager": ("me", "x" * 200),
    "fieldValidation": ("Ignore", "Strict", "x"),
    "force": ("true", "false"),
    "gracePeriodSeconds": ("0", "5", "x"),
    "orphanDependents": ("true", "false"),
    "propagationPolicy": ("Orphan", "Background", "x"),
    "container": ("main", "x"),
    "follow": ("false", "0"),
    "previous": ("false", "true"),
    "sinceSeconds": ("1", "0"),
    "sinceTime": ("2020-01-01T00:00:00Z", "x"),
    "timestamps": ("true", "false"),
    "tailLines": ("1", "-1", "x"),
    "limitBytes": ("1", "0", "x"),
    "insecureSkipTLSVerifyBackend": ("true", "false"),
    "stream": ("All", "x"),
}
LISTS_OF_VALUES = {"dryRun", "command", "ports"}


@dataclass
class World:
    agent: httpx.AsyncClient  # of the node n-a
    reader: httpx.AsyncClient  # may list and watch the secret s-one
    admin: httpx.AsyncClient


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(lasting: Lasting, lasting_url: str, lasting_admin: httpx.AsyncClient) -> Any:
    """Two nodes with a pod each, a namespace with two secrets, and who may see half of it."""
    admin = lasting_admin
    await _made(admin, "/api/v1/namespaces", metadata={"name": "t1"})
    for name in ("a", "b"):
        await _made(admin, "/api/v1/nodes", metadata={"name": f"n-{name}"})
        spec = {"nodeName": f"n-{name}", "containers": [{"name": "main", "image": "i"}]}
        pod = await _made(admin, "/api/v1/namespaces/t1/pods", metadata={"name": f"p-{name}"}, spec=spec)
        stream = Stream(pod["metadata"]["uid"], "main", 0)
        line = b"2026-03-01T12:00:00.123456789Z stdout F hello\n"
        await lasting.registry.store.logs.append([Append(stream, "t1", f"p-{name}", 0, line)])
    for name in ("s-one", "s-two"):
        await _made(admin, SECRETS, metadata={"name": name}, stringData={"text": name})
    await cluster_role(admin, "one", rule("list,watch", "secrets", resourceNames=["s-one"]))
    await bind(admin, "one", ["User:reader"], "t1")
    async with meeting(lasting.registry, lasting_url) as people:
        yield World(await people.user(f"{NODE_PREFIX}n-a", NODES), await people.user("reader"), admin)


async def _made(admin: httpx.AsyncClient, path: str, **body: Any) -> Any:
    answer = await admin.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def published(method: str, path: str) -> Iterator[str]:
    """The query parameters of an operation, as clients learn them."""
    document = json.loads((Path(__file__).parents[3] / "openapi" / "api_v1.json").read_text())
    parameters = document["paths"][path][method].get("parameters", [])
    names = [each["name"] for each in parameters if each["in"] == "query"]
    assert names, f"{method} {path} has no parameters"
    assert set(names) <= VALUES.keys() | LISTS_OF_VALUES, "give this parameter values to be repeated with"
    return (name for name in names if name not in LISTS_OF_VALUES)


async def names(client: httpx.AsyncClient, path: str, pairs: Sequence[tuple[str, str]]) -> tuple[int, Any]:
    """The code of an answer, and which objects it shows: of a watch, those that it begins with."""
    async with client.stream("GET", path, params=list(pairs)) as answer:
        if answer.status_code != 200:
            return answer.status_code, json.loads(await answer.aread())["reason"]
        found = set()
        async for line in answer.aiter_lines():
            said = json.loads(line)
            if said.get("type") == "BOOKMARK":
                break
            found |= {each["metadata"]["name"] for each in said.get("items", [said.get("object")])}
        return 200, frozenset(found)


def twice(name: str, rest: dict[str, str]) -> Iterator[tuple[list[tuple[str, str]], list[tuple[str, str]]]]:
    """A query that repeats the parameter, and that with the first value alone."""
    others = [(key, value) for key, value in rest.items() if key != name]
    for first, second in permutations(VALUES[name], 2):
        yield [(name, first), (name, second), *others], [(name, first), *others]


@pytest.mark.parametrize("watch", [{}, UNTIL_BOOKMARK], ids=["list", "watch"])
@pytest.mark.parametrize(
    ("who", "path", "published_path", "selector", "allowed"),
    [
        pytest.param("agent", PODS, PODS, OWN, {"p-a"}, id="an agent, its pods"),
        pytest.param("agent", "/api/v1/nodes", "/api/v1/nodes", "metadata.name=n-a", {"n-a"}, id="an agent, its node"),
        pytest.param(
            "reader",
            SECRETS,
            "/api/v1/namespaces/{namespace}/secrets",
            "metadata.name=s-one",
            {"s-one"},
            id="a user, one secret",
        ),
    ],
)
async def test_of_a_parameter_that_is_repeated_the_first_value_is_authorized_and_executed(
    world: World, who: str, path: str, published_path: str, selector: str, allowed: set[str], watch: dict[str, str]
) -> None:
    client: httpx.AsyncClient = getattr(world, who)

    async def check(doubled: list[tuple[str, str]], single: list[tuple[str, str]]) -> None:
        seen, expected = await asyncio.gather(names(client, path, doubled), names(client, path, single))
        assert seen == expected, doubled
        assert seen[0] != 200 or seen[1] <= allowed, doubled

    rest = {"fieldSelector": selector, "timeoutSeconds": "1", **watch}
    assert await names(client, path, list(rest.items())) == (200, allowed)
    await asyncio.gather(*(check(*each) for name in published("get", published_path) for each in twice(name, rest)))


@pytest.mark.parametrize("watch", ["0", "1"])
@pytest.mark.parametrize(
    ("who", "path", "first", "second"),
    [
        pytest.param("agent", PODS, "", OWN, id="all pods"),
        pytest.param("agent", PODS, OTHER, OWN, id="pods of another node"),
        pytest.param("agent", "/api/v1/nodes", "", "metadata.name=n-a", id="all nodes"),
        pytest.param("reader", SECRETS, "", "metadata.name=s-one", id="all secrets"),
        pytest.param("reader", SECRETS, "metadata.name!=s-one", "metadata.name=s-one", id="all secrets but one"),
        pytest.param("agent", PODS, "spec.nodeName", OWN, id="a selector that cannot be parsed"),
    ],
)
async def test_a_second_selector_lends_no_right_to_the_first(
    world: World, who: str, path: str, first: str, second: str, watch: str
) -> None:
    client: httpx.AsyncClient = getattr(world, who)
    query = [("fieldSelector", first), ("fieldSelector", second), ("watch", watch), ("timeoutSeconds", "1")]

    assert await names(client, path, query) == (403, "Forbidden")


async def test_a_selector_that_cannot_be_parsed_is_400_for_whoever_may_list(world: World) -> None:
    """And 403 for whoever may not: Kubernetes authorizes such a request as one without a selector."""
    for selector in ("spec.nodeName", "metadata.name=a=b", "no.such.field=x"):
        query = [("fieldSelector", selector)]
        assert await names(world.admin, PODS, query) == (400, "BadRequest")
        assert await names(world.reader, PODS, query) == (403, "Forbidden")


async def test_a_name_in_a_selector_gives_no_right_to_delete_a_collection(world: World) -> None:
    query = [("fieldSelector", "metadata.name=s-one"), ("dryRun", "All")]

    assert (await world.reader.delete(SECRETS, params=query)).status_code == 403


ITEM = "/api/v1/namespaces/{namespace}/secrets/{name}"
PATCH = {"content-type": "application/merge-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}
BODY = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s-one"}, "nonsense": 1}


@pytest.mark.parametrize(
    ("method", "path", "published_path", "body", "headers"),
    [
        pytest.param(
            "post", SECRETS, ITEM.removesuffix("/{name}"), {**BODY, "metadata": {"name": "new"}}, {}, id="create"
        ),
        pytest.param("put", SECRET, ITEM, BODY, {}, id="update"),
        pytest.param("patch", SECRET, ITEM, BODY, PATCH, id="patch"),
        pytest.param("patch", SECRET, ITEM, BODY, APPLY, id="apply"),
        pytest.param("delete", SECRET, ITEM, None, {}, id="delete"),
        pytest.param("delete", SECRETS, ITEM.removesuffix("/{name}"), None, {}, id="deletecollection"),
        pytest.param("get", f"{POD}/log", "/api/v1/namespaces/{namespace}/pods/{name}/log", None, {}, id="log"),
    ],
)
async def test_of_every_other_verb_too_the_first_value_counts(
    world: World, method: str, path: str, published_path: str, body: Any, headers: dict[str, str]
) -> None:
    rest = {} if method == "get" else {"dryRun": "All"}
    if headers is APPLY:
        rest["fieldManager"] = "me"

    async def answer(pairs: list[tuple[str, str]]) -> tuple[int, Any]:
        told = await world.admin.request(method, path, params=pairs, json=body, headers=headers)
        return told.status_code, told.headers.get("warning"), len(told.content)

    async def check(doubled: list[tuple[str, str]], single: list[tuple[str, str]]) -> None:
        assert await answer(doubled) == await answer(single), doubled

    await asyncio.gather(*(check(*each) for name in published(method, published_path) for each in twice(name, rest)))


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr", "tty"])
async def test_of_the_streams_of_exec_and_attach_too(name: str) -> None:
    for first, second in permutations(("1", "0"), 2):
        rest = [(each, "1") for each in ("stdin", "stdout") if each != name]
        assert parse_requested_streams([(name, first), (name, second), *rest]) == parse_requested_streams(
            [(name, first), *rest]
        )


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        pytest.param("Authorization", "admin", "reader", id="tokens"),
        pytest.param("Authorization", "reader", "admin", id="tokens, the other way round"),
        pytest.param("Impersonate-User", "jane", "admin", id="users to act as"),
        pytest.param("Accept", "application/json", "text/plain", id="forms of the answer"),
    ],
)
async def test_of_a_header_that_is_repeated_the_first_value_counts(
    world: World, name: str, first: str, second: str
) -> None:
    tokens = {"admin": world.admin.headers["authorization"], "reader": world.reader.headers["authorization"]}

    async def answer(*values: str) -> tuple[int, str]:
        given = [(name, tokens.get(value, value) if name == "Authorization" else value) for value in values]
        base = [] if name == "Authorization" else [("Authorization", tokens["admin"])]
        async with httpx.AsyncClient(base_url=world.admin.base_url, trust_env=False) as client:
            told = await client.post(
                "/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}, headers=[*base, *given]
            )
        return told.status_code, told.json().get("status", {}).get("userInfo", {}).get("username", "")

    assert await answer(first, second) == await answer(first)


async def test_whoever_acts_as_somebody_else_does_so_on_every_path(world: World) -> None:
    """A proxy that impersonates its users would lend them its own rights otherwise."""
    asked = {"Impersonate-User": "jane"}
    prefix = "/apis/agents.jobplane.dev/v1"

    assert (await world.admin.get(f"{prefix}/jointokens")).status_code == 200
    assert (await world.admin.get(f"{prefix}/jointokens", headers=asked)).status_code == 403
    assert (await world.admin.post(f"{prefix}/jointokens", json={}, headers=asked)).status_code == 403
    assert (await world.agent.post(f"{prefix}/nodes/n-a/usage", json={}, headers=asked)).status_code == 403


@pytest.mark.parametrize("path", ["jointokens/a%00b", "credentials/a%00b", "nodes/n-a%00/usage"])
async def test_a_path_with_a_nul_is_400(world: World, path: str) -> None:
    """Postgres refuses it."""
    for client in (world.admin, world.agent):
        answer = await client.delete(f"/apis/agents.jobplane.dev/v1/{path}")
        assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("path", ["/livez", "/version", "/apis/agents.jobplane.dev/v1/nodes/n-a/usage"])
@pytest.mark.parametrize("host", ["[", "x/apis/agents.jobplane.dev/v1/nodes/n-b/usage?"])
async def test_the_host_header_is_no_part_of_the_path(world: World, path: str, host: str) -> None:
    method = "POST" if path.endswith("usage") else "GET"
    answer = await world.agent.request(method, path, headers={"Host": host}, json={} if method == "POST" else None)

    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "code"),
    [
        pytest.param("/api/v1/namespaces/t1%2Fsecrets/s-two", 403, id="a namespace"),
        pytest.param("/api/v1/namespaces/t1/secrets%2Fs-two", 403, id="a name"),
        pytest.param("/api/v1/namespaces/t1/configmaps%2F..%2Fsecrets/s-two", 403, id="a way back"),
        pytest.param("/api/v1/%6eamespaces/t1/secret%73", 403, id="letters"),
    ],
)
async def test_an_encoded_path_is_authorized_as_it_is_routed(world: World, path: str, code: int) -> None:
    answer = await world.reader.get(path)

    assert answer.status_code in (code, 404), answer.text
