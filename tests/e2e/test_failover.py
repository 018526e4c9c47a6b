"""The primary of a synchronous Postgres is lost under a stream of Jobs: it is killed, its network is cut, or it freezes.

What was answered is there afterwards and completes, nothing runs twice, no node is lost, and watches go on.
Only with JOBPLANE_HIGH_AVAILABILITY=1, as `make test-long` sets it: some minutes.
"""

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.cluster import until
from tests.e2e.ledger import JOBS, Ledger
from tests.e2e.machines import Network, laid
from tests.e2e.patroni import Patroni
from tests.e2e.replicas import Replicas
from tests.e2e.watchers import NODES, Watcher

pytestmark = [
    pytest.mark.skipif("JOBPLANE_HIGH_AVAILABILITY" not in os.environ, reason="only with JOBPLANE_HIGH_AVAILABILITY=1"),
    pytest.mark.timeout(1200),
]
MACHINES = ("api-1", "api-2", "db-1", "db-2", "db-3")
WORKERS = ("worker-1", "worker-2")
PODS = 2
BEFORE, AFTER = 10, 20  # Jobs that are taken before the primary is lost, and after another one leads
SECONDS = 180


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with laid(Network("jphapg", "10.213.80", MACHINES)) as network:
        yield network


@pytest.fixture(scope="module")
def patroni(network: Network) -> Iterator[Patroni]:
    with tempfile.TemporaryDirectory(prefix="jobplane-patroni-") as folder, Patroni(Path(folder), network) as running:
        yield running


@pytest.fixture(scope="module")
def replicas(network: Network, patroni: Patroni, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("failover") / "data"
    with Replicas(folder, network, WORKERS, database=patroni.url) as running:
        yield running
    assert running.surprises() == ""


class Stream(threading.Thread):
    """Makes one Job after the other, as a client that does not ask twice.

    taken:   names that were answered 201. unknown: those of which no answer came. refusals: by their code.
    longest: the longest time between two that were taken, in seconds.
    """

    def __init__(self, replicas: Replicas, ledger: Ledger, prefix: str) -> None:
        super().__init__(daemon=True)
        self.taken: list[str] = []
        self.unknown: list[str] = []
        self.refusals: Counter[str] = Counter()
        self.longest = 0.0
        self.enough = threading.Event()
        self._replicas, self._ledger, self._prefix = replicas, ledger, prefix
        self._taken_at = time.monotonic()

    def run(self) -> None:
        number = 0
        with self._replicas.client() as client:
            while not self.enough.wait(0.5):
                number += 1
                self._make(client, f"{self._prefix}-{number}")

    def _make(self, client: httpx.Client, name: str) -> None:
        try:
            answer = client.post(JOBS, json=self._ledger.job(name, "Indexed", pods=PODS, at_once=PODS))
        except httpx.TransportError as error:
            self.unknown.append(name)
            self.refusals[type(error).__name__] += 1
            return
        if answer.is_success:
            self.taken.append(name)
            now = time.monotonic()
            self.longest, self._taken_at = max(self.longest, now - self._taken_at), now
            return
        self.refusals[f"{answer.status_code} {answer.json()['reason']}"] += 1
        if answer.status_code != 503:
            self.unknown.append(name)

    def wait_for(self, count: int) -> None:
        """Wait until so many more were taken."""
        wanted = len(self.taken) + count
        until(lambda: len(self.taken) >= wanted, SECONDS, f"{count} more Jobs are taken: {self.refusals}")


def _kill(network: Network, patroni: Patroni, name: str) -> Callable[[], None]:
    patroni.kill(name)
    return lambda: patroni.start(name)


def _cut_off(network: Network, patroni: Patroni, name: str) -> Callable[[], None]:
    network.plug(name, "down")
    return lambda: network.plug(name, "up")


def _freeze(network: Network, patroni: Patroni, name: str) -> Callable[[], None]:
    patroni.signal(name, signal.SIGSTOP)
    return lambda: patroni.signal(name, signal.SIGCONT)


@pytest.mark.parametrize("lose", [_kill, _cut_off, _freeze], ids=["killed", "cut-off", "frozen"])
def test_a_synchronous_failover_loses_nothing(
    replicas: Replicas, network: Network, patroni: Patroni, tmp_path: Path, lose: Callable[..., Callable[[], None]]
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    stream = Stream(replicas, ledger, lose.__name__.strip("_").replace("_", "-"))
    lost = patroni.primary()
    with Watcher(replicas, NODES) as nodes, Watcher(replicas, JOBS) as jobs:
        stream.start()
        stream.wait_for(BEFORE)
        bring_back = lose(network, patroni, lost)
        at = time.monotonic()
        until(lambda: patroni.primary() not in ("", lost), SECONDS, f"another one leads: {patroni.members()}")
        print(f"{lost} is lost; {patroni.primary()} leads after {time.monotonic() - at:.1f} s")
        stream.wait_for(AFTER)
        stream.enough.set()
        stream.join(SECONDS)
        print(
            f"no Job was taken for {stream.longest:.1f} s; {len(stream.taken)} were; refusals: {dict(stream.refusals)}"
        )
        with replicas.client() as client:
            until(lambda: _all_ended(client), SECONDS, "all Jobs end")
            found = {each["metadata"]["name"]: each for each in client.get(JOBS).json()["items"]}
            until(lambda: _versions(found) <= _seen(jobs), SECONDS, "the watch has the last version of each Job")
    print(f"watches: {nodes.broken} {nodes.refusals} {jobs.broken} {jobs.refusals} listed again: {jobs.relisted}")
    bring_back()
    assert set(stream.taken) <= set(found)
    assert set(found) <= {*stream.taken, *stream.unknown}
    assert {name: each["status"].get("failed", 0) for name, each in found.items() if each["status"].get("failed")} == {}
    assert {each["status"]["succeeded"] for each in found.values()} == {PODS}
    begun, ended = ledger.lines("begins"), ledger.lines("ends")
    assert len({uid for uid, _ in begun}) == len(begun), "a pod has run twice"
    assert len(begun) == len(ended) == PODS * len(found)
    assert nodes.not_ready() == []
    assert jobs.relisted == 0, "a synchronous failover costs no client a list"
    replicas.empty()
    until(patroni.is_whole, SECONDS, f"{lost} follows: {patroni.members()}")


def _all_ended(client: httpx.Client) -> bool:
    answer = client.get(JOBS)
    return answer.is_success and all(each["status"].get("completionTime") for each in answer.json()["items"])


def _versions(found: dict[str, dict[str, Any]]) -> set[str]:
    return {each["metadata"]["resourceVersion"] for each in found.values()}


def _seen(watcher: Watcher) -> set[str]:
    return {each["object"]["metadata"]["resourceVersion"] for each in watcher.events}
