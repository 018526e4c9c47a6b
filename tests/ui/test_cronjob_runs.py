"""Runs of CronJobs in the list of Jobs: hidden, but counted, and shown when the address asks for them."""

import re

import httpx
from playwright.sync_api import Page, expect

from tests.ui.jobs import await_job
from tests.ui.objects import a_job, create_cronjob, create_job
from tests.ui.viewer import Viewer


def create_run(api: httpx.Client, namespace: str, cronjob: str, name: str, exit_code: int = 0) -> None:
    """A Job that belongs to a CronJob, as its controller makes them."""
    owner = api.get(f"/apis/batch/v1/namespaces/{namespace}/cronjobs/{cronjob}").raise_for_status().json()
    job = a_job(name, seconds=0, exit_code=exit_code)
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": cronjob, "uid": owner["metadata"]["uid"]}
    job["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    api.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", json=job).raise_for_status()


def shown(page: Page) -> list[str]:
    return [each.split("\n")[0] for each in page.locator(".body [role=row]").all_inner_texts()]


def test_runs_of_cronjobs_do_not_flood_the_list(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    for name in ("nightly", "hourly"):
        create_cronjob(api, namespace, name, "0 0 1 1 *")
    create_job(api, namespace, "own", suspend=True)
    create_run(api, namespace, "nightly", "nightly-1")
    create_run(api, namespace, "nightly", "nightly-2", exit_code=1)
    create_run(api, namespace, "hourly", "hourly-1")
    await_job(api, namespace, "nightly-2", "Failed")

    page = viewer.open(f"/jobs?namespace={namespace}&sort=Name")
    expect(page.get_by_text("3 runs of CronJobs are hidden, 1 failed.")).to_be_visible()
    assert shown(page) == ["own"]
    page.get_by_role("searchbox").fill("nightly-")
    expect(page.get_by_text("2 runs of CronJobs are hidden, 1 failed.")).to_be_visible()
    page.get_by_role("searchbox").fill("")

    page.get_by_role("button", name="Show all").click()
    expect(page).to_have_url(re.compile("runs=all"))
    expect(page.get_by_role("status")).to_have_text("4 Jobs")
    assert shown(page) == ["hourly-1", "nightly-1", "nightly-2", "own"]
    page.reload()
    expect(page.get_by_role("status")).to_have_text("4 Jobs")
    page.get_by_role("button", name="Remove the filter Runs of CronJobs: shown").click()
    expect(page.get_by_role("status")).to_have_text("1 Jobs")


def test_a_cronjob_leads_to_all_its_runs(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    for name in ("nightly", "hourly"):
        create_cronjob(api, namespace, name, "0 0 1 1 *")
    create_run(api, namespace, "nightly", "nightly-1")
    create_run(api, namespace, "hourly", "hourly-1")

    page = viewer.open(f"/cronjobs?namespace={namespace}")
    page.get_by_role("button", name="Actions on nightly").click()
    page.get_by_role("menuitem", name="All runs").click()
    expect(page.get_by_role("status")).to_have_text("1 Jobs")
    assert shown(page) == ["nightly-1"]
    page.locator(".body").get_by_role("link", name="nightly", exact=True).click()
    expect(page).to_have_url(re.compile(f"/ui/cronjobs/{namespace}/nightly$"))
    page.get_by_role("link", name="All runs in the list").click()
    expect(page.get_by_role("status")).to_have_text("1 Jobs")
    page.get_by_role("button", name="Remove the filter CronJob: nightly").click()
    expect(page.get_by_text("2 runs of CronJobs are hidden.")).to_be_visible()
