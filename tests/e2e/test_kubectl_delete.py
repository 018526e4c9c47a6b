"""`kubectl delete` in all its forms, and `kubectl wait`."""

import re

import pytest

from tests.e2e.kubectl import COMPLETE, TIMEOUT, Kubectl, everywhere, following, on_every_version
from tests.e2e.manifests import FOREVER, a_configmap, a_job


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_deleted_job_takes_its_pods(kubectls: list[Kubectl], cascade: str) -> None:
    name = f"going-{cascade}"

    def delete(kubectl: Kubectl) -> None:
        pods = kubectl.bring_up(a_job(name, FOREVER))
        assert kubectl("delete", "job", name, f"--cascade={cascade}") == f'job.batch "{name}" deleted\n'
        if cascade == "background":
            kubectl("wait", "--for=delete", *pods, TIMEOUT)
        assert kubectl("get", "pods", "-l", f"job-name={name}") == kubectl.none()

    everywhere(kubectls, delete)


@on_every_version
def test_a_deletion_in_the_foreground_shows_that_it_waits(kubectl: Kubectl) -> None:
    (pod,) = kubectl.bring_up(a_job("waits", FOREVER, pod={"terminationGracePeriodSeconds": 0}))
    kubectl("patch", pod, "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/hold"]}}')
    kubectl("delete", "job", "waits", "--cascade=foreground", "--wait=false")
    held = kubectl.stored("job", "waits")["metadata"]
    assert held["finalizers"] == ["foregroundDeletion"]
    assert held["deletionTimestamp"]
    kubectl("wait", "--for=jsonpath={.metadata.deletionGracePeriodSeconds}=0", pod, TIMEOUT)
    kubectl("patch", pod, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl("wait", "--for=delete", pod, "job/waits", TIMEOUT)


@on_every_version
def test_an_orphaned_pod_goes_on(kubectl: Kubectl) -> None:
    (pod,) = kubectl.bring_up(a_job("parent", FOREVER))
    assert kubectl("delete", "job", "parent", "--cascade=orphan") == 'job.batch "parent" deleted\n'
    assert kubectl("get", pod, "-o", "jsonpath={.status.phase} {.metadata.ownerReferences}") == "Running "
    assert kubectl("delete", pod) == f'pod "{pod.removeprefix("pod/")}" deleted\n'
    assert "(NotFound)" in kubectl("get", pod, code=1)


@on_every_version
def test_a_pod_is_deleted_by_force(kubectl: Kubectl) -> None:
    (pod,) = kubectl.bring_up(a_job("killed", FOREVER))
    said = kubectl("delete", pod, "--grace-period=0", "--force")
    assert said.startswith("Warning: Immediate deletion does not wait for confirmation")
    assert said.endswith(f'pod "{pod.removeprefix("pod/")}" force deleted\n')
    assert "(NotFound)" in kubectl("get", pod, code=1)
    kubectl("delete", "job", "killed")


@on_every_version
def test_without_waiting_a_pod_is_seen_to_end(kubectl: Kubectl) -> None:
    script = "trap 'until [ -e go ]; do sleep 0.05; done; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    (pod,) = kubectl.bring_up(a_job("slow", script.replace("go", str(kubectl.home / "go")), pod=_patient()))
    assert kubectl("delete", pod, "--wait=false").endswith("deleted\n")
    assert re.search(r" Terminating ", kubectl("get", pod))
    kubectl.file("go", "")
    kubectl("wait", "--for=delete", pod, TIMEOUT)
    kubectl("delete", "job", "slow")


def _patient() -> dict[str, int]:
    return {"terminationGracePeriodSeconds": 50}


@on_every_version
def test_deleting_by_label_and_all_spares_the_others(kubectl: Kubectl) -> None:
    own = kubectl.apart("swept")
    own.send("create", *(a_configmap(name) for name in ("a", "b", "c")), a_job("quiet", "true", suspend=True))
    own("label", "cm", "a", "b", "doomed=yes")
    assert own("delete", "cm", "-l", "doomed=nix") == "No resources found\n"
    assert own("delete", "cm", "-l", "doomed", "--dry-run=server") == (
        'configmap "a" deleted (server dry run)\nconfigmap "b" deleted (server dry run)\n'
    )
    assert own("delete", "cm", "-l", "doomed") == 'configmap "a" deleted\nconfigmap "b" deleted\n'
    assert "configmap/c\n" in own("get", "cm", "-o", "name")
    swept = own("delete", "cm,jobs", "--all")
    assert {'configmap "c" deleted', 'job.batch "quiet" deleted'} <= set(swept.splitlines())
    assert own("get", "jobs") == own.none()


@on_every_version
def test_what_is_not_there_cannot_be_deleted(kubectl: Kubectl) -> None:
    assert kubectl("delete", "job", "nix", code=1) == 'Error from server (NotFound): jobs.batch "nix" not found\n'
    assert kubectl("delete", "job", "nix", "--ignore-not-found") == ""
    said = kubectl("delete", "ns", "default", code=1)
    assert 'namespaces "default" is forbidden: this namespace may not be deleted\n' in said
    said = kubectl.send("delete", a_configmap("nix"), code=1)
    assert said == 'Error from server (NotFound): error when deleting "STDIN": configmaps "nix" not found\n'


@on_every_version
def test_deleting_a_namespace_takes_what_is_in_it(kubectl: Kubectl) -> None:
    own = kubectl.apart("going")
    own("create", "configmap", "inside", "--from-literal=a=b")
    own.bring_up(a_job("inside", FOREVER))
    assert f'namespace "{own.namespace}" deleted\n' in own("delete", "ns", own.namespace, TIMEOUT)
    gone = f'Error from server (NotFound): namespaces "{own.namespace}" not found\n'
    assert own("get", "ns", own.namespace, code=1) == gone
    assert own("get", "configmaps,pods,jobs", "-o", "name") == ""


@on_every_version
def test_wait_ends_with_what_it_waited_for(kubectl: Kubectl) -> None:
    go = kubectl.home / "finish"
    kubectl.bring_up(a_job("awaited", f"until [ -e {go} ]; do sleep 0.05; done"))
    waiting = [
        kubectl.start("wait", how, "job/awaited", TIMEOUT)
        for how in (COMPLETE, "--for=condition=COMPLETE=true", "--for=jsonpath={.status.succeeded}=1")
    ]
    go.touch()
    for each in waiting:
        with following(each) as told:
            told(r"^job.batch/awaited condition met$")
    both = kubectl("wait", COMPLETE, "jobs", "-l", "job-name=awaited", TIMEOUT)
    assert both in {"", "job.batch/awaited condition met\n"}


@on_every_version
def test_wait_says_why_it_gives_up(kubectl: Kubectl) -> None:
    kubectl.send("create", a_job("idle", "true", suspend=True))
    said = kubectl("wait", COMPLETE, "job/idle", "--timeout=1s", code=1)
    assert said == "error: timed out waiting for the condition on jobs/idle\n"
    said = kubectl("wait", COMPLETE, "job/nix", "--timeout=1s", code=1)
    assert said == 'Error from server (NotFound): jobs.batch "nix" not found\n'
    assert kubectl("wait", COMPLETE, "jobs", "-l", "a=nix", code=1) == "error: no matching resources found\n"
    assert kubectl("wait", "--for=delete", "job/nix") == ""


@on_every_version
def test_wait_for_creation_is_known_from_1_31_on(kubectl: Kubectl) -> None:
    if kubectl.minor < 31:
        said = kubectl("wait", "--for=create", "cm/later", code=1)
        assert said == 'error: unrecognized condition: "create"\n'
        return
    waiting = kubectl.start("wait", "--for=create", "cm/later", TIMEOUT)
    with following(waiting) as told:
        kubectl("create", "configmap", "later")
        told("^configmap/later condition met$")
