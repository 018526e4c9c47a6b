"""Kinds that are never here, but that clients ask for: discovery names them, nothing is in them, nothing can be made."""

import json
from typing import Any

import httpx
import pytest

from app.api.auth.authenticator import User
from app.api.auth.tokens import issue
from app.api.resources.unsupported_kinds import UNSUPPORTED
from app.kinds import KINDS
from app.machinery.base import Kind
from app.registry.verbs.objects import Registry
from tests.conftest import NO_TLS

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
every_one = pytest.mark.parametrize("kind", UNSUPPORTED, ids=lambda kind: kind.resource)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def registry(restored: Registry) -> Registry:
    return restored


@pytest.fixture
def url(lasting_url: str) -> str:
    return lasting_url


@pytest.fixture
def admin(lasting_admin: httpx.AsyncClient) -> httpx.AsyncClient:
    return lasting_admin


def path_of(kind: Kind[Any], name: str = "") -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    space = "/namespaces/default" if kind.namespaced else ""
    return f"{root}{space}/{kind.plural}{name and '/'}{name}"


@every_one
async def test_its_list_is_empty_in_every_namespace_and_form(admin: httpx.AsyncClient, kind: Kind[Any]) -> None:
    for path in (path_of(kind), path_of(kind).replace("/namespaces/default", "")):
        answer = (await admin.get(path)).json()
        assert (answer["kind"], answer["apiVersion"], answer["items"]) == (f"{kind.name}List", kind.api_version, [])
        assert int(answer["metadata"]["resourceVersion"]) > 0
    table = (await admin.get(path_of(kind), headers=TABLE)).json()
    assert (table["kind"], table["rows"]) == ("Table", [])


@every_one
async def test_a_watch_of_it_is_silent_until_it_ends(admin: httpx.AsyncClient, kind: Kind[Any]) -> None:
    answer = await admin.get(path_of(kind), params={"watch": "1", "timeoutSeconds": "1", "allowWatchBookmarks": "1"})

    (only,) = map(json.loads, answer.text.splitlines())
    assert (only["type"], only["object"]["kind"]) == ("BOOKMARK", kind.name)


@every_one
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_none_is_found_by_its_name(admin: httpx.AsyncClient, kind: Kind[Any], method: str) -> None:
    answer = await admin.request(method, path_of(kind, "web"))

    assert answer.status_code == 404
    assert answer.json()["message"] == f'{kind.resource} "web" not found'


@every_one
@pytest.mark.parametrize(("method", "verb"), [("POST", "create"), ("PUT", "update"), ("PATCH", "patch")])
async def test_none_can_be_made(admin: httpx.AsyncClient, kind: Kind[Any], method: str, verb: str) -> None:
    answer = await admin.request(method, path_of(kind, "" if verb == "create" else "web"), json={})

    assert (answer.status_code, answer.json()["reason"]) == (405, "MethodNotAllowed")
    assert answer.json()["message"].startswith(f'{verb} is not supported on resources of kind "{kind.resource}": ')


@every_one
async def test_discovery_says_what_can_be_done_with_it(admin: httpx.AsyncClient, kind: Kind[Any]) -> None:
    root = path_of(kind).partition("/namespaces/")[0] if kind.namespaced else path_of(kind).rpartition("/")[0]
    (entry,) = [each for each in (await admin.get(root)).json()["resources"] if each["name"] == kind.plural]

    assert entry["verbs"] == ["delete", "get", "list", "watch"]
    assert "categories" not in entry


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/apis/apps/v2/statefulsets", id="another version"),
        pytest.param("/apis/apps/v1/namespaces/default/statefulsets/web/scale", id="a part of one"),
        pytest.param("/api/v1/namespaces/default/frobs", id="a kind that nobody knows"),
    ],
)
async def test_nothing_else_of_them_is_there(admin: httpx.AsyncClient, path: str) -> None:
    assert (await admin.get(path)).status_code == 404


async def test_who_may_not_list_them_is_told_so(registry: Registry, url: str) -> None:
    token = await issue(registry, User(name="bob", groups=()))
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=NO_TLS) as bob:
        assert (await bob.get("/apis/apps/v1/daemonsets")).status_code == 403
        assert (await bob.get("/api/v1/namespaces/default/replicationcontrollers")).status_code == 403


async def test_they_are_no_kinds() -> None:
    assert not {(kind.group, kind.plural) for kind in UNSUPPORTED} & {(kind.group, kind.plural) for kind in KINDS}
