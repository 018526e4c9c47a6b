"""Actions on many rows: selecting, one question, progress, what failed and why, and the menu of one row."""

import re
from concurrent.futures import ThreadPoolExecutor

import httpx
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.cluster import Cluster
from tests.ui.jobs import await_job
from tests.ui.objects import create_cronjob, create_job
from tests.ui.test_actions import read_job, token_of_a_reader
from tests.ui.viewer import Viewer, hold_requests

AT_ONCE = 4


def rows(page: Page) -> Locator:
    return page.locator(".body [role=row]")


def row(page: Page, name: str) -> Locator:
    return rows(page).filter(has=page.get_by_role("link", name=name, exact=True))


def pick(page: Page, name: str) -> Locator:
    return page.get_by_role("checkbox", name=f"Select {name}", exact=True)


def bar(page: Page) -> Locator:
    return page.get_by_role("region", name="Selected rows")


def press(page: Page, action: str, question: str) -> Locator:
    """Press a button of the bar; returns the question that it asks."""
    bar(page).get_by_role("button", name=action, exact=True).click()
    return page.get_by_role("dialog", name=question)


def names(api: httpx.Client, path: str) -> set[str]:
    return {each["metadata"]["name"] for each in api.get(path).raise_for_status().json()["items"]}


def jobs_path(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def is_suspended(api: httpx.Client, namespace: str, name: str) -> bool:
    return bool(read_job(api, namespace, name)["spec"].get("suspend"))


def test_selected_jobs_are_suspended_resumed_rerun_and_deleted(
    viewer: Viewer, api: httpx.Client, namespace: str
) -> None:
    for name in ("a", "b", "c"):
        create_job(api, namespace, name)
    create_job(api, namespace, "d", suspend=True)
    create_job(api, namespace, "other")
    page = viewer.open(f"/jobs?namespace={namespace}&sort=Name")
    expect(row(page, "d")).to_contain_text("Suspended")
    pick(page, "a").click()
    for _ in range(2):  # the second time nothing changes
        pick(page, "d").click(modifiers=["Shift"])
    expect(bar(page)).to_contain_text("4 selected")
    expect(pick(page, "d")).to_be_checked()

    question = press(page, "Suspend", "Suspend 3 Jobs?")
    expect(question).to_contain_text("a, b, c")
    expect(question).to_contain_text("1 of the 4 selected is left out: suspended already, or ended.")
    question.get_by_role("button", name="Suspend 3").click()
    expect(page.get_by_text("3 Jobs suspended.")).to_be_visible()
    assert [is_suspended(api, namespace, name) for name in ("a", "b", "c", "d", "other")] == [True] * 4 + [False]

    page.get_by_role("checkbox", name="Select all rows").click()
    question = press(page, "Resume", "Resume 4 Jobs?")
    question.get_by_role("button", name="Resume 4").click()
    expect(page.get_by_text("4 Jobs resumed.")).to_be_visible()
    assert not any(is_suspended(api, namespace, name) for name in "abcd")

    pick(page, "b").click()
    pick(page, "c").click()
    question = press(page, "Rerun", "Rerun 2 Jobs?")
    question.get_by_role("button", name="Rerun 2").click()
    expect(page.get_by_text("2 Jobs run again.")).to_be_visible()
    made = names(api, jobs_path(namespace)) - {"a", "b", "c", "d", "other"}
    assert sorted(name[:2] for name in made) == ["b-", "c-"]

    expect(rows(page)).to_have_count(7)
    page.get_by_role("checkbox", name="Select all rows").click()
    pick(page, "other").click()
    question = press(page, "Delete", "Delete 6 Jobs?")
    question.get_by_role("button", name="Delete 6").click()
    expect(page.get_by_text("6 Jobs deleted.")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    assert names(api, jobs_path(namespace)) == {"other"}


def test_all_that_the_filter_shows_are_selected_and_nothing_else(
    viewer: Viewer, api: httpx.Client, namespace: str
) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: create_job(api, namespace, f"old-{number:02}", suspend=True), range(70)))
    create_job(api, namespace, "new", suspend=True)
    page = viewer.open(f"/jobs?namespace={namespace}&sort=Name")
    pick(page, "new").click()
    page.get_by_role("searchbox").fill("old-")
    expect(page.get_by_role("status")).to_have_text("70 Jobs")
    expect(bar(page)).to_have_count(0)  # what is selected, but out of sight, is left alone
    assert rows(page).count() < 70

    page.get_by_role("checkbox", name="Select all rows").click()
    expect(bar(page)).to_contain_text("70 selected")
    press(page, "Delete", "Delete 70 Jobs?").get_by_role("button", name="Delete 70").click()

    expect(page.get_by_text("70 Jobs deleted.")).to_be_visible()
    assert names(api, jobs_path(namespace)) == {"new"}


def test_rows_are_selected_by_keys(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    for name in "abcd":
        create_job(api, namespace, name, suspend=True)
    page = viewer.open(f"/jobs?namespace={namespace}&sort=Name")
    expect(rows(page)).to_have_count(4)

    page.keyboard.press("/")  # whose effect shows that the page listens to keys
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="a", exact=True)).to_be_focused()
    page.keyboard.press("x")
    expect(pick(page, "a")).to_be_checked()
    for key in ("j", "j", "X"):
        page.keyboard.press(key)
    expect(bar(page)).to_contain_text("3 selected")
    page.keyboard.press("x")
    expect(pick(page, "c")).not_to_be_checked()
    pick(page, "d").click()  # keys go on when a checkbox has the focus
    page.keyboard.press("Escape")
    expect(bar(page)).to_have_count(0)
    page.keyboard.press("m")
    menu = page.get_by_role("menu", name="Actions on c")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(menu.get_by_role("menuitem", name="Rerun")).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu).to_have_count(0)


def test_what_failed_is_told_with_its_reason_and_stays_selected(
    viewer: Viewer, api: httpx.Client, namespace: str
) -> None:
    for name in "abc":
        create_job(api, namespace, name, suspend=True)
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"count/jobs.batch": "4"}}}
    api.post(f"/api/v1/namespaces/{namespace}/resourcequotas", json=quota).raise_for_status()
    page = viewer.open(f"/jobs?namespace={namespace}&sort=Name")
    expect(rows(page)).to_have_count(3)
    page.get_by_role("checkbox", name="Select all rows").click()
    press(page, "Rerun", "Rerun 3 Jobs?").get_by_role("button", name="Rerun 3").click()

    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("1 Job run again, 2 failed. Those that are left stay selected.")
    expect(alert.get_by_role("listitem")).to_have_count(1)
    expect(alert.get_by_role("listitem")).to_contain_text("exceeded quota")
    expect(bar(page)).to_contain_text("2 selected")
    alert.get_by_role("button", name="Dismiss").click()
    expect(alert).to_have_count(0)
    viewer.expect_refusals(403)


def test_a_few_requests_at_a_time_until_it_is_stopped(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    for number in range(12):
        create_job(api, namespace, f"job-{number:02}", suspend=True)
    page = viewer.open(f"/jobs?namespace={namespace}&sort=Name")
    held = hold_requests(page, "**/jobs/job-*")
    expect(rows(page)).to_have_count(12)
    page.get_by_role("checkbox", name="Select all rows").click()
    dialog = press(page, "Resume", "Resume 12 Jobs?")
    dialog.get_by_role("button", name="Resume 12").click()
    expect(dialog).to_contain_text("0 of 12")
    expect(dialog.get_by_role("progressbar", name="Progress")).to_be_visible()
    while len(held) < AT_ONCE:
        page.wait_for_timeout(20)
    held.pop(0).continue_()
    expect(dialog).to_contain_text("1 of 12")
    while len(held) < AT_ONCE:
        page.wait_for_timeout(20)
    assert len(held) == AT_ONCE

    dialog.get_by_role("button", name="Stop").click()
    for route in held:
        route.continue_()

    expect(page.get_by_text("5 Jobs resumed, 7 not tried, as you stopped it.")).to_be_visible()
    expect(bar(page)).to_contain_text("7 selected")
    assert sum(is_suspended(api, namespace, f"job-{number:02}") for number in range(12)) == 7


def test_the_menu_of_a_row_acts_on_it_alone(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    for name in "ab":
        create_job(api, namespace, name)
    page = viewer.open(f"/jobs?namespace={namespace}&sort=Name")
    more = page.get_by_role("button", name="Actions on a", exact=True)

    more.click()
    page.get_by_role("menuitem", name="Suspend").click()
    expect(page.get_by_text("1 Job suspended.")).to_be_visible()
    assert [is_suspended(api, namespace, name) for name in "ab"] == [True, False]
    expect(row(page, "a")).to_contain_text("Suspended")

    more.click()
    page.get_by_role("menuitem", name="Rerun").click()
    expect(page.get_by_text(re.compile("^a runs again as a-"))).to_be_visible()

    more.click()
    page.get_by_role("menuitem", name="Delete").click()
    question = page.get_by_role("dialog", name="Delete Job a?")
    question.get_by_role("button", name="Cancel").click()
    expect(question).to_have_count(0)
    assert "a" in names(api, jobs_path(namespace))

    page.get_by_role("button", name="Actions on b", exact=True).click()
    page.get_by_role("menuitem", name="Pods").click()
    expect(page.get_by_role("heading", name="Pods")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("b-")


def test_selected_cronjobs_are_triggered_suspended_and_deleted(
    viewer: Viewer, api: httpx.Client, namespace: str
) -> None:
    for name in ("one", "two"):
        create_cronjob(api, namespace, name, "0 0 1 1 *")
    page = viewer.open(f"/cronjobs?namespace={namespace}")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("checkbox", name="Select all rows").click()
    press(page, "Trigger", "Trigger 2 CronJobs?").get_by_role("button", name="Trigger 2").click()
    expect(page.get_by_text("2 CronJobs triggered.")).to_be_visible()
    assert {name[:4] for name in names(api, jobs_path(namespace))} == {"one-", "two-"}

    page.get_by_role("checkbox", name="Select all rows").click()
    press(page, "Suspend", "Suspend 2 CronJobs?").get_by_role("button", name="Suspend 2").click()
    expect(rows(page).filter(has_text="Suspended")).to_have_count(2)
    page.get_by_role("checkbox", name="Select all rows").click()
    press(page, "Delete", "Delete 2 CronJobs?").get_by_role("button", name="Delete 2").click()
    expect(rows(page)).to_have_count(0)


def test_selected_pods_are_deleted(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    # Without retries, the deletion of the first ends the Job, which deletes the others.
    create_job(api, namespace, "wide", parallelism=3, completions=3, backoffLimit=6)
    page = viewer.open(f"/pods?namespace={namespace}&state=Running")
    expect(rows(page)).to_have_count(3)
    before = names(api, f"/api/v1/namespaces/{namespace}/pods")
    page.get_by_role("checkbox", name="Select all rows").click()
    press(page, "Delete", "Delete 3 Pods?").get_by_role("button", name="Delete 3").click()
    expect(page.get_by_text("3 Pods deleted.")).to_be_visible()
    for name in before:
        expect(row(page, name)).to_have_count(0)


def test_selected_nodes_are_cordoned_and_taken_back(viewer: Viewer, api: httpx.Client) -> None:
    page = viewer.open("/nodes?q=simulated-")
    try:
        pick(page, "simulated-2").click()
        pick(page, "simulated-3").click()
        press(page, "Cordon", "Cordon 2 Nodes?").get_by_role("button", name="Cordon 2").click()
        expect(rows(page).filter(has_text="Cordoned")).to_have_count(2)
        page.get_by_role("button", name="Actions on simulated-2").click()
        page.get_by_role("menuitem", name="Uncordon").click()
        expect(row(page, "simulated-2")).to_contain_text("Ready")
        page.get_by_role("button", name="Actions on simulated-3").click()
        page.get_by_role("menuitem", name="Drain").click()
        question = page.get_by_role("dialog", name="Drain Node simulated-3?")
        question.get_by_role("button", name="Drain").click()
        expect(page.get_by_text(re.compile(r"^\d+ pods evicted from simulated-3\.$"))).to_be_visible()
    finally:
        merge = {"Content-Type": "application/merge-patch+json"}
        for name in ("simulated-2", "simulated-3"):
            api.patch(f"/api/v1/nodes/{name}", json={"spec": {"unschedulable": False}}, headers=merge)


def test_a_reader_may_do_nothing_to_rows(
    ui_cluster: Cluster, browser: Browser, api: httpx.Client, namespace: str
) -> None:
    create_job(api, namespace, "seen", suspend=True)
    viewer = Viewer.signed_in(browser, ui_cluster, token_of_a_reader(api, namespace))
    page = viewer.open(f"/jobs?namespace={namespace}")
    pick(page, "seen").click()
    for name, right in (("Resume", "patch jobs"), ("Rerun", "create jobs/rerun"), ("Delete", "delete jobs")):
        button = bar(page).get_by_role("button", name=name)
        expect(button).to_have_attribute("title", f"You may not {right} in {namespace}")
        expect(button).to_be_disabled()
    page.get_by_role("button", name="Actions on seen").click()
    for name in ("Resume", "Rerun", "Delete"):
        expect(page.get_by_role("menuitem", name=name)).to_have_attribute("title", re.compile("^You may not "))
        expect(page.get_by_role("menuitem", name=name)).to_be_disabled()
    viewer.expect_refusals(403)  # of namespaces, which it may not list
    viewer.close()


def test_selection_menu_and_question_are_accessible(viewer: Viewer, api: httpx.Client, namespace: str) -> None:
    create_job(api, namespace, "ended", seconds=0)
    await_job(api, namespace, "ended", "Complete")
    create_job(api, namespace, "waits", suspend=True)
    page = viewer.open(f"/jobs?namespace={namespace}&sort=Name")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("checkbox", name="Select all rows").click()
    expect(bar(page)).to_be_visible()
    viewer.assert_accessible("selected rows")
    page.get_by_role("button", name="Actions on waits").click()
    expect(page.get_by_role("menuitem", name="Resume")).to_be_enabled()
    assert viewer.faults() == []
    page.keyboard.press("Escape")
    question = press(page, "Resume", "Resume Job waits?")
    expect(question).to_be_visible()
    viewer.assert_accessible("the question")
