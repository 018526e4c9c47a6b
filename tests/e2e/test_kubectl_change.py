"""`kubectl replace`, `edit`, `patch`, `label`, `annotate` and `set`."""

import json
import re
from typing import Any

import pytest

from tests.e2e.kubectl import TIMEOUT, Kubectl, everywhere, on_every_version
from tests.e2e.manifests import FOREVER, a_configmap, a_container, a_job

PAIR = {"containers": [a_container("main", "true"), a_container("side", "true")]}


@pytest.fixture(scope="module", autouse=True)
def quiet(kubectls: list[Kubectl]) -> None:
    """A Job that does nothing, of two containers."""
    everywhere(kubectls, _make)


def _make(kubectl: Kubectl) -> None:
    """Until its controller has had its say, so that nobody else changes it."""
    kubectl.submit(a_job("quiet", "true", suspend=True, pod=PAIR))
    kubectl("wait", "--for=condition=Suspended", "job/quiet", TIMEOUT)


def _job(kubectl: Kubectl) -> dict[str, Any]:
    job: dict[str, Any] = kubectl.stored("job", "quiet")
    return job


@on_every_version
def test_replace_takes_what_was_read(kubectl: Kubectl) -> None:
    read = _job(kubectl)
    read["metadata"]["labels"]["replaced"] = "yes"
    assert kubectl.send("replace", read) == "job.batch/quiet replaced\n"
    assert kubectl("get", "jobs", "-l", "replaced=yes", "-o", "name") == "job.batch/quiet\n"
    said = kubectl.send("replace", read, code=1)
    assert said == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on '
        'jobs.batch "quiet": the object has been modified; please apply your changes to the latest version '
        "and try again\n"
    )


@on_every_version
def test_replace_of_what_is_not_there_is_refused(kubectl: Kubectl) -> None:
    said = kubectl.send("replace", a_configmap("nix"), code=1)
    assert said == 'Error from server (NotFound): error when replacing "STDIN": configmaps "nix" not found\n'


@on_every_version
def test_replace_by_force_deletes_and_creates(kubectl: Kubectl) -> None:
    job = a_job("forced", "true", suspend=True)
    kubectl.send("create", job)
    before = kubectl.stored("job", "forced")["metadata"]["uid"]
    job["spec"]["completions"] = 7
    said = kubectl.send("replace", job, options=["--force"])
    assert said == 'job.batch "forced" deleted\njob.batch/forced replaced\n'
    after = kubectl.stored("job", "forced")
    assert after["metadata"]["uid"] != before
    assert after["spec"]["completions"] == 7


@on_every_version
def test_edit_stores_what_the_editor_wrote(kubectl: Kubectl) -> None:
    editor = kubectl.file("editor", "#!/bin/sh\nsed -i 's/backoffLimit: 6/backoffLimit: 3/' \"$1\"\n")
    assert kubectl("edit", "job", "quiet", env={"EDITOR": editor}) == "job.batch/quiet edited\n"
    assert _job(kubectl)["spec"]["backoffLimit"] == 3
    again = kubectl("edit", "job", "quiet", env={"EDITOR": editor})
    assert again == "Edit cancelled, no changes made.\n"


@on_every_version
def test_an_edit_that_is_refused_is_shown_again_with_the_reason(kubectl: Kubectl) -> None:
    """The second time, the editor keeps a copy of what it is shown, and gives up."""
    copy = kubectl.home / "shown.yaml"
    change = "sed -i 's/parallelism: 1/parallelism: -5/' $1"
    script = f"#!/bin/sh\nif grep -q parallelism:.-5 $1; then cp $1 {copy}; else {change}; fi\n"
    said = kubectl("edit", "job", "quiet", env={"EDITOR": kubectl.file("stubborn", script)}, code=1)
    assert re.search(r'error: jobs.batch "quiet" is invalid', said)
    assert "# * spec.parallelism: Invalid value: -5: must be greater than or equal to 0" in copy.read_text()
    assert _job(kubectl)["spec"]["parallelism"] == 1


@pytest.mark.parametrize(
    ("form", "patch"),
    [
        pytest.param("merge", {"metadata": {"labels": {"by-merge": "yes"}}}, id="merge"),
        pytest.param("json", [{"op": "add", "path": "/metadata/labels/by-json", "value": "yes"}], id="json"),
        pytest.param("strategic", {"metadata": {"labels": {"by-strategic": "yes"}}}, id="strategic"),
    ],
)
def test_a_patch_changes_it(kubectls: list[Kubectl], form: str, patch: object) -> None:
    def change(kubectl: Kubectl) -> None:
        how = ("patch", "job", "quiet", f"--type={form}", "-p", json.dumps(patch))
        assert kubectl(*how) == "job.batch/quiet patched\n"
        assert kubectl(*how) == "job.batch/quiet patched (no change)\n"
        assert kubectl("get", "jobs", "-l", f"by-{form}=yes", "-o", "name") == "job.batch/quiet\n"

    everywhere(kubectls, change)


@on_every_version
def test_lists_are_patched_by_key_by_place_or_whole(kubectl: Kubectl) -> None:
    """A pod's image may change, and that of a suspended Job that never ran may not."""
    kubectl("run", "twins", "--image=busybox", "--restart=Never", "--overrides", json.dumps({"spec": _held()}))
    image = {"spec": {"containers": [{"name": "side", "image": "second"}]}}
    assert kubectl("patch", "pod", "twins", "-p", json.dumps(image)) == "pod/twins patched\n"
    assert _images(kubectl) == {"main": "busybox", "side": "second"}
    third = [{"op": "replace", "path": "/spec/containers/1/image", "value": "third"}]
    assert kubectl("patch", "pod", "twins", "--type=json", "-p", json.dumps(third)) == "pod/twins patched\n"
    assert _images(kubectl) == {"main": "busybox", "side": "third"}
    said = kubectl("patch", "pod", "twins", "--type=merge", "-p", json.dumps(image), code=1)
    assert said.startswith('The Pod "twins" is invalid: ')
    assert kubectl("set", "image", "pod/twins", "*=fourth") == "pod/twins image updated\n"
    assert set(_images(kubectl).values()) == {"fourth"}


def _held() -> dict[str, Any]:
    """A pod that stays as it is."""
    return {**PAIR, "schedulerName": "nobody", "schedulingGates": [{"name": "example.com/held"}]}


def _images(kubectl: Kubectl) -> dict[str, str]:
    return {each["name"]: each["image"] for each in kubectl.stored("pod", "twins")["spec"]["containers"]}


@on_every_version
def test_patches_that_do_not_fit_are_refused_in_words(kubectl: Kubectl) -> None:
    patch = ("patch", "job", "quiet", "-p")
    said = kubectl(*patch, '{"spec":{"completionMode":"Indexed"}}', code=1)
    assert said == 'The Job "quiet" is invalid: spec.completionMode: Invalid value: "Indexed": field is immutable\n'
    said = kubectl(*patch, '{"spec":{"parallelism":-1}}', "--type=merge", code=1)
    assert said == (
        'The Job "quiet" is invalid: spec.parallelism: Invalid value: -1: must be greater than or equal to 0\n'
    )
    test = '[{"op":"test","path":"/metadata/name","value":"x"}]'
    said = kubectl(*patch, test, "--type=json", code=1)
    assert said == "The request is invalid: patch: testing value /metadata/name failed\n"
    assert "(BadRequest)" in kubectl(*patch, '{"spec":{"parallelism":"many"}}', code=1)
    missing = kubectl("patch", "job", "nix", "-p", "{}", code=1)
    assert missing == 'Error from server (NotFound): jobs.batch "nix" not found\n'


@on_every_version
def test_the_status_is_patched_on_its_own(kubectl: Kubectl) -> None:
    own = {"type": "Tested", "status": "True", "reason": "ByHand"}
    patch = json.dumps({"status": {"conditions": [own]}, "spec": {"backoffLimit": 60}})
    assert kubectl("patch", "job", "quiet", "--subresource=status", "-p", patch) == "job.batch/quiet patched\n"
    assert kubectl("wait", "--for=condition=Tested", "job/quiet", TIMEOUT) == "job.batch/quiet condition met\n"
    assert _job(kubectl)["spec"]["backoffLimit"] != 60
    patched = kubectl("patch", "job", "quiet", "-p", '{"status":{"succeeded":5}}')
    assert patched == "job.batch/quiet patched (no change)\n"


@on_every_version
def test_labels_come_change_and_go(kubectl: Kubectl) -> None:
    assert kubectl("label", "job", "quiet", "tier=low") == "job.batch/quiet labeled\n"
    said = kubectl("label", "job", "quiet", "tier=high", code=1)
    assert said == "error: 'tier' already has a value (low), and --overwrite is false\n"
    assert kubectl("label", "job", "quiet", "tier=high", "--overwrite") == "job.batch/quiet labeled\n"
    assert kubectl("get", "jobs", "-l", "tier in (low,high)", "-o", "name") == "job.batch/quiet\n"
    assert kubectl("label", "job", "quiet", "--list").count("tier=high\n") == 1
    assert kubectl("label", "job", "quiet", "tier-") == "job.batch/quiet unlabeled\n"
    assert kubectl("label", "job", "quiet", "tier-") == 'label "tier" not found.\njob.batch/quiet not labeled\n'
    assert kubectl("get", "jobs", "-l", "tier") == kubectl.none()
    said = kubectl("label", "job", "quiet", "tier=a b", code=1)
    assert "a valid label must be an empty string or consist of alphanumeric characters" in said


@on_every_version
def test_annotations_come_change_and_go(kubectl: Kubectl) -> None:
    done = re.compile(r"job.batch/quiet annotated?\n")  # "annotate" up to 1.27
    assert done.fullmatch(kubectl("annotate", "job", "quiet", "why=because of this"))
    assert "--overwrite is false" in kubectl("annotate", "job", "quiet", "why=no", code=1)
    assert done.fullmatch(kubectl("annotate", "job", "quiet", "why=no", "--overwrite"))
    assert _job(kubectl)["metadata"]["annotations"] == {"why": "no"}
    assert done.fullmatch(kubectl("annotate", "job", "quiet", "why-"))
    assert "annotations" not in _job(kubectl)["metadata"]
    everything = kubectl("label", "configmaps,secrets", "--all", "swept=yes", "--overwrite")
    assert everything == "" or "labeled" in everything


@on_every_version
def test_the_image_of_a_job_may_not_change(kubectl: Kubectl) -> None:
    said = kubectl("set", "image", "job/quiet", "main=other", code=1)
    assert 'Job.batch "quiet" is invalid: spec.template: Invalid value: ' in said
    assert said.endswith(": field is immutable\n")
    assert 'unable to find container named "nix"' in kubectl("set", "image", "job/quiet", "nix=other", code=1)


@on_every_version
def test_what_kubectl_itself_refuses_is_refused(kubectl: Kubectl) -> None:
    said = kubectl("rollout", "status", "job/quiet", code=1)
    assert said == "error: no status viewer has been implemented for Job.batch\n"
    said = kubectl("rollout", "restart", "job/quiet", code=1)
    assert said == 'error: jobs.batch "quiet" restarting is not supported\n'
    assert "the server could not find the requested resource" in kubectl("scale", "job/quiet", "--replicas=2", code=1)


@on_every_version
def test_suspending_takes_a_jobs_pods_and_resuming_brings_new_ones(kubectl: Kubectl) -> None:
    old = kubectl.bring_up(a_job("pause", FOREVER, parallelism=2, completions=2), pods=2)
    assert kubectl("patch", "job", "pause", "-p", '{"spec":{"suspend":true}}') == "job.batch/pause patched\n"
    kubectl("wait", "--for=condition=Suspended", "job/pause", TIMEOUT)
    kubectl("wait", "--for=delete", *old, TIMEOUT)
    kubectl("patch", "job", "pause", "-p", '{"spec":{"suspend":false}}')
    assert set(kubectl.started("pause", 2)).isdisjoint(old)
    assert re.search(r"Resumed .* Job resumed", kubectl("describe", "job", "pause"))
    assert kubectl("delete", "job", "pause") == 'job.batch "pause" deleted\n'
