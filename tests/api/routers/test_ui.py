"""The page's files: how they are cached, compressed and protected, and what is said without them."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from app.api.routers import ui
from app.machinery.errors import ApiError
from tests.conftest import NO_TLS

SCRIPT = b"let jobs = [];\n" * 200


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder as a build leaves it."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_bytes(b"<!doctype html><title>Jobplane</title>")
    (tmp_path / "assets" / "index-d41d8cd9.js").write_bytes(SCRIPT)
    return tmp_path


@pytest.fixture
async def site(built: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """Nobody in particular, before an API that has that page."""
    monkeypatch.setattr(ui, "FOLDER", built)
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as client:
        yield client


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/jobs", "/ui/jobs/default/pi.v2", "/ui/no/such/view"])
async def test_every_view_is_the_page(site: httpx.AsyncClient, path: str) -> None:
    answer = await site.get(path)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>Jobplane" in answer.text


async def test_a_browser_asks_for_the_page_again_and_for_its_assets_never(site: httpx.AsyncClient) -> None:
    page, script = await site.get("/ui"), await site.get("/ui/assets/index-d41d8cd9.js")

    assert page.headers["cache-control"] == "no-cache"
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "javascript" in script.headers["content-type"]
    unchanged = await site.get("/ui", headers={"If-None-Match": page.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


async def test_what_shrinks_is_sent_compressed(site: httpx.AsyncClient) -> None:
    headers = {"Accept-Encoding": "gzip, br"}
    async with site.stream("GET", "/ui/assets/index-d41d8cd9.js", headers=headers) as packed:
        raw = b"".join([each async for each in packed.aiter_raw()])
    plain = await site.get("/ui/assets/index-d41d8cd9.js", headers={"Accept-Encoding": "identity"})

    assert (packed.headers["content-encoding"], gzip.decompress(raw), plain.content) == ("gzip", SCRIPT, SCRIPT)
    assert packed.headers["etag"] != plain.headers["etag"]
    assert packed.headers["vary"] == "Accept-Encoding"


async def test_nothing_may_run_in_the_page_but_its_own_script(site: httpx.AsyncClient) -> None:
    for path in ("/ui", "/ui/assets/index-d41d8cd9.js"):
        headers = (await site.get(path)).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


async def test_an_asset_of_another_build_is_not_found(site: httpx.AsyncClient) -> None:
    answer = await site.get("/ui/assets/index-0.js")

    assert (answer.status_code, answer.json()["reason"]) == (404, "NotFound")


@pytest.mark.parametrize("path", ["../conftest.py", "..%2f..%2fsetup.py", "/etc/passwd", "%2e%2e/serve.py"])
async def test_only_files_of_the_page_are_served(site: httpx.AsyncClient, path: str) -> None:
    assert "import" not in (await site.get(f"/ui/{path}")).text


async def test_head_and_other_methods(site: httpx.AsyncClient) -> None:
    head = await site.head("/ui")

    assert (head.status_code, head.content) == (200, b"")
    assert (await site.delete("/ui/jobs")).status_code == 401


def test_without_a_build_the_page_says_what_to_do(tmp_path: Path) -> None:
    answer = ui.find_answer(ui.read_files(tmp_path / "absent"), "", {})

    assert answer.status_code == 503
    assert b"make page" in answer.body


def test_an_asset_that_is_no_file_is_refused_without_a_search_of_the_disk(built: Path) -> None:
    with pytest.raises(ApiError):
        ui.find_answer(ui.read_files(built), "assets/../../secret", {})
