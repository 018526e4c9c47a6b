"""J: the end-to-end scenarios of Jobs. Containers are processes of this host; those that wait, wait for a file to appear."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance import begun
from tests.conformance.namespace import (
    JSON_PATCH,
    SECONDS,
    STRATEGIC,
    Namespace,
    conditions,
    counts,
    indexes,
    reasons,
)
from tests.e2e.cluster import Cluster, until
from tests.e2e.manifests import FOREVER, a_job

FINALIZER = "batch.kubernetes.io/job-tracking"


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    with cluster.client() as client:
        yield client


@pytest.fixture(scope="module")
def ns(client: httpx.Client, tmp_path_factory: pytest.TempPathFactory) -> Namespace:
    """With the Jobs that need no more than to be watched, and evictions, after which back-off takes long too."""
    made = Namespace(client, "jobs-end-to-end")
    for job in begun.jobs(tmp_path_factory.mktemp("marks")):
        made.create(job)
    return made


@pytest.fixture(scope="module", autouse=True)
def evicted(ns: Namespace) -> list[str]:
    """The pods of J4 that have just been."""
    names = [pod["metadata"]["name"] for pod in ns.running("j04", 3)]
    for name in names:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        ns.client.post(f"{ns.path(name)}/eviction", json=body).raise_for_status()
    return names


class Gate:
    """Processes wait in front of it until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waits = f"while [ ! -e {path} ]; do sleep 0.05; done"

    def open(self) -> None:
        self.path.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "open")
    yield made
    made.open()


@pytest.mark.scenario("J1", "all tasks succeed")
def test_j01_a_job_whose_tasks_succeed_completes_and_keeps_its_pods(ns: Namespace) -> None:
    job = ns.ended("j01", "Complete")

    assert reasons(job) == [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")]
    assert [pod["status"]["phase"] for pod in ns.pods("j01")] == ["Succeeded"] * 4


@pytest.mark.scenario("J2", "podFailurePolicy: FailJob on an exit code")
def test_j02_an_exit_code_may_fail_the_job_before_its_limit(ns: Namespace) -> None:
    job = ns.ended("j02", "Failed")

    assert job["status"]["failed"] == 1
    (pod,) = ns.pods("j02")
    why = "Container main for pod {namespace}/{name} failed with exit code 1 matching FailJob rule at index 0"
    (interim, _, last) = job["status"]["conditions"]
    assert (last["type"], last["reason"], last["message"]) == (
        "Failed",
        "PodFailurePolicy",
        why.format(**pod["metadata"]),
    )
    assert (interim["type"], interim["message"]) == ("FailureTarget", last["message"])


@pytest.mark.scenario("J3", "podFailurePolicy: Ignore on an exit code")
def test_j03_ignored_exit_codes_do_not_count(ns: Namespace) -> None:
    job = ns.ended("j03", "Complete")

    assert (job["status"]["succeeded"], job["status"].get("failed", 0)) == (3, 0)
    assert job["status"]["completedIndexes"] == "0-2"
    assert len(ns.pods("j03", "Failed")) == 3


@pytest.mark.scenario("J4", "podFailurePolicy: Ignore on DisruptionTarget, with evictions")
def test_j04_evicted_pods_do_not_count(ns: Namespace, evicted: list[str]) -> None:
    for name in evicted:
        until(lambda name=name: ns.client.get(ns.path(name)).status_code == 404, SECONDS, f"{name} vanishes")

    job = ns.ended("j04", "Complete")
    assert (job["status"]["succeeded"], job["status"].get("failed", 0)) == (3, 0)


@pytest.mark.scenario("J5", "suspend: created suspended")
def test_j05_a_suspended_job_has_no_pods_until_it_is_resumed(ns: Namespace) -> None:
    ns.create(a_job("j05", "true", parallelism=2, completions=4, suspend=True))
    job = ns.becomes("j05", lambda job: conditions(job) == ["Suspended"])
    assert reasons(job) == [("Suspended", "JobSuspended")]
    assert "startTime" not in job["status"]
    assert ns.pods("j05") == []

    ns.patch("j05", {"spec": {"suspend": False}})
    assert ns.ended("j05", "Complete")["status"]["succeeded"] == 4


@pytest.mark.scenario("J6", "suspend: suspended while it runs")
def test_j06_suspending_a_job_ends_its_pods(ns: Namespace) -> None:
    ns.create(a_job("j06", FOREVER, parallelism=2, completions=4))
    ns.running("j06", 2)

    ns.patch("j06", {"spec": {"suspend": True}})

    until(lambda: ns.pods("j06") == [], SECONDS, "all its pods are gone")
    job = ns.becomes("j06", lambda job: conditions(job) == ["Suspended"])
    assert job["status"].get("failed", 0) == 0


@pytest.mark.scenario("J7", "podReplacementPolicy: Failed")
def test_j07_a_terminating_pod_is_replaced_only_when_it_has_ended(ns: Namespace, gate: Gate) -> None:
    script = f"trap '{gate.waits}; exit 143' TERM; echo ready; while :; do sleep 0.05; done"
    pod = {"terminationGracePeriodSeconds": 30}
    ns.create(a_job("j07", script, pod=pod, backoffLimit=1, podReplacementPolicy="Failed"))
    (first,) = ns.running("j07", 1)
    until(
        lambda: "ready" in ns.client.get(f"{ns.path(first['metadata']['name'])}/log").text, SECONDS, "it has its trap"
    )

    ns.client.delete(ns.path(first["metadata"]["name"])).raise_for_status()
    ns.status_is("j07", active=0, failed=0, terminating=1)

    gate.open()
    ns.status_is("j07", active=1, failed=1, terminating=0)


@pytest.mark.scenario("J8", "Indexed completion mode")
def test_j08_pods_of_an_indexed_job_have_their_index_and_a_hostname(ns: Namespace) -> None:
    job = ns.ended("j08", "Complete")

    assert job["status"]["completedIndexes"] == "0-3"
    pods = ns.pods("j08")
    assert indexes(pods) == [0, 1, 2, 3]
    assert sorted(pod["spec"]["hostname"] for pod in pods) == [f"j08-{index}" for index in range(4)]
    said = sorted(ns.client.get(f"{ns.path(pod['metadata']['name'])}/log").text for pod in pods)
    assert said == [f"{index} j08-{index}\n" for index in range(4)]


@pytest.mark.scenario("J9", "completion index as a pod label")
def test_j09_every_pod_of_an_indexed_job_is_labelled_with_its_index(ns: Namespace) -> None:
    ns.ended("j08", "Complete")

    assert indexes(ns.pods("j08"), "labels") == [0, 1, 2, 3]


BY_POLICY = [("SuccessCriteriaMet", "SuccessPolicy"), ("Complete", "SuccessPolicy")]


@pytest.mark.scenario("J10", "successPolicy: all indexes have succeeded")
def test_j10_a_success_policy_that_wants_all_of_them(ns: Namespace) -> None:
    job = ns.ended("j10", "Complete")

    assert reasons(job) == BY_POLICY
    assert (job["status"]["succeeded"], job["status"].get("failed", 0)) == (2, 0)


@pytest.mark.scenario("J11", "successPolicy: succeededIndexes")
def test_j11_a_success_policy_may_name_indexes(ns: Namespace) -> None:
    job = ns.ended("j11", "Complete")

    assert reasons(job) == BY_POLICY
    assert job["status"]["completedIndexes"] == "0"


@pytest.mark.scenario("J12", "successPolicy: succeededCount")
def test_j12_a_success_policy_may_count(ns: Namespace) -> None:
    job = ns.ended("j12", "Complete")

    assert reasons(job) == BY_POLICY
    assert job["status"]["completedIndexes"] == "0"


def indexes_of(job: dict[str, Any]) -> tuple[str, str, int, int]:
    """Failed and completed ones; and how many pods failed and succeeded."""
    status = job["status"]
    return status["failedIndexes"], status.get("completedIndexes", ""), status["failed"], status.get("succeeded", 0)


@pytest.mark.scenario("J13", "backoffLimitPerIndex: some indexes fail")
def test_j13_a_job_with_failed_indexes_runs_the_others_and_fails(ns: Namespace) -> None:
    job = ns.ended("j13", "Failed")

    assert indexes_of(job) == ("1,3", "0,2", 4, 2)
    assert reasons(job) == [("FailureTarget", "FailedIndexes"), ("Failed", "FailedIndexes")]


@pytest.mark.scenario("J14", "maxFailedIndexes")
def test_j14_one_failed_index_too_many_ends_the_job(ns: Namespace) -> None:
    job = ns.ended("j14", "Failed")

    assert indexes_of(job) == ("0", "", 1, 0)
    assert reasons(job)[-1] == ("Failed", "MaxFailedIndexesExceeded")


@pytest.mark.scenario("J15", "backoffLimitPerIndex: all indexes fail")
def test_j15_pods_tell_how_often_their_index_has_failed(ns: Namespace) -> None:
    job = ns.ended("j15", "Failed")

    assert indexes_of(job) == ("0,1", "", 4, 0)
    seen = [pod["metadata"]["annotations"] for pod in ns.pods("j15")]
    failures = "batch.kubernetes.io/job-index-failure-count"
    found = sorted((each["batch.kubernetes.io/job-completion-index"], each[failures]) for each in seen)
    assert found == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]


@pytest.mark.scenario("J16", "podFailurePolicy: FailIndex")
def test_j16_an_exit_code_may_fail_an_index(ns: Namespace) -> None:
    job = ns.ended("j16", "Failed")

    assert indexes_of(job) == ("1", "0", 1, 1)


@pytest.mark.scenario("J17", "cascading deletion: the pods of a deleted Job")
def test_j17_the_pods_of_a_deleted_job_go(ns: Namespace) -> None:
    ns.create(a_job("j17", FOREVER, parallelism=2, completions=2))
    ns.running("j17", 2)

    ns.delete("j17")

    until(lambda: ns.pods("j17") == [], SECONDS, "all its pods are gone")


@pytest.mark.scenario("J18", "tasks fail once and are restarted locally")
def test_j18_containers_that_fail_are_restarted_in_their_pod(ns: Namespace) -> None:
    job = ns.ended("j18", "Complete")

    assert (job["status"]["succeeded"], job["status"].get("failed", 0)) == (4, 0)
    restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in ns.pods("j18")]
    assert restarts == [1] * 4


@pytest.mark.scenario("J19", "tasks fail once and are not restarted locally")
def test_j19_pods_that_fail_are_replaced(ns: Namespace) -> None:
    job = ns.ended("j19", "Complete")

    assert reasons(job) == [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")]
    assert (job["status"]["succeeded"], job["status"]["failed"]) == (4, 4)


@pytest.mark.scenario("J20", "activeDeadlineSeconds")
def test_j20_a_job_that_takes_too_long_fails(ns: Namespace) -> None:
    job = ns.ended("j20", "Failed")

    assert reasons(job) == [("FailureTarget", "DeadlineExceeded"), ("Failed", "DeadlineExceeded")]


@pytest.mark.scenario("J21", "deletion of a Job")
def test_j21_a_deleted_job_is_gone(ns: Namespace) -> None:
    ns.create(a_job("j21", FOREVER, parallelism=2, completions=4))
    ns.status_is("j21", active=2)

    ns.delete("j21")

    until(lambda: ns.client.get(f"{ns.jobs}/j21").status_code == 404, SECONDS, "it is gone")


@pytest.mark.scenario("J22", "adoption and release of pods")
def test_j22_orphans_are_adopted_and_pods_without_the_labels_let_go(ns: Namespace) -> None:
    job = ns.create(a_job("j22", FOREVER, parallelism=2, completions=2))
    path = ns.path(ns.running("j22", 2)[0]["metadata"]["name"])

    def owners() -> list[tuple[Any, ...]]:
        held = ns.client.get(path).raise_for_status().json()["metadata"].get("ownerReferences", [])
        return [(each["kind"], each["name"], each["uid"], each.get("controller")) for each in held]

    def change(*steps: dict[str, Any]) -> None:
        ns.client.patch(path, json=steps, headers={"Content-Type": JSON_PATCH}).raise_for_status()

    orphaned = ns.client.patch(
        path, json=[{"op": "remove", "path": "/metadata/ownerReferences"}], headers={"Content-Type": JSON_PATCH}
    )
    assert "ownerReferences" not in orphaned.raise_for_status().json()["metadata"]
    until(lambda: owners() == [("Job", "j22", job["metadata"]["uid"], True)], SECONDS, "the Job adopts its pod")
    assert FINALIZER in ns.client.get(path).json()["metadata"]["finalizers"]

    change({"op": "replace", "path": "/metadata/labels", "value": {}})
    until(lambda: owners() == [], SECONDS, "the Job lets go of its pod")
    assert FINALIZER not in ns.client.get(path).json()["metadata"].get("finalizers", [])
    ns.running("j22", 2)


@pytest.mark.scenario("J23", "backoffLimit")
def test_j23_a_job_that_always_fails_is_given_up(ns: Namespace) -> None:
    job = ns.ended("j23", "Failed")

    assert reasons(job) == [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]
    assert [pod["status"]["phase"] for pod in ns.pods("j23")] == ["Failed", "Failed"]


@pytest.mark.scenario("J24", "more pods than the node has room for")
def test_j24_pods_that_must_wait_for_room_do_not_fail(ns: Namespace, gate: Gate) -> None:
    """Five fit at a time."""
    (node,) = ns.client.get("/api/v1/nodes").json()["items"]
    cpu = node["status"]["allocatable"]["cpu"]
    millis = int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000
    job = a_job("j24", gate.waits, parallelism=90, completions=90, backoffLimit=0)
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{millis // 5}m"}}
    ns.create(job)
    ns.running("j24", 5)
    until(lambda: sum(map(is_unschedulable, ns.pods("j24", "Pending"))) == 85, SECONDS, "the others wait")

    gate.open()

    done = ns.ended("j24", "Complete")
    assert (done["status"]["succeeded"], done["status"].get("failed", 0)) == (90, 0)


def is_unschedulable(pod: dict[str, Any]) -> bool:
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", []))


@pytest.mark.scenario("J25", "the status subresource")
def test_j25_a_jobs_status_can_be_written(ns: Namespace) -> None:
    made = ns.create(a_job("j25", FOREVER, parallelism=2, completions=4))
    ns.status_is("j25", active=2, ready=2)
    since = datetime.now(UTC).replace(microsecond=0).strftime("%Y-%m-%dT%H:%M:%SZ")

    def has_condition(job: dict[str, Any], kind: str) -> bool:
        held = job["status"]["conditions"]
        return any(each["type"] == kind and each["lastTransitionTime"] == since for each in held)

    custom = {"type": "CustomConditionPatched", "status": "True", "lastTransitionTime": since}
    change = {"metadata": {"annotations": {"patchedstatus": "true"}}, "status": {"conditions": [custom]}}
    headers = {"Content-Type": "application/merge-patch+json"}
    patched = ns.client.patch(f"{ns.jobs}/j25/status", json=change, headers=headers).raise_for_status().json()
    assert has_condition(patched, "CustomConditionPatched")
    assert patched["metadata"]["annotations"]["patchedstatus"] == "true"

    def put() -> httpx.Response:
        job = ns.job("j25")
        job["status"].setdefault("conditions", []).append(custom | {"type": "CustomConditionUpdated"})
        return ns.client.put(f"{ns.jobs}/j25/status", json=job)

    answer = until(lambda: (said := put()).status_code != 409 and said, SECONDS, "nobody else writes it")
    assert has_condition(answer.raise_for_status().json(), "CustomConditionUpdated")

    got = ns.client.get(f"{ns.jobs}/j25/status").raise_for_status().json()
    assert got["metadata"]["uid"] == made["metadata"]["uid"]
    assert has_condition(got, "CustomConditionUpdated")


@pytest.mark.scenario("J26", "life cycle of a Job through the API")
def test_j26_a_job_is_created_patched_resumed_listed_and_deleted_under_a_watch(ns: Namespace) -> None:
    label = {"e2e-job-label": "j26"}
    made = ns.create(a_job("j26", "true", labels=label, parallelism=2, completions=2, suspend=True))
    chosen = {"labelSelector": "e2e-job-label=j26"}
    query = {**chosen, "watch": "true", "resourceVersion": made["metadata"]["resourceVersion"], "timeoutSeconds": "60"}

    with ns.client.stream("GET", ns.jobs, params=query) as watch:
        lines = map(json.loads, watch.iter_lines())

        def seen(kind: str, **labels: str) -> dict[str, Any]:
            held = (each["object"] for each in lines if each["type"] == kind)
            return next(job for job in held if labels.items() <= job["metadata"]["labels"].items())

        patched = ns.patch("j26", {"metadata": {"labels": {"j26": "patched"}}}, STRATEGIC)
        assert int(patched["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
        assert seen("MODIFIED", j26="patched")["metadata"]["uid"] == made["metadata"]["uid"]

        def put() -> httpx.Response:
            job = ns.job("j26")
            job["metadata"].setdefault("annotations", {})["updated"] = "true"
            job["spec"]["suspend"] = False
            return ns.client.put(f"{ns.jobs}/j26", json=job)

        answer = until(lambda: (said := put()).status_code != 409 and said, SECONDS, "nobody else writes it")
        assert answer.raise_for_status().json()["metadata"]["annotations"]["updated"] == "true"
        listed = ns.client.get("/apis/batch/v1/jobs", params=chosen).raise_for_status().json()["items"]
        assert [job["metadata"]["name"] for job in listed] == ["j26"]
        ns.ended("j26", "Complete")

        options = {"propagationPolicy": "Background"}
        ns.client.request("DELETE", ns.jobs, params=chosen, json=options).raise_for_status()
        assert seen("DELETED")["metadata"]["uid"] == made["metadata"]["uid"]
    assert ns.client.get("/apis/batch/v1/jobs", params=chosen).raise_for_status().json()["items"] == []


@pytest.mark.scenario("J27", "status.ready")
def test_j27_ready_pods_are_counted(ns: Namespace) -> None:
    ns.create(a_job("j27", FOREVER, parallelism=2, completions=2, suspend=True))
    assert counts(ns.becomes("j27", lambda job: conditions(job) == ["Suspended"])) == (0, 0, 0)
    assert ns.job("j27")["status"]["ready"] == 0

    ns.patch("j27", {"spec": {"suspend": False}})
    ns.status_is("j27", ready=2, active=2)

    ns.patch("j27", {"spec": {"suspend": True}})
    ns.status_is("j27", ready=0, active=0, terminating=0)


@pytest.mark.scenario("J28", "managedBy another controller")
def test_j28_a_job_of_another_controller_is_left_alone(ns: Namespace) -> None:
    ns.create(a_job("j28", "true", managedBy="example.com/custom-job-controller"))
    ns.create(a_job("j28-ours", "true", managedBy="kubernetes.io/job-controller"))

    ns.ended("j28-ours", "Complete")  # so the controller has seen both

    assert ns.job("j28")["status"] == {}
    assert ns.pods("j28") == []


@pytest.mark.scenario("J29", "restart rules of containers, with podFailurePolicy")
@pytest.mark.skip(reason="needs restart rules of containers, which Kubernetes has from 1.34 on, behind a gate")
def test_j29_a_restarted_container_does_not_fire_the_policy() -> None:
    """The field is unknown to 1.33, which this is."""
