"""Errors on the wire: one Status for each, and nothing given away."""

import asyncio
import logging

import asyncpg
import httpx
import msgspec
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message

from app.api.app import create_app
from app.api.auth.authenticator import AUTHENTICATED, User
from app.api.auth.tokens import issue
from app.api.http.errors import body, no_such_path, response, unavailable
from app.machinery.errors import ApiError, not_found
from app.registry.verbs.objects import Registry
from app.store import open_store
from app.store.errors import OutcomeUnknown, Unavailable
from tests.api.conftest import serving
from tests.conftest import NO_TLS, Clock
from tests.log_lines import lines
from tests.store.rewinding import read_only


def test_a_refusal_leaves_as_its_status() -> None:
    answer = response(not_found("jobs.batch", "x"))

    assert (answer.status_code, answer.media_type) == (404, "application/json")
    assert msgspec.json.decode(answer.body) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'jobs.batch "x" not found',
        "reason": "NotFound",
        "details": {"name": "x", "group": "batch", "kind": "jobs"},
        "code": 404,
    }


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        pytest.param(Unavailable(), 503, "ServiceUnavailable", id="no database"),
        pytest.param(ConnectionRefusedError(), 503, "ServiceUnavailable", id="no connection"),
        pytest.param(OutcomeUnknown(), 504, "Timeout", id="a commit that may have happened"),
        pytest.param(HTTPException(404), 404, "NotFound", id="no such route"),
        pytest.param(HTTPException(405), 405, "MethodNotAllowed", id="no such method"),
        pytest.param(HTTPException(418, "short and stout"), 418, "", id="something of its own"),
        pytest.param(no_such_path(), 404, "NotFound", id="no such path"),
        pytest.param(ClientDisconnect(), 400, "BadRequest", id="a client that hung up"),
    ],
)
def test_other_errors_leave_as(error: Exception, code: int, reason: str) -> None:
    answer = response(error)
    status = msgspec.json.decode(answer.body)

    assert (answer.status_code, status["code"], status.get("reason", "")) == (code, code, reason)


def test_only_what_is_safe_to_repeat_says_when_to_come_again() -> None:
    assert response(Unavailable()).headers["Retry-After"] == "1"
    assert response(unavailable("slow down", 5)).headers["Retry-After"] == "5"
    assert "Retry-After" not in response(OutcomeUnknown()).headers


def test_whoever_is_not_known_is_told_how_to_be() -> None:
    assert response(ApiError(401, "Unauthorized", "Unauthorized")).headers["WWW-Authenticate"] == "Bearer"


def test_the_unexpected_is_logged_under_a_number_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = response(ValueError("the password is hunter2"))

    status = msgspec.json.decode(answer.body)
    assert (answer.status_code, status["reason"]) == (500, "InternalError")
    assert "hunter2" not in status["message"]
    assert "hunter2" in caplog.text
    assert f"error_id={status['message'].split()[-5]} " in lines(caplog)[0]


def test_unexpected_errors_of_one_place_have_one_number() -> None:
    """One log line a minute stands for all of them, and whoever is given the number must find it."""

    def message(text: str) -> str:
        try:
            raise ValueError(text)
        except ValueError as error:
            return str(msgspec.json.decode(response(error).body)["message"])

    def elsewhere() -> str:
        return str(msgspec.json.decode(response(ValueError("raised nowhere")).body)["message"])

    assert message("one") == message("another")
    assert message("one") != elsewhere()


def test_a_watch_can_carry_it() -> None:
    assert msgspec.json.decode(body(no_such_path()))["code"] == 404


async def test_a_path_that_is_nobodys_is_refused_first_to_those_who_may_not_ask_for_it(
    registry: Registry, url: str
) -> None:
    token = await issue(registry, User(name="mallory", groups=(AUTHENTICATED,)))
    for headers, code in (({"Authorization": f"Bearer {token}"}, 403), ({}, 401)):
        async with httpx.AsyncClient(base_url=url, headers=headers, verify=NO_TLS) as client:
            answers = [await client.get(path) for path in ("/logs/", "/debug/pprof/", "/")]

        assert [(each.status_code, each.json()["kind"]) for each in answers] == [(code, "Status")] * 3


async def test_null_is_read_as_an_object_of_which_nothing_is_told(admin: httpx.AsyncClient) -> None:
    answer = await admin.post("/api/v1/namespaces/default/configmaps", content=b"null")

    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
    assert "name or generateName is required" in answer.json()["message"]


async def test_a_path_that_is_nobodys_is_refused_with_a_status(admin: httpx.AsyncClient) -> None:
    answer = await admin.get("/dreams")

    said = answer.json()
    assert (answer.status_code, said["kind"], said["reason"], said["code"]) == (404, "Status", "NotFound", 404)


@pytest.mark.parametrize(
    ("method", "code", "words"),
    [
        pytest.param("GET", 503, "the server is stopping, try again", id="what asks"),
        pytest.param("POST", 504, "the server stopped during the request: look before you try again", id="what writes"),
    ],
)
async def test_a_request_that_a_stopping_server_cannot_wait_for_is_told_so(
    registry: Registry, dsn: str, method: str, code: int, words: str
) -> None:
    sent: asyncio.Queue[Message] = asyncio.Queue()
    scope = {"type": "http", "method": method, "path": "/readyz", "headers": [], "query_string": b""}
    blocker = await asyncpg.connect(dsn)
    await blocker.execute("begin; lock counter")
    asking = asyncio.create_task(create_app(registry)(scope, asyncio.Queue[Message]().get, sent.put))
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with asyncio.timeout(10):
        while not await blocker.fetchval(waiting):  # noqa: ASYNC110 - Postgres tells nobody
            await asyncio.sleep(0.01)
    asking.cancel()
    await asking
    await blocker.close()

    start, said = sent.get_nowait(), sent.get_nowait()
    assert (start["status"], msgspec.json.decode(said["body"])["message"]) == (code, words)


async def test_a_database_that_takes_no_writes_makes_the_api_unready(dsn: str) -> None:
    """As a standby does, on which every write would be refused."""
    async with (
        read_only(dsn),
        open_store(dsn) as store,
        serving(Registry(store, Clock())) as url,
        httpx.AsyncClient(base_url=url, verify=NO_TLS) as client,
    ):
        ready, live = await client.get("/readyz"), await client.get("/livez")

    assert (ready.status_code, live.status_code) == (503, 200)
    assert "read-only" in ready.json()["message"]
