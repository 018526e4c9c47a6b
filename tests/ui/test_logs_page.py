"""The page of logs, with real processes: followed, searched, filtered, previous and kept ones, several pods, bounded."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from app.api.routers.ui import FOLDER
from tests.e2e.cluster import Cluster, until
from tests.needs import lacking
from tests.ui.viewer import PHONE, Viewer

MANY = 30_000


@pytest.fixture(scope="module")
def process_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Runs containers as processes, whose logs grow while they are read."""
    if not (FOLDER / "index.html").exists():
        lacking("the page is not built: `make page`")
    with Cluster(tmp_path_factory.mktemp("logs") / "data") as running:
        yield running
    assert running.surprises() == ""


@pytest.fixture
def client(process_cluster: Cluster) -> Iterator[httpx.Client]:
    with process_cluster.client() as made:
        yield made


@pytest.fixture
def reader(process_cluster: Cluster, browser: Browser) -> Iterator[Viewer]:
    made = Viewer.signed_in(browser, process_cluster, accept_downloads=True)
    yield made
    made.close()


def run_job(client: httpx.Client, name: str, script: str, policy: str = "Never", **spec: Any) -> None:
    container = {"name": "main", "image": "tool", "command": ["sh", "-c", script]}
    template = {"spec": {"restartPolicy": policy, "containers": [container]}}
    manifest = {"metadata": {"name": name}, "spec": {"template": template, "backoffLimit": 6, **spec}}
    client.post("/apis/batch/v1/namespaces/default/jobs", json=manifest).raise_for_status()


def open_log(reader: Viewer, path: str) -> Page:
    page = reader.open(path)
    expect(page.get_by_role("log")).to_be_visible()
    return page


def test_a_log_is_followed_as_it_grows(reader: Viewer, client: httpx.Client, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    wait = f"until [ -e {sign} ]; do sleep 0.1; done"
    run_job(client, "grow", f"printf '\\033[32mfirst\\033[0m\\n'; {wait}; seq -f 'line %.0f' 1 200; sleep 3600")
    page = open_log(reader, "/logs/default/job/grow")
    log = page.get_by_role("log")
    expect(log).to_have_attribute("data-lines", "1")
    expect(log.locator(".ansi-green")).to_have_text("first")  # the colour, and no escape
    sign.touch()
    expect(log).to_have_attribute("data-lines", "201")
    expect(log).to_contain_text("line 200")  # the end is in view

    page.get_by_role("button", name="Follow").click()
    log.evaluate("log => log.scrollTo(0, 0)")
    expect(log).to_contain_text("first")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("f")
    expect(log).to_contain_text("line 200")


def test_a_log_is_searched_filtered_and_linked(reader: Viewer, client: httpx.Client) -> None:
    run_job(
        client, "search", "seq -f 'step %.0f' 1 500; echo 'ValueError: bad shard'; echo 'error: gave up'; seq 3; exit 0"
    )
    page = open_log(reader, "/logs/default/job/search")
    log = page.get_by_role("log")
    expect(log).to_have_attribute("data-lines", "505")
    page.get_by_role("searchbox").fill("/^step 1\\d\\d$/")
    expect(page.get_by_test_id("found")).to_have_text("100 found")
    page.get_by_role("button", name="Only matches").click()
    expect(log).to_have_attribute("data-lines", "100")
    page.get_by_role("searchbox").fill("/[/")
    expect(page.get_by_test_id("found")).to_have_text("not a valid expression")
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="First error").click()
    expect(log.locator(".target")).to_contain_text("error: gave up")

    log.locator(".target").get_by_role("button").click()
    assert "at=" in page.url
    page = open_log(reader, page.url.partition("/ui")[2])
    expect(log.locator(".target")).to_contain_text("error: gave up")
    assert reader.faults() == []


def test_the_previous_run_of_a_container_is_read(reader: Viewer, client: httpx.Client, tmp_path: Path) -> None:
    script = (
        f"if [ -e {tmp_path}/ran ]; then echo second run; sleep 3600; fi; touch {tmp_path}/ran; echo first run; exit 1"
    )
    run_job(client, "again", script, policy="OnFailure")
    pods = {"labelSelector": "batch.kubernetes.io/job-name=again"}

    def restarts() -> int:
        items = client.get("/api/v1/namespaces/default/pods", params=pods).json()["items"]
        return sum(each["restartCount"] for pod in items for each in pod["status"].get("containerStatuses", ()))

    until(restarts, 60, "the container runs again")
    page = open_log(reader, "/logs/default/job/again?previous=1")
    expect(page.get_by_role("log")).to_contain_text("first run")
    page.get_by_role("button", name="Previous run").click()
    expect(page.get_by_role("log")).to_contain_text("second run")


def test_logs_of_a_deleted_job_are_read_and_saved(reader: Viewer, client: httpx.Client, tmp_path: Path) -> None:
    run_job(client, "gone", "echo 'last words'; exit 0")
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    until(lambda: client.get(f"{jobs}/gone").json()["status"].get("succeeded"), 60, "the Job is complete")
    client.request("DELETE", f"{jobs}/gone", json={"propagationPolicy": "Background"}).raise_for_status()
    pods = {"labelSelector": "batch.kubernetes.io/job-name=gone"}
    until(lambda: not client.get("/api/v1/namespaces/default/pods", params=pods).json()["items"], 60, "its pod is gone")
    page = open_log(reader, "/logs/default/job/gone")
    expect(page.get_by_role("log")).to_contain_text("last words")
    expect(page.get_by_text("kept log of a pod that is gone")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download").click()
    saved.value.save_as(tmp_path / "saved")
    assert saved.value.suggested_filename == "gone.log"
    assert (tmp_path / "saved").read_text() == "last words\n"


def test_logs_of_several_indexes_are_read_together(reader: Viewer, client: httpx.Client) -> None:
    indexed = {"completions": 3, "parallelism": 3, "completionMode": "Indexed"}
    run_job(client, "many", 'echo "I am $JOB_COMPLETION_INDEX"; exit 0', **indexed)
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    until(lambda: client.get(f"{jobs}/many").json()["status"].get("succeeded") == 3, 60, "the Job is complete")
    page = open_log(reader, "/logs/default/job/many")
    expect(page.get_by_role("log")).to_have_attribute("data-lines", "1")
    page.get_by_label("Pod and container").select_option("all")
    log = page.get_by_role("log")
    expect(log).to_have_attribute("data-lines", "3")
    for index in range(3):
        expect(log.locator(".log-line", has_text=f"I am {index}")).to_contain_text(f"index {index}")


def test_a_long_log_has_few_elements_and_a_bound(reader: Viewer, client: httpx.Client) -> None:
    run_job(client, "long", f"seq -f 'line %.0f of a long log' 1 {MANY}; exit 0")
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    until(lambda: client.get(f"{jobs}/long").json()["status"].get("succeeded"), 60, "the Job is complete")
    reader.page.set_viewport_size(PHONE)
    page = open_log(reader, "/logs/default/job/long")
    log = page.get_by_role("log")
    expect(log).to_contain_text(f"line {MANY} of")
    lines = int(log.get_attribute("data-lines") or "0")
    assert lines == 20_000  # the newest
    assert log.locator(".log-line").count() < 200
    expect(page.get_by_text(re.compile("20,000 lines"))).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert reader.faults() == []
    page.get_by_role("button", name="Wrap").click()
    expect(log).to_contain_text(f"line {MANY} of")
