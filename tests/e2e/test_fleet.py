"""A simulated fleet in one agent: all of its nodes become Ready, and an Indexed Job runs on them without one being lost.

JOBPLANE_FLEET_NODES=1000 (`make test-long`) is what the README promises, with twenty pods a node; without it, 40 nodes and
ten pods each. Nothing is timed: a machine that is busy takes longer.
"""

import os
from pathlib import Path

import httpx
import pytest

from tests.e2e.cluster import Cluster, until

NODES = int(os.environ.get("JOBPLANE_FLEET_NODES", "40"))
PODS = NODES * (20 if NODES >= 1000 else 10)
READY_SECONDS, DONE_SECONDS = 240, 1500
JOBS = "/apis/batch/v1/namespaces/default/jobs"
NAMES = {f"rack-{number}" for number in range(NODES)}


def _job(count: int) -> dict[str, object]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    spec = {"completions": count, "parallelism": count, "completionMode": "Indexed", "backoffLimit": 0}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "wide"},
        "spec": {**spec, "template": {"spec": pod}},
    }


def _status(client: httpx.Client) -> dict[str, object]:
    status: dict[str, object] = client.get(f"{JOBS}/wide").json()["status"]
    return status


@pytest.mark.timeout(READY_SECONDS + DONE_SECONDS + 120)
def test_a_fleet_runs_a_job_without_losing_a_node(tmp_path: Path) -> None:
    fleet = Cluster(
        tmp_path / "data", "--runtime", "simulated", "--nodes", str(NODES), "--node-name", "rack", nodes=NODES
    )
    fleet.ready_seconds = READY_SECONDS
    with fleet, fleet.client() as client:
        nodes = client.get("/api/v1/nodes").json()["items"]
        assert {node["metadata"]["name"] for node in nodes} == NAMES

        client.post(JOBS, json=_job(PODS)).raise_for_status()
        until(lambda: _status(client).get("completionTime"), DONE_SECONDS, f"the Job is complete: {_status(client)}")
        status = _status(client)
        events = client.get("/api/v1/events", params={"fieldSelector": "reason=NodeNotReady"}).json()["items"]
        taken = client.get("/api/v1/pods", params={"fieldSelector": "status.phase=Failed"}).json()["items"]

        assert (status["succeeded"], status.get("failed", 0)) == (PODS, 0)
        assert status["completedIndexes"] == f"0-{PODS - 1}"
        assert events == []
        assert taken == []
        client.delete(f"{JOBS}/wide", params={"propagationPolicy": "Background"}).raise_for_status()
        until(lambda: client.get("/api/v1/pods").json()["items"] == [], DONE_SECONDS, "its pods are gone")
    assert fleet.surprises() == ""
