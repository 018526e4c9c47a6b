"""Errors on the wire: one Status for each, and nothing given away."""

import logging

import httpx
import msgspec
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.api.errors import body, no_such_path, response, unavailable
from app.kinds.errors import ApiError, not_found
from app.store.errors import OutcomeUnknown, Unavailable


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
    assert caplog.messages[0].split()[-1] in status["message"]


def test_a_watch_can_carry_it() -> None:
    assert msgspec.json.decode(body(no_such_path()))["code"] == 404


async def test_a_path_that_is_nobodys_is_refused_with_a_status(admin: httpx.AsyncClient) -> None:
    answer = await admin.get("/dreams")

    said = answer.json()
    assert (answer.status_code, said["kind"], said["reason"], said["code"]) == (404, "Status", "NotFound", 404)
