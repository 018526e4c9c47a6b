"""Pods that take all they can get: processes, memory, disk, log. What stops them, and that others go on meanwhile.

Tests of isolation light all at once (`light`), on the process runtime and on engines. The cluster has `SETTINGS`.
"""

from typing import Any, NamedTuple

from app.agent.node.eviction_manager import folder_size
from tests.e2e.cluster import until
from tests.e2e.people import SECONDS, People

PIDS = 64
SETTINGS = {"JOBPLANE_PIDS_LIMIT": str(PIDS)}
MIB = 1 << 20
LINE = 4000  # characters of a line of the flood
FLOOD = 24 * MIB
FIRST, LAST = "first of the flood", "last of the flood"


def limited(**limits: str) -> dict[str, Any]:
    return {"resources": {"limits": {name.replace("_", "-"): amount for name, amount in limits.items()}}}


def with_volume(limits: dict[str, Any], **empty_dir: Any) -> dict[str, Any]:
    mounted = {**limits, "volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    return {"volumes": [{"name": "v", "emptyDir": empty_dir}], "container": mounted}


class Bomb(NamedTuple):
    """`outcome`: in the words of the pod's status, or of its log."""

    script: str
    spec: dict[str, Any]
    outcome: str


ALL = 1000  # processes that the bomb starts if nothing stops it
_MANY = f"i=0; while [ $i -lt {ALL} ]; do sleep 1000 & i=$((i+1)); echo $i; done"
_LONG = f'line=$(head -c {LINE} /dev/zero | tr "\\0" x)'
BOMBS = {
    "processes": Bomb(_MANY, {}, "'exitCode': 2"),
    "memory": Bomb("exec tail /dev/zero", {"container": limited(memory="32Mi")}, "OOMKilled"),
    "files in memory": Bomb(
        "exec dd if=/dev/zero of=/data/x bs=65536 count=2000",
        with_volume(limited(memory="32Mi"), medium="Memory"),
        "OOMKilled",
    ),
    "disk": Bomb(
        "dd if=/dev/zero of=/data/x bs=65536 count=500; exec sleep 1000",
        with_volume(limited(ephemeral_storage="8Mi")),
        "Evicted",
    ),
    "disk outside of volumes": Bomb(
        "dd if=/dev/zero of=/tmp/x bs=65536 count=500; exec sleep 1000",
        {"container": limited(ephemeral_storage="8Mi")},
        "Evicted",
    ),
    "a flood of its log": Bomb(
        f'{_LONG}; echo {FIRST}; yes "$line" | head -c {FLOOD}; echo; echo {LAST}', {}, "Succeeded"
    ),
    "a log without lines": Bomb(f'head -c {12 * MIB} /dev/zero | tr "\\0" x; echo; echo {LAST}', {}, "Succeeded"),
    "a message without end": Bomb(
        "head -c 33554432 /dev/zero | tr '\\0' x >${JOBPLANE_TERMINATION_LOG:-/dev/termination-log}", {}, "Succeeded"
    ),
}


class Outcome(NamedTuple):
    """Of a pod that has ended: its status in one text, its log's end, and the end message."""

    status: str
    log: str
    message: str


def light(people: People, namespace: str, neighbour: str) -> dict[str, Outcome]:
    """All of them in one namespace, beside a pod in another that counts.

    Fails if the neighbour has stopped counting, the agent is another one, or what was flooded stays on the disk.
    """
    agent = people.cluster.pid_of("agent")
    people.run(neighbour, "heart", "i=0; while :; do i=$((i+1)); echo beat $i; sleep 0.1; done")
    until(lambda: "beat" in people.log(neighbour, "heart"), SECONDS, "the neighbour counts")
    names = {bomb: f"bomb{number}" for number, bomb in enumerate(BOMBS)}
    for bomb, name in names.items():
        people.run(namespace, name, BOMBS[bomb].script, people.eve, **BOMBS[bomb].spec)
    for bomb, name in names.items():
        over = lambda name=name: people.phase(namespace, name) in ("Succeeded", "Failed")  # noqa: E731
        until(over, 2 * SECONDS, f"the pod that takes {bomb} has ended")
    beats = people.log(neighbour, "heart").count("beat")
    until(lambda: people.log(neighbour, "heart").count("beat") > beats, SECONDS, "the neighbour goes on")
    assert people.pod(neighbour, "heart")["status"]["containerStatuses"][0]["restartCount"] == 0
    assert people.cluster.pid_of("agent") == agent, "the agent lives"
    people.admin.delete(f"/api/v1/namespaces/{neighbour}/pods/heart", params={"gracePeriodSeconds": 0})
    found = {bomb: _outcome(people, namespace, name) for bomb, name in names.items()}
    for name in names.values():
        people.eve.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", params={"gracePeriodSeconds": 0})
    folder = people.cluster.folder / "agent"
    until(lambda: folder_size(folder) < FLOOD // 2, SECONDS, "the disk is given back")
    return found


def _outcome(people: People, namespace: str, name: str) -> Outcome:
    status = people.pod(namespace, name)["status"]
    states = [each["state"].get("terminated", {}) for each in status.get("containerStatuses", ())]
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
    log = people.admin.get(path, params={"tailLines": 3}).text
    log += people.admin.get(path, params={"limitBytes": 300}).text  # its beginning, as far as it is kept
    message = "".join(state.get("message", "") for state in states)
    return Outcome(str({**status, "containerStatuses": [{**each, "message": ""} for each in states]}), log, message)


def check(bomb: str, outcome: Outcome, most: int = PIDS) -> None:
    """`most`: the bomb was stopped before it had so many processes."""
    expected = BOMBS[bomb].outcome
    assert expected in outcome.status or expected in outcome.log, outcome
    assert len(outcome.message) <= 4096
    if bomb == "processes":
        reached = [int(line) for line in outcome.log.split() if line.isdigit()]
        assert 0 < max(reached) < most, outcome.log
    if "log" in bomb:
        assert LAST in outcome.log
        assert FIRST not in outcome.log
