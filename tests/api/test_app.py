"""The FastAPI application: its routes and who may call them, what becomes of errors, its lifespan."""

import asyncio
import logging
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from fastapi import FastAPI, Query
from fastapi.routing import APIRoute

from app.api.app import create_app
from app.api.auth.authenticator import AUTHENTICATED, NODES, User
from app.api.auth.tokens import issue
from app.api.direct_route import DirectMiddleware, DirectRoute
from app.api.middleware import route_path
from app.api.routers import docs
from app.api.struct_route import StructRoute
from app.kinds.core.namespace import KIND as NAMESPACES
from app.machinery.errors import ApiError
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.store import Store
from app.store.errors import Unavailable
from tests.api.servers import listening
from tests.conftest import NO_TLS, Clock

FOR_EVERYBODY = {"/livez", "/readyz", "/healthz", "/apis/agents.jobplane.dev/v1/ca", "/ui/signin"}
ROUTES = [route for router in (*docs.DOCUMENTED, docs.router) for route in router.routes if isinstance(route, APIRoute)]
CALLS = sorted({(method, route.path_format) for route in ROUTES for method in route.methods})


def filled(path: str) -> str:
    """A path with something for each of its parameters."""
    for name in ("node", "name", "namespace", "pod", "address", "call", "action", "path", "check", "uid"):
        path = path.replace(f"{{{name}}}", "x")
    return path


def test_every_endpoint_of_our_own_is_here() -> None:
    paths = {path for _, path in CALLS}

    assert len(paths) > 15
    assert paths >= FOR_EVERYBODY
    assert not [path for path in paths if "{" in filled(path)]


def test_an_application_has_the_routes_as_they_are_declared(registry: Registry) -> None:
    """FastAPI's `include_router` makes them once more for each application: that is half of what a test of them takes."""
    assert {id(route) for route in ROUTES} <= {id(route) for route in create_app(registry).routes}


async def test_every_endpoint_is_authorized(registry: Registry, url: str) -> None:
    """401 without a token, 403 or 404 for a user without rights: but for probes and the authority's certificate."""
    token = await issue(registry, User(name="mallory", groups=(AUTHENTICATED,)))
    answers: dict[tuple[str, str], tuple[int, int]] = {}
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as client:
        for method, path in CALLS:
            nobody = await client.request(method, filled(path))
            mallory = await client.request(method, filled(path), headers={"Authorization": f"Bearer {token}"})
            answers[method, path] = nobody.status_code, mallory.status_code

    unknown = {f"/apis/{group}.jobplane.dev/v1/{{path}}" for group in ("agents", "history", "logs")}
    for (method, path), (nobody, mallory) in answers.items():
        if path in FOR_EVERYBODY and (method == "GET" or not path.endswith("/ca")):
            assert nobody == mallory, (method, path)
        else:
            assert (nobody, mallory) == (401, 404 if path in unknown else 403), (method, path)


def test_agents_are_answered_before_fastapi_looks_for_a_route() -> None:
    of_agents = [route for route in ROUTES if "/nodes/{node}" in route.path]

    assert len(of_agents) >= 6
    assert all(isinstance(route, DirectRoute) for route in of_agents)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        pytest.param("/livez/", "/livez", id="a slash after a probe"),
        pytest.param("/logs/", "/logs/", id="a path of nobody's"),
        pytest.param("/apis/agents.jobplane.dev/v1/ca//", "/apis/agents.jobplane.dev/v1/ca", id="slashes after ours"),
        pytest.param(
            "/apis/agents.jobplane.dev/v1//nodes/n1/statuses/",
            "/apis/agents.jobplane.dev/v1//nodes/n1/statuses/",
            id="slashes before what agents call",
        ),
        pytest.param("/apis/logs.jobplane.dev/v1//x/", "/apis/logs.jobplane.dev/v1/x", id="slashes around ours"),
        pytest.param(
            "/apis/agents.jobplane.dev/v1/nodes/n/logs/", "/apis/agents.jobplane.dev/v1/nodes/n/logs/", id="agents'"
        ),
    ],
)
def test_slashes_at_the_end_do_not_count(path: str, found: str) -> None:
    assert route_path(path) == found


async def test_a_method_of_ours_that_is_none(admin: httpx.AsyncClient) -> None:
    for path in ("/apis/agents.jobplane.dev/v1/nodes/-/statuses", "/apis/agents.jobplane.dev/v1/x", "/docs"):
        answer = await admin.request("PROPFIND", path)
        assert (answer.status_code, answer.json()["kind"]) == (405, "Status")
        assert "Allow" not in answer.headers


@pytest.fixture
async def broken(registry: Registry) -> AsyncIterator[httpx.AsyncClient]:
    """An application with endpoints that fail, as somebody may add them."""
    app = create_app(registry)
    add_failures(app)
    async with listening(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=NO_TLS) as client:
        yield client


def add_failures(app: FastAPI) -> None:
    failures = {"refused": ApiError(409, "Conflict", "no"), "away": Unavailable(), "fault": ValueError("hunter2")}

    @app.get("/fails/{how}")
    async def fail(how: str, count: int = Query(0)) -> None:
        raise failures[how]


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [
        pytest.param("/fails/refused", 409, "Conflict", id="a refusal"),
        pytest.param("/fails/away", 503, "ServiceUnavailable", id="no database"),
        pytest.param("/fails/fault", 500, "InternalError", id="a fault"),
        pytest.param("/fails/refused?count=x", 400, "BadRequest", id="a parameter that is no number"),
    ],
)
async def test_what_an_endpoint_raises_leaves_as_a_status(
    broken: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, path: str, code: int, reason: str
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = await broken.get(path)

    said = answer.json()
    assert (answer.status_code, said["kind"], said["reason"], said["code"]) == (code, "Status", reason, code)
    assert "hunter2" not in answer.text
    assert "connection" not in answer.headers
    assert len(caplog.records) == (1 if code == 500 else 0)  # uvicorn has nothing to add


async def test_a_parameter_that_is_refused_is_named(broken: httpx.AsyncClient) -> None:
    assert "count: " in (await broken.get("/fails/refused?count=x")).json()["message"]


@pytest.mark.parametrize("path", ["usage", "statuses", "other"])
async def test_fastapi_serves_a_direct_route_to_the_same_effect(registry: Registry, path: str) -> None:
    token = await issue(registry, User(name="n", groups=(NODES,), nodes=("n",)))
    plain = create_app(registry)
    plain.user_middleware = [each for each in plain.user_middleware if each.cls is not DirectMiddleware]
    answers = []
    for app in (create_app(registry), plain):
        async with listening(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            for node, headers in (("n", {}), ("n", {"Authorization": f"Bearer {token}"}), ("m", {})):
                target = f"/apis/agents.jobplane.dev/v1/nodes/{node}/{path}"
                answer = await client.post(target, json={"items": []}, headers=headers)
                answers.append((answer.status_code, answer.content))

    assert answers[:3] == answers[3:]
    assert {code for code, _ in answers} == {401, 404 if path == "other" else 200}


async def test_the_lifespan_makes_what_must_exist_and_ends_what_it_began(store: Store, clock: Clock) -> None:
    empty = Registry(store, clock)
    app, before = create_app(empty), asyncio.all_tasks()
    async with app.router.lifespan_context(app):
        assert await objects.find(empty, NAMESPACES, "", "default")
        assert len(asyncio.all_tasks() - before) >= 2
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before


def test_a_struct_is_encoded_and_documented_as_it_is() -> None:
    class Found(msgspec.Struct):
        """What there is."""

        name: str

    async def find() -> Found:
        return Found("x")

    route = StructRoute("/x", find, status_code=201)

    assert asyncio.run(route.endpoint()).body == b'{"name":"x"}'
    assert route.responses[201]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Found"}
    assert Found in route.structs
