"""One `jobplane up` with simulated nodes, one browser, and for each test a viewer who is signed in.

A test fails if the browser's console had an error meanwhile.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, sync_playwright

from app.api.routers.ui import FOLDER
from tests.e2e.cluster import Cluster
from tests.needs import lacking
from tests.ui.viewer import PATIENCE_MS, Viewer

HERE = Path(__file__).parent
NODES = 8
# The headless shell is Chromium without its windows: the same pages take half of the processor's time.
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
# A browser that calls nobody but the page's own server.
_QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def ui_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Pretends some nodes. Pods end after a second, or as the annotation jobplane.dev/simulate says."""
    if not (FOLDER / "index.html").exists():
        lacking("the page is not built: `make page`")
    folder = tmp_path_factory.mktemp("ui") / "data"
    with Cluster(folder, "--runtime", "simulated", "--nodes", str(NODES), nodes=NODES) as running:
        yield running
    assert running.surprises() == ""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium of this machine."""
    program = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        lacking("no chromium is installed")
    arguments = [*_QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=arguments, timeout=PATIENCE_MS)
        yield running
        running.close()


@pytest.fixture
def api(ui_cluster: Cluster) -> Iterator[httpx.Client]:
    """The administrator's client of the same API."""
    with ui_cluster.client() as client:
        yield client


@pytest.fixture
def viewer(ui_cluster: Cluster, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Viewer]:
    """The administrator, in a window of its own. It closes before the test's namespace goes, as a page asks for logs that go."""
    if "namespace" in request.fixturenames:
        request.getfixturevalue("namespace")
    made = Viewer.signed_in(browser, ui_cluster)
    yield made
    made.close()


@pytest.fixture
def namespace(api: httpx.Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test: what runs in it is over with the test, as overviews show the busiest namespaces only."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**10}"
    api.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
    yield name
    api.delete(f"/api/v1/namespaces/{name}").raise_for_status()
