"""What a user with `edit` in one namespace reaches from a pod there, on a node whose agent is root: nothing of others.

Each attempt is made twice: by a pod of a privileged namespace, where it must succeed or it would prove nothing, and by one of a
namespace that enforces `baseline`.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.postgres.postgres_folder import Cluster as PostgresFolder
from tests.e2e import bombs, processes
from tests.e2e.cluster import Cluster, until
from tests.e2e.people import SECONDS, People, a_pod

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("bwrap"),
    reason="an agent isolates pods by users of their own as root only, with setpriv, and by bubblewrap",
)

PYTHON = "/usr/bin/python3"  # the tests' own may be where other users cannot walk
CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
DIAL = 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])))'
ABSTRACT = 'import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + "jobplane-other")'
READ_SECRETS = (
    "import ssl, sys, urllib.request as r; "
    "q = r.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + sys.argv[2]}); "
    "r.urlopen(q, context=ssl._create_unverified_context()).read()"
)
OWN_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
ATTEMPTS = {
    "the administrator's token": "cat $D/admin.token",
    "the kubeconfig": "cat $D/kubeconfig",
    "the certificate authority's key": "cat $D/tls/ca.key",
    "the agent's token": "cat $D/agent.token",
    "the agent's folder": "ls $D/agent/containers",
    "the agent's environment": "cat /proc/$AGENT/environ",
    "the agent's command line": "cat /proc/$AGENT/cmdline",
    "the agent's memory": "head -c0 /proc/$AGENT/mem",
    "the database's socket": f"{PYTHON} -c '{CONNECT}' $SOCKET",
    "the database's password": "cat $D/postgres/pgpass",
    "the database's files": "ls $D/postgres/cluster",
    "the environment of another pod": "cat /proc/$OTHER/environ",
    "the working folder of another pod": "ls /proc/$OTHER/cwd/",
    "files of another pod": "cat $D/agent/containers/$UID_OF_OTHER/.home/secret",
    "temporary files of another pod": "cat $D/agent/containers/$UID_OF_OTHER/.tmp/secret",
    "the log of another pod": "cat $D/agent/containers/$UID_OF_OTHER/main.0/out",
    "volumes of another pod": "ls $D/agent/volumes/$UID_OF_OTHER",
    "a signal to another pod": "kill -0 $OTHER",
    "a signal to the agent": "kill -0 $AGENT",
    "the user root": f"{PYTHON} -c 'import os; os.setuid(0)'",
    "a setuid program": "su -c true",
    "files of the system": "test -w /etc/passwd",
    "passwords of the system": "cat /etc/shadow",
    "settings of the kernel": "test -w /proc/sys/kernel/core_pattern",
    "mounts": "unshare -m true",
    "what is below the mounts": 'unshare -Urm sh -c "umount $D; cat $D/admin.token"',
    "a socket of another pod": f"{PYTHON} -c '{CONNECT}' $D/agent/containers/$UID_OF_OTHER/.tmp/other.sock",
    "a socket in a volume of another pod": f"{PYTHON} -c '{CONNECT}' $D/agent/volumes/$UID_OF_OTHER/v/other.sock",
    "shared memory of another pod": "cat /dev/shm/other || cat /proc/$OTHER/root/dev/shm/other",
    "memory segments of another pod": "ipcs -m | grep $SEGMENT || nsenter -t $OTHER -i ipcs -m | grep $SEGMENT",
    "the memory of another pod": "head -c0 /proc/$OTHER/mem",
    "open files of another pod": "ls /proc/$OTHER/fd/",
    "the root of another pod": "ls /proc/$OTHER/root/",
    "a port of another pod": f"{PYTHON} -c '{DIAL}' $PORT_OF_OTHER",
    "an abstract socket of another pod": f"{PYTHON} -c '{ABSTRACT}'",
    "the API's secrets": f'{PYTHON} -c "{READ_SECRETS}" $URL/api/v1/secrets $(cat $D/admin.token || cat {OWN_TOKEN})',
}
# Pods of the process runtime have the node's network: docs/runtimes.md says so, and what to do.
SHARED = {"a port of another pod", "an abstract socket of another pod"}
LISTEN = """
import socket, time
made = []
for place in ("/tmp/other.sock", "/data/other.sock", chr(0) + "jobplane-other"):
    made.append(socket.socket(socket.AF_UNIX))
    made[-1].bind(place)
    made[-1].listen()
open("/dev/shm/other", "w").write("hidden")
port = socket.create_server(("127.0.0.1", 0))
print("port", port.getsockname()[1], "ready", flush=True)
time.sleep(1000)
"""
SECRET = (
    "mkdir -p ~ && echo hidden > ~/secret; echo hidden > /tmp/secret; ipcmk -M 64; "
    f"{PYTHON} -c '{LISTEN}' & exec sleep 100200"
)


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    """On a cluster whose folder anybody may walk to, as far as its own modes let them."""
    folder = Path(tempfile.mkdtemp(prefix="jobplane-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        with Cluster(folder / "data", **bombs.SETTINGS) as cluster:
            people = People(cluster, {"t1": "baseline", "t2": "baseline"})
            yield people
            people.close()
        assert cluster.surprises() == ""
    finally:
        shutil.rmtree(folder)


def other_pid() -> int:
    return next(each.pid for each in processes.living() if each.command == "sleep 100200")


@pytest.fixture(scope="module")
def outcomes(people: People) -> dict[str, dict[str, str]]:
    """The exit codes of all attempts, by namespace."""
    people.run("t2", "other", SECRET, volumes=[{"name": "v", "emptyDir": {}}], container={"volumeMounts": [MOUNT]})
    until(lambda: "ready" in people.log("t2", "other"), SECONDS, "the other pod runs")
    uid, log = people.pod("t2", "other")["metadata"]["uid"], people.log("t2", "other")
    segments = subprocess.run(
        ["nsenter", "-t", str(other_pid()), "-i", "ipcs", "-m"], capture_output=True, text=True, check=True
    ).stdout
    folder = people.cluster.folder
    variables = {
        "D": str(folder),
        "AGENT": str(people.cluster.pid_of("agent")),
        "OTHER": str(other_pid()),
        "PORT_OF_OTHER": log.split("port ")[1].split()[0],
        "SEGMENT": next(line.split()[0] for line in segments.splitlines() if line.startswith("0x")),
        "UID_OF_OTHER": uid,
        "SOCKET": str(PostgresFolder(folder / "postgres").socket_folder() / ".s.PGSQL.5432"),
        "URL": people.cluster.url,
    }
    lines = [f"{{ {attempt}; }} >/dev/null 2>&1; echo {shlex.quote(name)}=$?" for name, attempt in ATTEMPTS.items()]
    env = {"env": [{"name": name, "value": value} for name, value in variables.items()]}
    people.run("default", "attempts", "\n".join(lines), container=env)
    people.run("t1", "attempts", "\n".join(lines), people.eve, container=env)
    logs = {namespace: people.ended(namespace, "attempts") for namespace in ("default", "t1")}
    return {name: dict(line.rpartition("=")[::2] for line in log.splitlines()) for name, log in logs.items()}


MOUNT = {"name": "v", "mountPath": "/data"}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_pod_reaches_no(outcomes: dict[str, dict[str, str]], attempt: str) -> None:
    assert outcomes["default"][attempt] == "0", "where all is allowed, it works"
    assert (outcomes["t1"][attempt] == "0") == (attempt in SHARED)


def test_the_agent_listens_for_pods_only(people: People) -> None:
    """It dials out: there is no kubelet's port. What it has is DNS, and a way to the API that gives no rights by itself."""
    ports = {port for _, port in listening(people.cluster.pid_of("agent"))}

    assert ports <= {53, 443}


def listening(pid: int) -> set[tuple[str, int]]:
    """Kind and port of each socket on which a process takes what comes."""
    links = []
    for each in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # it has just been closed
            links.append(os.readlink(f"/proc/{pid}/fd/{each}"))
    own = {each[8:-1] for each in links if each.startswith("socket:[")}
    found = set()
    for kind, waits in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in own and fields[3] == waits:
                found.add((kind, int(fields[1].rpartition(":")[2], 16)))
    return found


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"securityContext": {"runAsUser": 0}}, id="runAsUser 0"),
        pytest.param({"securityContext": {"runAsUser": 1000}}, id="runAsUser of somebody"),
        pytest.param({"securityContext": {"runAsGroup": 0}}, id="runAsGroup 0"),
        pytest.param({"securityContext": {"fsGroup": 0}}, id="fsGroup 0"),
        pytest.param({"securityContext": {"supplementalGroups": [0]}}, id="supplementalGroups 0"),
        pytest.param({"container": {"securityContext": {"privileged": True}}}, id="privileged"),
        pytest.param({"container": {"securityContext": {"capabilities": {"add": ["CHOWN"]}}}}, id="capabilities"),
        pytest.param({"path": "/"}, id="hostPath of all"),
        pytest.param({"path": "DATA"}, id="hostPath of the data folder"),
        pytest.param({"path": "DATA/admin.token"}, id="hostPath of a token"),
        pytest.param({"path": "DATA/.."}, id="hostPath around the data folder"),
        pytest.param({"path": "/proc"}, id="hostPath of proc"),
        pytest.param({"path": "/root"}, id="hostPath of root's home"),
        pytest.param({"path": "/tmp"}, id="hostPath of the node's temporary files"),
        pytest.param({"path": "/etc/cron.d/eve", "type": "FileOrCreate"}, id="hostPath that is to be made"),
    ],
)
def test_a_pod_does_not_start_with(people: People, request: pytest.FixtureRequest, more: dict[str, Any]) -> None:
    name = f"x{abs(hash(request.node.name)) % 10**8}"
    container = {"name": "main", "image": "none", "command": ["id"], **more.get("container", {})}
    spec = {key: value for key, value in more.items() if key not in ("path", "type", "container")}
    if path := more.get("path"):
        path = os.path.normpath(path.replace("DATA", str(people.cluster.folder)))
        spec["volumes"] = [{"name": "v", "hostPath": {"path": path, "type": more.get("type", "")}}]
        container["volumeMounts"] = [MOUNT]
    answer = people.eve.post("/api/v1/namespaces/t1/pods", json=a_pod(name, container, spec))
    if answer.status_code == 403 and "PodSecurity" in answer.text:
        return  # refused before there is a pod
    assert answer.status_code == 201, answer.text
    selector = {"fieldSelector": f"involvedObject.name={name},type=Warning"}

    def warnings() -> list[str]:
        events = people.admin.get("/api/v1/namespaces/t1/events", params=selector).json()["items"]
        return [each["reason"] for each in events if each["reason"] in ("Failed", "FailedMount")]

    until(warnings, SECONDS, f"{name} is refused by an event")
    status = people.pod("t1", name)["status"]
    assert status["phase"] == "Pending"
    if "path" not in more:
        waiting = status["containerStatuses"][0]["state"]["waiting"]
        assert waiting["reason"] == "CreateContainerConfigError"
        assert "namespace" in waiting["message"]


def test_pods_of_a_namespace_are_one_user_and_those_of_another_another(people: People) -> None:
    for namespace, name in (("t1", "a"), ("t1", "b"), ("t2", "a")):
        people.run(namespace, f"id-{name}", "id -u; id -g; id -G")
    ids = [people.ended(namespace, f"id-{name}").split() for namespace, name in (("t1", "a"), ("t1", "b"), ("t2", "a"))]

    assert ids[0] == ids[1] != ids[2]
    assert all(len(set(each)) == 1 and int(each[0]) >= 2_001_000_000 for each in ids)


def test_volumes_messages_and_init_containers_work(people: People) -> None:
    secrets = {"metadata": {"name": "s"}, "stringData": {"key": "opened"}}
    people.make(people.eve, "/api/v1/namespaces/t1/secrets", secrets)
    volumes = [
        {"name": "v", "emptyDir": {}},
        {"name": "m", "emptyDir": {"medium": "Memory"}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
    ]
    mounts = [
        MOUNT,
        {"name": "m", "mountPath": "/memory"},
        {"name": "s", "mountPath": "/deep/down/secrets"},
    ]
    first = {"name": "init", "image": "none", "command": ["sh", "-c", "echo written > /data/x"], "volumeMounts": mounts}
    script = (
        "set -e; cat /data/x /deep/down/secrets/key; echo more >> /data/x; echo y > /memory/y; "
        "echo mine > /tmp/z; cd; echo z > z; echo last words > $JOBPLANE_TERMINATION_LOG"
    )
    people.run(
        "t1", "volumes", script, people.eve,
        volumes=volumes, initContainers=[first], container={"volumeMounts": mounts},
    )  # fmt: skip

    assert people.ended("t1", "volumes").startswith("written\nopened")
    state = people.pod("t1", "volumes")["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["message"] == "last words\n"


def test_a_kill_of_the_agent_loses_no_pod_and_runs_none_twice(people: People) -> None:
    """Each makes a folder of its own, which a second run would find."""
    shared = Path(tempfile.mkdtemp(prefix="jobplane-test-", dir="/var/lib"))
    shared.chmod(0o777)
    try:
        container = {"name": "main", "image": "none", "command": ["sh", "-c", f"mkdir {shared}/$HOSTNAME && sleep 0.5"]}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        spec = {"completions": 30, "parallelism": 10, "backoffLimit": 0, "template": template}
        path = "/apis/batch/v1/namespaces/t1/jobs"
        people.make(people.eve, path, {"metadata": {"name": "many"}, "spec": spec})

        def status() -> dict[str, Any]:
            found: dict[str, Any] = people.eve.get(f"{path}/many").json()["status"]
            return found

        for seen in (1, 8, 16):
            until(lambda seen=seen: len(list(shared.iterdir())) >= seen, SECONDS, f"{seen} pods began")
            os.kill(people.cluster.pid_of("agent"), 9)
        until(lambda: status().get("completionTime") or status().get("failed"), 2 * SECONDS, "the Job ends")
        assert (status().get("succeeded"), status().get("failed", 0)) == (30, 0)
        assert len(list(shared.iterdir())) == 30
        assert len({each.stat().st_uid for each in shared.iterdir()}) == 1
    finally:
        shutil.rmtree(shared)


@pytest.fixture(scope="module")
def bombed(people: People) -> dict[str, bombs.Outcome]:
    return bombs.light(people, "t1", "t2")


@pytest.mark.parametrize("bomb", bombs.BOMBS)
def test_a_pod_does_not_take_all(bombed: dict[str, bombs.Outcome], bomb: str) -> None:
    bombs.check(bomb, bombed[bomb])


def test_the_node_tells_how_it_isolates_pods(people: People) -> None:
    node = people.admin.get("/api/v1/nodes").json()["items"][0]

    assert node["metadata"]["labels"]["jobplane.dev/pod-isolation"] == "user-and-sandbox"
    assert "pods are isolated in namespaces that are not privileged" in people.cluster.log.read_text()
