"""SQL in names, selectors, queries and page tokens: it finds nothing more, changes nothing, and breaks nothing."""

import base64
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.registry.verbs.objects import Registry

MAPS = "/api/v1/namespaces/default/configmaps"
TRICKS = (
    "' or '1'='1",
    "' or 1=1 --",
    "'; drop table heads; --",
    "') union select body from history where kind = 'secrets' --",
    "\\' or 1=1 --",
    "x' and pg_sleep(5) is null and 'a'='a",
    "$1",
    "%s %(a)s {} {0.__class__}",
    "\x00' or ''='",
    "\u02bc or 1=1 --",
    "a) or (1=1",
    'x"; select 1; --',
)


@pytest.fixture
async def two(admin: httpx.AsyncClient) -> httpx.AsyncClient:
    """An administrator's client, of an API with two ConfigMaps and a Secret that no list of ConfigMaps may show."""
    for name in ("one", "two"):
        made = {"metadata": {"name": name, "labels": {"app": name}}, "data": {"k": "v"}}
        (await admin.post(MAPS, json=made)).raise_for_status()
    secret = {"metadata": {"name": "s"}, "stringData": {"k": "jobplane-hidden"}}
    (await admin.post(MAPS.replace("configmaps", "secrets"), json=secret)).raise_for_status()
    return admin


def requests_of(trick: str) -> list[tuple[str, dict[str, Any]]]:
    """Wherever a text of a stranger comes near a statement."""
    token, segment = base64.urlsafe_b64encode(trick.encode()).decode(), quote(trick, safe="")
    return [
        (f"{MAPS}/{segment}", {}),
        (MAPS, {"labelSelector": f"app={trick}"}),
        (MAPS, {"labelSelector": f"app in ({trick})"}),
        (MAPS, {"labelSelector": f"{trick}=one"}),
        (MAPS, {"fieldSelector": f"metadata.name={trick}"}),
        (MAPS, {"fieldSelector": f"{trick}=one"}),
        (MAPS, {"continue": token, "limit": "1"}),
        (MAPS, {"continue": trick, "limit": "1"}),
        (MAPS, {"resourceVersion": trick}),
        (MAPS, {"limit": trick}),
        (MAPS.replace("default", segment), {}),
        ("/apis/history.jobplane.dev/v1/namespaces/default/jobs", {"search": trick, "sort": trick, "continue": token}),
        ("/apis/logs.jobplane.dev/v1/namespaces/default/logs", {"continue": token, "pod": trick}),
        ("/apis/agents.jobplane.dev/v1/tokens", {"continue": token}),
    ]


async def check(client: httpx.AsyncClient, trick: str) -> int:
    sent = 0
    for path, query in requests_of(trick):
        answer = await client.get(path, params=query)
        assert answer.status_code < 500, (path, query, answer.text)
        assert "jobplane-hidden" not in answer.text
        if answer.status_code == 200 and path == MAPS and "resourceVersion" not in query:
            assert answer.json()["items"] == [], (path, query)
        sent += 1
    return sent


@pytest.mark.parametrize("trick", TRICKS)
async def test_a_statement_stays_a_text(two: httpx.AsyncClient, registry: Registry, trick: str) -> None:
    assert await check(two, trick) == len(requests_of(""))

    names = [each["metadata"]["name"] for each in (await two.get(MAPS)).raise_for_status().json()["items"]]
    assert {"one", "two"} <= set(names)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
@given(st.text(alphabet="'\"\\;-%$(){}=,!<>\x00 aoré\u2028", min_size=3, max_size=40))
async def test_no_text_becomes_a_statement(two: httpx.AsyncClient, trick: str) -> None:
    for path, query in requests_of(trick):
        answer = await two.get(path, params=query)
        assert answer.status_code < 500, (path, query, answer.text)
        assert "jobplane-hidden" not in answer.text
