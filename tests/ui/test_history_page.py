"""The history on the page: a Job that is gone is found, with its attempts, result and log, and can run again."""

import re

import httpx
from playwright.sync_api import expect

from tests.e2e.cluster import until
from tests.ui.jobs import await_job, make_job
from tests.ui.viewer import Viewer


def delete_job(api: httpx.Client, namespace: str, name: str) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}"
    api.request("DELETE", f"{path}/jobs/{name}", json={"propagationPolicy": "Background"}).raise_for_status()
    until(lambda: api.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"] == [], 60, "the pods are gone")


def test_a_deleted_job_is_found_with_its_attempts_and_log(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    job = make_job(api, namespace, "lost", '{"exitCode": 7, "log": "last words"}', backoffLimit=0)
    await_job(api, namespace, "lost", "Failed")
    delete_job(api, namespace, "lost")

    page = viewer.open(f"/history?namespace={namespace}")
    row = page.get_by_role("table", name="Records").get_by_role("row").filter(has_text="lost")
    expect(row).to_contain_text("Failed")
    expect(row).to_contain_text("deleted")
    row.get_by_role("link", name="lost").click()

    expect(page).to_have_url(re.compile(f"/ui/history/{namespace}/{job['metadata']['uid']}"))
    expect(page.get_by_test_id("sentence")).to_contain_text("exit code 7")
    attempt = page.get_by_role("table", name="Attempts").get_by_role("row").nth(1)
    expect(attempt).to_contain_text("exit code 7")
    expect(page.get_by_role("list", name="Events")).to_contain_text("BackoffLimitExceeded")
    assert viewer.faults() == []

    attempt.get_by_role("link", name=re.compile("^Log of ")).click()
    expect(page.get_by_role("log")).to_contain_text("last words")
    expect(page.get_by_text("kept log of a pod that is gone")).to_be_visible()


def test_a_deleted_job_runs_again(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    job = make_job(api, namespace, "phoenix", "log=hello")
    await_job(api, namespace, "phoenix", "Complete")
    delete_job(api, namespace, "phoenix")
    page = viewer.open(f"/history/{namespace}/{job['metadata']['uid']}")
    page.get_by_role("button", name="Rerun", exact=True).click()
    expect(page).to_have_url(re.compile(f"/ui/jobs/{namespace}/phoenix"))
    expect(page.get_by_test_id("state")).to_have_text("Complete")


def test_records_are_filtered_by_result_and_name(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "good", "exitCode=0")
    make_job(api, namespace, "bad", "exitCode=1", backoffLimit=0)
    await_job(api, namespace, "good", "Complete")
    await_job(api, namespace, "bad", "Failed")
    page = viewer.open(f"/history?namespace={namespace}")
    rows = page.get_by_role("table", name="Records").get_by_role("row")
    expect(rows).to_have_count(3)
    page.get_by_label("Result").select_option("Failed")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("bad")
    assert "result=Failed" in page.url
    page.get_by_label("Result").select_option("")
    page.get_by_role("searchbox").fill("goo")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("good")
