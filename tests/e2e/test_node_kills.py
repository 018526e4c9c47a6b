"""kill -9 of agents, of container engines, and of what oci has in place of one, a hundred times, in the middle of Jobs of a
hundred pods.

Every pod runs once, every line that it wrote is kept once, and nothing of a pod runs on or is left with the agent; what a
killed engine leaves of its own may stay (docs/known-limits.md). JOBPLANE_NODE_KILLS=1 is all of it, 10 is ten rounds, and
without it there are only the first kills of the first Job, of two dozen pods, on the node with containerd;
JOBPLANE_NODE_KILLS_SEED repeats one.
"""

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.e2e import processes
from tests.e2e.cluster import Cluster, environment, surprises, until
from tests.e2e.ledger import Ledger, completed, delete, is_exact, pods_of
from tests.runtimes import dockers, engines, oci_images
from tests.runtimes.dockers import Dockerd
from tests.runtimes.engines import Containerd
from tests.runtimes.images import IMAGE

DONE_SECONDS = 180
GONE_SECONDS = 60
ROUNDS = int(os.environ.get("JOBPLANE_NODE_KILLS", "0"))
JOBS = 2 * ROUNDS or 1  # on each node
PODS, KILLS = (100, None) if ROUNDS else (24, 4)  # of a Job; all that are planned, or the first
SEED = os.environ.get("JOBPLANE_NODE_KILLS_SEED")

SLOW, LINES = 8, 60  # lines written one by one, and all of them, the others at the very end
PAUSE = "0.$((0x${POD%%-*} % 90 + 10))"  # seconds, by the pod's uid: the Job does not move in step
WORK = f'i=0; while [ $i -lt {SLOW} ]; do i=$((i+1)); echo "line $i"; sleep 0.05; done; sleep {PAUSE}'
LAST = f'while [ $i -lt {LINES} ]; do i=$((i+1)); echo "line $i"; done'
WRITTEN = "".join(f"line {number}\n" for number in range(1, LINES + 1))

# What an agent notes down when it hears the engine, if either is new. What ends before, and just before the engine is killed,
# nobody may know the exit code of.
HEARS, HEARS_SECONDS = b"container engine answers", 30
NEAR = timedelta(seconds=5)  # until an end that nobody knows is noticed
AGENT, ENGINE = "agent", "engine"
SHIM, CRUN, HOLDER = "shim", "crun", "holder"  # of some pod
OF_A_POD = {SHIM: "jobplane-shim ", CRUN: "crun --root", HOLDER: "jobplane-holder "}  # words of their commands
Engine = Containerd | Dockerd
ENGINES: dict[str, Callable[[], Iterator[Engine]]] = {"cri": engines.containerd, "docker": dockers.dockerd}


class Plan(NamedTuple):
    """What is killed on a node of one kind.

    at_once: pods of a Job.
    jobs:    for each Job, the one after the other.
    forgets: the engine may not know how a container ended just before it was killed.
    """

    at_once: int
    jobs: tuple[tuple[str, ...], ...]
    forgets: bool = False


PLANS = {
    "process": Plan(20, ((AGENT,) * 15, (AGENT,) * 15)),
    "cri": Plan(12, ((AGENT, ENGINE) * 5, (ENGINE, ENGINE, AGENT) * 3 + (ENGINE,))),
    "docker": Plan(12, ((AGENT, ENGINE) * 5, (ENGINE, ENGINE, AGENT) * 3 + (ENGINE,)), forgets=True),
    "oci": Plan(12, ((AGENT,) * 15, (AGENT, SHIM, CRUN, HOLDER) * 12)),
}


def test_the_plans_kill_fifty_times() -> None:
    times = Counter(part for plan in PLANS.values() for job in plan.jobs for part in job)
    assert sum(times.values()) >= 50
    assert min(times[each] for each in OF_A_POD) >= 12
    assert min(times[AGENT], times[ENGINE]) >= 10


class Node:
    """A machine of a Jobplane: its agent, its container engine, and what pods may leave behind on it."""

    def __init__(
        self, runtime: str, cluster: Cluster, folder: Path, engine: Engine | None, images: Path | None = None
    ) -> None:
        self.plan, self.cluster, self.folder, self._engine = PLANS[runtime], cluster, folder, engine
        self._has_images, self.victims = runtime != "process", set[str]()  # UIDs of pods of which something was killed
        self._name = f"killed-{runtime}"  # no machine joins by the name of a node that is heard
        self.engine_kills: list[datetime] = []
        self._heard_before = 0
        self._command = [
            sys.executable,
            "-m",
            "app.main.cli",
            "agent",
            "--server",
            cluster.url,
            "--node-name",
            self._name,
        ]
        create = [sys.executable, "-m", "app.main.cli", "token", "create", "--data-dir", str(cluster.folder)]
        said = subprocess.run(create, check=True, capture_output=True, text=True, env=environment()).stdout.split()
        join_token = said[said.index("--join-token") + 1]
        self._command += ["--join-token", join_token, "--data-dir", str(folder)]
        self._command += ["--ca-file", str(cluster.folder / "tls" / "ca.crt"), "--runtime", runtime]
        self._command += ["--runtime-endpoint", engine.endpoint] if engine else []
        self._command += ["--runtime-endpoint", str(images)] if images else []
        self._start()

    def _start(self) -> None:
        with (self.folder / "agent.log").open("ab") as log:
            self._agent = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment())

    def _heard(self) -> int:
        return (self.folder / "agent.log").read_bytes().count(HEARS)

    def kill(self, part: str, chance: random.Random, ledger: Ledger) -> None:
        """What is killed comes back: the agent at once, the engine after a while."""
        if part == AGENT:
            self._agent.kill()
            self._agent.wait()
            self._heard_before = self._heard()
            self._start()
        elif part in OF_A_POD:
            self._kill_part(part, chance)
        else:
            assert self._engine
            until(lambda: self._heard() > self._heard_before, HEARS_SECONDS, "the agent hears the engine")
            begun = ledger.begun()
            until(lambda: ledger.begun() > begun or begun >= PODS, DONE_SECONDS, "another pod")
            self._engine.kill()
            self.engine_kills.append(datetime.now(UTC))
            time.sleep(chance.uniform(0, 0.5))
            self._heard_before = self._heard()
            self._engine.start()

    def _kill_part(self, part: str, chance: random.Random) -> None:
        """Of some pod that runs."""
        pods = f"{self.folder}/agent/oci/"

        def found() -> list[tuple[str, int]]:
            wanted = [each for each in processes.naming(pods) if OF_A_POD[part] in each.command]
            uids = {each.pid: _uid_of(each.pid, pods) for each in wanted}
            return [(uid, pid) for pid, uid in uids.items() if uid and uid not in self.victims]

        uid, pid = chance.choice(until(found, DONE_SECONDS, f"a {part}"))
        self.victims.add(uid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        self._agent.terminate()
        assert self._agent.wait(30) == 0

    def place(self, spec: dict[str, Any]) -> None:
        """Has a pod run here, with an image that is here and a ledger that it can write to."""
        spec["nodeSelector"] = {"kubernetes.io/hostname": self._name}
        if self._has_images:
            folder = str(self.folder)
            spec["volumes"] = [{"name": "ledger", "hostPath": {"path": folder}}]
            spec["containers"][0] |= {"image": IMAGE, "volumeMounts": [{"name": "ledger", "mountPath": folder}]}

    def may_have_forgotten(self, end: dict[str, Any]) -> bool:
        """Whether the engine was killed as a container ended."""
        ended = datetime.fromisoformat(end["finishedAt"])
        near = any(abs(ended - each) < NEAR for each in self.engine_kills)
        return self.plan.forgets and end["reason"] == "ContainerStatusUnknown" and near

    def left(self) -> list[str]:
        """Processes, files and containers of pods."""
        agent = self.folder / "agent"
        folders = [agent / name for name in ("containers", "cri", "docker", "oci", "volumes", "hosts")]
        found = [
            str(path) for folder in folders if folder.exists() for path in folder.iterdir() if path.name != ".lock"
        ]
        found += map(str, processes.naming(f"{agent}/"))
        found += [each.command for each in processes.living() if f"{self.folder}/ledger-" in each.command]
        return [*found, *(self._engine.containers() if self._engine else ())]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # The ledger of containers is a folder of the node.
    with Cluster(tmp_path_factory.mktemp("kills") / "data", JOBPLANE_POD_SECURITY="privileged") as running:
        yield running
    assert running.surprises() == ""


# Docker's takes two minutes, and test_kill kills agents whose pods are processes: both in long runs.
@pytest.fixture(scope="module", params=PLANS if ROUNDS else ["cri"])
def node(request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One on an engine of its own: neither is treated well."""
    runtime = request.param
    engine = contextmanager(ENGINES[runtime])() if runtime in ENGINES else nullcontext()
    stored = contextmanager(oci_images.folder)() if runtime == "oci" else nullcontext()
    with engine as given, stored as images:
        made = Node(runtime, cluster, tmp_path_factory.mktemp(runtime), given, images)
        yield made
        made.stop()
        assert surprises(made.folder / "agent.log") == ""


@pytest.mark.parametrize("number", range(JOBS))
async def test_every_pod_runs_once_and_every_line_is_kept_once(node: Node, number: int) -> None:
    mode, parts = ("Indexed", "NonIndexed")[number % 2], node.plan.jobs[number % 2][:KILLS]
    seed = int(SEED) if SEED else secrets.randbits(32)
    print(f"JOBPLANE_NODE_KILLS_SEED={seed}: {mode}")
    ledger = Ledger(node.folder / f"ledger-{number}")
    job = ledger.job(f"killed-{number}", mode, pods=PODS, at_once=node.plan.at_once, work=WORK, last=LAST)
    job["spec"]["backoffLimit"] = PODS  # each end that nobody knows counts
    node.place(job["spec"]["template"]["spec"])
    chance = random.Random(seed)
    over = await completed(node.cluster.api(), job, lambda: _kill(node, ledger, parts, chance), DONE_SECONDS)
    with node.cluster.client() as client:
        pods = pods_of(client, over)
        failed = {pod["metadata"]["uid"]: _end(pod) for pod in pods if pod["status"]["phase"] == "Failed"}
        print(f"failed: {failed}")
        forgotten = {uid for uid, end in failed.items() if node.may_have_forgotten(end)} | (
            failed.keys() & node.victims
        )
        starting = {uid for uid, end in failed.items() if "startedAt" not in end} if ENGINE in parts else set()
        assert failed.keys() == forgotten | starting
        assert is_exact(over, pods, ledger, killed={ENGINE, *OF_A_POD} & {*parts} != set(), forgotten=forgotten)
        pods = [pod for pod in pods if pod["status"]["phase"] == "Succeeded"]
        assert _broken_logs(client, pods, "/api/v1/namespaces/default/pods/{}/log") == {}
        delete(client, over, GONE_SECONDS)
        assert _broken_logs(client, pods, "/apis/logs.jobplane.dev/v1/namespaces/default/logs/{}") == {}
    with suppress(AssertionError):
        until(lambda: not node.left(), GONE_SECONDS, "nothing is left")
    left = node.left()
    print(f"left: {left}")
    assert left == []


def _uid_of(pid: int, pods: str) -> str:
    """Of the pod whose folder a process names in its command or its environment; empty if it has just gone."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        return text.decode().partition(pods)[2][:36]
    return ""


def _kill(node: Node, ledger: Ledger, parts: tuple[str, ...], chance: random.Random) -> None:
    """One after the other, each a moment after so many pods have begun."""
    moments = sorted(chance.sample(range(1, PODS - node.plan.at_once), len(parts)))
    for part, moment in zip(parts, moments, strict=True):
        until(partial(_have_begun, ledger, moment), DONE_SECONDS, f"{moment} pods")
        time.sleep(chance.uniform(0, 0.3))
        print(f"kill -9 {part} after {ledger.begun()} pods have begun")
        node.kill(part, chance, ledger)


def _have_begun(ledger: Ledger, pods: int) -> bool:
    return ledger.begun() >= pods


def _end(pod: dict[str, Any]) -> dict[str, Any]:
    ended: dict[str, Any] = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return ended


def _broken_logs(client: httpx.Client, pods: list[dict[str, Any]], path: str) -> dict[str, str]:
    """Logs that are not what they have to be, by the pod's name."""

    def log(pod: dict[str, Any]) -> tuple[str, str]:
        name = pod["metadata"]["name"]
        return name, client.get(path.format(name)).text

    with ThreadPoolExecutor(4) as readers:
        return {name: text for name, text in readers.map(log, pods) if text != WRITTEN}
