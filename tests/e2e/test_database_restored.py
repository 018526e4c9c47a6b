"""A backup is restored under processes that go on: what is lost is said, clients list anew, and new Jobs run.

The backup is a copy of Postgres' folder, which on the same server has the same name, timeline and system identifier.
"""

import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.e2e.cluster import until
from tests.e2e.ledger import JOBS
from tests.e2e.manifests import a_job
from tests.e2e.parts import Parts

READY_SECONDS = 30
DONE_SECONDS = 60
LOST = 5


class Watcher(threading.Thread):
    """Watches Jobs from a revision on, to the end of the stream."""

    def __init__(self, parts: Parts, revision: str) -> None:
        super().__init__(daemon=True)
        self.events: list[dict[str, Any]] = []
        self._parts, self._revision = parts, revision

    def run(self) -> None:
        query = {"watch": "1", "resourceVersion": self._revision}
        with self._parts.client() as client, client.stream("GET", JOBS, params=query, timeout=DONE_SECONDS) as stream:
            for line in stream.iter_lines():
                self.events.append(msgspec.json.decode(line))

    def names(self) -> set[str]:
        return {each["object"]["metadata"]["name"] for each in self.events if each["type"] == "ADDED"}


class Story(msgspec.Struct, frozen=True):
    """What happened, for the tests to judge."""

    parts: Any
    watcher: Any
    lost: str  # the last revision that a list showed
    after: dict[str, Any]  # the Job that was made afterwards, as it was answered


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with Parts(tmp_path_factory.mktemp("restored") / "data") as parts, parts.client() as client:
        client.post(JOBS, json=a_job("before", "true")).raise_for_status()
        until(lambda: _is_complete(client, "before"), DONE_SECONDS, "the first Job")
        gate = parts.folder / "gate"
        client.post(JOBS, json=a_job("across", f"until [ -e {gate} ]; do sleep 0.1; done")).raise_for_status()
        until(lambda: _running(client) == 1, DONE_SECONDS, "its pod runs")
        _back_up(parts)
        until(lambda: client.get("/readyz").is_success, READY_SECONDS, "ready after the backup")
        watcher = Watcher(parts, client.get(JOBS).json()["metadata"]["resourceVersion"])
        watcher.start()
        for number in range(LOST):
            client.post(JOBS, json=a_job(f"lost-{number}", "sleep 1000")).raise_for_status()
        until(lambda: _running(client) == LOST + 1, DONE_SECONDS, "all run")
        until(lambda: len(watcher.names()) == LOST, DONE_SECONDS, "the watcher sees all")
        gate.touch()
        until(lambda: _is_complete(client, "across"), DONE_SECONDS, "it ends after the backup")
        lost = client.get(JOBS).json()["metadata"]["resourceVersion"]
        _restore(parts)
        until(lambda: client.get("/readyz").is_success, READY_SECONDS, "ready after the restore")
        after = until(lambda: _made(client, "after"), READY_SECONDS, "a Job is taken")
        yield Story(parts, watcher, lost, after)


def _made(client: Any, name: str) -> dict[str, Any] | None:
    answer = client.post(JOBS, json=a_job(name, "true"))
    return answer.json() if answer.is_success else None


def _running(client: Any) -> int:
    return sum(pod["status"]["phase"] == "Running" for pod in client.get("/api/v1/pods").json()["items"])


def _is_complete(client: Any, name: str) -> bool:
    conditions = client.get(f"{JOBS}/{name}").json()["status"].get("conditions", [])
    return any(each["type"] == "Complete" for each in conditions)


def _back_up(parts: Parts) -> None:
    parts.take_away(signal.SIGINT)
    cluster = parts.folder / "postgres" / "cluster"
    subprocess.run(["cp", "-a", cluster, parts.folder / "backup"], check=True)
    parts.bring_back()


def _restore(parts: Parts) -> None:
    parts.take_away(signal.SIGKILL)
    cluster = parts.folder / "postgres" / "cluster"
    shutil.rmtree(cluster)
    (parts.folder / "backup").rename(cluster)
    parts.bring_back()


def test_a_job_that_is_made_afterwards_runs(story: Story) -> None:
    with story.parts.client() as client:
        until(lambda: _is_complete(client, "after"), DONE_SECONDS, "it completes")


def test_a_pod_whose_end_is_lost_is_told_of_again(story: Story) -> None:
    with story.parts.client() as client:
        until(lambda: _is_complete(client, "across"), DONE_SECONDS, "it completes again")
        job = client.get(f"{JOBS}/across").json()

    assert (job["status"]["succeeded"], job["status"].get("failed", 0)) == (1, 0)


def test_an_open_watch_is_told_that_it_is_too_late(story: Story) -> None:
    story.watcher.join(DONE_SECONDS)

    assert [each["type"] for each in story.watcher.events[-1:]] == ["ERROR"]
    assert story.watcher.events[-1]["object"]["code"] == 410
    assert "after" not in story.watcher.names()


@pytest.mark.parametrize("query", [{"watch": "1"}, {}, {"resourceVersionMatch": "Exact"}], ids=str)
def test_a_lost_revision_is_too_old(story: Story, query: dict[str, str]) -> None:
    with story.parts.client() as client:
        answer = client.get(JOBS, params=query | {"resourceVersion": story.lost})

    assert (answer.status_code, answer.json()["reason"]) == (410, "Expired")


def test_no_revision_is_given_out_twice(story: Story) -> None:
    """The gap of 1,000,000 begins at the last revision that one process knew. The list may have shown a few more."""
    assert int(story.after["metadata"]["resourceVersion"]) > int(story.lost) + 990_000


def test_pods_that_are_lost_end_on_their_node(story: Story) -> None:
    until(lambda: story.parts.containers() == [], DONE_SECONDS, "their containers are gone")


def test_people_are_told_what_is_lost(story: Story) -> None:
    def events() -> list[dict[str, Any]]:
        with story.parts.client() as client:
            found = client.get("/api/v1/namespaces/kube-system/events", params={"fieldSelector": "reason=HistoryLost"})
        return list(found.json()["items"])

    (event,) = until(events, DONE_SECONDS, "the event")
    assert event["type"] == "Warning"
    assert "are lost" in event["message"]
    log = story.parts.log.read_text()
    assert "the database went back in time: revisions" in log
    assert "Traceback" not in log
