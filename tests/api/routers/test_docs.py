"""Documentation of our own endpoints: what it says, and who may read it."""

from typing import Any

import httpx
import msgspec
import pytest

from app.api.auth.authenticator import AUTHENTICATED
from app.api.routers.docs import document
from app.registry.verbs.objects import Registry
from tests.api.people import bind, cluster_role, meeting
from tests.conftest import NO_TLS

PATHS = ("/docs", "/docs/openapi.json")
AGENTS, LOGS = "/apis/agents.jobplane.dev/v1", "/apis/logs.jobplane.dev/v1/namespaces/{namespace}/logs"


def operations() -> dict[str, dict[str, Any]]:
    paths = document()["paths"]
    return {f"{method.upper()} {path}": operation for path in paths for method, operation in paths[path].items()}


def references(part: Any) -> list[str]:
    if isinstance(part, dict):
        return [part["$ref"]] if "$ref" in part else [each for value in part.values() for each in references(value)]
    return [each for value in part for each in references(value)] if isinstance(part, list) else []


def test_only_our_own_endpoints_are_documented() -> None:
    own = (
        "/apis/agents.jobplane.dev/",
        "/apis/logs.jobplane.dev/",
        "/apis/history.jobplane.dev/",
        "/ui/",
        "/livez",
        "/readyz",
        "/healthz",
        "/metrics",
    )

    assert {f"POST {AGENTS}/nodes/{{node}}/statuses", f"GET {LOGS}", f"POST {AGENTS}/join"} <= set(operations())
    assert all(path.startswith(own) for path in document()["paths"])
    assert not [name for name in operations() if name.startswith("HEAD ")]


@pytest.mark.parametrize("name", operations())
def test_an_operation_says_what_it_takes_and_gives(name: str) -> None:
    operation = operations()[name]

    assert operation["summary"]
    assert operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"].endswith("/Status")
    assert all("schema" in each for each in operation.get("parameters", ()))
    assert ("requestBody" in operation) == name.startswith("POST ")


def test_every_schema_that_is_referred_to_is_there() -> None:
    there = {f"#/components/schemas/{name}" for name in document()["components"]["schemas"]}

    assert set(references(document())) <= there
    assert len(set(references(document()["paths"]))) > 10


def test_a_query_is_documented_field_by_field() -> None:
    names = {each["name"]: each["in"] for each in operations()[f"GET {LOGS}"]["parameters"]}

    assert names == {"namespace": "path", "pod": "query", "job": "query", "limit": "query", "continue": "query"}


def test_what_everybody_may_call_needs_no_token() -> None:
    free = {name for name, operation in operations().items() if operation.get("security") == []}

    assert free == {"GET /livez", "GET /readyz", "GET /healthz", f"GET {AGENTS}/ca", "POST /ui/signin"}


async def test_whoever_may_get_the_path_may_read_it(registry: Registry, url: str, admin: httpx.AsyncClient) -> None:
    await cluster_role(admin, "reads-docs", {"verbs": ["get"], "nonResourceURLs": ["/docs", "/docs/*"]})
    await bind(admin, "reads-docs", ["User:ada"])
    async with meeting(registry, url) as people, httpx.AsyncClient(base_url=url, verify=NO_TLS) as nobody:
        ada, bob = await people.user("ada", AUTHENTICATED), await people.user("bob", AUTHENTICATED)
        codes = [[(await who.get(path)).status_code for path in PATHS] for who in (admin, ada, bob, nobody)]

    assert codes == [[200, 200], [200, 200], [403, 403], [401, 401]]


async def test_the_page_loads_nothing_from_elsewhere(admin: httpx.AsyncClient) -> None:
    page = await admin.get("/docs")

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert "src=" not in page.text
    assert "http" not in page.text.replace("https://json-schema.org", "")
    assert f"GET {LOGS}" in page.text


async def test_the_document_is_openapi(admin: httpx.AsyncClient) -> None:
    found = (await admin.get("/docs/openapi.json")).json()

    assert found["openapi"].startswith("3.1")
    assert found == msgspec.json.decode(msgspec.json.encode(document()))
    assert (await admin.head("/docs/openapi.json")).status_code == 200
