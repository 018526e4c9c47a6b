"""Logs read when their pods, and the nodes that they ran on, are gone: what there is, and who may read it."""

import asyncio
import json
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.auth.authenticator import MASTERS, NODES, User
from app.api.auth.tokens import issue
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Append, Stream
from tests.api.people import bind, cluster_role, meeting, rule
from tests.conftest import NO_TLS
from tests.registry.examples import PODS, a_pod, create

LOGS = "/apis/logs.jobplane.dev/v1/namespaces/default/logs"
JOB = {"batch.kubernetes.io/job-name": "pi"}


def record(second: int, text: str) -> bytes:
    return f"2026-03-01T12:00:{second:02}.123456789Z stdout F {text}\n".encode()


async def write(
    registry: Registry, uid: str, pod: str, *lines: str, container: str = "main", attempt: int = 0, job: str = ""
) -> None:
    data = b"".join(record(second, line) for second, line in enumerate(lines))
    await registry.store.logs.append([Append(Stream(uid, container, attempt), "default", pod, 0, data, job)])


@pytest.fixture
async def several(registry: Registry) -> Registry:
    """Pods that are gone: one of two containers, one that was started again, and two of one name."""
    await write(registry, "1", "two", "a", "b", "c", job="pi")
    await write(registry, "1", "two", "x", container="side", job="pi")
    await write(registry, "2", "again", "first", job="pi")
    await write(registry, "2", "again", "second", attempt=1, job="pi")
    await write(registry, "old", "same", "older")
    await write(registry, "new", "same", "newer")
    return registry


async def listed(client: httpx.AsyncClient, query: str = "") -> list[tuple[Any, ...]]:
    answer = await client.get(f"{LOGS}?{query}")
    assert answer.status_code == 200, answer.text
    return [(each["metadata"]["name"], each["container"], each["attempt"]) for each in answer.json()["items"]]


async def test_a_log_outlives_its_pod_and_its_node(registry: Registry, url: str, admin: httpx.AsyncClient) -> None:
    agent = await issue(registry, User(name="system:node:n", groups=(NODES,), nodes=("n",)))
    await admin.post("/api/v1/nodes", json={"metadata": {"name": "n"}})
    pod = await create(registry, PODS, a_pod("p", {"labels": JOB}, node_name="n"))
    piece = {
        "uid": pod.metadata.uid,
        "namespace": "default",
        "name": "p",
        "container": "main",
        "data": b64encode(record(0, "hello")).decode(),
    }
    sent = await admin.post(
        "/apis/agents.jobplane.dev/v1/nodes/n/logs",
        json={"items": [piece]},
        headers={"Authorization": f"Bearer {agent}"},
    )
    assert sent.json()["items"][0]["code"] == 200
    await objects.delete(registry, PODS, "default", "p", Demand(grace_seconds=0))
    assert (await admin.delete("/api/v1/nodes/n")).status_code == 200
    assert (await admin.get("/api/v1/namespaces/default/pods/p/log")).status_code == 404

    (item,) = (await admin.get(f"{LOGS}?job=pi")).json()["items"]
    answer = await admin.get(f"{LOGS}/p")

    assert (item["metadata"]["name"], item["job"], item["size"]) == ("p", "pi", len(record(0, "hello")))
    assert (answer.status_code, answer.text) == (200, "hello\n")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        pytest.param("", ["again0", "again1", "same0", "same0", "two0", "two0"], id="all"),
        pytest.param("pod=same", ["same0", "same0"], id="of one name"),
        pytest.param("job=pi", ["again0", "again1", "two0", "two0"], id="of one Job"),
        pytest.param("job=tau", [], id="of no Job"),
    ],
)
async def test_what_there_is_can_be_listed(
    several: Registry, admin: httpx.AsyncClient, query: str, names: list[str]
) -> None:
    assert [f"{pod}{attempt}" for pod, _, attempt in await listed(admin, query)] == names


async def test_a_long_list_comes_in_pages(several: Registry, admin: httpx.AsyncClient) -> None:
    seen, token = [], ""
    for _ in range(3):
        page = (await admin.get(LOGS, params={"limit": 2, "continue": token})).json()
        seen += [each["metadata"]["uid"] + each["container"] + str(each["attempt"]) for each in page["items"]]
        token = page["metadata"].get("continue", "")

    assert seen == ["2main0", "2main1", "newmain0", "oldmain0", "1main0", "1side0"]
    assert token == ""


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        pytest.param("two?container=main", "a\nb\nc\n", id="a container"),
        pytest.param("two?container=main&tailLines=1", "c\n", id="the last line"),
        pytest.param("two?container=main&sinceTime=2026-03-01T12:00:01Z", "b\nc\n", id="since a moment"),
        pytest.param("two?container=side&timestamps=true", "2026-03-01T12:00:00.123456789Z x\n", id="with its times"),
        pytest.param("again", "second\n", id="the newest run"),
        pytest.param("again?previous=true", "first\n", id="the run before"),
        pytest.param("again?attempt=0", "first\n", id="a run by its number"),
        pytest.param("same", "newer\n", id="the newest pod of the name"),
        pytest.param("same?uid=old", "older\n", id="a pod by its uid"),
        pytest.param("same?follow=true", "newer\n", id="to its end and no further"),
    ],
)
async def test_a_log_shows(several: Registry, admin: httpx.AsyncClient, which: str, expected: str) -> None:
    answer = await admin.get(f"{LOGS}/{which}")

    assert (answer.status_code, answer.text) == (200, expected)


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        pytest.param(f"{LOGS}/none", 404, '"none" not found', id="a pod that wrote nothing"),
        pytest.param(f"{LOGS}/same?uid=1", 404, '"same" not found', id="a uid of another name"),
        pytest.param(f"{LOGS}/two", 400, "choose one of: [main side]", id="no container where there are two"),
        pytest.param(f"{LOGS}/two?container=x", 400, "container x is not valid for pod two", id="no such container"),
        pytest.param(f"{LOGS}/two?container=main&previous=true", 400, "previous terminated", id="no run before"),
        pytest.param(f"{LOGS}/same?tailLines=-1", 422, "tailLines", id="a negative tail"),
        pytest.param(f"{LOGS}?limit=0x", 400, "invalid syntax", id="a limit that is no number"),
        pytest.param(f"{LOGS}?limit=99999", 400, "limit must be", id="a limit too large"),
        pytest.param(f"{LOGS}?continue=nonsense", 400, "continue key", id="a token that is none"),
        pytest.param(f"{LOGS}?pod=a%00", 400, "NUL", id="a NUL"),
        pytest.param(f"{LOGS}/a%00", 400, "NUL", id="a NUL in the path"),
        pytest.param(f"{LOGS}/a/b", 404, "could not find", id="a path too long"),
        pytest.param("/apis/logs.jobplane.dev/v1/x", 404, "could not find", id="another path"),
    ],
)
async def test_what_is_wrong_is_said(
    several: Registry, admin: httpx.AsyncClient, path: str, code: int, message: str
) -> None:
    answer = await admin.get(path)

    assert answer.status_code == code, answer.text
    assert message in answer.json()["message"]


async def test_logs_are_only_read(admin: httpx.AsyncClient) -> None:
    assert (await admin.delete(f"{LOGS}/two")).status_code == 405


async def test_whoever_may_read_pod_logs_may_read_these(several: Registry, url: str, admin: httpx.AsyncClient) -> None:
    await cluster_role(admin, "reads", rule("get", "pods/log"))
    await cluster_role(admin, "reads-one", rule("get", "pods/log", resourceNames=["again"]))
    await bind(admin, "reads", ["User:ada"], namespace="default", name="ada")
    await bind(admin, "reads-one", ["User:eve"], namespace="default", name="eve")
    async with meeting(several, url) as people:
        ada, eve, bob = [await people.user(name) for name in ("ada", "eve", "bob")]

        elsewhere = LOGS.replace("default", "kube-system")
        codes = [
            [(await who.get(path)).status_code for path in (LOGS, f"{LOGS}/again", f"{LOGS}/same", elsewhere)]
            for who in (ada, eve, bob)
        ]
        assert codes == [[200, 200, 200, 403], [403, 200, 403, 403], [403, 403, 403, 403]]
        refused = (await bob.get(f"{LOGS}/again")).json()["message"]
        assert refused.startswith('pods "again" is forbidden: User "bob" cannot get resource "pods/log"')
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as nobody:
        assert (await nobody.get(LOGS)).status_code == 401


@pytest.fixture
async def command(registry: Registry, url: str, tmp_path: Path) -> Any:
    """`jobplane logs ...`: what it prints, and with which code it ends."""
    token = tmp_path / "token"
    token.write_text(await issue(registry, User(name="admin", groups=(MASTERS,))))

    async def run(*arguments: str) -> tuple[int, str, str]:
        given = ["logs", "--server", url, "--token-file", str(token), *arguments]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app.main.cli", *given, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await child.communicate()
        assert child.returncode is not None
        return child.returncode, out.decode(), err.decode()

    return run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param("same", "newer\n", id="the newest pod of a name"),
        pytest.param("two --container main --tail 2", "b\nc\n", id="some lines of a container"),
        pytest.param("again --previous", "first\n", id="the run before"),
        pytest.param(
            "job/pi --all",
            "[two/main] a\n[two/main] b\n[two/main] c\n[two/side] x\n[again/main] first\n[again/main#1] second\n",
            id="all of a Job",
        ),
    ],
)
async def test_the_command_prints(several: Registry, command: Any, arguments: str, expected: str) -> None:
    code, out, err = await command(*arguments.split())

    assert (code, out) == (0, expected), err


async def test_the_command_says_what_is_missing(several: Registry, command: Any) -> None:
    assert await command("none") == (1, "", "no logs of none in namespace default\n")
    assert (await command("two"))[::2] == (
        1,
        "a container name must be specified for pod two, choose one of: [main side]\n",
    )


def token(*after: object) -> str:
    return urlsafe_b64encode(json.dumps(after).encode()).decode()


BAD_TOKENS = {
    "a run beyond 32 bits": token("a", "b", "c", 2**31),
    "a run below 32 bits": token("a", "b", "c", -(2**31) - 1),
    "a run beyond all bits": token("a", "b", "c", 10**400),
    "a run that is no whole number": token("a", "b", "c", 1.5),
    "NUL in a pod": token("a\0", "b", "c", 0),
    "NUL in a UID": token("a", "\0", "c", 0),
    "NUL in a container": token("a", "b", "c\0", 0),
    "half of a character": token("\ud800", "b", "c", 0),
    "too little": token("a", "b"),
    "deep": urlsafe_b64encode(b"[" * 40_000).decode(),
    "no JSON": "bm8=",
    "no base64": "\u20ac",
}


@pytest.mark.parametrize("after", BAD_TOKENS.values(), ids=BAD_TOKENS.keys())
async def test_a_token_of_no_page_is_400(admin: httpx.AsyncClient, after: str) -> None:
    for path in (LOGS, "/api/v1/namespaces/default/pods"):
        answer = await admin.get(path, params={"continue": after})
        assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("run", [-(2**31), 2**31 - 1])
async def test_a_token_at_the_ends_of_32_bits_is_one(admin: httpx.AsyncClient, run: int) -> None:
    assert (await admin.get(LOGS, params={"continue": token("a", "b", "c", run)})).status_code == 200


HUGE = ("9" * 18, "9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 5_000, "1e3", "\u0662")
NUMBERS = ("limit", "attempt", "tailLines", "limitBytes", "sinceSeconds", "timeoutSeconds", "resourceVersion")


@pytest.mark.parametrize("name", NUMBERS)
async def test_no_number_in_a_query_is_a_500(registry: Registry, admin: httpx.AsyncClient, name: str) -> None:
    await create(registry, PODS, a_pod("p", node_name="n"))
    await write(registry, "1", "two", "a")
    paths = (LOGS, f"{LOGS}/two", "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/p/log")
    for path in paths[:3] if name == "resourceVersion" else paths:
        for value in HUGE:
            if name == "resourceVersion" and value in HUGE[:2]:
                continue  # it is waited for, as one that may yet come
            assert (await admin.get(path, params={name: value})).status_code in (200, 400, 422), (path, value)
