"""Actions of viewers: suspend, rerun, delete, trigger, cordon, drain; a button that may not be pressed is disabled."""

import re
from typing import Any

import httpx
from playwright.sync_api import Browser, expect

from tests.e2e.cluster import Cluster
from tests.ui.jobs import await_job, make_job
from tests.ui.viewer import Viewer


def read_job(api: httpx.Client, namespace: str, name: str) -> Any:
    return api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}").json()


def test_a_job_is_suspended_and_resumed_by_key_and_button(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "long", "seconds=3600")
    page = viewer.open(f"/jobs/{namespace}/long")
    expect(page.get_by_test_id("state")).to_have_text("Running")
    expect(page.get_by_role("button", name="Suspend")).to_be_enabled()
    page.keyboard.press("s")
    expect(page.get_by_test_id("state")).to_have_text("Suspended")
    assert read_job(api, namespace, "long")["spec"]["suspend"] is True
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_test_id("state")).to_have_text("Running")


def test_a_job_is_deleted_only_after_a_question(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "gone", "seconds=3600")
    page = viewer.open(f"/jobs/{namespace}/gone")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete Job gone?")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert "deletionTimestamp" not in read_job(api, namespace, "gone")["metadata"]
    page.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile("/ui/jobs$"))


def test_an_ended_job_runs_again_as_it_was(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    before = make_job(api, namespace, "again", "exitCode=0")
    await_job(api, namespace, "again", "Complete")
    page = viewer.open(f"/jobs/{namespace}/again")
    expect(page.get_by_role("button", name="Rerun", exact=True)).to_be_enabled()
    page.keyboard.press("r")
    expect(page).to_have_url(re.compile(f"/ui/jobs/{namespace}/again-"))
    made = read_job(api, namespace, page.url.rpartition("/")[2])
    assert made["metadata"]["annotations"]["jobplane.dev/rerun-of"] == before["metadata"]["uid"]
    expect(page.get_by_role("link", name="an earlier Job")).to_be_visible()


def test_a_job_runs_again_with_edits(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    before = make_job(api, namespace, "edit", "exitCode=0")
    await_job(api, namespace, "edit", "Complete")
    page = viewer.open(f"/jobs/{namespace}/edit")
    page.get_by_role("button", name="Edit and rerun").click()
    editor = page.get_by_role("textbox", name="YAML")
    text = editor.input_value()
    editor.fill("spec: [")
    page.get_by_role("button", name="Create Job").click()
    expect(page.get_by_role("alert")).to_be_visible()
    editor.fill(text.replace("backoffLimit: 6", "backoffLimit: 2"))
    page.get_by_role("button", name="Create Job").click()
    expect(page).to_have_url(re.compile(f"/ui/jobs/{namespace}/edit-"))
    made = read_job(api, namespace, page.url.rpartition("/")[2])
    assert made["spec"]["backoffLimit"] == 2
    assert made["metadata"]["annotations"]["jobplane.dev/rerun-of"] == before["metadata"]["uid"]


def make_cronjob(api: httpx.Client, namespace: str, schedule: str) -> None:
    container = {"name": "main", "image": "tool"}
    job = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
    spec = {"schedule": schedule, "jobTemplate": job}
    path = f"/apis/batch/v1/namespaces/{namespace}/cronjobs"
    api.post(path, json={"metadata": {"name": "nightly"}, "spec": spec}).raise_for_status()


def test_a_cronjob_is_triggered_and_suspended(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_cronjob(api, namespace, "0 3 * * *")
    page = viewer.open(f"/cronjobs/{namespace}/nightly")
    expect(page.get_by_role("region", name="Next runs").get_by_role("listitem")).to_have_count(5)
    expect(page.get_by_test_id("sentence")).to_have_text(re.compile("^Runs next in "))
    assert viewer.faults() == []
    page.get_by_role("button", name="Trigger now").click()
    expect(page).to_have_url(re.compile(f"/ui/jobs/{namespace}/nightly-"))
    expect(page.get_by_test_id("state")).to_have_text("Complete")
    page.get_by_role("link", name="nightly", exact=True).click()
    bars = page.get_by_role("list", name="Last runs").get_by_role("listitem")
    expect(bars).to_have_count(1)
    expect(bars).to_have_attribute("aria-label", re.compile("Complete"))
    page.keyboard.press("s")
    expect(page.get_by_test_id("state")).to_have_text("Suspended")
    expect(page.get_by_text("None is planned.")).to_be_visible()


def test_a_node_is_cordoned_drained_and_taken_back(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    make_job(api, namespace, "stay", "seconds=3600", parallelism=16, completions=16)
    page = viewer.open(f"/jobs/{namespace}/stay")
    expect(page.get_by_test_id("sentence")).to_contain_text("16 pods running")
    pods = api.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"]
    node = pods[0]["spec"]["nodeName"]
    page = viewer.open(f"/nodes/{node}")
    here = page.get_by_role("table", name="Pods").get_by_role("row").filter(has_text=namespace)
    expect(here).to_have_count(sum(pod["spec"]["nodeName"] == node for pod in pods))
    try:
        page.get_by_role("button", name="Drain").click()
        page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        expect(page.get_by_role("status")).to_have_text(
            re.compile(r"^Drained: \d+ pods? evicted\.$")
        )  # none is refused
        expect(page.get_by_test_id("state")).to_have_text("Cordoned")
        expect(here).to_have_count(0)
        page.get_by_role("button", name="Uncordon").click()
        expect(page.get_by_test_id("state")).to_have_text("Ready")
    finally:
        patch = {"Content-Type": "application/merge-patch+json"}
        api.patch(f"/api/v1/nodes/{node}", json={"spec": {"unschedulable": False}}, headers=patch)
        api.delete(f"/apis/batch/v1/namespaces/{namespace}/jobs/stay")


def token_of_a_reader(api: httpx.Client, namespace: str) -> str:
    """The token of a service account that may only read the namespace."""
    api.post(
        f"/api/v1/namespaces/{namespace}/serviceaccounts", json={"metadata": {"name": "reader"}}
    ).raise_for_status()
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    api.post(path, json=binding).raise_for_status()
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/reader/token"
    return str(api.post(path, json={"spec": {}}).raise_for_status().json()["status"]["token"])


def test_a_reader_sees_all_and_may_press_nothing(
    ui_cluster: Cluster, browser: Browser, api: httpx.Client, namespace: str
) -> None:
    make_job(api, namespace, "seen", "seconds=3600")
    viewer = Viewer.signed_in(browser, ui_cluster, token_of_a_reader(api, namespace))
    page = viewer.open(f"/jobs/{namespace}/seen")
    expect(page.get_by_test_id("state")).to_have_text("Running")
    for name in ("Suspend", "Rerun", "Edit and rerun", "Delete"):
        button = page.get_by_role("button", name=name, exact=True)
        expect(button).to_be_disabled()
        expect(button).to_have_attribute("title", re.compile("^You may not "))
    page.keyboard.press("s")
    page.keyboard.press("d")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert (
        "suspend" not in read_job(api, namespace, "seen")["spec"]
        or not read_job(api, namespace, "seen")["spec"]["suspend"]
    )
    viewer.expect_refusals(403)  # of what it may not read, such as nodes
    viewer.close()
