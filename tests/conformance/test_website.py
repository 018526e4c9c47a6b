"""The pages of Kubernetes' website about Jobs, word for word, on two nodes of the runtime oci, with kubectl.

The manifests come from a checkout of the website (JOBPLANE_WEBSITE); their images, by the names in them, from a registry of
stand-ins. Pods have addresses of --pod-cidr, and find each other and the Services by name. What a page tells its reader to change
is changed.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance import documents
from tests.conformance.namespace import Namespace, conditions, reasons
from tests.conformance.website_lab import MACHINES, Lab, a_lab
from tests.e2e.cluster import until
from tests.e2e.environments import python_with
from tests.e2e.kubectl import Kubectl

pytestmark = pytest.mark.timeout(900)
LONG = 240
JOBS = {
    "pi": ["controllers/job.yaml"],
    "success": ["controllers/job-success-policy.yaml"],
    "per-index": ["controllers/job-backoff-limit-per-index-example.yaml"],
    "failure-policy": ["controllers/job-pod-failure-policy-example.yaml"],
    "sidecar": ["application/job/job-sidecar.yaml"],
    "cronjob": ["application/job/cronjob.yaml"],
    "static": ["application/job/indexed-job.yaml"],
    "static-volume": ["application/job/indexed-job-vol.yaml"],
    "fail-job": ["controllers/job-pod-failure-policy-failjob.yaml"],
    "config-issue": ["controllers/job-pod-failure-policy-config-issue.yaml"],
}
"""What needs no more than `kubectl create`, by namespace; all of it at once, because most of it is waiting."""
QUEUED = ["apple", "banana", "cherry", "date", "fig", "grape", "lemon", "melon"]


def seen(kubectl: Kubectl) -> Namespace:
    """The same namespace, as the other tests of manifests look at it."""
    found = Namespace.__new__(Namespace)
    found.client, found.name = kubectl.api, kubectl.namespace
    found.jobs = f"/apis/batch/v1/namespaces/{kubectl.namespace}/jobs"
    return found


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


@pytest.fixture(scope="module")
def begun(lab: Lab) -> dict[str, Kubectl]:
    """The manifests of JOBS, applied as they stand."""
    made = {}
    for name, files in JOBS.items():
        made[name] = lab.space(name)
        for file in files:
            made[name]("create", "-f", str(lab.site.example(file)))
    return made


def ends(kubectl: Kubectl, job: str, how: str) -> Any:
    """The Job, once it has ended so."""
    space = seen(kubectl)
    try:
        until(lambda: {"Complete", "Failed"} & set(conditions(space.job(job))), LONG, f"{job} ends")
    except AssertionError as error:
        error.add_note(kubectl("describe", "pods"))
        raise
    return space.ended(job, how)


def said(kubectl: Kubectl, job: str) -> list[str]:
    return documents.logs(seen(kubectl), job)


def nodes_of(kubectl: Kubectl, job: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in seen(kubectl).pods(job)}


class TestPeers:
    def test_pods_of_an_indexed_job_ping_each_other_across_nodes(self, lab: Lab) -> None:
        """The first of all, while both nodes are free."""
        kubectl = lab.space("peers")
        manifest = lab.site.block("job-with-pod-to-pod-communication", "kind: Service", "yaml")
        kubectl("apply", "-f", "-", stdin=manifest)
        ends(kubectl, "example-job", "Complete")
        pinged = [f"Successfully pinged pod: example-job-{index}.headless-svc" for index in range(3)]
        for lines in said(kubectl, "example-job"):
            assert [line for line in lines.splitlines() if line.startswith("Successfully")] == pinged
        assert nodes_of(kubectl, "example-job") == set(MACHINES)


class TestQueues:
    def test_a_coarse_queue(self, lab: Lab) -> None:
        """RabbitMQ's own server, and a worker's image made of the page's files. There are no StatefulSets: its pod is created."""
        kubectl, page = lab.space("coarse"), "coarse-parallel-processing-work-queue"
        folder = "application/job/rabbitmq"
        kubectl("create", "-f", str(lab.site.example(f"{folder}/rabbitmq-service.yaml")))
        stateful = lab.site.example(f"{folder}/rabbitmq-statefulset.yaml")
        refused = kubectl("create", "-f", str(stateful), code=1)
        assert "Jobplane runs Jobs, CronJobs, Deployments and pods, and has none of these" in refused
        kubectl.send("create", first_pod(yaml.safe_load(stateful.read_text())))
        kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/rabbitmq-0")

        tries = lab.site.block(page, "-q foo -d")
        declares, fills = lab.site.block(page, "-q job1  -d"), lab.site.block(page, "-r job1 -p")
        publishes = lab.site.block(page, "-q foo -c 1")
        waits = "until amqp-get --url=amqp://guest:guest@rabbitmq-service:5672 -q none 2>&1 | grep -q 404; do sleep 1; done\n"
        typed = waits + without_alternative(tries) + publishes + declares + fills + "echo all is there\n"
        out = kubectl("run", "-i", "temp", "--image", "ubuntu:22.04", "--restart=Never", stdin=typed)
        assert "Hello" in out
        assert "all is there" in out
        kubectl("delete", "pod", "temp")

        image = lab.push("job-wq-1", "ubuntu", f"{folder}/Dockerfile")
        job = lab.site.example(f"{folder}/job.yaml").read_text()
        with elsewhere(kubectl, "rabbitmq-0") as node:
            kubectl("apply", "-f", "-", stdin=job.replace("gcr.io/<project>/job-wq-1", image))
            assert ends(kubectl, "job-wq-1", "Complete")["status"]["succeeded"] == len(QUEUED)
        assert sorted(said(kubectl, "job-wq-1")) == [f"Processing {item}\n" for item in QUEUED]
        assert nodes_of(kubectl, "job-wq-1") == {*MACHINES} - {node}
        kubectl("delete", "pod", "rabbitmq-0", "--grace-period=1")

    def test_a_fine_queue(self, lab: Lab) -> None:
        """Redis' own server. The page's commands are typed into the pod that it starts for them."""
        kubectl, page = lab.space("fine"), "fine-parallel-processing-work-queue"
        folder = "application/job/redis"
        for name in ("redis-pod", "redis-service"):
            kubectl("apply", "-f", str(lab.site.example(f"{folder}/{name}.yaml")))
        kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/redis-master")
        console = lab.site.block(page, "rpush job2")
        pushes = re.findall(r"^redis:6379> (.*)$", console, re.MULTILINE)
        client = lab.site.block(page, "redis-cli -h redis").rstrip()
        typed = f"until redis-cli -h redis ping; do sleep 1; done\n{client} <<end\n"
        start = ("run", "-i", "temp", "--image", "redis", "--restart=Never", "--command", "/bin/sh")
        out = kubectl(*start, stdin=typed + "\n".join(pushes) + "\nend\n")
        assert out.split()[-9:] == [*QUEUED, "orange"]
        kubectl("delete", "pod", "temp")

        image = lab.push("job-wq-2", "python", f"{folder}/Dockerfile")
        job = lab.site.example(f"{folder}/job.yaml").read_text()
        with elsewhere(kubectl, "redis-master") as node:
            kubectl("apply", "-f", "-", stdin=job.replace("gcr.io/myproject/job-wq-2", image))
            ends(kubectl, "job-wq-2", "Complete")
        logs = said(kubectl, "job-wq-2")
        assert all(each.endswith("Queue empty, exiting\n") for each in logs)
        shares = [re.findall(r"^Working on (\w+)$", each, re.MULTILINE) for each in logs]
        assert sorted(item for share in shares for item in share) == [*QUEUED, "orange"]
        assert min(map(len, shares)) > 1, "both worked on several"
        assert nodes_of(kubectl, "job-wq-2") == {*MACHINES} - {node}
        kubectl("delete", "pod", "redis-master", "--grace-period=1")


@contextmanager
def elsewhere(kubectl: Kubectl, server: str) -> Iterator[str]:
    """What starts now runs on the other node than this pod, whose node is given."""
    node = kubectl("get", "pod", server, "-o", "jsonpath={.spec.nodeName}")
    kubectl("cordon", node)
    yield node
    kubectl("uncordon", node)


def first_pod(stateful: dict[str, Any]) -> dict[str, Any]:
    """What a StatefulSet makes of its template."""
    name, spec = stateful["metadata"]["name"], stateful["spec"]
    labels = spec["template"]["metadata"]["labels"]
    pod = {**spec["template"]["spec"], "hostname": f"{name}-0", "subdomain": spec["serviceName"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-0", "labels": labels}, "spec": pod}


def without_alternative(block: str) -> str:
    """Without the line that the page has for who cannot resolve the Service's name."""
    return "".join(line for line in block.splitlines(keepends=True) if not line.startswith("BROKER_URL="))


class TestTheFirstPage:
    def test_pi(self, begun: dict[str, Kubectl]) -> None:
        ends(begun["pi"], "pi", "Complete")
        assert said(begun["pi"], "pi") == [documents.pi(2000) + "\n"]

    def test_a_success_policy(self, begun: dict[str, Kubectl]) -> None:
        """Or Failed, if its failures are counted first: a race in Kubernetes, too."""
        space = seen(begun["success"])
        until(lambda: {"Complete", "Failed"} & set(conditions(space.job("job-success"))), LONG, "it ends")
        assert dict(reasons(space.job("job-success"))).keys() & {"SuccessCriteriaMet", "Failed"}

    def test_a_limit_of_retries_for_each_index(self, begun: dict[str, Kubectl]) -> None:
        status = ends(begun["per-index"], "job-backoff-limit-per-index-example", "Failed")["status"]
        assert (status["completedIndexes"], status["failedIndexes"]) == ("1,3,5,7,9", "0,2,4,6,8")

    def test_a_failure_policy(self, begun: dict[str, Kubectl]) -> None:
        job = ends(begun["failure-policy"], "job-pod-failure-policy-example", "Failed")
        assert reasons(job) == [("FailureTarget", "PodFailurePolicy"), ("Failed", "PodFailurePolicy")]

    def test_a_sidecar(self, begun: dict[str, Kubectl]) -> None:
        ends(begun["sidecar"], "myjob", "Complete")


class TestTasks:
    def test_a_cronjob(self, begun: dict[str, Kubectl]) -> None:
        space = seen(begun["cronjob"])

        def complete() -> list[Any]:
            jobs = space.client.get(space.jobs).raise_for_status().json()["items"]
            return [each for each in jobs if "Complete" in conditions(each)]

        first = until(complete, 120, "a Job of it has completed")[0]["metadata"]["name"]
        pods = begun["cronjob"](
            "get", "pods", f"--selector=job-name={first}", "-o", "jsonpath={.items[*].metadata.name}"
        )
        assert begun["cronjob"]("logs", *pods.split()).splitlines()[1] == "Hello from the Kubernetes cluster"

    def test_static_work(self, begun: dict[str, Kubectl]) -> None:
        ends(begun["static"], "indexed-job", "Complete")
        assert said(begun["static"], "indexed-job") == [f"{word}\n" for word in ("oof", "rab", "zab", "xuq", "zyx")]

    def test_static_work_by_a_volume(self, begun: dict[str, Kubectl]) -> None:
        ends(begun["static-volume"], "indexed-job", "Complete")
        assert [each.strip() for each in said(begun["static-volume"], "indexed-job")] == list("01234")

    def test_expansions_by_sed(self, lab: Lab, tmp_path: Path) -> None:
        """The page's own shell lines make the files."""
        kubectl = lab.space("expansion")
        shutil.copy(lab.site.example("application/job/job-tmpl.yaml"), tmp_path)
        makes = lab.site.block("parallel-processing-expansion", "mkdir ./jobs")
        subprocess.run(["sh", "-c", makes], cwd=tmp_path, check=True)
        kubectl("create", "-f", str(tmp_path / "jobs"))
        items = QUEUED[:3]
        for item in items:
            ends(kubectl, f"process-item-{item}", "Complete")
        lines = kubectl("logs", "-f", "-l", "jobgroup=jobexample").splitlines()
        assert sorted(lines) == [f"Processing item {item}" for item in items]
        kubectl("delete", "job", "-l", "jobgroup=jobexample")

    def test_expansions_by_jinja(self, lab: Lab) -> None:
        """The page's own line of Python makes the manifests."""
        kubectl, page = lab.space("jinja"), "parallel-processing-expansion"
        (program,) = re.findall(r'python -c "(.*)"', lab.site.block(page, "alias render_template"))
        renders = [str(python_with("jinja2", "jinja2==3.1.6")), "-c", program]
        template = lab.site.block(page, "set params")
        made = subprocess.run(renders, input=template, capture_output=True, text=True, check=True).stdout
        kubectl("apply", "-f", "-", stdin=made)
        for item in QUEUED[:3]:
            ends(kubectl, f"jobexample-{item}", "Complete")
        lines = kubectl("logs", "-l", "jobgroup=jobexample").splitlines()
        assert sorted(lines) == [f"Processing URL http://dbpedia.org/resource/{item.title()}" for item in QUEUED[:3]]

    def test_a_bug_fails_the_job(self, begun: dict[str, Kubectl]) -> None:
        job = ends(begun["fail-job"], "job-pod-failure-policy-failjob", "Failed")
        assert reasons(job) == [("FailureTarget", "PodFailurePolicy"), ("Failed", "PodFailurePolicy")]

    def test_a_condition_fails_the_job(self, lab: Lab, begun: dict[str, Kubectl], tmp_path: Path) -> None:
        """An image that is nowhere: the pods wait, until a condition that the reader sets on one fails the Job."""
        kubectl, job = begun["config-issue"], "job-pod-failure-policy-config-issue"

        def reason() -> bool:
            waits = "jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}"
            return "ImagePullBackOff" in kubectl("get", "pods", "-l", f"job-name={job}", "-o", waits)

        until(reason, LONG, "pods wait for their image")
        prepares = lab.site.block("pod-failure-policy", "cat <<EOF > patch.yaml")
        subprocess.run(["sh", "-c", prepares], cwd=tmp_path, check=True)
        pod = kubectl("get", "pods", "-l", f"job-name={job}", "-o", "jsonpath={.items[0].metadata.name}")
        kubectl("patch", "pod", pod, "--subresource=status", f"--patch-file={tmp_path / 'patch.yaml'}")
        kubectl("delete", f"pods/{pod}")
        failed = ends(kubectl, job, "Failed")
        assert reasons(failed)[-1] == ("Failed", "PodFailurePolicy")
        message = failed["status"]["conditions"][-1]["message"]
        assert f"{pod} has condition ConfigIssue matching FailJob rule at index 0" in message


class TestDrain:
    """The last, as it takes a node's pods."""

    def test_disruptions_do_not_count(self, lab: Lab, begun: dict[str, Kubectl]) -> None:
        begun["cronjob"]("delete", "cronjob", "hello")
        kubectl, job = lab.space("ignore"), "job-pod-failure-policy-ignore"
        kubectl("create", "-f", str(lab.site.example(f"controllers/{job}.yaml")))
        seen(kubectl).running(job, 2)
        pods = ("get", "pods", "-l", f"job-name={job}", "-o", "jsonpath={.items[0].spec.nodeName}")
        node = kubectl(*pods)
        kubectl("drain", f"nodes/{node}", "--ignore-daemonsets", "--grace-period=0", "--delete-emptydir-data")
        assert kubectl("get", "jobs", job, "-o", "jsonpath={.status.failed}") in ("", "0")
        kubectl("uncordon", f"nodes/{node}")
        status = ends(kubectl, job, "Complete")["status"]
        assert (status["succeeded"], status.get("failed", 0)) == (4, 0)
