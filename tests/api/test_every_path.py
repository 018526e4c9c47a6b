"""Every Kubernetes path that discovery names, with every verb: authorized by what it executes.

A user without rights is refused, and the refusal names the verb and the resource that would have been executed. A user who may do
one verb with everything is let through for that verb, and refused for all others. `test_app` does the same for our own endpoints.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import httpx
import pytest

from app.api.resources import ephemeral_resources, kubernetes
from app.kinds import KINDS
from app.registry.verbs.objects import Registry
from tests.api.people import People, bind, cluster_role
from tests.build import EVERY_API

METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
MERGE = {"Content-Type": "application/merge-patch+json"}
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}
FOR_EVERYONE = {"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"}


class Call(NamedTuple):
    verb: str
    group: str
    resource: str  # with its subresource
    path: str
    headers: dict[str, str]

    @property
    def refusal(self) -> str:
        return f'cannot {self.verb} resource "{self.resource}" in API group "{self.group}"'


def calls_of(root: str, group: str, resource: dict[str, Any]) -> Iterator[Call]:
    plural, _, part = resource["name"].partition("/")
    place = f"{root}/namespaces/nowhere/{plural}" if resource["namespaced"] else f"{root}/{plural}"
    for verb in resource["verbs"]:
        is_collection = not part and verb in ("list", "watch", "deletecollection", "create")
        path = place if is_collection else f"{place}/x{f'/{part}' if part else ''}"
        query = "?watch=1&resourceVersion=1&timeoutSeconds=1" if verb == "watch" else ""
        headers = MERGE if verb == "patch" else {}
        yield Call(verb, group, resource["name"], f"{path}{query}", headers)
        if verb in ("list", "watch") and resource["namespaced"]:
            yield Call(verb, group, resource["name"], f"{root}/{plural}{query}", headers)
        if verb == "watch":
            yield Call(verb, group, resource["name"], f"{path}{query}", WEBSOCKET)


async def every_call(admin: httpx.AsyncClient) -> list[Call]:
    versions = [
        f"/apis/{each['groupVersion']}"
        for group in (await admin.get("/apis")).json()["groups"]
        for each in group["versions"]
    ]
    found: list[Call] = []
    for root in ("/api/v1", *versions):
        group = root.split("/")[2] if root.startswith("/apis/") else ""
        answer = await admin.get(root)
        if answer.status_code == 200:  # groups of our own have no document
            found += [call for each in answer.json()["resources"] for call in calls_of(root, group, each)]
    named = {call.resource for call in found}
    for resource, part, method in kubernetes._SPECIAL:  # discovery leaves out what is there only to be refused in words
        kind, _, group = resource.partition(".")
        if f"{kind}/{part}" not in named:
            assert not group, resource
            verb = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch"}[method]
            path = f"/api/v1/namespaces/nowhere/{kind}/x/{part}"
            found.append(Call(verb, "", f"{kind}/{part}", path, MERGE if verb == "patch" else {}))
    return found


async def status_of(client: httpx.AsyncClient, call: Call) -> httpx.Response:
    body = b"{}" if call.verb in ("create", "update", "patch") else None
    return await client.request(METHODS[call.verb], call.path, content=body, headers=call.headers)


@pytest.fixture
def registry(registry: Registry) -> Registry:
    return dataclasses.replace(registry, features=EVERY_API)


async def test_every_path_is_authorized_by_what_it_executes(
    registry: Registry, url: str, admin: httpx.AsyncClient
) -> None:
    calls = await every_call(admin)
    named = {(call.group, call.resource) for call in calls}
    assert {(kind.group, kind.plural) for kind in KINDS} <= named
    assert {(each.group, each.plural) for each in ephemeral_resources.EPHEMERAL} <= named
    assert {f"{kind.partition('.')[0]}/{part}" for kind, part, _ in kubernetes._SPECIAL} <= {each for _, each in named}
    assert len(calls) > 200

    async with AsyncExitStack() as clients:
        people = People(registry, url, clients)
        nobody, mallory = httpx.AsyncClient(base_url=url), await people.user("mallory", "system:authenticated")
        async with nobody:
            for call in calls:
                assert (await status_of(nobody, call)).status_code == 401, call
                if call.resource in FOR_EVERYONE:
                    continue
                refused = await status_of(mallory, call)
                assert refused.status_code == 403, (call, refused.text)
                assert call.refusal in refused.json()["message"], (call, refused.text)


async def test_one_verb_lets_no_other_through(registry: Registry, url: str, admin: httpx.AsyncClient) -> None:
    calls = [
        each for each in await every_call(admin) if each.resource not in FOR_EVERYONE and each.headers is not WEBSOCKET
    ]
    async with AsyncExitStack() as clients:
        people = People(registry, url, clients)
        for verb in METHODS:
            await cluster_role(admin, f"only-{verb}", {"verbs": [verb], "apiGroups": ["*"], "resources": ["*"]})
            await bind(admin, f"ClusterRole/only-{verb}", [f"User:{verb}"], name=f"only-{verb}")
            user = await people.user(verb, "system:authenticated")
            own = [each for each in calls if each.verb == verb and "nowhere" in each.path]
            others = {
                each.verb: each
                for each in calls
                if each.verb != verb and "nowhere" in each.path and "/" not in each.resource
            }
            for call in own[:12] if verb == "watch" else own:
                if verb == "watch":
                    call = call._replace(path=call.path.replace("resourceVersion=1", "resourceVersion=nonsense"))  # noqa: PLW2901
                answer = await status_of(user, call)
                is_refused = answer.status_code == 403 and call.refusal in answer.text
                assert not is_refused, (call, answer.text)
                assert answer.status_code < 500 or call.resource == "services/proxy", (call, answer.text)
            for call in others.values():
                assert (await status_of(user, call)).status_code == 403, (verb, call)
