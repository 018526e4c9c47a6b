"""The page of one Job: its state in words, why it waits, indexes, attempts, timeline, YAML; live, and accessible."""

import re

import httpx
from playwright.sync_api import expect

from tests.ui.jobs import await_job, make_job
from tests.ui.objects import create_cronjob
from tests.ui.viewer import Viewer

LONG_NAME = "a-long-name-" + "and-a-longer-one-" * 2 + "with-an-end"
RECORDS = "/apis/history.jobplane.dev/v1/namespaces"
LONG_IMAGE = "registry.internal.example.com:5000/pipelines/variant-calling@sha256:" + "0123456789abcdef" * 4

# Notes, before the page is painted, whether the dialog that comes next is open.
NOTE_FIRST_DIALOG = """() => new MutationObserver((_, observer) => {
  const dialog = document.querySelector("dialog");
  if (!dialog) return;
  window.firstDialogIsOpen = dialog.open;
  observer.disconnect();
}).observe(document.body, { childList: true, subtree: true })"""


def test_a_failed_attempt_is_told_with_the_next_one(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "flaky", "exitCode=3", backoffLimit=6)
    page = viewer.open(f"/jobs/{namespace}/flaky")
    sentence = page.get_by_test_id("sentence")
    expect(sentence).to_have_text(re.compile(r"^Attempt [23] of 7 at \d\d:\d\d:\d\d, because exit code 3$"))
    expect(page.get_by_test_id("state")).to_have_text("Retrying")
    expect(page.get_by_test_id("causes")).to_contain_text("tried again by itself")
    row = page.get_by_role("table", name="Attempts").get_by_role("row").nth(1)
    expect(row).to_contain_text("exit code 3")
    expect(page.get_by_role("region", name="Timeline").get_by_role("img").first).to_have_attribute(
        "aria-label", re.compile("queued")
    )


def test_restarts_in_a_pod_are_attempts_each_with_its_log(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    job = make_job(api, namespace, "again", "exitCode=3 log=knocking", policy="OnFailure", backoffLimit=30)
    page = viewer.open(f"/jobs/{namespace}/again")
    sentence = page.get_by_test_id("sentence")
    expect(sentence).to_have_text(re.compile(r"^Attempt [3-9] of 30 at \d\d:\d\d:\d\d, because exit code 3$"))
    expect(page.get_by_test_id("state")).to_have_text("Retrying")
    attempts = page.get_by_role("table", name="Attempts").get_by_role("row")
    expect(attempts.nth(1)).to_contain_text("Waiting")
    expect(attempts.nth(2)).to_contain_text("exit code 3")
    expect(attempts.nth(2)).to_contain_text("main, run 2")
    expect(attempts.last).to_contain_text("main, run 1")
    # The pod's status has forgotten the first run; its Job's record has it, if a report of the agent came between the two.
    runs = api.get(f"{RECORDS}/{namespace}/jobs/{job['metadata']['uid']}").json()["attempts"][0]["restarts"]
    is_recorded = any(each["run"] == 0 for each in runs)
    expect(attempts.last).to_contain_text("exit code 3" if is_recorded else "exit code not kept")
    expect(page.get_by_role("region", name="Timeline").get_by_role("img").first).to_have_attribute(
        "aria-label", re.compile("back-off")
    )

    attempts.last.get_by_role("link", name=re.compile("run 1$")).click()
    expect(page.get_by_role("log")).to_contain_text("knocking")
    expect(page.get_by_text("kept log of an earlier run")).to_be_visible()

    pod = api.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"][0]["metadata"]["name"]
    viewer.open(f"/pods/{namespace}/{pod}")
    expect(page.get_by_test_id("sentence")).to_contain_text("because main ended with exit code 3")


def test_a_change_is_seen_without_a_reload(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "one", "seconds=3600")
    page = viewer.open(f"/jobs/{namespace}/one")
    expect(page.get_by_test_id("state")).to_have_text("Running")
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/one"
    patch = {"Content-Type": "application/merge-patch+json"}
    api.patch(path, json={"spec": {"suspend": True}}, headers=patch).raise_for_status()
    expect(page.get_by_test_id("state")).to_have_text("Suspended")
    expect(page.get_by_test_id("causes")).to_contain_text("Resume it")
    api.delete(path).raise_for_status()
    expect(page.get_by_test_id("state")).to_have_text("Deleted")
    expect(page.get_by_role("link", name="record")).to_be_visible()


def test_a_pod_that_fits_no_node_says_so_with_figures(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "huge", requests={"cpu": "5000"})
    page = viewer.open(f"/jobs/{namespace}/huge")
    expect(page.get_by_test_id("causes")).to_contain_text(
        "No node is large enough: it asks for 5,000 CPU, the largest node has"
    )
    expect(page.get_by_test_id("sentence")).to_have_text("Pending: waiting for a node")


def test_five_thousand_indexes_are_one_grid_that_can_be_clicked(
    viewer: Viewer, api: httpx.Client, namespace: str
) -> None:
    make_job(
        api, namespace, "array", "seconds=3600", suspend=True, completions=5000, parallelism=5, completionMode="Indexed"
    )
    page = viewer.open(f"/jobs/{namespace}/array")
    grid = page.get_by_role("slider", name="Index")
    expect(grid).to_be_visible()
    expect(page.get_by_role("list", name="States of indexes")).to_have_text("5,000 waiting")
    patch = {"Content-Type": "application/merge-patch+json"}
    api.patch(f"/apis/batch/v1/namespaces/{namespace}/jobs/array", json={"spec": {"suspend": False}}, headers=patch)
    expect(page.get_by_role("list", name="States of indexes")).to_contain_text("5 running")

    pitch = int(grid.get_attribute("data-pitch") or "0")
    grid.click(position={"x": 3 * pitch + 2, "y": 2})
    expect(page.get_by_test_id("index-shown")).to_have_text("Index 3: running")
    attempts = page.get_by_role("region", name=re.compile("^Attempts")).get_by_role("row")
    expect(attempts).to_have_count(2)
    expect(attempts.nth(1)).to_contain_text("array-3-")
    page.keyboard.press("End")
    expect(page.get_by_test_id("index-shown")).to_have_text("Index 4999: waiting")
    # As pixels: the fourth cell is not painted like the sixth.
    colours = grid.evaluate(
        """(canvas, pitch) => [3, 5].map((index) => {
            const scale = canvas.width / canvas.clientWidth, at = (index * pitch + 5) * scale
            return canvas.getContext("2d").getImageData(at, 5 * scale, 1, 1).data.join()
        })""",
        pitch,
    )
    assert colours[0] != colours[1]


def test_the_result_of_a_container_is_shown(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "result", '{"message": "{\\"accuracy\\": 0.93}"}')
    await_job(api, namespace, "result", "Complete")
    page = viewer.open(f"/jobs/{namespace}/result")
    expect(page.get_by_test_id("sentence")).to_have_text(re.compile("^Complete"))
    expect(page.get_by_role("table", name="Attempts")).to_contain_text('{"accuracy":0.93}')
    expect(page.get_by_role("region", name="Result as JSON")).to_have_text('{\n  "accuracy": 0.93\n}')


def test_keys_open_the_yaml_and_the_log(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "keys", "seconds=3600 log=hello")
    page = viewer.open(f"/jobs/{namespace}/keys")
    expect(page.get_by_test_id("state")).to_have_text("Running")
    page.keyboard.press("y")
    expect(page.get_by_test_id("yaml")).to_contain_text("backoffLimit: 6")
    expect(page.get_by_test_id("yaml")).not_to_contain_text("managedFields")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("l")
    expect(page.get_by_role("log")).to_contain_text("hello")


def test_a_dialog_is_open_as_soon_as_it_is_in_the_page(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "quick", "seconds=3600")
    page = viewer.open(f"/jobs/{namespace}/quick")
    expect(page.get_by_test_id("state")).to_have_text("Running")
    for key, name in (("y", "quick as YAML"), ("?", "Keyboard shortcuts")):
        page.evaluate(NOTE_FIRST_DIALOG)
        page.keyboard.press(key)
        expect(page.get_by_role("dialog", name=name)).to_be_visible()
        assert page.evaluate("window.firstDialogIsOpen") is True
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)


def test_a_job_that_is_not_there_leads_to_the_history(viewer: Viewer, namespace: str) -> None:
    page = viewer.open(f"/history?namespace={namespace}")
    page.goto(f"{viewer.url}/ui/jobs/{namespace}/none")
    expect(page.get_by_text(f"There is no Job none in {namespace}")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("link", name="history")).to_have_attribute(
        "href", re.compile("/ui/history")
    )


def test_pages_are_accessible_and_fit(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "wide", "seconds=3600", completions=60, parallelism=4, completionMode="Indexed")
    make_job(api, namespace, "huge", requests={"cpu": "5000"})
    make_job(api, namespace, "again", "exitCode=3 log=hello", policy="OnFailure", backoffLimit=30)
    make_job(api, namespace, LONG_NAME, "exitCode=1", backoffLimit=0, image=LONG_IMAGE)
    make_job(api, namespace, "done", '{"log": "hello", "message": "{\\"accuracy\\": 0.93}"}')
    create_cronjob(api, namespace, "nightly", "H 2 * * *")
    done = await_job(api, namespace, "done", "Complete")
    node = api.get("/api/v1/nodes").json()["items"][0]["metadata"]["name"]
    pod = api.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"][0]["metadata"]["name"]
    paths = [f"/jobs/{namespace}/{each}" for each in ("wide", "huge", "again", LONG_NAME, "done", "absent")]
    paths += [f"/pods/{namespace}/{pod}", f"/nodes/{node}", "/nonsense"]
    paths += [f"/cronjobs/{namespace}/nightly", f"/cronjobs/{namespace}/absent"]
    paths += [f"/logs/{namespace}/job/done", f"/history/{namespace}/{done['metadata']['uid']}", "/history"]
    for path in paths:
        page = viewer.open(path)
        expect(page.get_by_text("Loading…")).to_have_count(0)
        viewer.assert_accessible(path)
