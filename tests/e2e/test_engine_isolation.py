"""What a user with `edit` in one namespace reaches on nodes with containers (cri, docker, oci): nothing of the node, of others.

Eve may edit three namespaces: t1, of which nobody has said what it may; strict, which enforces baseline; and open, which is
privileged. What she tries in t1 and strict she tries in open, too, where it must succeed, or it would prove nothing.
JOBPLANE_ENGINES=all is with containerd and Docker, too.
"""

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.postgres.postgres_folder import Cluster as PostgresFolder
from tests.e2e import bombs, processes
from tests.e2e.cluster import Cluster, free_port, until
from tests.e2e.kubectl import newest
from tests.e2e.people import SECONDS, People, a_pod
from tests.runtimes import dockers, engines, hostile_images, oci_images
from tests.runtimes.dockers import ALL_ENGINES, Dockerd
from tests.runtimes.engines import Containerd
from tests.runtimes.images import IMAGE
from tests.runtimes.registry import registry

NAMESPACES = {"t1": "", "t2": "", "later": "", "strict": "baseline", "open": "privileged"}
PASSWORD = "jobplane-planted-secret-of-t2"
MOUNT = {"name": "v", "mountPath": "/host"}


def contained(**context: Any) -> dict[str, Any]:
    return {"container": {"securityContext": context}}


def at_host(path: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "hostPath": {"path": path}}], "container": {"volumeMounts": [MOUNT]}}


def of_pod(**context: Any) -> dict[str, Any]:
    return {"securityContext": context}


ON_NODE = {"httpGet": {"host": "127.0.0.1", "port": 1}}
NOTHING = ""  # what runtimes here do not act on, or what shows nothing by itself
DEVICE = "mknod /tmp/k c 1 11 && dd if=/tmp/k of=/dev/null bs=8192 count=1"
CONNECT = "nc 127.0.0.1 $PORT </dev/null"
# What is asked for beyond baseline, and what it serves for.
BREAKOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "privileged": (f"mount -t tmpfs none /mnt && {DEVICE}", contained(privileged=True)),
    "privileged, in an init container": (
        "true",
        {
            "initContainers": [
                {
                    "name": "i",
                    "image": IMAGE,
                    "command": ["mount", "-t", "tmpfs", "none", "/mnt"],
                    "securityContext": {"privileged": True},
                }
            ]
        },
    ),
    "hostPath of the data folder": ("grep -q . /host/admin.token", at_host("DATA")),
    "hostPath of everything": ("chroot /host test -w /etc/shadow", at_host("/")),
    "hostPath of the engine's socket": ("test -e /host", at_host("ENGINE")),
    "hostPath of a pod's volumes": ("grep -q . /host/*/s/password", at_host("DATA/agent/volumes")),
    "hostPath of the node's processes": ("ls /host/$AGENT", at_host("/proc")),
    "hostPath of cgroups": ("ls /host", at_host("/sys/fs/cgroup")),
    "hostPID": ("kill -0 $AGENT", {"hostPID": True}),
    "hostIPC": ("test $(readlink /proc/self/ns/ipc) = $IPC", {"hostIPC": True}),
    "hostNetwork": (CONNECT, {"hostNetwork": True}),
    "hostPort": (NOTHING, {"container": {"ports": [{"containerPort": 80, "hostPort": "A PORT"}]}}),
    "capability SYS_ADMIN": ("mount -t tmpfs none /mnt", contained(capabilities={"add": ["SYS_ADMIN"]})),
    "capability NET_ADMIN": ("ip link set lo mtu 1400", contained(capabilities={"add": ["NET_ADMIN"]})),
    "all capabilities": ("mount -t tmpfs none /mnt", contained(capabilities={"add": ["ALL"]})),
    "seccomp Unconfined": ("unshare -U true", contained(seccompProfile={"type": "Unconfined"})),
    "seccomp Unconfined, of the pod": ("unshare -U true", of_pod(seccompProfile={"type": "Unconfined"})),
    "AppArmor Unconfined": (NOTHING, contained(appArmorProfile={"type": "Unconfined"})),
    "a user of SELinux": (NOTHING, of_pod(seLinuxOptions={"user": "system_u"})),
    "a sysctl of the node": (NOTHING, of_pod(sysctls=[{"name": "kernel.msgmax", "value": "1"}])),
    "a probe of the node's loopback": (NOTHING, {"container": {"readinessProbe": ON_NODE}}),
    "a hook at the node's loopback": (NOTHING, {"container": {"lifecycle": {"preStop": ON_NODE}}}),
}

ADDED = ["SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN", "DAC_READ_SEARCH"]
# Docker gives these all capabilities that it knows, and cannot where the machine itself lacks one.
ALL = ("privileged", "privileged, in an init container", "all capabilities")
# What a container without any of these tries, in a shell. `reach` looks wherever a container may see the node's files.
REACH = 'reach() { cat "/host$1" || cat "$1" || cat "/proc/1/root$1"; }'
GATEWAY = "$(ip route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p')"
ATTEMPTS = {
    "the administrator's token": "reach $D/admin.token",
    "the kubeconfig": "reach $D/kubeconfig",
    "the certificate authority's key": "reach $D/tls/ca.key",
    "the agent's token": "reach $D/agent.token",
    "the database's password": "reach $D/postgres/pgpass",
    "the database's socket": "test -S /host$SOCKET || test -S $SOCKET",
    "the engine's socket": "test -e /host$ENGINE || test -e $ENGINE",
    "passwords of the system": "reach /etc/shadow | grep '^root:[^x]'",
    "secrets of another pod": "reach $D/agent/volumes/$UID_OF_OTHER/s/password",
    "the environment of another pod": "tr '\\0' '\\n' </proc/$OTHER/environ | grep $PASSWORD",
    "a signal to another pod": "kill -0 $OTHER",
    "the agent's environment": "cat /proc/$AGENT/environ",
    "the agent's memory": "head -c0 /proc/$AGENT/mem",
    "a signal to the agent": "kill -0 $AGENT",
    "the API, by the node's loopback": f"nc 127.0.0.1 $PORT </dev/null || nc {GATEWAY} $PORT </dev/null",
    "settings of the kernel": "for h in /host ''; do : >>$h/proc/sys/kernel/core_pattern && exit; done; false",
    "cgroups": "c=/sys/fs/cgroup; test -d $c/pids && c=$c/pids; "
    "for h in /host ''; do mkdir $h$c/eve && exec rmdir $h$c/eve; done; false",
    "mounts": "mount -t tmpfs none /mnt && umount /mnt",
    "what is masked": "mount -t proc none /mnt && umount /mnt",
    "a kernel that is writable again": "mount -o remount,bind,rw /proc/sys",
    "a namespace of users, for all capabilities": "unshare -U true",
    "the namespaces of the node": "nsenter -t $AGENT -m test -r $D/admin.token",
    "network settings": "ip address add 127.9.9.9/32 dev lo && ip address del 127.9.9.9/32 dev lo",
    "open files of the engine": "for i in $(seq 3 40); do cat /proc/self/fd/$i/../../..$D/admin.token && e=0; done; "
    'test "$e" = 0 || nsenter -t $AGENT -m true',
}


@pytest.fixture(scope="module")
def containerd() -> Iterator[Containerd]:
    yield from engines.containerd()


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    yield from dockers.dockerd()


class Engine(NamedTuple):
    """A runtime, and where its engine is reached."""

    runtime: str
    endpoint: str


@pytest.fixture(scope="module")
def images_of_oci() -> Iterator[Path]:
    yield from oci_images.folder()


# The same attacks on containerd and Docker: in long runs.
@pytest.fixture(scope="module", params=["oci", *(["cri", "docker"] if ALL_ENGINES else [])])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "oci":
        return Engine("oci", str(request.getfixturevalue("images_of_oci")))
    running = request.getfixturevalue({"cri": "containerd", "docker": "dockerd"}[request.param])
    return Engine(request.param, running.endpoint)


@pytest.fixture(scope="module")
def people(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    folder = tmp_path_factory.mktemp(engine.runtime) / "data"
    with Cluster(
        folder, "--runtime", engine.runtime, "--runtime-endpoint", engine.endpoint, **bombs.SETTINGS
    ) as cluster:
        people = People(cluster, NAMESPACES, ("t1", "strict", "open"), IMAGE)
        yield people
        people.close()
    assert cluster.surprises() == ""


@pytest.fixture(scope="module")
def variables(people: People, engine: Engine) -> dict[str, str]:
    """What Eve would have to find out; here she knows it all. Another pod, in t2, runs with a secret."""
    people.make(
        people.admin, "/api/v1/namespaces/t2/secrets", {"metadata": {"name": "s"}, "stringData": {"password": PASSWORD}}
    )
    people.run(
        "t2",
        "other",
        "echo ready; exec sleep 100100",
        volumes=[{"name": "s", "secret": {"secretName": "s"}}],
        container={
            "volumeMounts": [{"name": "s", "mountPath": "/s"}],
            "env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}}],
        },
    )
    until(lambda: "ready" in people.log("t2", "other"), SECONDS, "the other pod runs")
    folder = people.cluster.folder
    return {
        "D": str(folder),
        "ENGINE": engine.endpoint.removeprefix("unix://"),
        "SOCKET": str(PostgresFolder(folder / "postgres").socket_folder() / ".s.PGSQL.5432"),
        "AGENT": str(people.cluster.pid_of("agent")),
        "OTHER": str(next(each.pid for each in processes.living() if each.command == "sleep 100100")),
        "UID_OF_OTHER": people.pod("t2", "other")["metadata"]["uid"],
        "PORT": str(people.cluster.port),
        "IPC": os.readlink("/proc/self/ns/ipc"),
        "PASSWORD": PASSWORD[:16],  # a part of it: the whole would stand in the specs of her own pods
    }


def has_ended(people: People, namespace: str, name: str) -> Callable[[], bool]:
    return lambda: people.phase(namespace, name) in ("Succeeded", "Failed")


def as_env(variables: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]


# Asking for the node


LABEL = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def breakouts(people: People, variables: dict[str, str]) -> dict[str, dict[str, int]]:
    """All are created at once. The status of each request, by namespace and pod."""
    statuses: dict[str, dict[str, int]] = {}
    for namespace in ("open", "t1", "strict"):
        path = f"/api/v1/namespaces/{namespace}/pods"
        tried = [attempt for attempt, (script, _) in BREAKOUTS.items() if script or namespace != "open"]
        pods = [a_breakout(attempt, variables) for attempt in tried]
        statuses[namespace] = {pod["metadata"]["name"]: people.eve.post(path, json=pod).status_code for pod in pods}
    return statuses


def a_breakout(attempt: str, variables: dict[str, str]) -> dict[str, Any]:
    script, asked = BREAKOUTS[attempt]
    spec = filled(asked, {"DATA": variables["D"], "ENGINE": variables["ENGINE"], "A PORT": free_port()})
    own = {"env": as_env(variables), **spec.pop("container", {})}
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script], **own}
    return a_pod(name_of(attempt), container, spec)


def filled(asked: Any, values: dict[str, Any]) -> Any:
    if isinstance(asked, dict):
        return {name: filled(each, values) for name, each in asked.items()}
    if isinstance(asked, list):
        return [filled(each, values) for each in asked]
    if asked == "A PORT":
        return values[asked]
    return (
        asked.replace("DATA", values["DATA"]).replace("ENGINE", values["ENGINE"]) if isinstance(asked, str) else asked
    )


def name_of(attempt: str) -> str:
    return f"b{[*BREAKOUTS].index(attempt)}"


@pytest.mark.parametrize("attempt", BREAKOUTS)
def test_a_pod_does_not_get(people: People, breakouts: dict[str, dict[str, int]], attempt: str) -> None:
    name = name_of(attempt)
    if BREAKOUTS[attempt][0]:
        assert breakouts["open"][name] == 201
        until(has_ended(people, "open", name), SECONDS, f"{attempt}, where it is allowed")
        status = people.pod("open", name)["status"]
        is_impossible = attempt in ALL and "unable to apply caps" in str(status)
        assert is_impossible or status["phase"] == "Succeeded", people.log("open", name)

    assert breakouts["strict"][name] == 403
    assert breakouts["t1"][name] == 201
    why = until(lambda: people.warnings("t1").get(name), SECONDS, f"{attempt} is refused by an event")
    assert 'FailedCreatePodSandBox: Failed to create pod sandbox: pod violates PodSecurity "baseline:latest": ' in why
    assert "kubectl label namespace t1 pod-security.kubernetes.io/enforce=privileged" in why
    assert people.phase("t1", name) == "Pending"


def test_a_job_gives_its_pods_no_more(people: People) -> None:
    container = {"name": "main", "image": IMAGE, "command": ["true"], "securityContext": {"privileged": True}}
    job = {"metadata": {"name": "j"}, "spec": {"template": a_pod("", container, {})}}
    for namespace in ("t1", "strict"):
        people.make(people.eve, f"/apis/batch/v1/namespaces/{namespace}/jobs", job)

    def told(namespace: str) -> list[str]:
        return [why for name, why in people.warnings(namespace).items() if name.startswith("j") and "violates" in why]

    assert "FailedCreatePodSandBox" in until(lambda: told("t1"), SECONDS, "the pod is refused")[0]
    assert "FailedCreate: " in until(lambda: told("strict"), SECONDS, "the Job is refused pods")[0]


@pytest.fixture(scope="module")
def labelled(people: People) -> None:
    """A namespace is labelled once it has a pod that was refused, which is tried again every ten seconds."""
    people.run("later", "p", "mount -t tmpfs none /mnt", **contained(capabilities={"add": ["SYS_ADMIN"]}))
    until(lambda: "p" in people.warnings("later"), SECONDS, "it is refused")
    people.admin.patch("/api/v1/namespaces/later", json=LABEL, headers=MERGE).raise_for_status()


# From within a container


@pytest.fixture(scope="module")
def outcomes(people: People, variables: dict[str, str], labelled: None) -> dict[str, dict[str, str]]:
    """The exit codes of all attempts, by namespace."""
    lines = [f"({attempt}) >/dev/null 2>&1; echo {shlex.quote(name)}=$?" for name, attempt in ATTEMPTS.items()]
    script, env = "\n".join([REACH, *lines]), {"env": as_env(variables)}
    host = {"hostPID": True, "hostNetwork": True, "volumes": at_host("/")["volumes"]}
    rights = {"capabilities": {"add": ADDED}, "seccompProfile": {"type": "Unconfined"}}
    own = {**env, **at_host("/")["container"], "securityContext": rights}
    people.run("open", "attempts", script, people.eve, container=own, **host)
    people.run("t1", "attempts", script, people.eve, container=env)
    logs = {namespace: people.ended(namespace, "attempts") for namespace in ("open", "t1")}
    return {name: dict(line.rpartition("=")[::2] for line in log.splitlines()) for name, log in logs.items()}


# Pods of oci have no network of their own: docs/runtimes.md says so.
SHARED = {("oci", "the API, by the node's loopback")}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_container_reaches_no(outcomes: dict[str, dict[str, str]], engine: Engine, attempt: str) -> None:
    assert outcomes["open"][attempt] == "0", "where all is allowed, it works"
    assert (outcomes["t1"][attempt] == "0") == ((engine.runtime, attempt) in SHARED)


HARMLESS = "cat $D/admin.token ../../../../..$D/admin.token ../../../../../../..$D/admin.token; mknod /data/k c 1 11; cat /data/k"
IN_VOLUME = {"name": "v", "mountPath": "/data"}
# Pods that Kubernetes takes, and what they look for: how the link in a volume is made, and what is made of it.
TRICKS: dict[str, dict[str, Any]] = {
    "a subPath that is a link to the node": {"mount": {"subPath": "link"}},
    "a subPath that is a link out of the volume": {"link": "../../..", "mount": {"subPath": "link"}},
    "a subPath through a link": {"mount": {"subPath": "link/etc"}},
    "a subPath by a variable": {"mount": {"subPathExpr": "$(UP)"}},
    "a message through a link": {"terminationMessagePath": "/data/link/etc/shadow"},
    "a message at the node's file": {"link": "/etc/shadow", "terminationMessagePath": "/data/link"},
    **{f"the engine's open file {n}": {"workingDir": f"/proc/self/fd/{n}"} for n in (7, 8, 9)},
    "a volume over the kernel's settings": {"mount": {"mountPath": "/proc/sys"}},
    "a profile that is no profile": {
        "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "eve.json"}}
    },
}


@pytest.fixture(scope="module")
def tricks(people: People, variables: dict[str, str]) -> dict[str, str]:
    """Logs and statuses of all, each with what may not be in them taken out of the files of the node."""
    names = {trick: f"trick{number}" for number, trick in enumerate(TRICKS)}
    for trick, asked in TRICKS.items():
        spec = dict(asked)
        link, mount = spec.pop("link", "/"), {**IN_VOLUME, **spec.pop("mount", {})}
        env = [*as_env(variables), {"name": "UP", "value": "../../.."}]
        first = {"name": "i", "image": IMAGE, "command": ["ln", "-s", link, "/data/link"], "volumeMounts": [IN_VOLUME]}
        people.run(
            "t1",
            names[trick],
            f"{{ {HARMLESS}; ls /data; }} 2>&1; true",
            people.eve,
            volumes=[{"name": "v", "emptyDir": {}}],
            initContainers=[first],
            container={"env": env, "volumeMounts": [mount], **spec},
        )

    for name in names.values():
        until(lambda name=name: has_settled(people, name), SECONDS, f"{name} ends, or is refused")
    logs = {trick: people.log("t1", name) for trick, name in names.items()}
    return {trick: f"{logs[trick]}\n{people.pod('t1', name)['status']}" for trick, name in names.items()}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_container_is_not_led_to_the_node_by(people: People, tricks: dict[str, str], trick: str) -> None:
    shown = tricks[trick]
    shadow = Path("/etc/shadow").read_text().split("\n", 1)[0]

    assert people.cluster.token() not in shown
    assert shadow not in shown
    assert "agent.token" not in shown


# Images


@pytest.fixture(scope="module")
def images(people: People, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder of the node that all are after, and what each pod shows of it."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text(hostile_images.SECRET)
    look = f"cat /mine /to/secret {outside}/secret; dd if=/kmsg bs=8192 count=1; dd if=/disk bs=512 count=1; echo over"
    made = hostile_images.hostile_images(outside)
    names = {image: f"image{number}" for number, image in enumerate(made)}
    with registry() as server:
        for image, name in names.items():
            container = {"image": server.add(name, made[image])}
            people.run("t1", name, f"{{ {look}; }} 2>&1 | head -c 2000", people.eve, container=container)
        for name in names.values():
            until(lambda name=name: has_settled(people, name), SECONDS, f"{name} ends, or is not pulled")
    return outside, {image: people.log("t1", name) for image, name in names.items()}


def has_settled(people: People, name: str) -> bool:
    return people.phase("t1", name) in ("Succeeded", "Failed") or name in people.warnings("t1")


@pytest.mark.parametrize("image", hostile_images.NAMES)
def test_an_image_does_not_lead_out_by(images: tuple[Path, dict[str, str]], image: str) -> None:
    """It is not pulled, or what it brings stays in the container, where it opens nothing."""
    outside, logs = images
    secret = outside / "secret"

    assert [each.name for each in outside.iterdir()] == ["secret"]
    assert (secret.read_text(), secret.stat().st_nlink) == (hostile_images.SECRET, 1)
    assert hostile_images.SECRET not in logs[image]
    if logs[image].endswith("over\n"):
        assert "records in" not in logs[image]


# Taking all there is


@pytest.fixture(scope="module")
def bombed(people: People, tricks: dict[str, str]) -> dict[str, bombs.Outcome]:
    """Lit once nothing else runs that is looked at."""
    return bombs.light(people, "t1", "t2")


@pytest.mark.parametrize("bomb", bombs.BOMBS)
def test_a_pod_does_not_take_all(engine: Engine, bombed: dict[str, bombs.Outcome], bomb: str) -> None:
    """With cri, the limit of processes is set just after the container has started: some more may be there by then."""
    bombs.check(bomb, bombed[bomb], bombs.ALL - 1 if engine.runtime == "cri" else bombs.PIDS)


# By the API


OTHER = "/api/v1/namespaces/t2/pods/other"
REQUESTS = {
    "secrets of another namespace": ("GET", "/api/v1/namespaces/t2/secrets/s", None),
    "secrets of all namespaces": ("GET", "/api/v1/secrets", None),
    "pods of another namespace": ("GET", OTHER, None),
    "the log of another pod": ("GET", f"{OTHER}/log", None),
    "kept logs of another namespace": ("GET", "/apis/logs.jobplane.dev/v1/namespaces/t2/logs/other", None),
    "a command in another pod": ("POST", f"{OTHER}/exec?command=id&stdout=1", None),
    "another pod's streams": ("POST", f"{OTHER}/attach?stdout=1", None),
    "another pod's ports": ("POST", f"{OTHER}/portforward?ports=80", None),
    "another pod's end": ("DELETE", OTHER, None),
    "a pod in another namespace": ("POST", "/api/v1/namespaces/t2/pods", a_pod("x", {"name": "c", "image": IMAGE}, {})),
    "a privileged namespace": ("PATCH", "/api/v1/namespaces/t1", LABEL),
    "a namespace of one's own": ("POST", "/api/v1/namespaces", {"metadata": {"name": "mine", **LABEL["metadata"]}}),
    "rights of an administrator": (
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/t1/rolebindings",
        {
            "metadata": {"name": "x"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        },
    ),
    "a token of another namespace": ("POST", "/api/v1/namespaces/t2/serviceaccounts/default/token", {"spec": {}}),
    "nodes": ("GET", "/api/v1/nodes", None),
    "what agents are told": ("GET", "/apis/agents.jobplane.dev/v1/nodes/-/namespaces/t2", None),
    "a container of another sort": ("PATCH", "/api/v1/namespaces/t1/pods/x/ephemeralcontainers", {"spec": {}}),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_the_api_refuses(people: People, variables: dict[str, str], what: str) -> None:
    verb, path, body = REQUESTS[what]
    answer = people.eve.request(verb, path, json=body, headers=MERGE if verb == "PATCH" else {})

    assert answer.status_code == 403, answer.text


@pytest.fixture(scope="module")
def kubectl(
    people: People, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Eve's. It has nothing but her token."""
    path, home = newest(), tmp_path_factory.mktemp("eve")
    own = [str(path), "--server", people.cluster.url, "--token", people.token, "--kubeconfig", "/dev/null"]
    trusted = [*own, "--certificate-authority", str(people.cluster.folder / "tls/ca.crt")]
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*trusted, *words], capture_output=True, text=True, env=env, timeout=SECONDS, check=False)

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "-n", "t2", "other", "--", "cat", "/s/password"),
        ("cp", "t2/other:/s/password", "/dev/null"),
        ("port-forward", "-n", "t2", "other", ":80"),
    ],
    ids=lambda words: words[0],
)
def test_kubectl_is_refused(
    kubectl: Callable[..., subprocess.CompletedProcess[str]], variables: dict[str, str], words: tuple[str, ...]
) -> None:
    found = kubectl(*words)

    assert found.returncode != 0
    assert "orbidden" in found.stderr
    assert PASSWORD not in found.stdout + found.stderr


def test_a_refused_pod_runs_once_an_administrator_has_labelled_the_namespace(people: People, labelled: None) -> None:
    people.ended("later", "p")
