"""The query parameter `timeout`: what is no duration is refused with Go's words, except where the query is not for the server."""

import httpx
import pytest

REFUSED = "invalid timeout specified in the request URL - time: "


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("duration", "fault"),
    [
        ("invalid", 'invalid duration "invalid"'),
        ("-", 'invalid duration "-"'),
        (".s", 'invalid duration ".s"'),
        ("5", 'missing unit in duration "5"'),
        ("5.", 'missing unit in duration "5."'),
        ("1h5x", 'unknown unit "x" in duration "1h5x"'),
        ("9999999h", 'invalid duration "9999999h"'),
    ],
)
@pytest.mark.parametrize(
    "path", ["/version", "/api/v1", "/api/v1/namespaces", "/apis/authentication.k8s.io/v1/selfsubjectreviews"]
)
async def test_what_is_no_duration_is_refused(admin: httpx.AsyncClient, path: str, duration: str, fault: str) -> None:
    method = "POST" if path.endswith("reviews") else "GET"
    refused = await admin.request(method, path, params={"timeout": duration})

    assert refused.status_code == 400
    assert refused.json()["message"] == REFUSED + fault


@pytest.mark.asyncio
@pytest.mark.parametrize("duration", ["", "0", "0s", "3m", "+1.5h30m", ".5s", "100ms", "7µs", "-1s"])
async def test_durations_are_taken(admin: httpx.AsyncClient, duration: str) -> None:
    answer = await admin.get("/version", params={"timeout": duration})

    assert answer.status_code == 200


@pytest.mark.asyncio
async def test_watches_are_left_alone(admin: httpx.AsyncClient) -> None:
    query = {"watch": "true", "timeoutSeconds": "1", "timeout": "invalid"}
    answer = await admin.get("/api/v1/namespaces", params=query)

    assert answer.status_code == 200
