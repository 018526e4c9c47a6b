"""Probes: anybody may ask, by any method; each check has a line, as apiserver's have."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from app.api.routers.health import checks_of
from app.registry.verbs.objects import Registry
from app.store import READ_ONLY, Unavailable, open_store
from tests.api.conftest import administering, serving
from tests.conftest import NO_TLS
from tests.store.rewinding import read_only

ALL_HOLD = "[+]ping ok\n[+]change-feed ok\n[+]database ok\n[+]shutdown ok\nreadyz check passed\n"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/readyz/", "/readyz?exclude=database"])
async def test_a_probe_is_answered(url: str, method: str, path: str) -> None:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as nobody:
        answer = await nobody.request(method, path)

    assert (answer.status_code, answer.text) == (200, "" if method == "HEAD" else "ok")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("/readyz?verbose", ALL_HOLD, id="readiness"),
        pytest.param("/healthz?verbose=1", ALL_HOLD.replace("readyz", "healthz"), id="readiness by its older name"),
        pytest.param("/livez?verbose", "[+]ping ok\nlivez check passed\n", id="liveness"),
        pytest.param(
            "/readyz?verbose&exclude=database&exclude=nix&exclude=change-feed",
            "[+]ping ok\n[+]change-feed excluded: ok\n[+]database excluded: ok\n[+]shutdown ok\n"
            'warn: some health checks cannot be excluded: no matches for "nix"\nreadyz check passed\n',
            id="without some",
        ),
    ],
)
async def test_each_check_has_a_line(url: str, path: str, text: str) -> None:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as nobody:
        answer = await nobody.get(path)

    assert (answer.status_code, answer.text) == (200, text)


async def test_a_process_whose_database_takes_no_writes_lives_but_is_not_ready(dsn: str, registry: Registry) -> None:
    async with (
        read_only(dsn),
        open_store(dsn) as store,
        serving(replace(registry, store=store)) as url,
        httpx.AsyncClient(base_url=url, verify=NO_TLS) as nobody,
    ):
        live, ready, verbose = [await nobody.get(path) for path in ("/livez", "/readyz", "/readyz?verbose")]
        excluded = await nobody.get("/readyz?exclude=database")

    assert (live.status_code, excluded.status_code) == (200, 200)
    assert (ready.status_code, ready.json()["message"]) == (503, READ_ONLY)
    lines = [
        "[+]ping ok",
        "[+]change-feed ok",
        f"[-]database failed: {READ_ONLY}",
        "[+]shutdown ok",
        "readyz check failed",
        "",
    ]
    assert (verbose.status_code, verbose.text.split("\n")) == (503, lines)


async def test_a_process_whose_change_feed_waits_is_not_ready(registry: Registry) -> None:
    registry.store.feed.broken = Unavailable()  # until its next poll, which would come before a request arrives

    assert registry.feed_fault() == "the change feed waits for the database: Unavailable"


async def test_one_check_is_asked_for_by_its_path(registry: Registry, url: str) -> None:
    async with administering(registry, url) as admin:
        checks = [check.name for check in checks_of("readyz", registry, asyncio.Event())]
        answers = [await admin.get(f"/readyz/{check}") for check in checks]
        unknown = await admin.get("/livez/database")
        nobody = await admin.get("/readyz/ping", headers={"Authorization": ""})

    assert [answer.text for answer in answers] == ["ok"] * 4
    assert (unknown.status_code, nobody.status_code) == (404, 401)
