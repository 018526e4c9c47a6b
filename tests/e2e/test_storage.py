"""Claims on two nodes: a shared one is seen from both, a local one keeps its pods, data go or stay as the policy says.

The API, the controllers and the agents are killed in between: nothing is lost, and nothing is left. JOBPLANE_STORAGE_KILLS is how
often (1 without it).
"""

import os
import random
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e import nextflow_program, processes
from tests.e2e.cluster import Cluster, environment, surprises, until
from tests.e2e.environments import python_with
from tests.e2e.kubectl import Kubectl, newest, rows, words
from tests.e2e.ledger import JOBS
from tests.e2e.machines import command, jobplane

SECONDS = 60
KILLS = int(os.environ.get("JOBPLANE_STORAGE_KILLS", "1"))
CLAIMS, PODS, VOLUMES = (
    "/api/v1/namespaces/{}/persistentvolumeclaims",
    "/api/v1/namespaces/{}/pods",
    "/api/v1/persistentvolumes",
)
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
BOTH = ("first", "second")
ROOT = Path(__file__).parents[2]
NEXTFLOW_KINDS = {
    "PersistentVolumeClaim": CLAIMS,
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
SNAKEMAKE = "snakemake==9.27.1"


class Lab:
    """Two nodes with a folder that both have. What an administrator does there."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder, self.shared = cluster, folder, folder / "shared"
        self.shared.mkdir(mode=0o755)
        self._agent: subprocess.Popen[bytes] | None = None
        self._given = jobplane("token", "create", "--data-dir", str(cluster.folder)).split()[1:]
        self.client = cluster.client()
        for policy in ("Delete", "Retain"):
            self.make(
                CLASSES,
                f"shared-{policy.lower()}",
                provisioner="jobplane.dev/shared-folder",
                parameters={"path": str(self.shared), "requireMount": "false"},
                reclaimPolicy=policy,
                allowVolumeExpansion=True,
            )

    def start_agent(self) -> None:
        more = ["--node-name", "second", "--data-dir", str(self.folder / "second")]
        with (self.folder / "second.log").open("ab") as log:
            self._agent = subprocess.Popen(command(*self._given, *more), stdout=log, stderr=log, env=environment())

    def stop_agent(self, *, kill: bool = False) -> None:
        assert self._agent
        self._agent.kill() if kill else self._agent.terminate()
        self._agent.wait(30)

    def close(self) -> None:
        if self._agent is not None:
            self.stop_agent()
        for each in processes.naming(f"{self.folder}/second/"):
            processes.kill(each.pid)
        self.client.close()

    def call(self, method: str, path: str, **how: Any) -> dict[str, Any]:
        """Tried again while the API is being started again."""

        def answered() -> httpx.Response | None:
            try:
                answer = self.client.request(method, path, **how)
            except httpx.TransportError:
                return None
            return None if answer.status_code in (429, 500, 503) else answer

        answer: httpx.Response = until(answered, SECONDS, f"{method} {path}")
        assert answer.is_success or answer.status_code in (404, 409), answer.text
        found: dict[str, Any] = answer.json()
        return found

    def make(self, path: str, name: str, namespace: str = "default", **body: Any) -> None:
        self.call("POST", path.format(namespace), json={"metadata": {"name": name}, **body})

    def claim(self, name: str, of: str | None, namespace: str = "default", mode: str = "ReadWriteMany") -> None:
        spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
        self.make(CLAIMS, name, namespace, spec=spec | ({"storageClassName": of} if of else {}))

    def run(self, name: str, script: str, claim: str, node: str = "", namespace: str = "default") -> None:
        container = {
            "name": "main",
            "image": "none",
            "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "data", "mountPath": "/claimed"}],
        }
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        }
        if node:
            spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        self.make(PODS, name, namespace, spec=spec)

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.call("GET", f"{PODS.format(namespace)}/{name}")

    def ended(self, name: str, namespace: str = "default") -> str:
        """Its log, once it has ended well."""

        def has_ended() -> bool:
            return self.pod(name, namespace).get("status", {}).get("phase") in ("Succeeded", "Failed")

        until(has_ended, SECONDS, f"{name} ends")
        assert self.pod(name, namespace)["status"]["phase"] == "Succeeded", self.pod(name, namespace)["status"]
        return self.client.get(f"{PODS.format(namespace)}/{name}/log").text

    def delete(self, path: str, name: str, namespace: str = "default") -> None:
        self.call("DELETE", f"{path.format(namespace)}/{name}", json={"gracePeriodSeconds": 0})

    def volumes(self) -> dict[str, str]:
        """Phases, by claim."""
        items = self.call("GET", VOLUMES)["items"]
        return {each["spec"]["claimRef"]["name"]: each["status"]["phase"] for each in items}

    def folders(self) -> list[Path]:
        """Those with data, of all nodes."""
        bases = (self.shared, self.cluster.folder / "agent" / "claims", self.folder / "second" / "agent" / "claims")
        return [each for base in bases if base.is_dir() for each in base.iterdir()]


@contextmanager
def a_lab() -> Iterator[Lab]:
    """In a folder that anybody may walk to, and that isolated pods see: they have a /tmp and a /var/tmp of their own."""
    folder = Path(tempfile.mkdtemp(prefix="jobplane-test-", dir="/srv" if os.access("/srv", os.W_OK) else "/var/tmp"))
    folder.chmod(0o755)
    try:
        with Cluster(folder / "data", JOBPLANE_NODE_NAME="first") as cluster:
            lab = Lab(cluster, folder)
            try:
                lab.start_agent()
                cluster.nodes = 2
                until(cluster.is_usable, SECONDS, "the second node is ready")
                yield lab
                cluster.empty()
            finally:
                lab.close()
            assert cluster.surprises() == ""
            assert surprises(folder / "second.log") == ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_lab() as made:
        yield made


def test_a_shared_claim_is_seen_from_two_nodes_and_goes_with_its_data(lab: Lab) -> None:
    lab.claim("results", "shared-delete")
    lab.run("writer", "echo 42 > /claimed/answer", "results", "first")
    lab.ended("writer")
    lab.run("reader", "cat /claimed/answer", "results", "second")

    assert lab.ended("reader") == "42\n"
    assert len(lab.folders()) == 1
    lab.delete(CLAIMS, "results")
    until(lambda: lab.volumes() == {} and lab.folders() == [], SECONDS, "volume and data are gone")


def test_what_is_retained_is_there_for_another_claim(lab: Lab) -> None:
    lab.claim("kept", "shared-retain")
    lab.run("keeper", "echo kept > /claimed/file", "kept")
    lab.ended("keeper")
    lab.delete(CLAIMS, "kept")
    until(lambda: lab.volumes() == {"kept": "Released"}, SECONDS, "it is released")
    (folder,) = lab.folders()
    (volume,) = lab.call("GET", VOLUMES)["items"]
    name = volume["metadata"]["name"]
    patch = {"Content-Type": "application/merge-patch+json"}

    lab.call("PATCH", f"{VOLUMES}/{name}", json={"spec": {"claimRef": None}}, headers=patch)

    def is_available() -> bool:
        return bool(lab.call("GET", f"{VOLUMES}/{name}")["status"]["phase"] == "Available")

    until(is_available, SECONDS, "it may be claimed: before that, the class makes another one")
    lab.claim("heir", "shared-retain")
    lab.run("heir", "cat /claimed/file", "heir")
    assert lab.ended("heir") == "kept\n"
    lab.delete(CLAIMS, "heir")
    until(lambda: lab.volumes() == {"heir": "Released"}, SECONDS, "it is released again")
    lab.delete(VOLUMES, name)
    until(lambda: lab.volumes() == {}, SECONDS, "the object is gone")
    assert (folder / "data" / "file").read_text() == "kept\n", "and the data are not"
    shutil.rmtree(folder)


def test_a_local_claim_keeps_its_pods_on_its_node(lab: Lab) -> None:
    lab.claim("scratch", None, mode="ReadWriteOnce")
    lab.run("one", "echo here > /claimed/file", "scratch", "second")
    lab.ended("one")
    for number in range(4):
        lab.run(f"more-{number}", "cat /claimed/file", "scratch")
    assert {lab.ended(f"more-{number}") for number in range(4)} == {"here\n"}
    assert {lab.pod(f"more-{number}")["spec"]["nodeName"] for number in range(4)} == {"second"}

    lab.run("elsewhere", "true", "scratch", "first")
    message = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had volume node affinity"

    def said() -> str:
        conditions = lab.pod("elsewhere")["status"].get("conditions", [])
        return str(next((each.get("message") for each in conditions if each["type"] == "PodScheduled"), ""))

    until(lambda: said().startswith(message), SECONDS, f"it waits: {said()}")
    lab.delete(PODS, "elsewhere")
    lab.delete(CLAIMS, "scratch")
    until(lambda: lab.volumes() == {} and lab.folders() == [], SECONDS, "volume and data are gone")


def test_a_claim_stays_while_its_pod_runs(lab: Lab) -> None:
    lab.claim("busy", "shared-delete")
    lab.run("worker", "while [ ! -e /claimed/enough ]; do sleep 0.1; done; cat /claimed/enough", "busy")
    until(lab.folders, SECONDS, "the folder is there")
    lab.delete(CLAIMS, "busy")
    (folder,) = lab.folders()
    assert lab.volumes() == {"busy": "Bound"}

    (folder / "data" / "enough").write_text("done\n")
    assert lab.ended("worker") == "done\n"
    until(lambda: lab.volumes() == {} and lab.folders() == [], SECONDS, "volume and data are gone")


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("bwrap"),
    reason="an agent isolates pods by users of their own as root only, with setpriv, and by bubblewrap",
)
def test_namespaces_that_are_kept_apart_have_claims_of_their_own(lab: Lab) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    for namespace in ("t1", "t2"):
        lab.call("POST", "/api/v1/namespaces", json={"metadata": {"name": namespace, "labels": labels}})
        lab.claim("data", "shared-delete", namespace)
    write = "id -u; echo ours > /claimed/answer && cat /claimed/answer"
    users = set()
    for node in BOTH:
        lab.run(f"own-{node}", write, "data", node, "t1")
        user, answer = lab.ended(f"own-{node}", "t1").split()
        users.add(user)
        assert answer == "ours"
    assert len(users) == 1
    assert users != {"0"}

    (folder,) = [each for each in lab.folders() if (each / "data" / "answer").exists()]
    lab.run(
        "spy", f"ls {folder}/data 2>&1; cat {folder}/data/answer 2>&1; echo own > /claimed/own", "data", "first", "t2"
    )
    said = lab.ended("spy", "t2")
    assert said.count("Permission denied") == 2
    assert "ours" not in said
    for namespace in ("t1", "t2"):
        lab.call("DELETE", f"/api/v1/namespaces/{namespace}")
    until(lambda: lab.volumes() == {} and lab.folders() == [], SECONDS, "volumes and data are gone")


@pytest.mark.parametrize("kill", range(KILLS))
def test_nothing_is_lost_when_parts_are_killed_in_between(lab: Lab, kill: int) -> None:
    """Three steps are followed by a kill of a part, at once: each part once, or any if it is done often."""
    chance = random.Random(secrets.randbelow(10**6))
    parts = iter(("api", "second", "controllers"))

    def strike() -> None:
        part = next(parts) if KILLS == 1 else chance.choice(("api", "controllers", "agent", "second"))
        if part == "second":
            lab.stop_agent(kill=True)
            lab.start_agent()
        else:
            processes.kill(lab.cluster.pid_of(part))

    classes = ("shared-delete", "local")
    names = [f"k{kill}-{of}" for of in classes]
    for name, of in zip(names, classes, strict=True):
        lab.claim(name, of, mode="ReadWriteOnce")
    strike()
    for name in names:
        lab.run(f"{name}-w", "echo precious > /claimed/file; sync /claimed/file", name, "second")
    strike()
    for name in names:
        lab.ended(f"{name}-w")
        lab.run(f"{name}-r", "cat /claimed/file", name)
        assert lab.ended(f"{name}-r") == "precious\n"
    assert len(lab.folders()) == 2
    for name in names:
        lab.delete(CLAIMS, name)
    strike()
    until(lambda: lab.volumes() == {} and lab.folders() == [], 2 * SECONDS, "volumes and data are gone, once")


@pytest.mark.skipif(
    not os.environ.get("JOBPLANE_SNAKEMAKE"), reason="JOBPLANE_SNAKEMAKE is not set: it is installed for this test"
)
def test_a_workflow_has_a_claim_as_its_work_folder(lab: Lab) -> None:
    """The example with Snakemake as it stands: the second run finds that all is made, on whichever node."""
    claim, config, job = yaml.safe_load_all((ROOT / "examples" / "snakemake.yaml").read_text())
    (main,) = job["spec"]["template"]["spec"]["containers"]
    main["env"].append({"name": "PATH", "value": f"{python_with('snakemake', SNAKEMAKE).parent}:/usr/bin:/bin"})
    for path, each in ((CLAIMS, claim), ("/api/v1/namespaces/{}/configmaps", config)):
        lab.call("POST", path.format("default"), json=each)

    def said() -> str:
        lab.call("POST", JOBS, json=job)
        until(lambda: lab.call("GET", f"{JOBS}/workflow")["status"].get("completionTime"), SECONDS, "it is complete")
        (pod,) = lab.call("GET", PODS.format("default"), params={"labelSelector": "job-name=workflow"})["items"]
        log = lab.ended(pod["metadata"]["name"])
        lab.call("DELETE", f"{JOBS}/workflow", json={"propagationPolicy": "Foreground"})
        until(lambda: lab.call("GET", f"{JOBS}/workflow").get("code") == 404, SECONDS, "it is gone")
        return log

    first, second = said(), said()
    assert "5 of 5 steps (100%) done" in first
    assert "Nothing to be done" in second
    assert [each.splitlines()[-1] for each in (first, second)] == ["total: 6"] * 2
    lab.delete(CLAIMS, "workflow")
    until(lambda: lab.volumes() == {} and lab.folders() == [], SECONDS, "volume and data are gone")


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not os.environ.get("JOBPLANE_NEXTFLOW"), reason="JOBPLANE_NEXTFLOW is not set: it is fetched for this test"
)
def test_the_processes_of_a_nextflow_workflow_are_jobs_with_a_shared_claim(lab: Lab) -> None:
    """The example with Nextflow: here its Jobs run on another node than Nextflow. The second run resumes the first."""
    *others, job = yaml.safe_load_all((ROOT / "examples" / "nextflow.yaml").read_text())
    others[0]["spec"]["storageClassName"] = "shared-delete"
    (main,) = job["spec"]["template"]["spec"]["containers"]
    main["env"].append({"name": "PATH", "value": f"{nextflow_program.folder()}:/usr/local/bin:/usr/bin:/bin"})
    job["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "first"}
    (config,) = (each["data"] for each in others if each["kind"] == "ConfigMap")
    config["nextflow.config"] += "process.pod = [nodeSelector: 'kubernetes.io/hostname=second']\n"
    for each in others:
        lab.call("POST", NEXTFLOW_KINDS[each["kind"]].format("default"), json=each)

    def said() -> list[str]:
        lab.call("POST", JOBS, json=job)
        until(lambda: lab.call("GET", f"{JOBS}/nextflow")["status"].get("conditions"), 5 * SECONDS, "it has ended")
        (pod,) = lab.call("GET", PODS.format("default"), params={"labelSelector": "job-name=nextflow"})["items"]
        log = lab.ended(pod["metadata"]["name"])
        lab.call("DELETE", f"{JOBS}/nextflow", json={"propagationPolicy": "Foreground"})
        until(lambda: lab.call("GET", f"{JOBS}/nextflow").get("code") == 404, SECONDS, "it is gone")
        return log.splitlines()

    first, second = said(), said()
    assert sum("Submitted process > " in line for line in first) == 4
    assert sum("Cached process > " in line for line in second) == 4
    assert all("total: 6" in each for each in (first, second))
    params = {"fieldSelector": "reason=Scheduled"}
    events = lab.call("GET", "/api/v1/namespaces/default/events", params=params)["items"]
    nodes = {each["message"].split()[-1] for each in events if each["involvedObject"]["name"].startswith("nf-")}
    assert nodes == {"second"}
    lab.delete(CLAIMS, "nextflow")
    until(lambda: lab.volumes() == {} and lab.folders() == [], SECONDS, "volume and data are gone")


def test_kubectl_shows_them_as_kubernetes_does(lab: Lab, tmp_path: Path) -> None:
    kubectl = Kubectl.at(newest(), lab.cluster, tmp_path)
    lab.claim("seen", "shared-delete")
    until(lambda: lab.volumes() == {"seen": "Bound"}, SECONDS, "it is bound")
    try:
        head, row = rows(kubectl("get", "pvc", "-n", "default"))
        assert " ".join(head) == "NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE"
        assert (row[0], row[1], row[3:7]) == ("seen", "Bound", ["1Gi", "RWX", "shared-delete", "<unset>"])
        volume = row[2]
        head, row = rows(kubectl("get", "pv"))
        columns = "NAME CAPACITY ACCESS MODES RECLAIM POLICY STATUS CLAIM STORAGECLASS VOLUMEATTRIBUTESCLASS REASON AGE"
        assert " ".join(head) == columns
        assert row[:7] == [volume, "1Gi", "RWX", "Delete", "Bound", "default/seen", "shared-delete"]
        head, *_ = rows(kubectl("get", "sc"))
        assert " ".join(head) == "NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE"
        assert "local (default)" in kubectl("get", "sc")
        described = kubectl("describe", "pvc", "seen", "-n", "default")
        assert "ProvisioningSucceeded" in described
        assert "[kubernetes.io/pvc-protection]" in described
        assert "jobplane.dev/shared-folder" in kubectl("describe", "pv", volume)
        assert "IsDefaultClass: No" in words(kubectl("describe", "sc", "shared-delete"))
    finally:
        kubectl.api.close()
        lab.delete(CLAIMS, "seen")
    until(lambda: lab.volumes() == {} and lab.folders() == [], SECONDS, "volume and data are gone")
