"""Events of real requests: who did what to which object, from where, with what answer and why; and no secret in any."""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.audit.auditor import Audit
from app.api.audit.event_buffer import EventBuffer
from app.api.audit.policy import DEFAULT, read_policy
from app.api.auth.authenticator import AUTHENTICATED, MASTERS, User
from app.api.auth.tokens import issue
from app.metrics.registry import MetricsRegistry
from app.registry.verbs.objects import Registry
from tests.api.audit.following import EVERYTHING, Audited, Lines, audited
from tests.api.calling import POD, agent, listens, opened, processes, replica, run
from tests.api.calling import bind as bind_pod
from tests.api.people import bind, cluster_role, rule
from tests.conftest import NO_TLS, Clock

MAPS, SECRETS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/secrets"
PODS, JOBS = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"
AGENTS = "/apis/agents.jobplane.dev/v1"
NOTHING = EVERYTHING % "None"
PLANTED = "hunter2-planted"


@asynccontextmanager
async def clients(registry: Registry, process: Audited) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """An administrator, and ada, who has no rights."""
    made = []
    for name, group in (("admin", MASTERS), ("ada", AUTHENTICATED)):
        headers = {"Authorization": f"Bearer {await issue(registry, User(name=name, groups=(group,)))}"}
        made.append(httpx.AsyncClient(base_url=process.url, headers=headers, verify=NO_TLS, timeout=30))
    async with made[0] as admin, made[1] as ada:
        yield admin, ada


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name} if name else {"generateName": "m-"}, "data": data}


def secret(name: str) -> dict[str, Any]:
    value = base64.b64encode(PLANTED.encode()).decode()
    return {"metadata": {"name": name}, "data": {"password": value}, "stringData": {"other": PLANTED}}


def short(event: dict[str, Any]) -> tuple[str, ...]:
    code = event.get("responseStatus", {}).get("code", 0)
    return event["level"], event["stage"], event["verb"], event["requestURI"], event["user"].get("username", ""), code


async def test_a_write_by_default(registry: Registry) -> None:
    async with audited(registry) as process, clients(registry, process) as (admin, _):
        answer = await admin.post(MAPS, json=configmap("", key=PLANTED), headers={"User-Agent": "tester/1"})
        assert answer.status_code == 201, answer.text
        await admin.get(MAPS)
        await admin.get(f"{MAPS}/{answer.json()['metadata']['name']}")
        await admin.get("/livez")
        (event,) = await process.events(1)

    made = answer.json()["metadata"]
    assert event["auditID"] == answer.headers["audit-id"]
    assert event["requestReceivedTimestamp"] <= event["stageTimestamp"]
    assert {name: value for name, value in event.items() if not name.endswith(("Timestamp", "ID"))} == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "requestURI": MAPS,
        "verb": "create",
        "user": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "tester/1",
        "objectRef": {
            "resource": "configmaps",
            "namespace": "default",
            "name": made["name"],
            "uid": made["uid"],
            "apiVersion": "v1",
            "resourceVersion": made["resourceVersion"],
        },
        "responseStatus": {"metadata": {}, "code": 201},
        "annotations": {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": 'allowed by the group "system:masters"',
        },
    }


async def test_why_a_user_was_allowed_or_refused(registry: Registry) -> None:
    async with audited(registry) as process, clients(registry, process) as (admin, ada):
        await cluster_role(admin, "mapper", rule("create", "configmaps"))
        await bind(admin, "ClusterRole/mapper", ["User:ada"], "default", "b")
        await bind(admin, "ClusterRole/none", ["User:ada"], "default", "c")
        await ada.post(MAPS, json=configmap("m"))
        await ada.get(f"{MAPS}/m")
        await ada.get("/metrics")
        events = await process.events(6)

    allowed, refused, path = events[-3:]
    assert allowed["annotations"] == {
        "authorization.k8s.io/decision": "allow",
        "authorization.k8s.io/reason": 'RBAC: allowed by RoleBinding "b/default" of ClusterRole "mapper" to User "ada"',
    }
    assert refused["annotations"] == {
        "authorization.k8s.io/decision": "forbid",
        "authorization.k8s.io/reason": 'RBAC: clusterrole.rbac.authorization.k8s.io "none" not found',
    }
    assert refused["responseStatus"]["message"].startswith('configmaps "m" is forbidden: User "ada" cannot get')
    assert (refused["responseStatus"]["code"], refused["responseStatus"]["reason"]) == (403, "Forbidden")
    assert (path["verb"], path["requestURI"], path["responseStatus"]["code"]) == ("get", "/metrics", 403)
    assert "objectRef" not in path


@pytest.mark.parametrize(
    "policy", [pytest.param(DEFAULT, id="default"), pytest.param(NOTHING, id="a policy of nothing")]
)
async def test_denials_are_always_audited(registry: Registry, policy: str) -> None:
    async with audited(registry, policy) as process, clients(registry, process) as (_, ada):
        await ada.get(SECRETS, headers={"Authorization": f"Bearer {PLANTED}"})
        await ada.get(PODS)
        await ada.get("/docs")
        await ada.post(f"{AGENTS}/join", json={"node": "n", "digest": "0" * 64})
        await ada.post(f"{AGENTS}/nodes/n/statuses", json={"items": []})
        await ada.post("/ui/signin", json={"code": PLANTED})
        events = await process.events(6)

    assert [short(each)[2:] for each in events] == [
        ("get", SECRETS, "", 401),
        ("list", PODS, "ada", 403),
        ("get", "/docs", "ada", 403),
        ("post", f"{AGENTS}/join", "ada", 403),
        ("post", f"{AGENTS}/nodes/n/statuses", "ada", 403),
        ("post", "/ui/signin", "", 403),
    ]
    assert {each["level"] for each in events} == {"Metadata"}
    assert PLANTED not in json.dumps(events)


async def test_impersonation_is_always_audited(registry: Registry) -> None:
    async with audited(registry, NOTHING) as process, clients(registry, process) as (admin, ada):
        await admin.get(PODS, headers={"Impersonate-User": "bob", "Impersonate-Group": "system:masters"})
        await ada.get("/version", headers={"Impersonate-User": "bob"})
        done, refused = await process.events(2)

    assert (done["user"]["username"], done["impersonatedUser"]["username"]) == ("admin", "bob")
    assert done["responseStatus"]["code"] == 200
    assert (refused["user"]["username"], refused["responseStatus"]["code"]) == ("ada", 403)
    assert 'cannot impersonate resource "users"' in refused["responseStatus"]["message"]


async def test_reads_of_secrets_are_always_audited(registry: Registry) -> None:
    async with audited(registry, NOTHING) as process, clients(registry, process) as (admin, _):
        await admin.post(SECRETS, json=secret("s"))
        await admin.get(f"{SECRETS}/s")
        await admin.get(SECRETS)
        await admin.get("/api/v1/secrets")
        await admin.get(SECRETS, params={"watch": "1", "timeoutSeconds": "1"})
        await admin.get(MAPS, params={"watch": "1", "timeoutSeconds": "1"})
        events = await process.events(5)

    assert [(each["verb"], each["stage"]) for each in events] == [
        ("get", "ResponseComplete"),
        ("list", "ResponseComplete"),
        ("list", "ResponseComplete"),
        ("watch", "ResponseStarted"),
        ("watch", "ResponseComplete"),
    ]
    assert events[0]["objectRef"] == {"resource": "secrets", "namespace": "default", "name": "s", "apiVersion": "v1"}
    assert PLANTED not in json.dumps(events)


async def test_token_requests_are_always_audited(registry: Registry) -> None:
    async with audited(registry, NOTHING) as process, clients(registry, process) as (admin, _):
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await admin.post(accounts, json={"metadata": {"name": "robot"}})
        answer = await admin.post(f"{accounts}/robot/token", json={"spec": {"audiences": []}})
        (event,) = await process.events(1)

    assert short(event)[2:4] == ("create", f"{accounts}/robot/token")
    assert event["objectRef"]["subresource"] == "token"
    assert answer.json()["status"]["token"] not in json.dumps(event)


async def test_exec_attach_and_port_forward_are_always_audited_when_they_begin_and_when_they_end(
    registry: Registry, dsn: str, clock: Clock, tmp_path: Path
) -> None:
    lines = Lines()
    buffer = EventBuffer(lines, MetricsRegistry())
    writing = asyncio.create_task(buffer.run())
    audit = Audit(read_policy(NOTHING.encode()), buffer)
    token = await issue(registry, User(name="admin", groups=(MASTERS,)))
    async with processes(tmp_path) as runtime, replica(dsn, clock, audit=audit) as one:
        await run(runtime, await bind_pod(registry), "exec sleep 1000")
        async with agent(registry, f"http://127.0.0.1:{one.port}", runtime):
            await listens(one)
            async with opened(one, f"{POD}/exec?stdin=1&stdout=1&command=cat", token) as websocket:
                await websocket.send(b"\0hello")
                assert await websocket.recv()
                begun = await Audited("", lines, buffer).events(1)
                assert [(each["stage"], each["responseStatus"]["code"]) for each in begun] == [("ResponseStarted", 101)]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{one.port}", verify=NO_TLS) as client:
                for part in ("attach?stdout=1", "portforward"):
                    await client.get(f"{POD}/{part}", headers={"Authorization": f"Bearer {token}"})
            events = await Audited("", lines, buffer).events(4)
    writing.cancel()
    await asyncio.wait((writing,))

    assert [(each["objectRef"]["subresource"], each["stage"]) for each in events] == [
        ("exec", "ResponseStarted"),
        ("exec", "ResponseComplete"),
        ("attach", "ResponseComplete"),
        ("portforward", "ResponseComplete"),
    ]
    assert events[0]["requestURI"].endswith("command=cat")
    assert events[0]["auditID"] == events[1]["auditID"]


@pytest.mark.parametrize(
    ("level", "bodies"),
    [
        ("None", None),
        ("Metadata", set()),
        ("Request", {"requestObject"}),
        ("RequestResponse", {"requestObject", "responseObject"}),
    ],
)
async def test_levels(registry: Registry, level: str, bodies: set[str] | None) -> None:
    async with audited(registry, EVERYTHING % level) as process, clients(registry, process) as (admin, _):
        await admin.post(MAPS, json=configmap("m", key="value"))
        if bodies is None:
            assert await process.events() == []
            return
        received, complete = await process.events(2)

    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert received["auditID"] == complete["auditID"]
    assert "responseStatus" not in received
    assert "annotations" not in received
    assert {received["level"], complete["level"]} == {level}
    assert {name for name in complete if name.endswith("Object")} == bodies
    if "requestObject" in bodies:
        assert complete["requestObject"]["data"] == {"key": "value"}
    if "responseObject" in bodies:
        assert complete["responseObject"]["metadata"]["uid"] == complete["objectRef"]["uid"]


async def test_lists_compressed_and_without_managed_fields(registry: Registry) -> None:
    policy = (
        EVERYTHING % "RequestResponse"
    ) + "  verbs: [list]\n  omitManagedFields: true\nomitStages: [RequestReceived]\n"
    async with audited(registry, policy) as process, clients(registry, process) as (admin, _):
        for number in range(3):
            await admin.post(MAPS, json=configmap(f"m{number}", key="x" * 100_000))
        answer = await admin.get(MAPS, headers={"Accept-Encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        (event,) = await process.events(1)

    items = [each for each in event["responseObject"]["items"] if each["metadata"]["name"].startswith("m")]
    assert len(items) == 3
    assert not any("managedFields" in each["metadata"] for each in items)


async def test_endpoints_of_our_own(registry: Registry) -> None:
    records, logs = "/apis/history.jobplane.dev/v1", "/apis/logs.jobplane.dev/v1/namespaces/default/logs"
    async with audited(registry, EVERYTHING % "RequestResponse") as process, clients(registry, process) as (admin, _):
        made = await admin.post(f"{AGENTS}/jointokens", json={})
        token = made.json()["token"]
        joining = {"Authorization": f"Bearer {token}"}
        await admin.post(f"{AGENTS}/join", json={"node": "n1", "digest": "ab" * 32}, headers=joining)
        await admin.get(f"{AGENTS}/tokens")
        await admin.delete(f"{AGENTS}/jointokens/{made.json()['metadata']['name']}")
        await admin.delete(f"{AGENTS}/credentials/n1")
        code = (await admin.post("/ui/codes", json={})).json()["code"]
        signed_in = await admin.post("/ui/signin", json={"code": code})
        await admin.get(f"{records}/jobs")
        await admin.get(logs)
        events = [each for each in await process.events(18) if each["stage"] == "ResponseComplete"]

    assert [
        (each["verb"], each.get("objectRef", {}).get("resource"), each["responseStatus"]["code"]) for each in events
    ] == [
        ("create", "jointokens", 201),
        ("post", None, 201),
        ("list", "tokens", 200),
        ("delete", "jointokens", 200),
        ("delete", "credentials", 200),
        ("post", None, 201),
        ("post", None, 201),
        ("list", "jobs", 200),
        ("get", "pods", 200),
    ]
    text = json.dumps(events)
    assert not [each for each in (token, code, signed_in.json()["token"], "ab" * 32) if each in text]


async def test_by_default_credentials_are_audited_and_what_agents_report_is_not(registry: Registry) -> None:
    token = await issue(
        registry, User(name="system:node:n1", groups=("system:nodes", "system:authenticated"), nodes=("n1",))
    )
    headers = {"Authorization": f"Bearer {token}"}
    async with audited(registry) as process, clients(registry, process) as (admin, _):
        await admin.get(f"{AGENTS}/tokens")
        for path in ("statuses", "logs", "usage"):
            answer = await admin.post(f"{AGENTS}/nodes/n1/{path}", json={"items": []}, headers=headers)
            assert answer.status_code == 200
        lease = {"metadata": {"name": "n1"}, "spec": {"leaseDurationSeconds": 40}}
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        assert (await admin.post(leases, json=lease, headers=headers)).status_code == 201
        await admin.post(f"{AGENTS}/jointokens", json={})
        events = await process.events(3)

    assert [(each["verb"], each["objectRef"]["resource"]) for each in events] == [
        ("list", "tokens"),
        ("create", "leases"),  # the first of a node; renewals are updates
        ("create", "jointokens"),
    ]


async def test_no_line_has_a_secret_whatever_was_asked(registry: Registry) -> None:
    """All kinds of requests about secrets, well formed and not, with bodies and answers of everything in the log."""
    encoded = base64.b64encode(PLANTED.encode()).decode()
    async with audited(registry, EVERYTHING % "RequestResponse") as process, clients(registry, process) as (admin, ada):
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await admin.post(accounts, json={"metadata": {"name": "robot"}})
        issued = (await admin.post(f"{accounts}/robot/token", json={})).json()["status"]["token"]
        for client in (admin, ada):
            await client.post(SECRETS, json=secret("s"))
            await client.put(f"{SECRETS}/s", json=secret("s"))
            merge = {"Content-Type": "application/merge-patch+json"}
            await client.patch(f"{SECRETS}/s", json={"stringData": {"a": PLANTED}}, headers=merge)
            apply = {"Content-Type": "application/apply-patch+yaml"}
            manifest = {**secret("t"), "apiVersion": "v1", "kind": "Secret"}
            await client.patch(f"{SECRETS}/t?fieldManager=me", json=manifest, headers=apply)
            await client.post(SECRETS, json={**secret("u"), "data": {"not base64 at all": PLANTED}})
            await client.post(SECRETS, content=f'{{"data": {{"a": {PLANTED}}}'.encode())
            await client.post(MAPS, json={**manifest, "kind": "Secret"})  # sent to the wrong place
            await client.post("/api/v1/namespaces/default/sekrets", json=manifest)
            await client.post(SECRETS, content=gzip.compress(b"x"), headers={"Content-Encoding": "gzip"})
            await client.get(f"{SECRETS}/s")
            await client.get(
                SECRETS, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
            )
            await client.get(SECRETS, params={"watch": "1", "timeoutSeconds": "1"})
            await client.get(MAPS, params={"access_token": PLANTED, "limit": "1"})
            await client.get(f"{MAPS}?to%6ben={PLANTED}")
            await client.get(MAPS, headers={"Authorization": f"Bearer {PLANTED}"})
            await client.get(MAPS, headers={"Authorization": f"Basic {encoded}", "Cookie": PLANTED})
            review = {"spec": {"token": issued}}
            await client.post("/apis/authentication.k8s.io/v1/tokenreviews", json=review)
            await client.post(f"{AGENTS}/join", json={"node": PLANTED, "digest": PLANTED})
            await client.delete(f"{SECRETS}/s")
            await client.request("DELETE", SECRETS)
        events = await process.events(80)

    verbs = {"create", "update", "patch", "get", "list", "watch", "delete", "deletecollection"}
    assert {each["verb"] for each in events} >= verbs
    assert "limit=1" in process.lines.text.decode()
    planted = [each.encode() for each in (PLANTED, encoded, issued)]
    assert not [line for line in process.lines.text.splitlines() if any(each in line for each in planted)]


async def test_where_a_request_came_from(registry: Registry) -> None:
    async with audited(registry, EVERYTHING % "Metadata") as process, clients(registry, process) as (admin, _):
        forged = {"X-Forwarded-For": "192.0.2.7, nonsense, 2001:db8::1", "X-Real-Ip": "192.0.2.7"}
        await admin.get("/version", headers=forged | {"User-Agent": "x" * 5000, "Audit-Id": "mine"})
        _, event = await process.events(2)

    assert event["sourceIPs"] == ["192.0.2.7", "2001:db8::1", "127.0.0.1"]  # the last is the connection's
    assert len(event["userAgent"]) == 1024
    assert event["auditID"] != "mine"


async def test_an_answer_has_an_audit_id_also_when_audit_is_off(admin: httpx.AsyncClient) -> None:
    answers = [await admin.get(path) for path in ("/version", MAPS, "/livez", "/nowhere", f"{MAPS}/none", "/ui/none")]
    ids = [each.headers["audit-id"] for each in answers]
    assert len(set(ids)) == len(answers)
    assert all(len(each) == 36 for each in ids)
    assert all(len(each.headers.get_list("audit-id")) == 1 for each in answers)


async def test_blocking_refuses_requests_while_the_log_cannot_be_written(registry: Registry) -> None:
    async with (
        audited(registry, DEFAULT, "blocking", wait_seconds=0.01, most=2) as process,
        clients(registry, process) as (admin, _),
    ):
        process.lines.error = OSError("no space")
        codes = [(await admin.post(MAPS, json=configmap(f"m{number}"))).status_code for number in range(4)]
        others = [(await admin.get(path)).status_code for path in ("/livez", "/metrics")]
        process.lines.error = None
        assert await process.buffer.wait_for_room(60)
        codes.append((await admin.post(MAPS, json=configmap("m9"))).status_code)
        events = await process.events(3)
        refused = await admin.get(f"{MAPS}/m2")

    assert codes == [201, 201, 503, 503, 201]
    assert others == [200, 200]
    assert [each["objectRef"]["name"] for each in events] == ["m0", "m1", "m9"]
    assert refused.status_code == 404  # what was refused was not done
