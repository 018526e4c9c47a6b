"""The page of a Job that is gone, with its pod and its node, for an hour: the clocks of API and browser are moved.

The API and its Postgres run in a thread of their own, as the clock is passed to them there, and as the browser's own loop runs in
the test's; the browser is a real one.
"""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, expect

from app.api.auth.authenticator import MASTERS, User
from app.api.auth.tokens import issue
from app.api.routers.ui import FOLDER
from app.postgres.embedded_postgres import Postgres
from app.registry.bootstrap import bootstrap
from app.registry.verbs.objects import Registry
from app.store import open_store
from app.store.schema.migrate import migrate
from tests.api.conftest import serving
from tests.api.routers.test_history import a_job_that_is_gone_for_an_hour
from tests.conftest import FORGETFUL, Clock
from tests.needs import lacking
from tests.ui.viewer import DESK, PATIENCE_MS, Viewer


class Served(NamedTuple):
    """An API: its URL, a token of its administrator, what time it is there, and the UID of the Job that is gone."""

    url: str
    token: str
    now: Any
    uid: str


@asynccontextmanager
async def database(folder: Path) -> AsyncIterator[str]:
    folder.chmod(0o711)  # as root, Postgres runs as somebody else
    postgres = Postgres(folder / "pg", settings=FORGETFUL)
    try:
        dsn = await postgres.start()
        await migrate(dsn)
        yield dsn
    finally:
        await postgres.stop()


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if not (FOLDER / "index.html").exists():
        lacking("the page is not built: `make page`")
    found: list[Any] = []
    begun = threading.Event()

    async def serve() -> None:
        end, clock = asyncio.Event(), Clock()
        async with database(tmp_path_factory.mktemp("database")) as dsn, open_store(dsn) as store:
            registry = Registry(store, clock)
            await bootstrap(registry)
            job = await a_job_that_is_gone_for_an_hour(registry)
            token = await issue(registry, User(name="admin", groups=(MASTERS,)))
            async with serving(registry) as url:
                found.extend((Served(url, token, clock.now, job.metadata.uid), asyncio.get_running_loop(), end))
                begun.set()
                await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert begun.wait(PATIENCE_MS / 1000)
    made, loop, end = found
    yield made
    loop.call_soon_threadsafe(end.set)
    thread.join()


def test_the_page_shows_a_job_that_is_gone_for_an_hour(served: Served, browser: Browser) -> None:
    """Its exit code, node, result, events and log."""
    context = browser.new_context(viewport=DESK)
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(f"sessionStorage.setItem('jobplane.token', {json.dumps(served.token)})")
    context.clock.set_fixed_time(served.now + timedelta(seconds=1))
    viewer = Viewer(context, served.url)

    page = viewer.open("/history?namespace=default")
    row = page.get_by_role("table", name="Records").get_by_role("row").filter(has_text="pi")
    expect(row).to_contain_text("Failed")
    expect(row).to_contain_text("1h ago")
    row.get_by_role("link", name="pi").click()
    expect(page).to_have_url(re.compile(f"/ui/history/default/{served.uid}"))
    attempt = page.get_by_role("table", name="Attempts").get_by_role("row").nth(1)
    expect(attempt).to_contain_text("exit code 3")
    expect(attempt).to_contain_text("n")
    expect(page.get_by_text('"lost"').first).to_be_visible()
    expect(page.get_by_role("list", name="Events")).to_contain_text("Created")
    page = viewer.open("/logs/default/pod/pi-0?uid=p")
    expect(page.get_by_role("log")).to_contain_text("hello")
    viewer.close()
