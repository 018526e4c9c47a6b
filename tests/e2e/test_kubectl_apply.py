"""`kubectl apply` in both its ways, with pruning, and `kubectl diff`."""

import json
import re
from typing import Any

from tests.e2e.kubectl import Kubectl, on_every_version
from tests.e2e.manifests import a_configmap, a_container, a_job

SERVER_SIDE = ["--server-side"]
LAST = "kubectl.kubernetes.io/last-applied-configuration"


@on_every_version
def test_apply_creates_then_changes_nothing_then_configures(kubectl: Kubectl) -> None:
    job = a_job("applied", "true", suspend=True, backoffLimit=4)
    assert kubectl.send("apply", job) == "job.batch/applied created\n"
    assert kubectl.send("apply", job) == "job.batch/applied unchanged\n"
    assert kubectl.send("diff", job) == ""
    job["spec"]["backoffLimit"] = 2
    assert "-  backoffLimit: 4\n+  backoffLimit: 2\n" in kubectl.send("diff", job, code=1)
    dry = kubectl.send("apply", job, options=["--dry-run=server"])
    assert dry == "job.batch/applied configured (server dry run)\n"
    assert kubectl.send("apply", job) == "job.batch/applied configured\n"
    stored = kubectl.stored("job", "applied")
    assert stored["spec"]["backoffLimit"] == 2
    assert json.loads(stored["metadata"]["annotations"][LAST])["spec"]["backoffLimit"] == 2


@on_every_version
def test_apply_removes_what_the_file_no_longer_has(kubectl: Kubectl) -> None:
    kubectl.send("apply", a_configmap("shrinking", a="1", b="2"))
    kubectl("patch", "cm", "shrinking", "-p", '{"data":{"others":"3"}}')
    assert kubectl.send("apply", a_configmap("shrinking", a="1")) == "configmap/shrinking configured\n"
    assert kubectl.stored("cm", "shrinking")["data"] == {"a": "1", "others": "3"}


@on_every_version
def test_apply_says_what_may_not_change(kubectl: Kubectl) -> None:
    job = a_job("immutable", "true", suspend=True, completions=2)
    kubectl.send("apply", job)
    job["spec"]["completionMode"] = "Indexed"
    said = kubectl.send("apply", job, code=1)
    assert said == (
        'The Job "immutable" is invalid: spec.completionMode: Invalid value: "Indexed": field is immutable\n'
    )


@on_every_version
def test_apply_takes_over_what_was_created(kubectl: Kubectl) -> None:
    kubectl.send("create", a_configmap("adopted", a="1"))
    said = kubectl.send("apply", a_configmap("adopted", a="2"))
    assert f"Warning: resource configmaps/adopted is missing the {LAST} annotation" in said
    assert said.endswith("configmap/adopted configured\n")
    assert kubectl("apply", "view-last-applied", "cm", "adopted", "-o", "json").count('"a": "2"') == 1


@on_every_version
def test_apply_names_unknown_fields(kubectl: Kubectl) -> None:
    typo = a_job("typo", "true", backofLimit=1)
    assert 'strict decoding error: unknown field "spec.backofLimit"' in kubectl.send("apply", typo, code=1)
    assert ".spec.backofLimit: field not declared in schema" in kubectl.send("apply", typo, options=SERVER_SIDE, code=1)


@on_every_version
def test_apply_prunes_what_is_gone_from_the_files(kubectl: Kubectl) -> None:
    own = kubectl.apart("pruned")
    kept, gone = (_labelled(a_configmap(name, a="b"), "prune") for name in ("kept", "gone"))
    other = _labelled(a_configmap("other"), "other")
    own.send("apply", kept, gone, other)
    prune = ["--prune", "-l", "set=prune", "--prune-allowlist=core/v1/ConfigMap"]
    assert own.send("apply", kept, options=prune) == "configmap/kept unchanged\nconfigmap/gone pruned\n"
    assert {"configmap/kept", "configmap/other"} == set(own("get", "cm", "-l", "set", "-o", "name").split())


@on_every_version
def test_apply_prunes_of_its_own_choice(kubectl: Kubectl) -> None:
    """Without an allowlist, kubectl looks through kinds of which there are none here, and gives up where one is unknown."""
    own = kubectl.apart("chosen")
    kept, gone = (_labelled(a_configmap(name, a="b"), "sweep") for name in ("kept", "gone"))
    own.send("apply", kept, gone, _labelled(a_job("gone", "true"), "sweep"), _labelled(a_configmap("other"), "other"))
    said = own.send("apply", kept, options=["--prune", "-l", "set=sweep"])
    assert "configmap/kept unchanged\n" in said
    assert {"configmap/gone pruned", "job.batch/gone pruned"} <= set(said.splitlines())
    assert own("get", "cm,jobs", "-l", "set", "-o", "name").split() == ["configmap/kept", "configmap/other"]


@on_every_version
def test_apply_prunes_by_apply_set(kubectl: Kubectl) -> None:
    own, env = kubectl.apart("set"), {"KUBECTL_APPLYSET": "true"}
    how = ("apply", "--server-side", "--prune", "--applyset=both", "-f")
    both = own.file("both.yaml", json.dumps({"apiVersion": "v1", "kind": "List", "items": [*_two()]}))
    assert own(*how, both, env=env) == "configmap/one serverside-applied\nconfigmap/two serverside-applied\n"
    one = own.file("one.yaml", json.dumps(_two()[0]))
    assert own(*how, one, env=env) == "configmap/one serverside-applied\nconfigmap/two pruned\n"
    assert own("get", "cm", "-l", "applyset.kubernetes.io/part-of", "-o", "name") == "configmap/one\n"


def _two() -> tuple[dict[str, Any], dict[str, Any]]:
    return a_configmap("one"), a_configmap("two")


def _labelled(document: dict[str, Any], value: str) -> dict[str, Any]:
    return document | {"metadata": {**document["metadata"], "labels": {"set": value}}}


@on_every_version
def test_server_side_apply_creates_merges_and_is_owned(kubectl: Kubectl) -> None:
    applied = "configmap/shared serverside-applied\n"
    mine, yours = [*SERVER_SIDE, "--field-manager=me"], [*SERVER_SIDE, "--field-manager=you"]
    assert kubectl.send("apply", a_configmap("shared", a="1"), options=mine) == applied
    assert kubectl.send("apply", a_configmap("shared", b="2"), options=yours) == applied
    assert kubectl.stored("cm", "shared")["data"] == {"a": "1", "b": "2"}
    managed = kubectl.stored("cm", "shared")["metadata"]["managedFields"]
    assert {each["manager"]: each["fieldsV1"] for each in managed} == {
        "me": {"f:data": {"f:a": {}}},
        "you": {"f:data": {"f:b": {}}},
    }
    assert kubectl.send("apply", a_configmap("shared"), options=mine) == applied
    assert kubectl.stored("cm", "shared")["data"] == {"b": "2"}


@on_every_version
def test_server_side_apply_conflicts_until_it_is_forced(kubectl: Kubectl) -> None:
    kubectl.send("apply", a_configmap("disputed", a="1"), options=[*SERVER_SIDE, "--field-manager=me"])
    yours = [*SERVER_SIDE, "--field-manager=you"]
    said = kubectl.send("apply", a_configmap("disputed", a="2"), options=yours, code=1)
    assert 'error: Apply failed with 1 conflict: conflict with "me": .data.a\n' in said
    assert "please re-run the apply\n  command with the `--force-conflicts` flag." in said
    forced = kubectl.send("apply", a_configmap("disputed", a="2"), options=[*yours, "--force-conflicts"])
    assert forced == "configmap/disputed serverside-applied\n"
    assert kubectl.stored("cm", "disputed")["data"] == {"a": "2"}
    said = kubectl.send("apply", a_configmap("disputed", a="1"), options=[*SERVER_SIDE, "--field-manager=me"], code=1)
    assert 'conflict with "you": .data.a' in said


@on_every_version
def test_server_side_apply_of_a_job_keeps_what_others_set(kubectl: Kubectl) -> None:
    job = a_job("owned", "true", suspend=True, pod={"containers": [a_container("main", "true")]})
    assert kubectl.send("apply", job, options=SERVER_SIDE) == "job.batch/owned serverside-applied\n"
    kubectl("label", "job", "owned", "by=hand")
    assert kubectl.send("apply", job, options=SERVER_SIDE) == "job.batch/owned serverside-applied\n"
    assert kubectl("get", "job", "owned", "-o", "jsonpath={.metadata.labels.by}") == "hand"
    conflicting = {**job, "metadata": {"name": "owned", "labels": {"by": "file"}}}
    said = kubectl.send("apply", conflicting, options=SERVER_SIDE, code=1)
    assert 'conflict with "kubectl-label"' in said
    assert ".metadata.labels.by" in said


@on_every_version
def test_a_user_of_client_side_apply_can_move_to_server_side(kubectl: Kubectl) -> None:
    kubectl.send("apply", a_configmap("moved", a="1", b="2"))
    assert kubectl.send("apply", a_configmap("moved", a="3"), options=SERVER_SIDE) == (
        "configmap/moved serverside-applied\n"
    )
    moved = kubectl.stored("cm", "moved")
    assert moved["data"] == {"a": "3"}
    assert [each["manager"] for each in moved["metadata"]["managedFields"] if "f:data" in each["fieldsV1"]] == [
        "kubectl"
    ]


@on_every_version
def test_diff_tells_by_its_exit_code(kubectl: Kubectl) -> None:
    missing = kubectl.send("diff", a_configmap("unborn", a="1"), code=1)
    assert re.search(r"^\+data:\n\+  a: \"1\"\n\+kind: ConfigMap$", missing, re.MULTILINE)
    assert "(NotFound)" in kubectl("get", "cm", "unborn", code=1)
    kubectl.send("apply", a_configmap("differs", a="1"), options=SERVER_SIDE)
    assert kubectl.send("diff", a_configmap("differs", a="1"), options=SERVER_SIDE) == ""
    changed = kubectl.send("diff", a_configmap("differs", a="2"), options=SERVER_SIDE, code=1)
    assert '-  a: "1"\n+  a: "2"\n' in changed


@on_every_version
def test_apply_k_builds_and_applies(kubectl: Kubectl) -> None:
    kubectl.file("built/job.json", json.dumps(a_job("built", "true", suspend=True)))
    kubectl.file("built/kustomization.yaml", "resources: [job.json]\nnamePrefix: well-\n")
    folder = str(kubectl.home / "built")
    assert "name: well-built\n" in kubectl("kustomize", folder)
    assert kubectl("apply", "-k", folder) == "job.batch/well-built created\n"
    assert kubectl("apply", "-k", folder, "--server-side").endswith("job.batch/well-built serverside-applied\n")
    assert kubectl("delete", "-k", folder).endswith('job.batch "well-built" deleted\n')
