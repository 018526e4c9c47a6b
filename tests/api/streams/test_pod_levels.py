"""Levels of namespaces in an agent's watch of its pods: who gets them, and how new they are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from app.api.auth.authenticator import NODES, User
from app.api.resources.routes import RequestInfo
from app.api.resources.selection import read_selection
from app.api.streams.watch import WatchStream, open_watch
from app.client.protocol import WITH_LEVELS
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import Namespace
from app.kinds.pod.pod import KIND as PODS
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from tests.registry.examples import a_pod, create, named

PATIENCE = 60
AGENT = User(name="system:node:n", groups=(NODES,))
WANTED = {"fieldSelector": "spec.nodeName%3Dn", WITH_LEVELS: "true"}


@asynccontextmanager
async def watching(
    registry: Registry, user: User = AGENT, accept: str = "application/json", **query: Any
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    pairs = "&".join(
        f"{name}={value}" for name, value in {"watch": "1", "resourceVersion": query.pop("since"), **query}.items()
    )
    headers = [(b"accept", accept.encode())]
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/v1/pods",
        "headers": headers,
        "query_string": pairs.encode(),
    }
    request = Request(scope)
    request.state.user = user
    selection = read_selection(request.query_params.multi_items())
    yield _events(await open_watch(registry, request, RequestInfo(PODS, None, "", ""), selection))


async def _events(stream: WatchStream) -> AsyncIterator[dict[str, Any]]:
    async with asyncio.timeout(PATIENCE):
        async for line in stream.events():
            yield msgspec.json.decode(line)


async def team(registry: Registry, **labels: str) -> Any:
    labels = {f"pod-security.kubernetes.io/{name}": value for name, value in labels.items()}
    return await create(registry, NAMESPACES, named(Namespace(), name="team", labels=labels))


async def a_pod_of_the_team(registry: Registry, name: str) -> None:
    await create(registry, PODS, named(a_pod(name, node_name="n"), namespace="team"))


async def test_a_pod_that_is_added_comes_with_the_level_of_its_namespace(registry: Registry) -> None:
    made = await team(registry, enforce="privileged")
    since = await registry.revision()
    await a_pod_of_the_team(registry, "p")

    async with watching(registry, since=since, **WANTED) as events:
        told = await anext(events)

    level = {"uid": made.metadata.uid, "level": "privileged", "isDefault": False, "services": False}
    assert (told["type"], told["object"]["metadata"]["name"], told["namespace"]) == ("ADDED", "p", level)


async def test_a_level_that_was_set_before_the_pod_was_created_counts(registry: Registry) -> None:
    await team(registry, enforce="privileged")
    async with watching(registry, since=await registry.revision(), **WANTED) as events:
        await a_pod_of_the_team(registry, "first")
        first = await anext(events)
        baseline = {"pod-security.kubernetes.io/enforce": "baseline"}
        await objects.edit(registry, NAMESPACES, "", "team", lambda old: named(old, labels=baseline))
        await a_pod_of_the_team(registry, "second")
        second = await anext(events)

    assert [each["namespace"]["level"] for each in (first, second)] == ["privileged", "baseline"]


async def test_only_pods_that_are_added_come_with_it(registry: Registry) -> None:
    await team(registry)
    async with watching(registry, since=await registry.revision(), **WANTED) as events:
        await a_pod_of_the_team(registry, "p")
        added = await anext(events)
        await objects.edit(registry, PODS, "team", "p", lambda old: named(old, labels={"a": "b"}))
        changed = await anext(events)

    assert "namespace" in added
    assert changed.keys() == {"type", "object"}


@pytest.mark.parametrize(
    ("user", "accept", "query"),
    [
        pytest.param(AGENT, "application/json", {"fieldSelector": "spec.nodeName%3Dn"}, id="not asked for"),
        pytest.param(User(name="system:node:m", groups=(NODES,)), "application/json", WANTED, id="another node"),
        pytest.param(User(name="jane"), "application/json", WANTED, id="no node"),
        pytest.param(AGENT, "application/json", {WITH_LEVELS: "true"}, id="all pods"),
        pytest.param(AGENT, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", WANTED, id="another form"),
    ],
)
async def test_nobody_else_gets_it(registry: Registry, user: User, accept: str, query: dict[str, str]) -> None:
    await team(registry)
    since = await registry.revision()
    await a_pod_of_the_team(registry, "p")

    async with watching(registry, user, accept, since=since, **query) as events:
        told = await anext(events)

    assert told.keys() == {"type", "object"}
