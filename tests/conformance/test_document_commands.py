"""Every kubectl command line of the first pages on Jobs, as it stands there, and what it must print; names and times vary.

Where a page is older or newer than the version that we are, the test says so.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
import yaml

from tests.conformance import documents
from tests.conformance.documents import pi
from tests.e2e.cluster import Cluster, until
from tests.e2e.kubectl import COMPLETE, SECONDS, Kubectl, everywhere, of_every_version, on_every_version, rows, words

PI = str(documents.HERE / "given" / "pi.yaml")
PER_INDEX = "job-backoff-limit-per-index-example"
SHARED = "manual"  # the namespace of what all versions look at
TEMPLATE = """
 pi:
 Image: perl:5.34.0
 Port: <none>
 Host Port: <none>
 Command:
 perl
 -Mbignum=bpi
 -wle
 print bpi(2000)
 Environment: <none>
 Mounts: <none>
 Volumes: <none>
"""
UID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture(scope="module")
def kubectls(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Kubectl]]:
    """Every version found, each in a namespace of its own."""
    with of_every_version(cluster, tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def shared(kubectls: list[Kubectl]) -> None:
    """What takes long, done once: `pi`, and the Job with a retry for each index."""
    documents.require_pi()
    documents.require("python3")
    newest = _in_shared(kubectls[-1])
    newest("create", "namespace", SHARED)
    assert newest("apply", "-f", PI) == "job.batch/pi created\n"
    assert (
        newest("create", "-f", str(documents.HERE / "given" / f"{PER_INDEX}.yaml"))
        == f"job.batch/{PER_INDEX} created\n"
    )
    newest("wait", COMPLETE, "job/pi", f"--timeout={SECONDS - 1}s")
    newest("wait", "--for=condition=failed", f"job/{PER_INDEX}", f"--timeout={SECONDS - 1}s")


def _in_shared(kubectl: Kubectl) -> Kubectl:
    return replace(kubectl, namespace=SHARED)


@on_every_version
def test_describe_tells_the_story_of_pi(kubectl: Kubectl) -> None:
    """Since 1.27 the pods' line says Active and Ready for the pages' Running, and no annotation speaks of tracking."""
    for said in (words(_in_shared(kubectl)("describe", *what)) for what in (("job", "pi"), ("jobs/pi",))):
        uid = f"batch.kubernetes.io/controller-uid={UID}"
        assert re.search(rf"^Selector: {uid}\nLabels: {uid}\n batch.kubernetes.io/job-name=pi\n", said, re.MULTILINE)
        for line in ("Name: pi", f"Namespace: {SHARED}", "Annotations: <none>", "Parallelism: 1", "Completions: 1"):
            assert re.search(rf"^{line}$", said, re.MULTILINE)
        assert re.search(
            r"^Start Time: \w{3}, \d\d \w{3} .*\nCompleted At: \w{3}, .*\nDuration: \w+$", said, re.MULTILINE
        )
        assert re.search(r"^Pods Statuses: 0 Active \(0 Ready\) / 1 Succeeded / 0 Failed$", said, re.MULTILINE)
        assert TEMPLATE in said
        assert re.search(r"^ Normal SuccessfulCreate \S+ job-controller Created pod: pi-\w{5}$", said, re.MULTILINE)
        assert re.search(r"^ Normal Completed \S+ job-controller Job completed$", said, re.MULTILINE)


@on_every_version
def test_yaml_shows_what_was_left_to_defaults(kubectl: Kubectl) -> None:
    job = yaml.safe_load(_in_shared(kubectl)("get", "job", "pi", "-o", "yaml"))
    labels = {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"], "batch.kubernetes.io/job-name": "pi"}
    assert labels.items() <= job["metadata"]["labels"].items()
    spec, template = job["spec"], job["spec"]["template"]
    defaults = {"backoffLimit": 4, "completionMode": "NonIndexed", "completions": 1, "parallelism": 1, "suspend": False}
    assert defaults.items() <= spec.items()
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}}
    assert labels.items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"].pop("containers")
    assert container == {
        "command": ["perl", "-Mbignum=bpi", "-wle", "print bpi(2000)"],
        "image": "perl:5.34.0",
        "imagePullPolicy": "IfNotPresent",
        "name": "pi",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    assert template["spec"] == {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    assert job["status"]["uncountedTerminatedPods"] == {}


@on_every_version
def test_a_jobs_pods_are_found_by_its_label_and_speak(kubectl: Kubectl) -> None:
    shared = _in_shared(kubectl)
    name = "jsonpath={.items[*].metadata.name}"
    pods = shared("get", "pods", "--selector=batch.kubernetes.io/job-name=pi", f"--output={name}")
    assert re.fullmatch(r"pi-\w{5}", pods)
    assert shared("get", "pods", "-l", "job-name=pi", "-o", name) == pods
    assert shared("logs", pods) == shared("logs", "jobs/pi") == pi(2000) + "\n"


@on_every_version
def test_tables_show_them_as_the_pages_do(kubectl: Kubectl) -> None:
    """A Job has a STATUS since 1.31."""
    shared = _in_shared(kubectl)
    head, job = rows(shared("get", "job", "pi"))
    assert head == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert job[:3] == ["pi", "Complete", "1/1"]
    head, pod = rows(shared("get", "pod", "-l", "job-name=pi"))
    assert head == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert pod[1:4] == ["0/1", "Completed", "0"]
    assert rows(shared("get", "jobs", "-l", "job-name=pi"))[1][:3] == job[:3]


@on_every_version
def test_a_pod_tells_where_it_was_put(kubectl: Kubectl) -> None:
    said = words(_in_shared(kubectl)("describe", "pod", "-l", "job-name=pi"))
    assert re.search(
        rf"^ Normal Scheduled \S+ default-scheduler Successfully assigned {SHARED}/pi-\w{{5}} to ", said, re.MULTILINE
    )


def test_a_pod_tells_how_its_container_came_to_run(kubectls: list[Kubectl]) -> None:
    said = words(_in_shared(kubectls[-1])("describe", "pod", "-l", "job-name=pi"))
    for reason, message in (("Created", "Created container: pi"), ("Started", "Started container pi")):
        assert re.search(rf"^ Normal {reason} \S+ kubelet {message}$", said, re.MULTILINE)


@on_every_version
def test_the_status_shows_which_indexes_failed(kubectl: Kubectl) -> None:
    status = yaml.safe_load(_in_shared(kubectl)("get", "-o", "yaml", "job", PER_INDEX))["status"]
    assert (status["completedIndexes"], status["failedIndexes"]) == ("1,3,5,7,9", "0,2,4,6,8")
    assert (status["succeeded"], status["failed"]) == (5, 10)
    told = [(each["message"], each["reason"], each["status"], each["type"]) for each in status["conditions"]]
    why = ("Job has failed indexes", "FailedIndexes", "True")
    assert told == [(*why, "FailureTarget"), (*why, "Finished"), (*why, "Failed")]


@on_every_version
def test_delete_takes_the_pods_too(kubectl: Kubectl) -> None:
    for verb, how in (("apply", ("jobs/pi",)), ("create", ("-f", PI))):
        assert kubectl(verb, "-f", PI) == "job.batch/pi created\n"
        until(lambda: kubectl("get", "pods", "-o", "name").startswith("pod/pi-"), SECONDS, "it has a pod")
        assert re.fullmatch(r'job.batch "pi" deleted( from \S+ namespace)?\n', kubectl("delete", *how))
        until(lambda: kubectl("get", "pods", "-l", "job-name=pi") == kubectl.none(), SECONDS, "the pod is gone")


@on_every_version
def test_a_job_is_suspended_and_resumed_by_a_patch(kubectl: Kubectl) -> None:
    apart = kubectl.apart("suspended")
    (job,) = documents.read("given/myjob", **{"suspend: true": "suspend: false"})
    apart.bring_up(job)
    suspend, resume = (f'{{"spec":{{"suspend":{value}}}}}' for value in ("true", "false"))
    assert apart("patch", "job/myjob", "--type=strategic", "--patch", suspend) == "job.batch/myjob patched\n"
    apart("wait", "--for=condition=Suspended", "job/myjob", f"--timeout={SECONDS - 1}s")
    (condition,) = _status(apart)["conditions"]
    assert (condition["type"], condition["status"]) == ("Suspended", "True")
    assert {"lastProbeTime", "lastTransitionTime"} < condition.keys()
    assert "startTime" not in _status(apart)  # the newest page wins: it is cleared, and set again when the Job resumes
    assert apart("patch", "job/myjob", "--type=strategic", "--patch", resume) == "job.batch/myjob patched\n"
    until(lambda: _status(apart)["conditions"][0]["status"] == "False", SECONDS, "it is resumed")
    apart.started("myjob")
    story = re.findall(r"^ Normal (\w+) \S+ job-controller (.*)$", words(apart("describe", "jobs/myjob")), re.MULTILINE)
    assert sorted(reason for reason, _ in story) == [
        "Resumed",
        "SuccessfulCreate",
        "SuccessfulCreate",
        "SuccessfulDelete",
        "Suspended",
    ]
    assert {message for reason, message in story if reason in ("Suspended", "Resumed")} == {
        "Job suspended",
        "Job resumed",
    }
    apart("delete", "jobs/myjob")


def _status(kubectl: Kubectl, name: str = "myjob") -> documents.Object:
    status: documents.Object = yaml.safe_load(kubectl("get", f"jobs/{name}", "-o", "yaml"))["status"]
    return status


@on_every_version
def test_a_job_may_be_created_suspended(kubectl: Kubectl) -> None:
    apart = kubectl.apart("waits")
    apart.send("create", *documents.read("given/myjob"))
    spec = yaml.safe_load(apart("get", "job", "myjob", "-o", "yaml"))["spec"]
    assert (spec["suspend"], spec["parallelism"], spec["completions"]) == (True, 1, 5)
    apart("wait", "--for=condition=Suspended", "job/myjob", f"--timeout={SECONDS - 1}s")
    assert apart("get", "pods") == apart.none()


@on_every_version
def test_another_job_takes_over_pods_that_were_left(kubectl: Kubectl) -> None:
    apart = kubectl.apart("replaced")
    (old,) = documents.read("given/old")
    left = apart.bring_up(old, 2)
    uid = yaml.safe_load(apart("get", "job", "old", "-o", "yaml"))["spec"]["selector"]["matchLabels"]
    (selector,) = uid.values()
    assert apart("delete", "jobs/old", "--cascade=orphan").startswith('job.batch "old" deleted')
    apart.send("create", *documents.read("given/new", **{"$UID": selector}))
    owned = ("-o", "jsonpath={.items[*].metadata.ownerReferences[*].name}")
    until(lambda: apart("get", "pods", *owned) == "new new", SECONDS, "the pods belong to the new Job")
    assert sorted(apart("get", "pods", "-o", "name").split()) == sorted(left)
    assert yaml.safe_load(apart("get", "job", "new", "-o", "yaml"))["metadata"]["uid"] != selector
    apart("delete", left[0])
    label = f"batch.kubernetes.io/controller-uid={selector}"
    running = ("get", "pods", "-l", label, "--field-selector=status.phase=Running", "-o", "name")
    until(lambda: "pod/new-" in apart(*running), SECONDS, "a new one runs")
    (made,) = (each for each in apart(*running).split() if each.startswith("pod/new-"))
    until(lambda: apart("logs", made) == "new\n", SECONDS, "it does what the new Job says")
    apart("delete", "jobs/new")


def test_terminating_pods_are_counted_and_not_replaced_before_they_have_failed(kubectls: list[Kubectl]) -> None:
    apart = kubectls[-1].apart("terminating")
    (job,) = documents.read("given/replacement")
    apart.bring_up(job, 3)
    apart("delete", "pods", "--all", "--wait=false")
    status = until(lambda: (now := _status(apart, "new")).get("terminating") == 3 and now, SECONDS, "three terminate")
    assert status.get("active", 0) == 0
    until(
        lambda: (now := _status(apart, "new")).get("failed") == 3 and not now["terminating"],
        SECONDS,
        "they have failed",
    )
    apart("delete", "jobs/new")


class TestACronJob:
    """`hello`, whose page is so old that it asks for batch/v1beta1."""

    def test_no_version_of_today_knows_its_api(self, kubectls: list[Kubectl]) -> None:
        everywhere(kubectls, self._is_refused)

    @staticmethod
    def _is_refused(kubectl: Kubectl) -> None:
        said = kubectl("create", "-f", str(documents.HERE / "given" / "hello.yaml"), code=1)
        assert 'no matches for kind "CronJob" in version "batch/v1beta1"' in said

    def test_in_batch_v1_it_runs_every_minute(self, kubectls: list[Kubectl]) -> None:
        apart = kubectls[-1].apart("hello")
        apart.send("create", *documents.read("given/hello", v1beta1="v1"))
        until(lambda: "1/1" in apart("get", "jobs"), 100, "a Job of it has completed")
        head, row = rows(apart("get", "cronjob", "hello"))
        assert head == ["NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST SCHEDULE", "AGE"], (
            "TIMEZONE since 1.27"
        )
        assert (row[0], row[1], row[3]) == ("hello", "*/1 * * * *", "False")
        assert re.fullmatch(r"hello-\d{8}-\w{5}", rows(apart("get", "pod"))[1][0])
        job = rows(apart("get", "jobs"))[1][0]
        assert apart("logs", f"job/{job}").endswith("\nHello from the Kubernetes cluster\n")
        assert apart("delete", "cronjob", "hello").startswith('cronjob.batch "hello" deleted')
        until(lambda: apart("get", "jobs,pods") == apart.none(), SECONDS, "its Jobs and pods are gone")
