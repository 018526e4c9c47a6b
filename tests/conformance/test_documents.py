"""What people know from Kubernetes' manual, applied as it stands: each manifest must come to what its page promises.

Images are recorded and the commands run on this host. Those that leave the command to the image are refused, and say so;
`docs/documents.md` lists what is run unchanged, what is not, and why.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.agent.pods.container_config import NO_COMMAND
from tests.conformance import documents
from tests.conformance.documents import apply, events, log, logs, pi, read, require
from tests.conformance.namespace import SECONDS, Namespace, conditions, indexes, reasons
from tests.e2e import kubectl as kubectls
from tests.e2e.cluster import Cluster, until
from tests.e2e.kubectl import Kubectl

HOST = "127.0.0.1"  # where the examples have their Redis
LONG = 240  # seconds: four pods of 90 s, two at a time
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
QUEUED = ["apple", "banana", "cherry", "date", "fig", "grape", "lemon", "melon", "orange"]


def ended(space: Namespace, job: str, how: str) -> documents.Object:
    """The Job once it has ended, in minutes if need be."""
    until(lambda: {"Complete", "Failed"} & set(conditions(space.job(job))), LONG, f"{job} ends")
    return space.ended(job, how)


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


@pytest.fixture(scope="module")
def programs() -> Path:
    """Where redis-server and redis-cli are."""
    return documents.redis_programs()


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


class TestNamesOfPods:
    """Pods of a headless Service find each other by name; by hosts files, if the agent is not root."""

    def test_peers_find_each_other(self, client: httpx.Client) -> None:
        require("bash")
        documents.require_mounts()
        documents.require_ping()
        space = Namespace(client, "peers-without-names")
        apply(space, *read("tasks/peers"))
        ended(space, "peers", "Complete")
        pods = space.pods("peers")
        assert sorted(pod["spec"]["hostname"] for pod in pods) == ["peers-0", "peers-1", "peers-2"]
        assert {pod["spec"]["subdomain"] for pod in pods} == {"circle"}
        for said in logs(space, "peers"):
            assert [line for line in said.splitlines() if line.endswith(" answers")] == [
                f"peers-{index}.circle answers" for index in range(3)
            ]

    def test_peers_find_each_other_by_a_hosts_file(self, client: httpx.Client) -> None:
        """What is added to the manifest: a ConfigMap with their names, mounted at /etc/hosts."""
        require("bash")
        documents.require_mounts()
        documents.require_ping()
        space = Namespace(client, "peers-with-names")
        service, job = read("tasks/peers")
        hosts = "127.0.0.1 localhost peers-0.circle peers-1.circle peers-2.circle\n"
        names = {"kind": "ConfigMap", "metadata": {"name": "names"}, "data": {"hosts": hosts}}
        pod = job["spec"]["template"]["spec"]
        pod["volumes"] = [{"name": "names", "configMap": {"name": "names"}}]
        mount = {"name": "names", "mountPath": "/etc/hosts", "subPath": "hosts"}
        pod["containers"][0]["volumeMounts"] = [mount]
        apply(space, names, service, job)
        ended(space, "peers", "Complete")
        assert logs(space, "peers") == ["".join(f"peers-{index}.circle answers\n" for index in range(3))] * 3


class TestWorkQueues:
    """The manifests of `examples/redis`, against a real Redis that runs as a pod of this very Jobplane."""

    @pytest.fixture
    def queue(self, client: httpx.Client, programs: Path, request: pytest.FixtureRequest) -> "Queue":
        return Queue(Namespace(client, request.node.originalname.replace("_", "-")), programs, documents.loopback())

    def test_many_items_a_worker(self, queue: "Queue") -> None:
        require("python3")
        documents.require_mounts()
        script = (documents.EXAMPLES / "redis" / "worker.py").read_text()
        apply(queue.space, {"kind": "ConfigMap", "metadata": {"name": "worker"}, "data": {"worker.py": script}})
        job = queue.run("work-queue", "work-queue-redis")
        assert job["status"]["succeeded"] == 2
        said = logs(queue.space, "work-queue-redis")
        assert all(re.match(r"Worker with sessionID: \S+\nInitial queue state: empty=False\n", each) for each in said)
        assert all(each.endswith("Queue empty, exiting\n") for each in said)
        shares = [re.findall(r"^Working on (\w+)$", each, re.MULTILINE) for each in said]
        assert sorted(item for share in shares for item in share) == QUEUED
        assert min(map(len, shares)) > 1, "both worked on several"

    def test_one_item_a_pod(self, queue: "Queue") -> None:
        job = queue.run("one-item-each", "one-item-each")
        assert job["status"]["succeeded"] == len(QUEUED)
        assert sorted(logs(queue.space, "one-item-each")) == [f"Working on {item}\n" for item in QUEUED]

    def test_one_message_a_pod_of_rabbitmq(self, client: httpx.Client) -> None:
        """The manifests of `examples/rabbitmq`: a broker in a pod, a Job that fills its queue, and one that empties it."""
        documents.require_rabbitmq()
        space, address = Namespace(client, "rabbitmq"), documents.loopback()
        for name in ("server", "fill"):
            apply(space, *read(f"examples/rabbitmq/{name}", **{HOST: address}))
        ended(space, "fill", "Complete")
        apply(space, *read("examples/rabbitmq/one-item-each", **{HOST: address}))
        assert ended(space, "one-item-each", "Complete")["status"]["succeeded"] == 8
        assert sorted(logs(space, "one-item-each")) == [f"Working on {item}\n" for item in QUEUED[:8]]
        asked = ["amqp-get", f"--url=amqp://guest:guest@{address}:5672", "-q", "job1"]
        assert subprocess.run(asked, capture_output=True, check=False).returncode == 2, "the queue is empty"
        client.delete(space.path("rabbitmq")).raise_for_status()
        until(lambda: client.get(space.path("rabbitmq")).status_code == 404, SECONDS, "the broker has ended")


class Queue:
    """Redis in a pod, filled by a Job."""

    def __init__(self, space: Namespace, programs: Path, address: str) -> None:
        self.space, self._programs, self._address = space, programs, address
        apply(space, *self._read("server"))
        documents.answers(programs, address)
        apply(space, *self._read("fill"))
        ended(space, "fill", "Complete")
        assert self("lrange", "job2", "0", "-1").split() == QUEUED

    def __call__(self, *words: str) -> str:
        asked = [str(self._programs / "redis-cli"), "-h", self._address, *words]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout

    def _read(self, name: str) -> list[documents.Object]:
        programs = f"{self._programs}/redis-"
        return read(
            f"examples/redis/{name}", **{"[redis-": f"[{programs}", "(redis-": f"({programs}", HOST: self._address}
        )

    def run(self, manifest: str, job: str) -> documents.Object:
        apply(self.space, *self._read(manifest))
        done = ended(self.space, job, "Complete")
        assert self("exists", "job2", "job2:processing").strip() == "0"
        return done


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
