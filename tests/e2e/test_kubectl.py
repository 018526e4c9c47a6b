"""Unmodified kubectl against a whole Jobplane: the oldest and the newest found take the full walk, the others a short one."""

import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import yaml

from tests.e2e import kubectl as kubectls
from tests.e2e.cluster import Cluster, until
from tests.e2e.kubectl import SECONDS, Kubectl
from tests.e2e.manifests import FOREVER, a_job

FOUND = kubectls.found()
ENDS = sorted({FOUND[0], FOUND[-1]}) if FOUND else []
BETWEEN = [path for path in FOUND if path not in ENDS]
COMPLETE = "--for=condition=complete"

pytestmark = pytest.mark.skipif(not FOUND, reason="no kubectl: none on PATH, and JOBPLANE_KUBECTLS names none")


@pytest.fixture(scope="module", params=ENDS, ids=lambda path: path.name)
def kubectl(request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """In a namespace of its own, so that versions do not see each other's objects."""
    return _with_namespace(request.param, cluster, tmp_path_factory.mktemp("home"))


def _with_namespace(path: Path, cluster: Cluster, home: Path) -> Kubectl:
    namespace = path.name.replace(".", "-")
    made = Kubectl(path, cluster, home, namespace)
    assert made("create", "namespace", namespace) == f"namespace/{namespace} created\n"
    return made


Write = Callable[[dict[str, Any]], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Put a manifest into a file; its path."""

    def written(document: dict[str, Any]) -> str:
        path = tmp_path / f"{document['metadata']['name']}.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return written


@pytest.fixture(scope="module")
def pi(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A manifest whose Job has completed."""
    file = tmp_path_factory.mktemp("pi") / "pi.yaml"
    file.write_text(yaml.safe_dump(a_job("pi", "echo 3.14159; echo done", backoffLimit=4)))
    assert kubectl("apply", "-f", str(file)) == "job.batch/pi created\n"
    assert kubectl("wait", COMPLETE, "job/pi", f"--timeout={SECONDS}s") == "job.batch/pi condition met\n"
    return str(file)


@pytest.fixture(scope="module")
def quiet(kubectl: Kubectl) -> str:
    """A Job that does nothing."""
    return kubectl("create", "-f", "-", stdin=json.dumps(a_job("quiet", "true", suspend=True))).split()[0]


@pytest.fixture(scope="module")
def node(kubectl: Kubectl) -> str:
    return kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")


@pytest.fixture(scope="module")
def three(kubectl: Kubectl) -> None:
    """Three Jobs that do nothing."""
    for name in ("c", "a", "b"):
        job = a_job(f"look-{name}", "true", suspend=True)
        job["metadata"]["labels"] = {"look": name}
        kubectl("create", "-f", "-", stdin=json.dumps(job))


@contextmanager
def following(running: subprocess.Popen[str]) -> Iterator[Callable[[str], str]]:
    """Read what a command says while it goes on: a function that waits for a line with a text in it."""
    lines: Queue[str] = Queue()
    said: list[str] = []
    assert running.stdout
    reading = threading.Thread(target=lambda: [lines.put(line) for line in running.stdout or ()], daemon=True)
    reading.start()

    def wait_for(text: str) -> str:
        while not re.search(text, line := lines.get(timeout=SECONDS)):
            said.append(line)
        return line

    try:
        yield wait_for
    finally:
        running.kill()
        running.wait()
        reading.join()
        for stream in (running.stdin, running.stdout):
            if stream:
                stream.close()


def started(kubectl: Kubectl, job: str, pods: int = 1) -> list[str]:
    """The names of a Job's pods, once so many are running."""
    kubectl("wait", "--for=condition=Ready", "pod", "-l", f"job-name={job}", f"--timeout={SECONDS}s")
    names = kubectl(
        "get", "pods", "-l", f"job-name={job}", "--field-selector=status.phase=Running", "-o", "name"
    ).split()
    assert len(names) == pods
    return names


def submit(kubectl: Kubectl, write: Write, job: dict[str, Any], pods: int = 1) -> list[str]:
    """Create a Job that goes on, and wait for all of its pods."""
    name = job["metadata"]["name"]
    kubectl("create", "-f", write(job))
    kubectl("wait", f"--for=jsonpath={{.status.ready}}={pods}", f"job/{name}", f"--timeout={SECONDS}s")
    return started(kubectl, name, pods)


class TestAJobFromApplyToItsLog:
    """What a newcomer types first."""

    def test_get_shows_the_job_and_its_pod(self, kubectl: Kubectl, pi: str) -> None:
        shown = kubectl("get", "jobs,pods", "-o", "wide")
        assert re.search(
            r"job.batch/pi +Complete +1/1 +\d+s +\d+s +main +busybox +batch.kubernetes.io/controller-uid=", shown
        )
        assert re.search(r"pod/pi-\w{5} +0/1 +Completed +0 +\d+s", shown)

    def test_get_answers_in_every_form(self, kubectl: Kubectl, pi: str) -> None:
        assert kubectl("get", "job", "pi", "-o", "name") == "job.batch/pi\n"
        assert kubectl("get", "job", "pi", "-o", "jsonpath={.status.succeeded}") == "1"
        assert yaml.safe_load(kubectl("get", "job/pi", "-o", "yaml"))["spec"]["backoffLimit"] == 4
        assert json.loads(kubectl("get", "job", "pi", "-o", "json"))["status"]["succeeded"] == 1
        columns = kubectl("get", "job", "pi", "-o", "custom-columns=N:.metadata.name,S:.status.succeeded")
        assert columns.split() == ["N", "S", "pi", "1"]

    def test_describe_job_tells_the_story(self, kubectl: Kubectl, pi: str) -> None:
        told = kubectl("describe", "job", "pi")
        assert re.search(r"Pods Statuses: +0 Active \(0 Ready\) / 1 Succeeded / 0 Failed", told)
        assert re.search(r"Normal +SuccessfulCreate .* job-controller +Created pod: pi-", told)
        assert re.search(r"Normal +Completed .* job-controller +Job completed", told)

    def test_describe_pod_tells_how_it_ended(self, kubectl: Kubectl, pi: str) -> None:
        told = kubectl("describe", "pod", "-l", "job-name=pi")
        assert re.search(r"Status: +Succeeded", told)
        assert re.search(r"Controlled By: +Job/pi", told)
        assert re.search(r"Exit Code: +0", told)
        assert re.search(r"Normal +Scheduled .*Successfully assigned", told)

    def test_logs_outlive_the_containers(self, kubectl: Kubectl, pi: str) -> None:
        assert kubectl("logs", "job/pi") == "3.14159\ndone\n"
        pod = kubectl("get", "pods", "-l", "job-name=pi", "-o", "name").strip()
        assert kubectl("logs", pod, "--tail=1") == "done\n"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+Z 3.14159\n.*\n", kubectl("logs", pod, "--timestamps"))
        assert kubectl("logs", "-l", "job-name=pi", "--all-containers") == "3.14159\ndone\n"

    def test_events_are_listed(self, kubectl: Kubectl, pi: str) -> None:
        assert re.search(r"Normal +Completed +job/pi +Job completed", kubectl("get", "events"))
        assert "Job completed" in kubectl("events", "--for", "job/pi")

    def test_apply_again_changes_nothing(self, kubectl: Kubectl, pi: str) -> None:
        assert kubectl("apply", "-f", pi) == "job.batch/pi unchanged\n"
        assert kubectl("diff", "-f", pi) == ""

    def test_apply_of_a_change_is_seen_by_diff_and_stored(self, kubectl: Kubectl, write: Write) -> None:
        kubectl("apply", "-f", write(a_job("changing", "true", suspend=True, backoffLimit=4)))
        changed = write(a_job("changing", "true", suspend=True, backoffLimit=2))
        assert "-  backoffLimit: 4\n+  backoffLimit: 2\n" in kubectl("diff", "-f", changed, code=1)
        assert kubectl("apply", "-f", changed) == "job.batch/changing configured\n"
        assert kubectl("get", "job", "changing", "-o", "jsonpath={.spec.backoffLimit}") == "2"

    def test_replace_of_what_was_read_is_accepted(self, kubectl: Kubectl, pi: str) -> None:
        read = yaml.safe_load(kubectl("get", "job", "pi", "-o", "yaml"))
        read["metadata"]["labels"]["replaced"] = "yes"
        assert kubectl("replace", "-f", "-", stdin=yaml.safe_dump(read)) == "job.batch/pi replaced\n"
        assert kubectl("get", "jobs", "-l", "replaced=yes", "-o", "name") == "job.batch/pi\n"

    def test_replace_by_a_stale_version_is_a_conflict(self, kubectl: Kubectl, pi: str) -> None:
        stale = kubectl("get", "job", "pi", "-o", "yaml")
        kubectl("label", "job", "pi", "newer=yes")
        said = kubectl("replace", "-f", "-", stdin=stale, code=1)
        assert "(Conflict)" in said
        assert "the object has been modified; please apply your changes to the latest version and try again" in said


class TestChangingAJob:
    def test_suspending_takes_its_pods_and_resuming_brings_new_ones(self, kubectl: Kubectl, write: Write) -> None:
        old = submit(kubectl, write, a_job("pause", FOREVER, parallelism=2, completions=2), pods=2)
        patched = kubectl("patch", "job", "pause", "--type=strategic", "-p", '{"spec":{"suspend":true}}')
        assert patched == "job.batch/pause patched\n"
        kubectl("wait", "--for=condition=Suspended", "job/pause", f"--timeout={SECONDS}s")
        kubectl("wait", "--for=delete", *old, f"--timeout={SECONDS}s")
        assert kubectl("get", "pods", "-l", "job-name=pause") == _none(kubectl)
        kubectl("patch", "job", "pause", "--type=strategic", "-p", '{"spec":{"suspend":false}}')
        kubectl("wait", "--for=jsonpath={.status.ready}=2", "job/pause", f"--timeout={SECONDS}s")
        assert set(started(kubectl, "pause", 2)).isdisjoint(old)
        assert re.search(r"Resumed .* Job resumed", kubectl("describe", "job", "pause"))
        assert kubectl("delete", "job", "pause") == 'job.batch "pause" deleted\n'

    @pytest.mark.parametrize(
        ("form", "patch"),
        [
            pytest.param("merge", {"metadata": {"labels": {"by-merge": "yes"}}}, id="merge"),
            pytest.param("json", [{"op": "add", "path": "/metadata/labels/by-json", "value": "yes"}], id="json"),
            pytest.param("strategic", {"metadata": {"labels": {"by-strategic": "yes"}}}, id="strategic"),
        ],
    )
    def test_a_patch_changes_it(self, kubectl: Kubectl, quiet: str, form: str, patch: object) -> None:
        assert kubectl("patch", quiet, f"--type={form}", "-p", json.dumps(patch)) == f"{quiet} patched\n"
        assert kubectl("get", "jobs", "-l", f"by-{form}=yes", "-o", "name") == f"{quiet}\n"

    def test_label_and_annotate_add_and_remove(self, kubectl: Kubectl, quiet: str) -> None:
        assert kubectl("label", quiet, "tier=low") == f"{quiet} labeled\n"
        assert kubectl("annotate", quiet, "why=because").startswith(f"{quiet} annotate")
        assert kubectl("get", "jobs", "-l", "tier in (low,high)", "-o", "jsonpath={..annotations.why}") == "because"
        assert kubectl("label", quiet, "tier-") == f"{quiet} unlabeled\n"
        assert kubectl("get", "jobs", "-l", "tier") == _none(kubectl)

    def test_edit_stores_what_the_editor_wrote(self, kubectl: Kubectl, quiet: str, tmp_path: Path) -> None:
        editor = tmp_path / "editor"
        editor.write_text("#!/bin/sh\nsed -i 's/backoffLimit: 6/backoffLimit: 3/' \"$1\"\n")
        editor.chmod(0o755)
        assert kubectl("edit", quiet, env={"EDITOR": str(editor)}) == f"{quiet} edited\n"
        assert kubectl("get", quiet, "-o", "jsonpath={.spec.backoffLimit}") == "3"

    def test_what_may_not_change_is_refused_with_its_field(self, kubectl: Kubectl, quiet: str) -> None:
        said = kubectl("patch", quiet, "-p", '{"spec":{"completionMode":"Indexed","completions":3}}', code=1)
        assert 'The Job "quiet" is invalid:' in said
        assert "spec.completionMode: Invalid value" in said
        assert "field is immutable" in said

    def test_a_typo_is_refused_by_name(self, kubectl: Kubectl) -> None:
        said = kubectl("create", "-f", "-", stdin=json.dumps(a_job("typo", "true", backofLimit=1)), code=1)
        assert 'strict decoding error: unknown field "spec.backofLimit"' in said
        assert "(NotFound)" in kubectl("get", "job", "typo", code=1)

    def test_a_dry_run_stores_nothing(self, kubectl: Kubectl) -> None:
        manifest = json.dumps(a_job("dry", "true"))
        assert (
            kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest)
            == "job.batch/dry created (server dry run)\n"
        )
        assert 'jobs.batch "dry" not found' in kubectl("get", "job", "dry", code=1)


class TestWatchingAndFollowing:
    def test_get_w_shows_a_pod_come_and_go(self, kubectl: Kubectl, write: Write) -> None:
        with following(kubectl.start("get", "pods", "-l", "job-name=seen", "-w", "--output-watch-events")) as line:
            submit(kubectl, write, a_job("seen", FOREVER))
            line(r"ADDED +seen-\w{5} +0/1 +Pending")
            line(r"MODIFIED +seen-\w{5} +1/1 +Running")
            kubectl("delete", "job", "seen")
            line(r"MODIFIED +seen-\w{5} +1/1 +Terminating")
            line(r"DELETED +seen-\w{5}")

    def test_logs_f_ends_with_the_container(self, kubectl: Kubectl, write: Write, tmp_path: Path) -> None:
        go = tmp_path / "go"
        script = f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two"
        submit(kubectl, write, a_job("followed", script))
        running = kubectl.start("logs", "-f", "job/followed")
        with following(running) as line:
            line("one")
            assert running.poll() is None
            go.touch()
            line("two")
            assert running.wait(SECONDS) == 0
        kubectl("wait", COMPLETE, "job/followed", f"--timeout={SECONDS}s")


class TestDeleting:
    @pytest.mark.parametrize("cascade", ["background", "foreground"])
    def test_a_deleted_job_takes_its_pods(self, kubectl: Kubectl, write: Write, cascade: str) -> None:
        name = f"going-{cascade}"
        pods = submit(kubectl, write, a_job(name, FOREVER))
        assert kubectl("delete", "job", name, f"--cascade={cascade}") == f'job.batch "{name}" deleted\n'
        if cascade == "background":
            kubectl("wait", "--for=delete", *pods, f"--timeout={SECONDS}s")
        assert kubectl("get", "pods", "-l", f"job-name={name}") == _none(kubectl)

    def test_an_orphaned_pod_goes_on(self, kubectl: Kubectl, write: Write) -> None:
        (pod,) = submit(kubectl, write, a_job("parent", FOREVER))
        kubectl("delete", "job", "parent", "--cascade=orphan")
        assert kubectl("get", pod, "-o", "jsonpath={.status.phase} {.metadata.ownerReferences}") == "Running "
        assert "deleted" in kubectl("delete", pod)
        assert "(NotFound)" in kubectl("get", pod, code=1)

    def test_deleting_a_namespace_takes_what_is_in_it(self, kubectl: Kubectl) -> None:
        name = f"{kubectl.namespace}-going"
        kubectl("create", "ns", name)
        kubectl("-n", name, "create", "configmap", "inside", "--from-literal=a=b")
        assert f'namespace "{name}" deleted\n' in kubectl("delete", "ns", name, f"--timeout={SECONDS}s")
        assert kubectl("get", "ns", name, code=1) == f'Error from server (NotFound): namespaces "{name}" not found\n'
        assert kubectl("get", "configmaps", "-n", name, "-o", "name") == ""


class TestCreatingWithoutAFile:
    """From 1.32 on these send protobuf."""

    def test_create_job_runs_its_command(self, kubectl: Kubectl) -> None:
        created = kubectl("create", "job", "typed", "--image=busybox", "--", "sh", "-c", "echo hello")
        assert created == "job.batch/typed created\n"
        kubectl("wait", COMPLETE, "job/typed", f"--timeout={SECONDS}s")
        assert kubectl("logs", "job/typed") == "hello\n"

    def test_create_configmap_keeps_its_data(self, kubectl: Kubectl) -> None:
        assert kubectl("create", "configmap", "colours", "--from-literal=sky=blue") == "configmap/colours created\n"
        assert kubectl("get", "cm", "colours", "-o", "jsonpath={.data.sky}") == "blue"

    def test_create_secret_keeps_its_data_encoded(self, kubectl: Kubectl) -> None:
        assert kubectl("create", "secret", "generic", "door", "--from-literal=key=open") == "secret/door created\n"
        assert kubectl("get", "secret", "door", "-o", "jsonpath={.data.key}") == "b3Blbg=="
        assert re.search(r"key: +4 bytes", kubectl("describe", "secret", "door"))

    def test_run_makes_a_pod(self, kubectl: Kubectl) -> None:
        made = kubectl("run", "once", "--image=busybox", "--restart=Never", "--command", "--", "echo", "hi")
        assert made == "pod/once created\n"
        kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/once", f"--timeout={SECONDS}s")
        assert kubectl("logs", "once") == "hi\n"


class TestLookingAround:
    def test_version_names_both_sides(self, kubectl: Kubectl) -> None:
        said = kubectl("version")
        assert re.search(r"Server Version: .*v1\.\d+\.\d+\+jobplane", said)

    def test_api_resources_and_versions_list_what_is_served(self, kubectl: Kubectl) -> None:
        assert re.search(r"jobs +batch/v1 +true +Job", kubectl("api-resources"))
        assert {"v1", "batch/v1", "coordination.k8s.io/v1"} <= set(kubectl("api-versions").split())

    def test_explain_knows_every_field(self, kubectl: Kubectl) -> None:
        told = kubectl("explain", "job.spec")
        assert re.search(r"backoffLimit\s+<integer>", told)
        assert re.search(r"podFailurePolicy\s+<PodFailurePolicy>", told)
        deep = kubectl("explain", "job.spec", "--recursive")
        assert re.search(r"terminationGracePeriodSeconds\s+<integer>", deep)

    def test_a_node_is_described(self, kubectl: Kubectl, node: str) -> None:
        told = kubectl("describe", "node", node)
        assert re.search(r"Ready +True", told)
        assert re.search(r"Container Runtime Version: +process://", told)

    def test_a_cordoned_node_is_shown_and_takes_no_pods(self, kubectl: Kubectl, node: str, write: Write) -> None:
        assert kubectl("cordon", node) == f"node/{node} cordoned\n"
        try:
            assert re.search(rf"{node} +Ready,SchedulingDisabled", kubectl("get", "nodes"))
            kubectl("create", "-f", write(a_job("kept-out", "true")))
            kubectl(
                "wait", "--for=condition=PodScheduled=false", "pod", "-l", "job-name=kept-out", f"--timeout={SECONDS}s"
            )
        finally:
            assert kubectl("uncordon", node) == f"node/{node} uncordoned\n"
        kubectl("wait", COMPLETE, "job/kept-out", f"--timeout={SECONDS}s")

    def test_a_taint_comes_and_goes(self, kubectl: Kubectl, node: str) -> None:
        assert kubectl("taint", "nodes", node, "colour=red:PreferNoSchedule") == f"node/{node} tainted\n"
        try:
            assert "colour=red:PreferNoSchedule" in kubectl("describe", "node", node)
        finally:
            assert kubectl("taint", "nodes", node, "colour-") == f"node/{node} untainted\n"

    def test_lists_are_selected_by_label(self, kubectl: Kubectl, three: None) -> None:
        assert kubectl("get", "jobs", "-l", "look,look!=b", "-o", "name").split() == [
            "job.batch/look-a",
            "job.batch/look-c",
        ]

    def test_lists_are_selected_by_field(self, kubectl: Kubectl, three: None) -> None:
        assert kubectl("get", "jobs", "--field-selector=metadata.name=look-a", "-o", "name") == "job.batch/look-a\n"
        said = kubectl("get", "jobs", "--field-selector=spec.colour=red", code=1)
        assert "field label not supported: spec.colour" in said

    def test_lists_come_in_chunks(self, kubectl: Kubectl, three: None) -> None:
        shown = kubectl("get", "jobs", "-l", "look", "--chunk-size=1", "--no-headers")
        assert [line.split()[0] for line in shown.splitlines()] == ["look-a", "look-b", "look-c"]

    def test_lists_are_sorted(self, kubectl: Kubectl, three: None) -> None:
        shown = kubectl("get", "jobs", "-l", "look", "--sort-by={.metadata.creationTimestamp}", "--no-headers")
        assert {line.split()[0] for line in shown.splitlines()} == {"look-a", "look-b", "look-c"}

    def test_lists_reach_over_namespaces(self, kubectl: Kubectl, three: None) -> None:
        shown = kubectl("get", "jobs", "-A", "-l", "look=a", "--no-headers")
        assert re.search(rf"^{kubectl.namespace} +look-a ", shown, re.MULTILINE)


@pytest.mark.parametrize("path", BETWEEN, ids=lambda path: path.name)
def test_the_versions_between_run_a_job_too(path: Path, cluster: Cluster, tmp_path: Path, write: Write) -> None:
    kubectl = _with_namespace(path, cluster, tmp_path)
    kubectl("apply", "-f", write(a_job("pi", "echo 3.14159")))
    kubectl("wait", COMPLETE, "job/pi", f"--timeout={SECONDS}s")
    assert kubectl("logs", "job/pi") == "3.14159\n"
    kubectl("create", "job", "typed", "--image=busybox", "--", "true")
    kubectl("wait", COMPLETE, "job/typed", f"--timeout={SECONDS}s")
    assert re.search(r"1 Succeeded / 0 Failed", kubectl("describe", "job", "typed"))
    assert kubectl("explain", "job.spec.suspend").count("suspend") >= 1
    assert kubectl("delete", "jobs", "--all").count("deleted") == 2
    until(lambda: kubectl("get", "pods") == _none(kubectl), SECONDS, "the pods go with their Jobs")


def test_a_thousand_pretended_pods_complete_on_twenty_nodes(simulated: Cluster, tmp_path: Path, write: Write) -> None:
    kubectl = Kubectl(FOUND[-1], simulated, tmp_path)
    assert kubectl("get", "nodes", "--no-headers").count(" Ready ") == 20
    kubectl("create", "-f", write(a_job("many", "true", completions=1000, parallelism=200, completionMode="Indexed")))
    kubectl("wait", COMPLETE, "job/many", f"--timeout={SECONDS}s")
    assert (
        kubectl("get", "job", "many", "-o", "jsonpath={.status.succeeded} {.status.completedIndexes}") == "1000 0-999"
    )


def _none(kubectl: Kubectl) -> str:
    return f"No resources found in {kubectl.namespace} namespace.\n"
