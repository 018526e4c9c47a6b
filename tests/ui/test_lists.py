"""The lists of the page: what they show, live; search, filters and sort in the address; keys; accessibility."""

import re

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.cluster import Cluster
from tests.ui.frames import MOST_FRAMES, expect_text, frames_until, watch_frames
from tests.ui.objects import create_cronjob, create_job, create_queue
from tests.ui.viewer import Viewer

LISTS = ("/jobs", "/cronjobs", "/pods", "/nodes", "/queues", "/events")


def rows(page: Page) -> Locator:
    return page.locator(".body [role=row]")


def row(page: Page, name: str) -> Locator:
    return rows(page).filter(has_text=name)


@pytest.fixture
def populated(api: httpx.Client, namespace: str) -> str:
    """A namespace with something in every list."""
    create_queue(api, namespace, weight=2, nominalQuota={"cpu": "4"})
    create_cronjob(api, namespace, f"nightly-{namespace}", "H 2 * * *")
    create_job(api, namespace, f"runs-{namespace}")
    create_job(api, namespace, f"fails-{namespace}", seconds=0, exit_code=3)
    create_job(api, namespace, f"waits-{namespace}", suspend=True)
    return namespace


def test_each_list_shows_what_there_is(viewer: Viewer, populated: str) -> None:
    name = populated
    page = viewer.open(f"/jobs?namespace={name}")
    expect(row(page, f"runs-{name}")).to_contain_text("Running")
    expect(row(page, f"fails-{name}")).to_contain_text("Failed")
    expect(row(page, f"waits-{name}")).to_contain_text("Suspended")

    viewer.open(f"/cronjobs?namespace={name}")
    expect(row(page, f"nightly-{name}")).to_contain_text("H 2 * * *")
    expect(row(page, f"nightly-{name}")).to_contain_text(re.compile(r"in \d+"))

    viewer.open(f"/pods?namespace={name}")
    expect(row(page, f"runs-{name}")).to_contain_text("Running")
    expect(row(page, f"fails-{name}")).to_contain_text("Exit code 3")

    viewer.open("/nodes?q=simulated-1")
    expect(rows(page)).to_have_count(1)
    expect(row(page, "simulated-1")).to_contain_text("Ready")

    viewer.open(f"/queues?namespace={name}")
    expect(row(page, f"{name}/default")).to_contain_text("0.25 of 4")


def test_the_overview_counts_what_there_is(viewer: Viewer, populated: str) -> None:
    page = viewer.open("/")

    expect(page.get_by_text("Nodes ready").locator("xpath=following-sibling::dd")).to_have_text("8/8")
    expect(page.get_by_role("region", name="Capacity")).to_contain_text(re.compile(r"of \d+ requested"))
    expect(page.get_by_role("region", name="Failed last")).to_contain_text(f"fails-{populated}")
    waiting = page.get_by_role("region", name="Running and waiting")
    expect(waiting.get_by_role("row").filter(has_text=populated)).to_contain_text("1")


def test_a_change_is_shown_in_the_frame_after_its_arrival(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    page = viewer.open(f"/jobs?namespace={namespace}")
    expect(page.get_by_role("status")).to_have_text("0 Jobs")
    watch_frames(page)
    expect_text(page, "new-job")

    create_job(api, namespace, "new-job", suspend=True)

    assert frames_until(page, "new-job", "jobs") <= MOST_FRAMES


def test_a_row_follows_its_job_to_the_end(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    page = viewer.open(f"/jobs?namespace={namespace}")
    create_job(api, namespace, "short", suspend=True)
    expect(row(page, "short")).to_contain_text("Suspended")

    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/short"
    merge = {"Content-Type": "application/merge-patch+json"}
    api.patch(path, json={"spec": {"suspend": False}}, headers=merge).raise_for_status()
    expect(row(page, "short")).to_contain_text("Running")

    api.delete(path).raise_for_status()
    expect(row(page, "short")).to_have_count(0)


def test_search_filters_and_sort_are_in_the_address(viewer: Viewer, populated: str) -> None:
    page = viewer.open(f"/jobs?namespace={populated}")
    expect(rows(page)).to_have_count(3)

    page.get_by_role("combobox", name="State").select_option("Suspended")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("combobox", name="State").select_option("")
    page.get_by_role("searchbox").fill("team=vision S-")
    expect(rows(page)).to_have_count(3)
    page.get_by_role("button", name="Name", exact=True).click()
    page.get_by_role("button", name="Name", exact=True).click()
    expect(rows(page).first).to_contain_text("waits-")
    assert page.get_by_role("columnheader", name="Name", exact=True).get_attribute("aria-sort") == "descending"

    page.reload()
    expect(rows(page).first).to_contain_text("waits-")
    assert "sort=-Name" in page.url
    page.get_by_role("searchbox").fill("absent")
    expect(page.get_by_text("Nothing matches the search")).to_be_visible()


def test_labels_nodes_and_phases_are_filtered_by_the_server(viewer: Viewer, populated: str) -> None:
    page = viewer.page
    with page.expect_request(lambda request: "labelSelector=team%3Dvision" in request.url):
        viewer.open("/jobs?labels=team=vision")
    with page.expect_request(lambda request: "fieldSelector=spec.nodeName%3Dsimulated-0" in request.url):
        viewer.open("/pods?node=simulated-0")
    page.get_by_role("button", name="Remove the filter Node: simulated-0").click()
    expect(page).to_have_url(re.compile(r"/ui/pods$"))
    with page.expect_request(lambda request: "fieldSelector=status.phase%3DFailed" in request.url):
        page.get_by_role("combobox", name="State").select_option("Failed")
    expect(row(page, f"fails-{populated}")).to_be_visible()


def test_keys_choose_and_open_rows(viewer: Viewer, populated: str) -> None:
    page = viewer.open(f"/jobs?namespace={populated}&sort=Name")
    expect(rows(page)).to_have_count(3)

    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Escape")
    for key in ("j", "j", "k", "j"):
        page.keyboard.press(key)
    expect(page.get_by_role("link", name=f"runs-{populated}")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/ui/jobs/{populated}/runs-{populated}$"))

    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page.get_by_role("heading", name="Nodes")).to_be_visible()


def test_lists_are_accessible_and_fit(viewer: Viewer, populated: str) -> None:
    assert populated
    for path in ("/", *LISTS):
        page = viewer.open(path)
        if path != "/":
            expect(rows(page).first).to_be_visible()
        viewer.assert_accessible(path)
    viewer.open("/jobs?q=absent")
    expect(viewer.page.get_by_text("Nothing matches the search")).to_be_in_viewport()
    viewer.assert_accessible("an empty list")
    viewer.page.keyboard.press("?")
    expect(viewer.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    viewer.assert_accessible("the shortcuts")


def test_the_theme_is_the_systems_until_it_is_chosen(ui_cluster: Cluster, browser: Browser) -> None:
    viewer = Viewer.signed_in(browser, ui_cluster, color_scheme="dark")
    page = viewer.open("/jobs")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name=re.compile("Theme")).click()
    while "light" not in (page.get_by_role("button", name=re.compile("Theme")).get_attribute("aria-label") or ""):
        page.get_by_role("button", name=re.compile("Theme")).click()
    light = page.evaluate(ground)
    page.reload()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()

    assert page.evaluate(ground) == light != dark
    viewer.close()


def test_a_viewer_without_rights_is_told_so(ui_cluster: Cluster, browser: Browser, namespace: str) -> None:
    with ui_cluster.client() as api:
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        api.post(account, json={"metadata": {"name": "guest"}}).raise_for_status()
        token = api.post(f"{account}/guest/token", json={"spec": {}}).json()["status"]["token"]
    viewer = Viewer.signed_in(browser, ui_cluster, token)
    page = viewer.open("/jobs")

    expect(page.get_by_role("alert")).to_contain_text("cannot list resource")
    viewer.expect_refusals(403)
    viewer.close()
