"""A change on the server is drawn at most two frames after its arrival, on each page that is live.

History, the usage of resources and events of a Job's pods are asked for, not watched: see docs/known-limits.md.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.ui.frames import MOST_FRAMES, expect_text, frames_until, watch_frames
from tests.ui.jobs import make_job
from tests.ui.objects import create_cronjob, create_queue
from tests.ui.viewer import Viewer

MERGE = {"Content-Type": "application/merge-patch+json"}
NODE = "/api/v1/nodes/simulated-7"


def patch(api: httpx.Client, path: str, body: Any) -> None:
    api.patch(path, json=body, headers=MERGE).raise_for_status()


def frames_after(page: Page, act: Callable[[], None], text: str, plural: str, scope: str = "main") -> int:
    """Do what changes the object; return the frames from the change's arrival to the text that shows it."""
    watch_frames(page)
    expect_text(page, text, scope)
    act()
    return frames_until(page, text, plural)


@pytest.fixture
def uncordoned(api: httpx.Client) -> Iterator[None]:
    yield
    patch(api, NODE, {"spec": {"unschedulable": False}})


def test_a_job(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "one", "seconds=3600")
    page = viewer.open(f"/jobs/{namespace}/one")
    expect(page.get_by_test_id("state")).to_have_text("Running")
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/one"
    assert frames_after(page, lambda: patch(api, path, {"spec": {"suspend": True}}), "Suspended", "jobs") <= MOST_FRAMES


def test_an_attempt_of_a_job(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "two", "seconds=3600", suspend=True)
    page = viewer.open(f"/jobs/{namespace}/two")
    expect(page.get_by_test_id("state")).to_have_text("Suspended")
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/two"
    assert (
        frames_after(page, lambda: patch(api, path, {"spec": {"suspend": False}}), "simulated-", "pods") <= MOST_FRAMES
    )


def test_a_pod(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "pod", "seconds=3600 ignoreTerm=true")  # or it may be gone at once
    page = viewer.open(f"/jobs/{namespace}/pod")
    page.get_by_role("table", name="Attempts").get_by_role("link").first.click()
    expect(page.get_by_test_id("state")).to_have_text("Running")
    pod = api.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"][0]["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
    assert frames_after(page, lambda: api.delete(path).raise_for_status(), "Terminating", "pods") <= MOST_FRAMES
    api.delete(path, params={"gracePeriodSeconds": 0}).raise_for_status()


@pytest.mark.usefixtures("uncordoned")
def test_a_node(viewer: Viewer, api: httpx.Client) -> None:
    page = viewer.open("/nodes/simulated-7")
    expect(page.get_by_test_id("state")).to_have_text("Ready")
    act = lambda: patch(api, NODE, {"spec": {"unschedulable": True}})  # noqa: E731
    assert frames_after(page, act, "Cordoned", "nodes") <= MOST_FRAMES


def test_a_cronjob(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    create_cronjob(api, namespace, "nightly", "0 2 * * *")
    page = viewer.open(f"/cronjobs/{namespace}/nightly")
    expect(page.get_by_test_id("state")).to_have_text("Active")
    path = f"/apis/batch/v1/namespaces/{namespace}/cronjobs/nightly"
    act = lambda: patch(api, path, {"spec": {"suspend": True}})  # noqa: E731
    assert frames_after(page, act, "Suspended", "cronjobs") <= MOST_FRAMES


def test_a_run_of_a_cronjob(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    create_cronjob(api, namespace, "hourly", "0 * * * *")
    page = viewer.open(f"/cronjobs/{namespace}/hourly")
    expect(page.get_by_text("It has not run yet.")).to_be_visible()
    owner = api.get(f"/apis/batch/v1/namespaces/{namespace}/cronjobs/hourly").json()["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "hourly", "uid": owner["uid"], "controller": True}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "tool"}]}}}
    manifest = {"metadata": {"name": "hourly-by-hand", "ownerReferences": [reference]}, "spec": spec}
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    act = lambda: api.post(jobs, json=manifest).raise_for_status()  # noqa: E731
    assert frames_after(page, act, "hourly-by-hand", "jobs", ".run-list") <= MOST_FRAMES


def test_queues(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    create_queue(api, namespace, weight=2)
    page = viewer.open(f"/queues?namespace={namespace}")
    expect(page.locator(".body [role=row]")).to_have_count(1)
    path = f"/apis/jobplane.dev/v1/namespaces/{namespace}/localqueues/default"
    act = lambda: patch(api, path, {"spec": {"nominalQuota": {"cpu": "77"}}})  # noqa: E731
    assert frames_after(page, act, "of 77", "localqueues") <= MOST_FRAMES


def test_the_cluster(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    page = viewer.open("/")
    expect(page.get_by_text("Nodes ready").locator("xpath=following-sibling::dd")).to_have_text("8/8")
    act = lambda: make_job(api, namespace, "fast", "exitCode=4", backoffLimit=0) and None  # noqa: E731
    assert frames_after(page, act, f"{namespace}/fast", "jobs") <= MOST_FRAMES


def test_the_whole_way_from_the_servers_commit(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    """Reports the time by the clock, which a busy machine makes longer: it is asserted to be found, not to be short."""
    make_job(api, namespace, "clock", "seconds=3600", suspend=True)
    page = viewer.open(f"/jobs/{namespace}/clock")
    expect(page.get_by_test_id("state")).to_have_text("Suspended")
    watch_frames(page)
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/clock"
    spans = []
    for limit in range(100, 105):
        expect_text(page, f"up to {limit}")
        patch(api, path, {"spec": {"backoffLimit": limit}})
        committed = time.time()  # at the latest: the answer is sent after the commit
        page.wait_for_function("text => window.shown_at[text] !== undefined", arg=f"up to {limit}")
        shown = page.evaluate("text => performance.timeOrigin + window.shown_at[text]", f"up to {limit}")
        spans.append(shown / 1000 - committed)
    spans.sort()
    print(f"from commit to drawn: median {spans[2] * 1000:.0f} ms, longest {spans[-1] * 1000:.0f} ms")
    assert len(spans) == 5
