"""What people know from Kubernetes' manual, applied as it stands: each manifest must come to what its page promises.

Images are recorded and the commands run on this host. Those that leave the command to the image are refused, and say so;
`docs/documents.md` lists what is run unchanged, what is not, and why.
"""

import re
from collections.abc import Iterator

import httpx
import pytest

from app.agent.pods.container_config import NO_COMMAND
from tests.conformance import documents
from tests.conformance.documents import LONG, apply, ended, events, log, logs, pi, read, require
from tests.conformance.namespace import SECONDS, Namespace, conditions, indexes, reasons
from tests.e2e import kubectl as kubectls
from tests.e2e.cluster import Cluster, until
from tests.e2e.kubectl import Kubectl

STARTED = (
    "given/pi",
    "given/pi-with-ttl",
    "given/pi-with-timeout",
    "given/job-backoff-limit-per-index-example",
    "given/job-pod-failure-policy-example",
    "tasks/words",
    "tasks/numbers",
    "tasks/expanded",
    "tasks/stops-at-42",
    "tasks/gives-up-indexes",
    "tasks/any-of-three",
    "tasks/one-of-three",
    "tasks/every-minute",
    "tasks/no-such-image",
    "tasks/redis",
)
ITEMS = ["apple", "banana", "cherry"]


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    with cluster.client() as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace | None]:
    """A Jobplane whose only node was drained while `survives-drains` ran, which then goes on for three minutes."""
    found = kubectls.found()
    if not found:
        yield None
        return
    folder = tmp_path_factory.mktemp("drained")
    with Cluster(folder / "data") as running, running.client() as client:
        space = Namespace(client, "drained")
        apply(space, *read("tasks/survives-drains"))
        space.running("survives-drains", 2)
        _drain(Kubectl.at(found[-1], running, folder))
        yield space
    assert running.surprises() == ""


def _drain(kubectl: Kubectl) -> None:
    """As the page has it, word for word."""
    pods = ("get", "pods", "-n", "drained", "-l", "job-name=survives-drains")
    node = kubectl(*pods, "-o", "jsonpath={.items[0].spec.nodeName}")
    said = kubectl("drain", f"nodes/{node}", "--ignore-daemonsets", "--grace-period=0")
    assert len(re.findall(r"^pod/survives-drains-\w{5} evicted$", said, re.MULTILINE)) == 2
    assert f"node/{node} drained\n" in said
    assert kubectl("get", "jobs", "-n", "drained", "survives-drains", "-o", "jsonpath={.status.failed}") in ("", "0")
    assert kubectl("uncordon", f"nodes/{node}") == f"node/{node} uncordoned\n"


@pytest.fixture(scope="module")
def space(client: httpx.Client, survivor: object) -> Iterator[Namespace]:
    """With nearly all manifests applied at once, for what takes long is waiting."""
    made = Namespace(client, "documents")
    for name in STARTED:
        apply(made, *read(name))
    yield made
    client.delete(f"/apis/batch/v1/namespaces/{made.name}/cronjobs").raise_for_status()
    client.delete(f"/api/v1/namespaces/{made.name}/pods", params={"gracePeriodSeconds": 1}).raise_for_status()


class TestTheFirstPage:
    """What the manual says of Jobs, from the top."""

    @pytest.mark.parametrize("name", ["pi", "pi-with-timeout", "pi-with-ttl"])
    def test_pi_is_printed_to_2000_places(self, space: Namespace, name: str) -> None:
        documents.require_pi()
        job = ended(space, name, "Complete")
        assert job["status"]["succeeded"] == 1
        assert logs(space, name) == [pi(2000) + "\n"]

    def test_an_index_has_one_retry_and_does_not_stop_the_others(self, space: Namespace) -> None:
        require("python3")
        name = "job-backoff-limit-per-index-example"
        status = ended(space, name, "Failed")["status"]
        assert (status["completedIndexes"], status["failedIndexes"]) == ("1,3,5,7,9", "0,2,4,6,8")
        assert (status["succeeded"], status["failed"]) == (5, 10)
        told = [(each["type"], each["reason"], each["message"], each["status"]) for each in status["conditions"]]
        why = ("FailedIndexes", "Job has failed indexes", "True")
        assert told == [("FailureTarget", *why), ("Finished", *why), ("Failed", *why)]
        assert logs(space, name) == ["Hello world\n"] * 15

    def test_exit_code_42_fails_the_job_by_its_policy(self, space: Namespace) -> None:
        require("bash")
        job = ended(space, "job-pod-failure-policy-example", "Failed")
        assert reasons(job) == [("FailureTarget", "PodFailurePolicy"), ("Failed", "PodFailurePolicy")]
        assert job["status"]["failed"] == 3
        message = job["status"]["conditions"][-1]["message"]
        pod = r"Container main for pod documents/job-pod-failure-policy-example-\w{5}"
        assert re.fullmatch(rf"{pod} failed with exit code 42 matching FailJob rule at index 0", message)

    def test_what_needs_a_graphics_card_waits_for_a_node_that_has_one(self, client: httpx.Client) -> None:
        space = Namespace(client, "training")
        apply(space, *read("given/distributed-training"))
        pods = until(lambda: (found := space.pods("distributed-training"))[7:] and found, SECONDS, "8 pods")
        assert indexes(pods) == list(range(8))
        why = ("FailedScheduling", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
        until(lambda: _scheduling_failed(space, pods[0]["metadata"]["name"], why), SECONDS, why[1])
        space.delete("distributed-training")

    def test_two_at_a_time_compute_pi_four_times(self, client: httpx.Client) -> None:
        documents.require_pi()
        space = Namespace(client, "explained")
        apply(space, *read("given/pi-parallel"))
        space.running("pi", 2)
        assert len(space.pods("pi")) == 2
        assert ended(space, "pi", "Complete")["status"]["succeeded"] == 4
        assert logs(space, "pi") == [pi(2000) + "\n"] * 4


def _scheduling_failed(space: Namespace, pod: str, why: tuple[str, str]) -> bool:
    return any(reason == why[0] and message.startswith(why[1]) for reason, message in events(space, pod))


class TestTasks:
    def test_each_index_has_its_share_of_the_work(self, space: Namespace) -> None:
        require("bash", "rev")
        documents.require_mounts()
        assert ended(space, "words", "Complete")["status"]["completedIndexes"] == "0-4"
        turned = ["reward", "level", "desserts", "noon", "stressed"]
        assert [_said(space, pod) for pod in _in_order(space, "words")] == turned

    def test_each_index_finds_itself_in_a_file(self, space: Namespace) -> None:
        require("rev")
        documents.require_mounts()
        assert ended(space, "numbers", "Complete")["status"]["completedIndexes"] == "0-11"
        turned = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "01", "11"]
        assert [_said(space, pod) for pod in _in_order(space, "numbers")] == turned

    def test_a_template_makes_a_job_of_each_item(self, space: Namespace) -> None:
        for item in ITEMS:
            apply(space, *read("tasks/expansion", **{"$ITEM": item}))
        for item in ITEMS:
            ended(space, f"item-{item}", "Complete")
            assert logs(space, f"item-{item}") == [f"Working on {item}\n"]

    def test_a_file_may_hold_many_jobs(self, space: Namespace) -> None:
        for page in ("sky", "sea"):
            ended(space, f"page-{page}", "Complete")
            assert logs(space, f"page-{page}") == [f"Reading http://example.org/{page.title()}\n"]

    def test_a_bug_fails_the_job_without_retries(self, space: Namespace) -> None:
        job = ended(space, "stops-at-42", "Failed")
        assert reasons(job) == [("FailureTarget", "PodFailurePolicy"), ("Failed", "PodFailurePolicy")]
        first, _, last = job["status"]["conditions"]
        assert first["message"] == last["message"]
        assert re.search(r"exit code 42 matching FailJob rule at index 0$", last["message"])

    def test_an_index_that_no_try_will_help_has_none(self, space: Namespace) -> None:
        status = ended(space, "gives-up-indexes", "Failed")["status"]
        assert (status["failedIndexes"], status["failed"]) == ("0,1", 3)
        assert indexes(space.pods("gives-up-indexes")) == [0, 0, 1, 2, 3]

    def test_one_success_of_three_is_enough_unless_too_many_failures_are_seen_first(self, space: Namespace) -> None:
        """A race in Kubernetes too: nine of ten pods fail at once, and six failures are all that the default allows."""
        job = space.becomes("any-of-three", lambda job: {"Complete", "Failed"} & set(conditions(job)) != set())
        if "Complete" in conditions(job):
            assert [kind for kind, _ in reasons(job)] == ["SuccessCriteriaMet", "Complete"]
            assert dict(reasons(job))["SuccessCriteriaMet"] == "SuccessPolicy"
        else:
            assert dict(reasons(job))["Failed"] == "BackoffLimitExceeded"
            assert job["status"]["failed"] > 6

    def test_one_success_of_three_is_enough(self, space: Namespace) -> None:
        job = ended(space, "one-of-three", "Complete")
        assert dict(reasons(job))["SuccessCriteriaMet"] == "SuccessPolicy"
        assert job["status"]["completedIndexes"] == "2"

    def test_a_cronjob_greets_every_minute(self, space: Namespace) -> None:
        path = f"/apis/batch/v1/namespaces/{space.name}/cronjobs/every-minute"

        def succeeded() -> documents.Object | None:
            status: documents.Object = space.client.get(path).raise_for_status().json()["status"]
            return status if "lastSuccessfulTime" in status else None

        done = until(succeeded, 90, "a Job of it has completed")
        assert done["lastScheduleTime"].endswith(":00Z")
        jobs = space.client.get(space.jobs).raise_for_status().json()["items"]
        first = next(job["metadata"]["name"] for job in jobs if job["metadata"]["name"].startswith("every-minute-"))
        (said,) = logs(space, first)
        assert said.splitlines()[1] == "Hello from Jobplane"


def _in_order(space: Namespace, job: str) -> list[documents.Object]:
    where = "batch.kubernetes.io/job-completion-index"
    return sorted(space.pods(job), key=lambda pod: int(pod["metadata"]["annotations"][where]))


def _said(space: Namespace, pod: documents.Object) -> str:
    return log(space, pod).strip()


class TestWithoutAnImageThereIsNoCommand:
    """Kubernetes would take it from the image. Here the pod's status says what is missing."""

    @pytest.mark.parametrize("job", ["fine-queue", "coarse-queue"])
    def test_a_job_without_a_command_says_so(self, space: Namespace, job: str) -> None:
        apply(space, *read(f"tasks/{job}"))
        until(lambda: _complaints(space.pods(job)), SECONDS, f"{job} complains")
        assert _complaints(space.pods(job)) == {NO_COMMAND}

    def test_a_pod_without_a_command_says_so(self, space: Namespace) -> None:
        def complaints() -> set[str]:
            return _complaints([space.client.get(space.path("redis-master")).raise_for_status().json()])

        assert until(complaints, SECONDS, "it complains") == {NO_COMMAND}

    def test_a_condition_that_somebody_sets_on_it_fails_the_job(self, space: Namespace) -> None:
        pods = space.pods("no-such-image")
        assert {pod["status"]["phase"] for pod in pods} == {"Pending"}
        path = space.path(pods[0]["metadata"]["name"])
        patch = {"status": {"conditions": [{"type": "ConfigIssue", "status": "True", "reason": "NonExistingImage"}]}}
        how = {"Content-Type": "application/strategic-merge-patch+json"}
        space.client.patch(f"{path}/status", json=patch, headers=how).raise_for_status()
        space.client.delete(path).raise_for_status()
        job = ended(space, "no-such-image", "Failed")
        assert reasons(job)[-1] == ("Failed", "PodFailurePolicy")
        assert (
            "has condition ConfigIssue matching FailJob rule at index 0" in job["status"]["conditions"][-1]["message"]
        )


def _complaints(pods: list[documents.Object]) -> set[str]:
    states = [each for pod in pods for status in documents.containers(pod) for each in _waits(status)]
    return {state["message"] for state in states if "message" in state}


def _waits(status: documents.Object) -> list[documents.Object]:
    return [status["state"]["waiting"]] if "waiting" in status["state"] else []


class TestWhatTakesLong:
    def test_a_finished_job_is_deleted_after_its_time(self, space: Namespace) -> None:
        documents.require_pi()
        path = f"{space.jobs}/pi-with-ttl"
        until(lambda: space.client.get(path).status_code == 404, LONG, "pi-with-ttl is gone")
        until(lambda: space.pods("pi-with-ttl") == [], SECONDS, "and its pod")

    def test_a_drain_costs_no_retry_and_the_job_goes_on_to_its_end(self, survivor: Namespace | None) -> None:
        if survivor is None:
            pytest.skip("no kubectl: none on PATH, and JOBPLANE_KUBECTLS names none")
        status = ended(survivor, "survives-drains", "Complete")["status"]
        assert (status["succeeded"], status.get("failed", 0)) == (4, 0)
