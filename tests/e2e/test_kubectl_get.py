"""`kubectl get` in all its forms, and what it says of what is not there."""

import json
import re

import pytest
import yaml

from tests.e2e.kubectl import Kubectl, everywhere, following, on_every_version, rows, words
from tests.e2e.manifests import FOREVER, a_job

LABELS = {"colour": "red"}


@pytest.fixture(scope="module", autouse=True)
def seen(kubectls: list[Kubectl]) -> None:
    """A Job that has completed, and three that do nothing."""
    everywhere(kubectls, _make)


def _make(kubectl: Kubectl) -> None:
    kubectl.submit(*(_quiet(name) for name in "cab"))
    kubectl.run_to_its_end(a_job("pi", "echo 3.14159", labels=LABELS))


def _quiet(name: str) -> dict[str, object]:
    return a_job(f"look-{name}", "true", suspend=True, labels={"look": name})


@on_every_version
def test_a_table_shows_jobs_and_pods(kubectl: Kubectl) -> None:
    told = kubectl("get", "jobs", "-l", "colour=red")
    assert re.fullmatch(r"NAME +STATUS +COMPLETIONS +DURATION +AGE\npi +Complete +1/1 +\d+s +\d+s\n", told)
    heading, pod = rows(kubectl("get", "pods", "-l", "job-name=pi"))
    assert heading == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert re.fullmatch(r"pi-\w{5} 0/1 Completed 0 \d+s", " ".join(pod))


@on_every_version
def test_a_wide_table_has_more_columns(kubectl: Kubectl) -> None:
    heading, job = rows(kubectl("get", "job", "pi", "-o", "wide"))
    assert heading[5:] == ["CONTAINERS", "IMAGES", "SELECTOR"]
    assert job[5:7] == ["main", "busybox"]
    assert job[7].startswith("batch.kubernetes.io/controller-uid=")
    heading, pod = rows(kubectl("get", "pods", "-l", "job-name=pi", "-o", "wide"))
    assert heading[5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert pod[7:] == ["<none>", "<none>"]


@on_every_version
def test_several_kinds_come_one_after_the_other(kubectl: Kubectl) -> None:
    told = kubectl("get", "jobs,pods,cm", "--no-headers", "-l", "job-name=pi")
    assert re.fullmatch(r"pod/pi-\w{5} +0/1 +Completed +0 +\d+s\n", told)
    both = kubectl("get", "job/pi", "job/look-a", "--no-headers")
    assert re.fullmatch(r"pi +Complete +1/1 .*\nlook-a +Suspended +0/1 +\d+s\n", both)


@on_every_version
def test_get_all_names_each_kind(kubectl: Kubectl) -> None:
    told = words(kubectl("get", "all"))
    pods, jobs = "NAME READY STATUS RESTARTS AGE\n", "NAME STATUS COMPLETIONS DURATION AGE\n"
    assert re.search(rf"^{pods}(pod/.*\n)*pod/pi-\w{{5}} 0/1 Completed 0 \S+\n", told, re.MULTILINE)
    assert re.search(rf"^{jobs}(job.batch/.*\n)*job.batch/look-a Suspended 0/1 \S+\n", told, re.MULTILINE)


@on_every_version
def test_short_names_work(kubectl: Kubectl) -> None:
    assert re.fullmatch(r"pod/pi-\w{5}\n", kubectl("get", "po", "-l", "job-name=pi", "-o", "name"))
    named = kubectl("get", "ns,no,cj,sa", "-o", "name")
    assert f"namespace/{kubectl.namespace}\n" in named
    assert f"node/{kubectl.node()}\n" in named
    assert "serviceaccount/default\n" in named
    assert "priorityclass.scheduling.k8s.io/system-node-critical\n" in kubectl("get", "pc", "-o", "name")
    assert "event/" in kubectl("get", "cm,ev,limits,quota,pdb,svc", "-o", "name")
    assert "job.batch/pi\n" in kubectl("get", "jobs.v1.batch", "-o", "name")


@on_every_version
def test_yaml_and_json_hold_the_whole_object(kubectl: Kubectl) -> None:
    job = yaml.safe_load(kubectl("get", "job", "pi", "-o", "yaml"))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["spec"]["backoffLimit"] == 6
    assert job["status"]["succeeded"] == 1
    assert "managedFields" not in job["metadata"]
    assert json.loads(kubectl("get", "job", "pi", "-o", "json")) == job
    managed = yaml.safe_load(kubectl("get", "job", "pi", "-o", "yaml", "--show-managed-fields"))
    assert "f:spec" in managed["metadata"]["managedFields"][0]["fieldsV1"]
    several = json.loads(kubectl("get", "jobs", "-l", "look", "-o", "json"))
    assert several["kind"] == "List"
    assert [each["kind"] for each in several["items"]] == ["Job"] * 3


@on_every_version
def test_templates_and_columns_pick_fields(kubectl: Kubectl) -> None:
    assert kubectl("get", "job", "pi", "-o", "name") == "job.batch/pi\n"
    assert kubectl("get", "job", "pi", "-o", "jsonpath={.status.succeeded}") == "1"
    types = '-o=jsonpath={range .status.conditions[*]}{.type}={.status}{"\\n"}{end}'
    assert kubectl("get", "job", "pi", types) == "SuccessCriteriaMet=True\nFinished=True\nComplete=True\n"
    template = '{{range .items}}{{.metadata.name}}{{"\\n"}}{{end}}'
    assert kubectl("get", "jobs", "-l", "look", "-o", f"go-template={template}") == "look-a\nlook-b\nlook-c\n"
    columns = kubectl("get", "jobs", "-l", "look", "-o", "custom-columns=N:.metadata.name,S:.spec.suspend,X:.nix")
    assert rows(columns)[:2] == [["N", "S", "X"], ["look-a", "true", "<none>"]]


@on_every_version
def test_labels_are_shown(kubectl: Kubectl) -> None:
    assert rows(kubectl("get", "job", "look-b", "--show-labels"))[1][-1] == "look=b"
    assert [row[-1] for row in rows(kubectl("get", "jobs", "-L", "look", "-l", "look"))] == ["LOOK", "a", "b", "c"]


@on_every_version
def test_lists_are_sorted(kubectl: Kubectl) -> None:
    by_name = kubectl("get", "jobs", "-l", "look", "--sort-by={.metadata.name}", "--no-headers")
    assert [row[0] for row in rows(by_name)] == ["look-a", "look-b", "look-c"]
    by_birth = kubectl("get", "jobs", "--sort-by={.metadata.creationTimestamp}", "--no-headers")
    assert {row[0] for row in rows(by_birth)} >= {"look-a", "look-b", "look-c", "pi"}


@on_every_version
def test_lists_are_selected_by_label(kubectl: Kubectl) -> None:
    for selector, names in [
        ("look=a", "a"),
        ("look,look!=b", "ac"),
        ("look in (a,b)", "ab"),
        ("look,look notin (a,b)", "c"),
        ("!look,colour=red", ""),
    ]:
        found = kubectl("get", "jobs", "-l", selector, "-o", "name").split()
        assert found == [f"job.batch/look-{name}" for name in names] or (not names and found == ["job.batch/pi"])
    said = kubectl("get", "jobs", "-l", "a in (b", code=1)
    assert re.search(r"unable to parse requirement: found '', expected: ',' or '\)'", said)


@on_every_version
def test_lists_are_selected_by_field(kubectl: Kubectl) -> None:
    assert kubectl("get", "jobs", "--field-selector=metadata.name=look-a", "-o", "name") == "job.batch/look-a\n"
    assert "job.batch/pi\n" in (done := kubectl("get", "jobs", "--field-selector=status.successful=1", "-o", "name"))
    assert "look" not in done
    phases = ("get", "pods", "-l", "job-name=pi", "-o", "name")
    assert kubectl(*phases, "--field-selector=status.phase!=Succeeded") == ""
    assert kubectl(*phases, "--field-selector=status.phase=Succeeded,spec.nodeName!=nix").startswith("pod/pi-")
    said = kubectl("get", "jobs", "--field-selector=spec.colour=red", code=1)
    assert said == (
        'Error from server (BadRequest): Unable to find "batch/v1, Resource=jobs" that match label selector "", '
        'field selector "spec.colour=red": field label not supported: spec.colour\n'
    )


@on_every_version
def test_lists_come_in_chunks(kubectl: Kubectl) -> None:
    for size in ("1", "2", "0"):
        shown = kubectl("get", "jobs", "-l", "look", f"--chunk-size={size}", "--no-headers")
        assert [row[0] for row in rows(shown)] == ["look-a", "look-b", "look-c"]


@on_every_version
def test_lists_reach_over_namespaces(kubectl: Kubectl) -> None:
    heading, *jobs = rows(kubectl("get", "jobs", "-A", "-l", "look=a"))
    assert heading[:2] == ["NAMESPACE", "NAME"]
    assert [kubectl.namespace, "look-a"] in [job[:2] for job in jobs]


@on_every_version
def test_what_is_not_there_is_named(kubectl: Kubectl) -> None:
    assert kubectl("get", "job", "nix", code=1) == 'Error from server (NotFound): jobs.batch "nix" not found\n'
    several = kubectl("get", "job/nix", "job/pi", "pod/nix", "-o", "name", code=1)
    assert sorted(several.splitlines()) == [
        'Error from server (NotFound): jobs.batch "nix" not found',
        'Error from server (NotFound): pods "nix" not found',
        "job.batch/pi",
    ]
    assert kubectl("get", "job", "nix", "--ignore-not-found") == ""
    assert kubectl("get", "limits") == kubectl.none()
    assert kubectl("get", "frobs", code=1) == 'error: the server doesn\'t have a resource type "frobs"\n'
    assert kubectl("get", "jobs.v9.batch", code=1).startswith("error: the server doesn't have a resource type")


@on_every_version
def test_of_stateful_sets_there_are_none(kubectl: Kubectl) -> None:
    own = kubectl.apart("bare")
    assert own("get", "sts") == own.none()
    assert own("get", "all") == own.none()
    assert own("get", "deploy,sts,ds,rs,rc,ing,ep,pvc", "-o", "name") == ""
    assert own("get", "sts", "web", code=1) == 'Error from server (NotFound): statefulsets.apps "web" not found\n'
    assert own("get", "sts", "-w", "--request-timeout=1s") == ""
    assert own("delete", "sts", "web", "--ignore-not-found") == ""
    assert own("delete", "sts", "--all") == own("delete", "all", "--all") == "No resources found\n"
    assert "Jobplane has none of these" in own("explain", "statefulsets")
    assert "statefulsets.apps\n" in own("api-resources", "-o", "name")
    assert "statefulsets.apps\n" not in own("api-resources", "-o", "name", "--verbs=create")


@on_every_version
def test_subresources_are_shown(kubectl: Kubectl) -> None:
    assert rows(kubectl("get", "job", "pi", "--subresource=status"))[1][:3] == ["pi", "Complete", "1/1"]
    said = kubectl("get", "serviceaccount", "default", "--subresource=status", code=1)
    assert said == "Error from server (NotFound): the server could not find the requested resource\n"


@on_every_version
def test_raw_paths_are_answered_as_they_are(kubectl: Kubectl) -> None:
    path = f"/apis/batch/v1/namespaces/{kubectl.namespace}/jobs"
    assert json.loads(kubectl("get", "--raw", f"{path}/pi"))["status"]["succeeded"] == 1
    assert json.loads(kubectl("get", "--raw", f"{path}?labelSelector=look"))["kind"] == "JobList"
    assert kubectl("get", "--raw", "/readyz") == "ok"
    said = kubectl("get", "--raw", f"{path}/pi/nix", code=1)
    assert said == "Error from server (NotFound): the server could not find the requested resource\n"
    raw = kubectl("create", "--raw", path, "-f", kubectl.file("raw.json", json.dumps(_quiet("raw"))))
    assert json.loads(raw)["metadata"]["name"] == "look-raw"
    warning, status = kubectl("delete", "--raw", f"{path}/look-raw").splitlines()
    assert warning.startswith("Warning: child pods are preserved by default when jobs are deleted;")
    assert json.loads(status)["metadata"]["finalizers"] == ["orphan"]


@on_every_version
def test_a_watch_shows_a_pod_come_and_go(kubectl: Kubectl) -> None:
    told = ("get", "pods", "-l", "job-name in (seen,seen-too)", "-w")
    with (
        following(kubectl.start(*told, "--output-watch-events")) as events,
        following(kubectl.start(*told, "--watch-only", "-o", "name")) as names,
    ):
        kubectl.bring_up(a_job("seen", FOREVER))
        events(r"^EVENT +NAME +READY +STATUS +RESTARTS +AGE$")
        events(r"^(ADDED|MODIFIED) +seen-\w{5} +1/1 +Running +0 +\d+s$")
        kubectl.bring_up(a_job("seen-too", FOREVER))
        events(r"^ADDED +seen-too-\w{5} +0/1 +Pending +0 +\d+s$")
        events(r"^MODIFIED +seen-too-\w{5} +1/1 +Running +0 +\d+s$")
        kubectl("delete", "job", "seen-too")
        events(r"^MODIFIED +seen-too-\w{5} +1/1 +Terminating +0 +\d+s$")
        events(r"^DELETED +seen-too-\w{5} ")
        names(r"^pod/seen-too-\w{5}$")
    kubectl("delete", "job", "seen")


@on_every_version
def test_a_watch_of_one_begins_with_what_is_there(kubectl: Kubectl) -> None:
    with following(kubectl.start("get", "job", "pi", "-w", "-o", "custom-columns=L:.metadata.labels.once")) as told:
        told("<none>")
        kubectl("label", "job", "pi", "once=yes")
        told("yes")
