"""Saved views: a name for the filters of a list, kept in the browser."""

import json

from playwright.sync_api import expect

from tests.ui.viewer import Viewer


def test_a_view_is_saved_opened_and_deleted(viewer: Viewer) -> None:
    page = viewer.open("/jobs?state=Failed&q=train&sort=-Name")
    page.get_by_role("button", name="Views").click()
    form = page.get_by_role("dialog", name="Saved views")
    assert viewer.faults() == []
    form.get_by_role("textbox", name="Save these filters as").fill("Failed trainings")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Failed trainings")).to_be_visible()

    viewer.open("/pods?state=Running")
    page.get_by_role("button", name="Views").click()
    expect(form.get_by_role("link")).to_have_count(0)  # each list has its own

    viewer.open("/jobs")
    page.get_by_role("button", name="Views").click()
    form.get_by_role("link", name="Failed trainings").click()
    expect(page.get_by_role("combobox", name="State")).to_have_value("Failed")
    expect(page.get_by_role("searchbox")).to_have_value("train")
    assert page.url.endswith("/ui/jobs?state=Failed&q=train&sort=-Name")

    page.get_by_role("button", name="Failed trainings").click()
    form.get_by_role("button", name="Delete the view Failed trainings").click()
    expect(form.get_by_role("link")).to_have_count(0)
    page.reload()
    page.get_by_role("button", name="Views").click()
    expect(form.get_by_role("link")).to_have_count(0)


def test_views_survive_nonsense_in_the_browser(viewer: Viewer) -> None:
    page = viewer.open("/jobs")
    good = {"path": "/jobs", "name": "Good", "query": "state=Failed"}
    for kept in ("{nonsense", json.dumps([1, None, {"path": 2}, good])):
        page.evaluate("kept => localStorage.setItem('jobplane.views', kept)", kept)
        viewer.open("/jobs?state=Failed")
        expect(page.get_by_role("combobox", name="State")).to_have_value("Failed")
    expect(page.get_by_role("button", name="Good")).to_be_visible()
