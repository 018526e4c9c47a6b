"""Replicas behind HAProxy, as docs/how-to/high-availability.md has it, are restarted one after the other while Jobs run.

Only with JOBPLANE_HIGH_AVAILABILITY=1, as `make test-long` sets it: some minutes.
"""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import until
from tests.e2e.kubectl import Kubectl, newest
from tests.e2e.ledger import JOBS, Ledger, completed, delete, is_exact, pods_of
from tests.e2e.machines import Network, laid
from tests.e2e.replicas import Replicas
from tests.e2e.watchers import NODES, Caller, Watcher

pytestmark = [
    pytest.mark.skipif("JOBPLANE_HIGH_AVAILABILITY" not in os.environ, reason="only with JOBPLANE_HIGH_AVAILABILITY=1"),
    pytest.mark.timeout(1200),
]
APIS = ("api-1", "api-2", "api-3")
WORKERS = ("worker-1", "worker-2", "worker-3")
SIMULATED = 24
PODS, AT_ONCE = 400, 6
DONE_SECONDS, SPREAD_SECONDS = 400, 420
REAL = {"example.com/runs": "processes"}


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("replicas") / "data"
    settings = {"JOBPLANE_SHUTDOWN_DELAY_DURATION": "5s", "JOBPLANE_GOAWAY_CHANCE": "0.01"}
    with (
        laid(Network("jpha", "10.213.79", APIS)) as network,
        Replicas(folder, network, WORKERS, simulated=SIMULATED, **settings) as running,
    ):
        with running.client() as client:
            for name in WORKERS:
                patch = {"metadata": {"labels": REAL}}
                how = {"Content-Type": "application/merge-patch+json"}
                client.patch(f"{NODES}/{name}", json=patch, headers=how).raise_for_status()
        yield running
    assert running.surprises() == ""


def _a_job(ledger: Ledger, name: str, gate: Path, pods: int = PODS) -> dict[str, Any]:
    """One whose pods run on the nodes that run processes; it takes minutes, or, once the gate is there, no time."""
    job = ledger.job(name, "Indexed", pods=pods, at_once=AT_ONCE, work=f"[ -e {gate} ] || sleep 3")
    job["spec"]["template"]["spec"]["nodeSelector"] = REAL
    return job


@pytest.mark.parametrize("kill", [False, True], ids=["terminated", "killed"])
def test_a_rolling_restart_costs_no_node_no_job_and_no_pod(replicas: Replicas, tmp_path: Path, kill: bool) -> None:
    """Ended in good order they cost no client an error either."""
    ledger, gate = Ledger(tmp_path / "ledger"), tmp_path / "gate"
    job = _a_job(ledger, "killed" if kill else "terminated", gate)
    kubectl = Kubectl.at(newest(), replicas, tmp_path)
    kubectl.api.post("/api/v1/namespaces", json={"metadata": {"name": kubectl.namespace}})
    with (
        Watcher(replicas, NODES) as nodes,
        Watcher(replicas, JOBS) as jobs,
        Caller(kubectl) as caller,
        ThreadPoolExecutor(1) as pool,
    ):
        finishing = pool.submit(asyncio.run, completed(replicas.api(), job, lambda: None, DONE_SECONDS))
        try:
            _restart_all(replicas, ledger, kill=kill)  # here: parts end with the thread that has started them
        finally:
            gate.touch()
        finished = finishing.result()
    kubectl.api.close()
    print(f"{caller.calls} calls of kubectl, {len(caller.failures)} failed: {caller.failures}")
    print(f"watches: {nodes.broken} {nodes.refusals} {jobs.broken} {jobs.refusals}")
    assert nodes.not_ready() == []
    assert (nodes.relisted, jobs.relisted) == (0, 0)
    with replicas.client() as client:
        assert is_exact(finished, pods_of(client, finished), ledger)
        assert finished.status.failed == 0
        delete(client, finished, DONE_SECONDS)
    if not kill:
        assert caller.failures == []
        assert (nodes.broken, jobs.broken) == ([], [])
        assert nodes.refusals + jobs.refusals == {}


def _restart_all(replicas: Replicas, ledger: Ledger, *, kill: bool) -> None:
    until(lambda: ledger.begun() >= AT_ONCE, DONE_SECONDS, "the first pods")
    for name in APIS:
        replicas.restart_api(name, kill=kill)
        print(f"restarted {name} after {ledger.begun()} pods: {replicas.sessions()}")
    for _ in range(2):
        begun = ledger.begun()
        replicas.restart_controllers(kill=kill)
        until(lambda begun=begun: ledger.begun() > begun + 2 * AT_ONCE, DONE_SECONDS, "the Job goes on")
        print(f"restarted controllers after {ledger.begun()} pods")
    assert ledger.begun() < PODS, "the Job was too short"


def test_agents_come_to_all_replicas_again(replicas: Replicas) -> None:
    """The one that was restarted last had none."""

    def is_even() -> bool:
        found = replicas.sessions()
        return min(found.values()) * len(found) >= sum(found.values()) * 3 / 4

    print(f"connections before: {replicas.sessions()}")
    until(is_even, SPREAD_SECONDS, "each replica has three quarters of its share")
    print(f"connections after: {replicas.sessions()}")


def test_a_replica_whose_machine_vanishes_costs_no_node_and_no_job(replicas: Replicas, tmp_path: Path) -> None:
    """Connections to it do not break: nothing answers any more."""
    ledger, gate, lost = Ledger(tmp_path / "ledger"), tmp_path / "gate", APIS[1]
    job = _a_job(ledger, "vanished", gate, pods=240)
    with Watcher(replicas, NODES) as nodes, ThreadPoolExecutor(1) as pool:
        finishing = pool.submit(asyncio.run, completed(replicas.api(), job, lambda: None, DONE_SECONDS))
        try:
            until(lambda: ledger.begun() >= AT_ONCE, DONE_SECONDS, "the first pods")
            replicas.network.plug(lost, "down")
            until(lambda: replicas.sessions()[lost] == 0, DONE_SECONDS, "its connections are given up")
            print(f"the connections of {lost} are given up after {ledger.begun()} pods: {replicas.sessions()}")
            begun = ledger.begun()
            until(lambda: ledger.begun() > begun + 2 * AT_ONCE, DONE_SECONDS, "the Job goes on")
        finally:
            replicas.network.plug(lost, "up")
            gate.touch()
        finished = finishing.result()
    assert nodes.not_ready() == []
    assert nodes.relisted == 0
    with replicas.client() as client:
        assert is_exact(finished, pods_of(client, finished), ledger)
        delete(client, finished, DONE_SECONDS)
