"""Who one is and what one may: `kubectl auth`, roles, tokens, and asking as somebody else."""

import json
import re

from tests.e2e.cluster import until
from tests.e2e.kubectl import SECONDS, Kubectl, on_every_version, words
from tests.e2e.manifests import a_job


@on_every_version
def test_a_role_is_bound_and_gives_just_its_rights(kubectl: Kubectl) -> None:
    made = kubectl("create", "role", "reader", "--verb=get,list", "--resource=jobs.batch,pods")
    assert made == "role.rbac.authorization.k8s.io/reader created\n"
    assert kubectl("create", "rolebinding", "bob-reads", "--role=reader", "--user=bob") == (
        "rolebinding.rbac.authorization.k8s.io/bob-reads created\n"
    )
    until(lambda: "yes" in _may(kubectl, "list", "jobs"), SECONDS, "the binding is known")
    assert kubectl("get", "jobs", "-l", "a=nix", "--as=bob") == kubectl.none()
    said = kubectl("create", "job", "refused", "--image=busybox", "--as=bob", code=1)
    assert said == (
        'error: failed to create job: jobs.batch is forbidden: User "bob" cannot create resource "jobs" '
        f'in API group "batch" in the namespace "{kubectl.namespace}"\n'
    )
    said = kubectl("get", "jobs", "-A", "--as=bob", code=1)
    assert said == (
        'Error from server (Forbidden): jobs.batch is forbidden: User "bob" cannot list resource "jobs" '
        'in API group "batch" at the cluster scope\n'
    )
    listed = words(kubectl("auth", "can-i", "--list", "--as=bob"))
    assert "jobs.batch [] [] [get list]\n" in listed
    assert "selfsubjectaccessreviews.authorization.k8s.io [] [] [create]\n" in listed
    assert "[/healthz] [] [get]\n" in listed
    described = words(kubectl("describe", "role", "reader"))
    assert " jobs.batch [] [] [get list]\n" in described
    assert " User bob " in words(kubectl("describe", "rolebinding", "bob-reads"))


def _may(kubectl: Kubectl, *what: str) -> str:
    """What can-i says to bob; "no" ends with 1."""
    with kubectl.start("auth", "can-i", *what, "--as=bob") as running:
        out, _ = running.communicate(timeout=SECONDS)
    return out


@on_every_version
def test_can_i_says_yes_or_no(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "jobs") == "yes\n"
    assert kubectl("auth", "can-i", "*", "*", "-A") == "yes\n"
    assert kubectl("auth", "can-i", "get", "pods", "--subresource=log") == "yes\n"
    assert kubectl("auth", "can-i", "get", "/readyz") == "yes\n"
    assert kubectl("auth", "can-i", "delete", "jobs", "--as=nobody", code=1) == "no\n"
    assert kubectl("auth", "can-i", "delete", "jobs", "--as=nobody", "-q", code=1) == ""
    assert "Warning: the server doesn't have a resource type 'frobs'" in kubectl("auth", "can-i", "get", "frobs")
    assert re.search(r"^\*\.\* \[\] \[\] \[\*\]$", words(kubectl("auth", "can-i", "--list")), re.MULTILINE)


@on_every_version
def test_whoami_names_user_and_groups(kubectl: Kubectl) -> None:
    """1.27 asks for it as a beta, later ones as it is today."""
    told = words(kubectl("auth", "whoami"))
    assert told == "ATTRIBUTE VALUE\nUsername admin\nGroups [system:masters system:authenticated]\n"
    as_bob = ("auth", "whoami", "--as=bob", "--as-group=painters", "-o", "json")
    assert json.loads(kubectl(*as_bob))["status"]["userInfo"] == {
        "username": "bob",
        "groups": ["painters", "system:authenticated"],
    }


@on_every_version
def test_a_service_account_acts_by_its_token(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot", "--duration=1h").strip()
    who = ("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    name = f"system:serviceaccount:{kubectl.namespace}:robot"
    other = kubectl.file("robot.kubeconfig", json.dumps(_config(kubectl, token)))
    assert kubectl(*who, "--kubeconfig", other) == name
    said = kubectl("get", "jobs", "--kubeconfig", other, code=1)
    assert said.startswith(f'Error from server (Forbidden): jobs.batch is forbidden: User "{name}" cannot list')
    account = f"--serviceaccount={kubectl.namespace}:robot"
    kubectl("create", "rolebinding", "robot-edits", "--clusterrole=edit", account)
    until(lambda: "yes" in _list_jobs(kubectl, other), SECONDS, "the binding is known")
    created = kubectl("create", "job", "by-robot", "--image=busybox", "--kubeconfig", other, "--", "true")
    assert created == "job.batch/by-robot created\n"
    missing = kubectl("create", "token", "nix", code=1)
    assert missing == 'error: failed to create token: serviceaccounts "nix" not found\n'


def _list_jobs(kubectl: Kubectl, kubeconfig: str) -> str:
    with kubectl.start("auth", "can-i", "list", "jobs", "--kubeconfig", kubeconfig) as running:
        out, _ = running.communicate(timeout=SECONDS)
    return out


def _config(kubectl: Kubectl, token: str) -> object:
    """The administrator's, but with another's token."""
    config = json.loads(kubectl("config", "view", "--raw", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    return config


@on_every_version
def test_a_wrong_token_is_told_to_log_in(kubectl: Kubectl) -> None:
    unauthorized = "error: You must be logged in to the server (Unauthorized)\n"
    assert kubectl("get", "jobs", "--token=wrong", code=1) == unauthorized
    said = kubectl.send("create", a_job("x", "true"), options=["--token=wrong"], code=1)
    assert "Unauthorized" in said or "the server has asked for the client to provide credentials" in said


@on_every_version
def test_roles_of_the_cluster_are_made_and_reconciled(kubectl: Kubectl) -> None:
    name = f"{kubectl.namespace}-watcher"
    made = kubectl("create", "clusterrole", name, "--verb=watch", "--resource=nodes")
    assert made == f"clusterrole.rbac.authorization.k8s.io/{name} created\n"
    bound = kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", "--group=painters")
    assert bound == f"clusterrolebinding.rbac.authorization.k8s.io/{name} created\n"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
    }
    assert f"clusterrole.rbac.authorization.k8s.io/{name} reconciled" in kubectl.send("auth reconcile", role)
    verbs = {verb for rule in kubectl.stored("clusterrole", name)["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "watch"}
    kubectl("delete", "clusterrole,clusterrolebinding", name)
