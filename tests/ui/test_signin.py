"""Signing in to the page: by the link that `jobplane page` prints, by a token, and out again."""

import os
import re
import subprocess
from pathlib import Path

import httpx
from playwright.sync_api import Browser, expect

from tests.e2e.cluster import Cluster, environment, until
from tests.ui.viewer import Viewer


def printed_link(cluster: Cluster) -> str:
    command = [*cluster.program, "page", "--data-dir", str(cluster.folder)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_link_signs_in_once(ui_cluster: Cluster, browser: Browser) -> None:
    link = printed_link(ui_cluster)
    first = Viewer.unknown(browser, ui_cluster)
    first.follow(link)
    expect(first.page.get_by_role("navigation", name="Sections")).to_be_visible()
    assert "signin" not in first.page.url
    first.close()

    second = Viewer.unknown(browser, ui_cluster)
    second.follow(link)
    expect(second.page.get_by_role("alert")).to_contain_text("jobplane page")
    second.expect_refusals(403)
    second.close()


def test_a_token_signs_in_until_the_viewer_signs_out(ui_cluster: Cluster, browser: Browser) -> None:
    viewer = Viewer.unknown(browser, ui_cluster)
    page = viewer.open("/jobs")
    page.get_by_label("Token").fill(ui_cluster.token())
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()

    page.reload()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()

    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    viewer.close()


def test_the_form_is_accessible(ui_cluster: Cluster, browser: Browser) -> None:
    viewer = Viewer.unknown(browser, ui_cluster)
    viewer.open("/")
    viewer.assert_accessible()
    viewer.close()


def test_a_wrong_token_is_refused_in_words(ui_cluster: Cluster, browser: Browser) -> None:
    viewer = Viewer.unknown(browser, ui_cluster)
    page = viewer.open("/")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not accept this token")
    viewer.expect_refusals(401)
    viewer.close()


def test_a_token_that_is_revoked_signs_out(ui_cluster: Cluster, browser: Browser, api: httpx.Client) -> None:
    code = api.post("/ui/codes", json={}).json()["code"]
    token = api.post("/ui/signin", json={"code": code}).json()["token"]
    viewer = Viewer.signed_in(browser, ui_cluster, token)
    page = viewer.open("/jobs")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()

    newest = api.get("/apis/agents.jobplane.dev/v1/tokens").json()["items"][-1]["metadata"]["name"]
    api.delete(f"/apis/agents.jobplane.dev/v1/tokens/{newest}").raise_for_status()

    expect(page.get_by_label("Token")).to_be_visible()
    viewer.expect_refusals(401)
    viewer.close()


def test_up_prints_the_link_to_a_terminal_only(browser: Browser, tmp_path: Path) -> None:
    terminal, end = os.openpty()
    cluster = PrintingCluster(tmp_path / "data", end)
    try:
        with cluster:
            shown = b""
            while not (found := re.search(rb"Open (https://\S+/ui#signin=\S+)", shown)):
                shown += os.read(terminal, 65536)
            viewer = Viewer.unknown(browser, cluster)
            viewer.follow(found[1].decode())
            expect(viewer.page.get_by_role("navigation", name="Sections")).to_be_visible()
            viewer.close()
    finally:
        os.close(terminal)
        os.close(end)
    assert "signin=" not in cluster.log.read_text()


class PrintingCluster(Cluster):
    """A `jobplane up` whose standard output is a terminal; its log is not."""

    def __init__(self, folder: Path, terminal: int) -> None:
        super().__init__(folder, "--runtime", "simulated")
        self._terminal = terminal

    def start(self) -> None:
        command = [*self.program, "up", "--data-dir", str(self.folder), "--port", str(self.port), *self._arguments]
        with self.log.open("ab") as log:
            self._up = subprocess.Popen(
                command, stdout=self._terminal, stderr=log, env=environment(), start_new_session=True
            )
        until(self.is_usable, self.ready_seconds, f"ready; see {self.log}")
