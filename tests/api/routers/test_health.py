"""Probes: anybody may ask, by any method."""

import httpx
import pytest

from app.api.routers.health import probe_readiness
from app.machinery.errors import ApiError
from app.registry.objects import Registry
from app.store import Unavailable
from tests.conftest import NO_TLS


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/readyz/", "/readyz?verbose"])
async def test_a_probe_is_answered(url: str, method: str, path: str) -> None:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as nobody:
        answer = await nobody.request(method, path)

    assert (answer.status_code, answer.text) == (200, "" if method == "HEAD" else "ok")


async def test_a_process_that_the_database_has_left_lives_but_is_not_ready(registry: Registry, url: str) -> None:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as nobody:
        registry.store.feed.broken = Unavailable()  # until its next poll, which may come before a request arrives
        with pytest.raises(ApiError) as refused:
            await probe_readiness(registry)
        live = await nobody.get("/livez")

    assert (live.status_code, refused.value.code) == (200, 503)
    assert refused.value.message == "the change feed waits for the database: Unavailable"
