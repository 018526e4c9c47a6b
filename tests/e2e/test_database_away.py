"""Postgres goes away in the middle of a Job and comes back: clients are told to wait, and everything goes on by itself.

Here the parts run as they would on several machines: each by itself, on a Postgres that is the test's own.
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from app.kinds.batch.job import Job, condition
from tests.e2e.cluster import Cluster, until
from tests.e2e.ledger import JOBS, Ledger, is_exact, pods_of
from tests.e2e.manifests import a_job
from tests.e2e.parts import Parts

PODS, AT_ONCE = 60, 10
AWAY_SECONDS = 3.0
BACK_SECONDS = 10
DONE_SECONDS = 60


class Watcher(threading.Thread):
    """Watches Jobs as a careful client does: from the last version seen, again whenever the stream has ended cleanly."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[int] = []  # versions of the Job
        self.broken: list[Exception] = []
        self.refusals: Counter[int] = Counter()
        self.finished: Job | None = None
        self._cluster, self._name = cluster, name

    def run(self) -> None:
        query = {"watch": "1", "fieldSelector": f"metadata.name={self._name}", "resourceVersion": ""}
        with self._cluster.client() as client:
            while self.finished is None:
                with client.stream("GET", JOBS, params=query, timeout=DONE_SECONDS) as stream:
                    if not stream.is_success:
                        self.refusals[stream.status_code] += 1
                        time.sleep(0.2)
                        continue
                    try:
                        for line in stream.iter_lines():
                            self._take(line)
                            if self.finished:
                                return
                    except Exception as error:
                        self.broken.append(error)
                query["resourceVersion"] = str(self.seen[-1]) if self.seen else ""

    def _take(self, line: str) -> None:
        event = msgspec.json.decode(line)
        assert event["type"] in ("ADDED", "MODIFIED"), line
        job = msgspec.convert(event["object"], Job)
        self.seen.append(int(job.metadata.resource_version))
        if condition(job, "Complete") or condition(job, "Failed"):
            self.finished = job


class Outage:
    """Everything that was seen while the database was away."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, httpx.Response]] = []
        self.alive: set[int] = set()
        self.seconds_until_ready = 0.0

    def look(self, client: httpx.Client) -> None:
        """One round of everything that clients do."""
        manifest = a_job("meanwhile", "true")
        for what, answer in (
            ("get", client.get(f"{JOBS}/running")),
            ("list", client.get("/api/v1/pods")),
            ("list as a table", client.get(JOBS, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})),
            ("watch", client.get(f"{JOBS}?watch=1&timeoutSeconds=1")),
            ("create", client.post(JOBS, json=manifest)),
            ("dry run", client.post(f"{JOBS}?dryRun=All", json=manifest)),
            ("update", client.put(f"{JOBS}/running", json=manifest | {"metadata": {"name": "running"}})),
            (
                "patch",
                client.patch(f"{JOBS}/running", json={}, headers={"Content-Type": "application/merge-patch+json"}),
            ),
            ("delete", client.delete(f"{JOBS}/nothing")),
            ("delete all", client.delete(f"{JOBS}?labelSelector=a=b")),
            ("log", client.get("/api/v1/namespaces/default/pods/any/log")),
            ("ready", client.get("/readyz")),
        ):
            self.answers.append((what, answer))
        self.alive.add(client.get("/livez").status_code)

    def codes(self) -> dict[str, set[int]]:
        return {
            what: {answer.status_code for other, answer in self.answers if other == what} for what, _ in self.answers
        }


class Story(msgspec.Struct, frozen=True):
    """What happened, for the tests to judge."""

    parts: Any
    watcher: Any
    outage: Any
    ledger: Any


@pytest.fixture(scope="module", params=[signal.SIGKILL, signal.SIGINT], ids=["killed", "shut down"])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A Job, and an outage in the middle of it."""
    folder = tmp_path_factory.mktemp("away")
    with Parts(folder / "data") as parts:
        ledger, outage, watcher = Ledger(folder / "ledger"), Outage(), Watcher(parts, "running")
        with parts.client() as client:
            job = ledger.job("running", "Indexed", pods=PODS, at_once=AT_ONCE)
            client.post(JOBS, json=job).raise_for_status()
            watcher.start()
            until(lambda: ledger.begun() > PODS / 3, DONE_SECONDS, "a third of the pods")
            _be_away(parts, request.param, outage, client)
            watcher.join(DONE_SECONDS)
        yield Story(parts, watcher, outage, ledger)
    assert parts.surprises() == ""


def _be_away(parts: Parts, number: signal.Signals, outage: Outage, client: httpx.Client) -> None:
    parts.take_away(number)
    ends = time.monotonic() + AWAY_SECONDS
    outage.look(client)
    while time.monotonic() < ends:
        outage.look(client)
    parts.bring_back()
    back = time.monotonic()
    until(lambda: client.get("/readyz").is_success, BACK_SECONDS, "ready again")
    outage.seconds_until_ready = time.monotonic() - back


def test_every_request_is_told_to_come_again(story: Story) -> None:
    assert {what: codes for what, codes in story.outage.codes().items() if codes != {503}} == {}
    for what, answer in story.outage.answers:
        assert int(answer.headers["Retry-After"]) >= 1, what
        assert answer.json()["reason"] == "ServiceUnavailable", what
        assert answer.elapsed.total_seconds() < 2, what


def test_the_process_says_that_it_lives(story: Story) -> None:
    assert story.outage.alive == {200}


def test_it_is_ready_soon_after_the_database_is(story: Story) -> None:
    assert story.outage.seconds_until_ready < 3


def test_nothing_that_was_refused_was_stored(story: Story) -> None:
    with story.parts.client() as client:
        assert [job["metadata"]["name"] for job in client.get(JOBS).json()["items"]] == ["running"]


def test_open_watches_go_on_or_end_cleanly_and_miss_nothing(story: Story) -> None:
    assert story.watcher.broken == []
    assert set(story.watcher.refusals) <= {503}
    assert story.watcher.seen == sorted(set(story.watcher.seen))
    with story.parts.client() as client:
        query = {"watch": "1", "resourceVersion": str(story.watcher.seen[0]), "timeoutSeconds": "1"}
        replayed = [msgspec.json.decode(line)["object"] for line in client.get(JOBS, params=query).iter_lines()]
    assert story.watcher.seen[1:] == [int(job["metadata"]["resourceVersion"]) for job in replayed]


def test_the_job_completes_with_exact_counts(story: Story) -> None:
    assert story.watcher.finished is not None
    with story.parts.client() as client:
        pods = pods_of(client, story.watcher.finished)
    assert is_exact(story.watcher.finished, pods, story.ledger)
    assert story.watcher.finished.status.failed == 0
    assert story.parts.containers() == []
