"""The list of all events: live, filtered by type on the server, each with a link to its object."""

import re

import httpx
from playwright.sync_api import Locator, Page, expect

from tests.ui.jobs import await_job
from tests.ui.objects import create_job
from tests.ui.viewer import Viewer


def events(page: Page, text: str | re.Pattern[str]) -> Locator:
    return page.locator(".body [role=row]").filter(has_text=text)


def create_event(api: httpx.Client, namespace: str, name: str, message: str, kind: str = "Widget") -> None:
    event = {
        "metadata": {"name": name},
        "involvedObject": {"kind": kind, "namespace": namespace, "name": "thing"},
        "type": "Warning",
        "reason": "Strange",
        "message": message,
        "count": 3,
    }
    api.post(f"/api/v1/namespaces/{namespace}/events", json=event).raise_for_status()


def test_events_are_live_and_lead_to_their_objects(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    page = viewer.open(f"/events?namespace={namespace}")
    expect(page.get_by_text("No events", exact=True)).to_be_visible()
    create_job(api, namespace, "made", suspend=True)
    expect(events(page, "Suspended")).to_contain_text("Job/made")

    create_event(api, namespace, "own", "a message of its own")
    expect(events(page, "a message of its own")).to_contain_text(re.compile("Widget/thing.*Warning: Strange.*3"))
    expect(events(page, "a message of its own").get_by_role("link")).to_have_count(0)  # no page shows widgets

    events(page, "Suspended").get_by_role("link", name="Job/made").click()
    expect(page).to_have_url(re.compile(f"/ui/jobs/{namespace}/made$"))


def test_events_are_searched_and_filtered(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    create_job(api, namespace, "fails", seconds=0, exit_code=3)
    await_job(api, namespace, "fails", "Failed")
    create_event(api, namespace, "own", "a message of its own")
    page = viewer.open(f"/events?namespace={namespace}")
    expect(events(page, "SuccessfulCreate")).to_have_count(1)
    with page.expect_request(lambda request: "fieldSelector=type%3DWarning" in request.url):
        page.get_by_role("combobox", name="Type").select_option("Warning")
    expect(events(page, "BackoffLimitExceeded")).to_have_count(1)
    expect(events(page, "SuccessfulCreate")).to_have_count(0)

    page.get_by_role("searchbox").fill("widget strange own")
    expect(page.locator(".body [role=row]")).to_have_count(1)
    page.get_by_role("combobox", name="Type").select_option("Normal")
    expect(page.get_by_text("Nothing matches the search")).to_be_visible()


def test_events_are_accessible(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    create_event(api, namespace, "own", "a message of its own", "Pod")
    page = viewer.open(f"/events?namespace={namespace}")
    expect(page.locator(".body [role=row]")).to_have_count(1)
    viewer.assert_accessible()
