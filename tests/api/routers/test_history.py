"""Records of Jobs over HTTP: what is left when Job, pods and node are gone, in pages, and for whom."""

import asyncio
import json
import re
import sys
from base64 import b64encode, urlsafe_b64encode
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.auth.authenticator import AUTHENTICATED, MASTERS, User
from app.api.auth.tokens import issue
from app.controllers.namespaces.resource_quotas import ResourceQuotaController
from app.controllers.retention.job_recorder import JobRecorder, RecordRetention
from app.kinds.core.node import KIND as NODES
from app.plans.jobs.job_record import Attempt
from app.registry import job_history
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Append, Stream
from app.store.job_records import RecordQuery
from tests.api.people import bind, cluster_role, meeting, rule
from tests.controllers.retention.test_job_recorder import (
    a_finished_job,
    a_pod_that_failed,
    a_running_pod,
    an_event,
    catch_up,
    delete,
    finish,
    restart,
)
from tests.controllers.running import running, settled
from tests.e2e.cluster import environment
from tests.registry.examples import JOBS, a_job, create, example, named

BASE = "/apis/history.jobplane.dev/v1"
RECORDS = f"{BASE}/namespaces/default/jobs"
HOUR = timedelta(hours=1)


async def names(client: httpx.AsyncClient, path: str = RECORDS, **query: Any) -> list[str]:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return [each["metadata"]["name"] for each in answer.json()["items"]]


async def a_job_that_is_gone_for_an_hour(registry: Registry) -> Any:
    """With its pod, which had printed hello, and with its node."""
    await create(registry, NODES, named(example(NODES), name="n"))
    job = await a_finished_job(registry)
    await an_event(registry, "pi.1", "Created", job)
    line = b"2026-03-01T12:00:00.123456789Z stdout F hello\n"
    await registry.store.logs.append([Append(Stream("p", "main", 0), "default", "pi-0", 0, line, "pi")])
    await delete(registry)
    await objects.delete(registry, NODES, "", "n", Demand())
    await catch_up(registry)
    registry.clock.now += HOUR
    await RecordRetention(registry.store.job_record_writer, timedelta(hours=720)).run_once(registry.now())
    return job


async def record(client: httpx.AsyncClient, uid: str) -> dict[str, Any]:
    answer = await client.get(f"{RECORDS}/{uid}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_job_its_pod_and_its_node_are_gone_for_an_hour(registry: Registry, admin: httpx.AsyncClient) -> None:
    """Attempts, exit codes, results, events and logs are there, by API and by SQL."""
    uid = (await a_job_that_is_gone_for_an_hour(registry)).metadata.uid

    found = await record(admin, uid)

    assert (found["kind"], found["result"], found["deletionTime"] is not None) == ("JobRecord", "Failed", True)
    assert found["spec"]["template"]["spec"]["containers"]
    assert found["status"]["failed"] == 1
    (attempt,) = found["attempts"]
    assert attempt | {"createdAt": ""} == {
        "pod": "pi-0",
        "podUID": attempt["podUID"],
        "index": None,
        "node": "n",
        "createdAt": "",
        "startedAt": None,
        "endedAt": None,
        "phase": "Failed",
        "exitCode": 3,
        "reason": "Error",
        "message": '{"lost": 1}',
        "peakMemoryBytes": None,
        "output": {"lost": 1},
        "restartCount": 0,
        "restarts": [],
    }
    assert [each["reason"] for each in found["events"]] == ["Created"]
    assert (await admin.get("/apis/logs.jobplane.dev/v1/namespaces/default/logs/pi-0")).text == "hello\n"
    sql = """select result, exit_code, node, message::json ->> 'lost', object #>> '{spec,backoffLimit}'
        from finished_jobs join job_attempts on job_uid = uid where finished_jobs.name = 'pi'"""
    (row,) = await registry.store.pool.fetch(sql)
    assert tuple(row) == ("Failed", 3, "n", "1", "6")


async def jobplane(url: str, token_file: Path, *arguments: str) -> str:
    """What the real command prints, in a process of its own."""
    command = [sys.executable, "-m", "app.main.cli", *arguments, "--server", url, "--token-file", str(token_file)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment(COLUMNS="200")
    )
    said, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b""), errors
    return said.decode()


async def test_commands_show_a_job_that_is_gone_for_an_hour(registry: Registry, url: str, tmp_path: Path) -> None:
    """Its state, attempt, exit code, node, result, events and log."""
    job = await a_job_that_is_gone_for_an_hour(registry)
    token = tmp_path / "token"
    token.write_text(await issue(registry, User(name="admin", groups=(MASTERS,))))

    assert re.search(r"^pi +failed after 0s: exit code 3", await jobplane(url, token, "history"), re.MULTILINE)
    whole = await jobplane(url, token, "history", "pi")
    assert "\nDeleted:" in whole
    assert '\nResult:    {"lost": 1}\n' in whole
    assert re.search(r"^pi-0 +failed: exit code 3 +n$", whole, re.MULTILINE)
    assert re.search(r"^Created +", whole, re.MULTILINE)
    document = json.loads(await jobplane(url, token, "history", job.metadata.uid, "-o", "json"))
    assert (document["result"], document["attempts"][0]["exitCode"]) == ("Failed", 3)
    assert await jobplane(url, token, "logs", "pi") == "hello\n"
    assert await jobplane(url, token, "logs", "job/pi", "--all") == "[pi-0/main] hello\n"


async def test_the_command_shows_each_restart(registry: Registry, url: str, tmp_path: Path) -> None:
    job = await create(registry, JOBS, a_job())
    await a_running_pod(registry, job, "pi-0")
    for count in (1, 2):
        await restart(registry, "pi-0", count, code=40 + count)
        await catch_up(registry)
    await delete(registry)
    await catch_up(registry)
    token = tmp_path / "token"
    token.write_text(await issue(registry, User(name="admin", groups=(MASTERS,))))

    whole = await jobplane(url, token, "history", "pi")

    assert re.search(r"^POD +STATE .*RESTARTS", whole, re.MULTILINE)
    rows = re.findall(r"^(pi-0/main#\d) +(.+?) *$", whole, re.MULTILINE)
    assert [(run, words.split("  ")[0]) for run, words in rows] == [
        ("pi-0/main#0", "exit code 41"),
        ("pi-0/main#1", "exit code 42"),
    ]


async def test_a_job_that_runs_has_a_record_of_its_own(registry: Registry, admin: httpx.AsyncClient) -> None:
    job = await create(registry, JOBS, a_job())
    await a_running_pod(registry, job, "pi-0")

    for _ in range(2):
        found = await record(admin, job.metadata.uid)
        assert (found["result"], found["endTime"], found["attemptsOmitted"]) == ("Running", None, 0)
        assert [(each["pod"], each["endedAt"]) for each in found["attempts"]] == [("pi-0", None)]
        await catch_up(registry)
    assert await names(admin) == []


async def test_a_job_that_is_not_recorded_yet_is_found(registry: Registry, admin: httpx.AsyncClient) -> None:
    job = await create(registry, JOBS, a_job())
    await catch_up(registry)
    await finish(registry, job)
    assert (await record(admin, job.metadata.uid))["result"] == "Failed"

    await delete(registry, pods=0)
    assert (await record(admin, job.metadata.uid))["deletionTime"]

    await catch_up(registry)
    assert (await record(admin, job.metadata.uid))["deletionTime"]


@pytest.fixture
async def several(registry: Registry) -> Registry:
    """Jobs that ended a minute after each other, from a to e."""
    for number, name in enumerate("abcde"):
        registry.clock.move(minutes=1)
        labels = {"place": str(number % 2)}
        job = await create(registry, JOBS, a_job(name, {"labels": labels}))
        await finish(registry, job, "Complete" if name == "a" else "Failed")
    await JobRecorder(registry.store.job_record_writer).run_once(registry.now())
    return registry


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, "edcba", id="all, the last to end first"),
        pytest.param({"result": "Complete"}, "a", id="of a result"),
        pytest.param({"name": "c"}, "c", id="of a name"),
        pytest.param({"labelSelector": "place=1"}, "db", id="of labels"),
        pytest.param({"labelSelector": "place=1", "limit": 1}, "d", id="the first of labels"),
        pytest.param({"limit": 2}, "ed", id="the first two"),
        pytest.param({"name": "z"}, "", id="of no Job"),
    ],
)
async def test_a_list_shows(several: Registry, admin: httpx.AsyncClient, query: dict[str, Any], expected: str) -> None:
    assert "".join(await names(admin, **query)) == expected


@pytest.mark.parametrize("selector", ["", "place in (0,1)"])
async def test_a_long_list_comes_in_pages(several: Registry, admin: httpx.AsyncClient, selector: str) -> None:
    seen, token = "", ""
    for _ in range(3):
        answer = await admin.get(RECORDS, params={"limit": 2, "continue": token, "labelSelector": selector})
        page = answer.json()
        seen += "".join(each["metadata"]["name"] for each in page["items"])
        token = page["metadata"].get("continue", "")

    assert (seen, token) == ("edcba", "")


async def test_a_list_has_the_newest_attempts_and_counts_the_others(
    registry: Registry, admin: httpx.AsyncClient
) -> None:
    job = await a_finished_job(registry, pods=25)
    await catch_up(registry)

    (item,) = (await admin.get(RECORDS)).json()["items"]

    assert (len(item["attempts"]), item["attemptsOmitted"], "events" in item) == (20, 5, False)
    assert len((await record(admin, job.metadata.uid))["attempts"]) == 25


async def test_a_page_of_large_jobs_is_short_and_has_a_next_one(
    registry: Registry, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of 500 Jobs of the largest size would be most of a gigabyte."""
    monkeypatch.setattr("app.api.routers.history._MOST_BYTES", 14_000)
    for number in range(5):
        registry.clock.move(minutes=1)
        job = await create(registry, JOBS, a_job(f"pi{number}", {"annotations": {"large": "x" * 5_000}}))
        await finish(registry, job)
    await catch_up(registry)

    pages, token = [], None
    while token != "":
        page = (await admin.get(RECORDS, params={"continue": token or ""})).json()
        pages.append([each["metadata"]["name"] for each in page["items"]])
        token = page["metadata"].get("continue", "")

    assert pages == [["pi4", "pi3"], ["pi2", "pi1"], ["pi0"]]


async def test_attempts_of_pods_that_run_are_counted_with_those_that_are_not_kept(
    registry: Registry, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.job_record_writer.MOST_ATTEMPTS", 2)
    monkeypatch.setattr("app.registry.job_history.MOST_ATTEMPTS", 2)
    job = await create(registry, JOBS, a_job())
    for number in range(4):
        registry.clock.move(seconds=1)
        await a_pod_that_failed(registry, job, f"pi-{number}")
    registry.clock.move(seconds=1)
    await a_running_pod(registry, job, "pi-runs")
    await catch_up(registry)

    found = await record(admin, job.metadata.uid)

    assert [each["pod"] for each in found["attempts"]] == ["pi-runs", "pi-3"]
    assert found["attemptsOmitted"] == 3


BAD_TOKENS = ["x", b64encode(b"[]").decode(), urlsafe_b64encode(b'["2026-03-01T12:00:00Z","\\u0000"]').decode()]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": -1},
        {"limit": 501},
        {"limit": "x"},
        {"result": "Running"},
        {"labelSelector": "a=b=c"},
        *({"continue": token} for token in BAD_TOKENS),
        {"continue": urlsafe_b64encode(b'["2026-03-01T12:00:00","u"]').decode()},
    ],
)
async def test_what_cannot_be_asked_for(registry: Registry, admin: httpx.AsyncClient, query: dict[str, Any]) -> None:
    answer = await admin.get(RECORDS, params=query)

    assert (answer.status_code, answer.json()["kind"]) == (400, "Status")


async def test_a_job_is_found_by_its_name(registry: Registry, admin: httpx.AsyncClient) -> None:
    """While it is there, at once when it is gone, which the recorder does not know yet, and later; of several the newest."""
    older = await a_finished_job(registry)
    assert (await record(admin, "pi"))["metadata"]["uid"] == older.metadata.uid
    await delete(registry)
    assert (await record(admin, "pi"))["deletionTime"]
    await catch_up(registry)
    assert (await record(admin, "pi"))["deletionTime"]

    newer = await create(registry, JOBS, a_job())
    assert (await record(admin, "pi"))["metadata"]["uid"] == newer.metadata.uid
    await catch_up(registry)
    assert (await record(admin, "pi"))["result"] == "Running"
    assert (await record(admin, older.metadata.uid))["metadata"]["uid"] == older.metadata.uid

    await create(registry, JOBS, a_job(older.metadata.uid))  # nobody can pretend to be another's record
    assert (await record(admin, older.metadata.uid))["metadata"]["uid"] == older.metadata.uid


async def test_what_there_is_not(registry: Registry, admin: httpx.AsyncClient) -> None:
    job = await a_finished_job(registry)
    elsewhere = f"{BASE}/namespaces/kube-system/jobs/{job.metadata.uid}"

    codes = [(await admin.get(path)).status_code for path in (f"{RECORDS}/none", elsewhere, f"{BASE}/pods")]
    posted = await admin.post(RECORDS)

    assert (codes, posted.status_code) == ([404, 404, 404], 405)


async def test_who_may_read_records(several: Registry, url: str, admin: httpx.AsyncClient) -> None:
    """Whoever may view the namespace; rights on Jobs alone are not enough."""
    uid = (await several.store.job_records.page(RecordQuery()))[0].summary.uid
    paths = (f"{BASE}/jobs", RECORDS, f"{RECORDS}/{uid}")
    await cluster_role(admin, "reads-jobs", rule("get,list", "jobs", "batch"))
    await bind(admin, "reads-jobs", ["User:bob"])
    await bind(admin, "view", ["User:ada"], namespace="default", name="ada")
    async with meeting(several, url) as people:
        ada, bob = await people.user("ada", AUTHENTICATED), await people.user("bob", AUTHENTICATED)
        codes = [[(await who.get(path)).status_code for path in paths] for who in (admin, ada, bob)]

    assert codes == [[200, 200, 200], [403, 200, 200], [403, 403, 403]]


async def rerun(client: httpx.AsyncClient, uid: str, **body: Any) -> httpx.Response:
    return await client.post(f"{RECORDS}/{uid}/rerun", json=body)


@pytest.mark.parametrize("gone", [False, True], ids=["that lives", "that is gone"])
async def test_a_job_can_be_run_again(registry: Registry, admin: httpx.AsyncClient, gone: bool) -> None:
    job = await a_finished_job(registry)
    if gone:
        await delete(registry)
        await catch_up(registry)

    answer = await rerun(admin, job.metadata.uid)

    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["kind"], made["apiVersion"], made["metadata"]["namespace"]) == ("Job", "batch/v1", "default")
    assert made["metadata"]["name"].startswith("pi-rerun-")
    kept = (await admin.get(f"/apis/batch/v1/namespaces/default/jobs/{made['metadata']['name']}")).json()
    assert kept == made
    assert (await record(admin, made["metadata"]["uid"]))["rerunOf"] == job.metadata.uid


async def test_a_rerun_with_a_name_and_changes(registry: Registry, admin: httpx.AsyncClient) -> None:
    job = await a_finished_job(registry)

    answer = await rerun(admin, job.metadata.uid, name="tau", patch={"spec": {"backoffLimit": 0, "parallelism": 4}})

    made = answer.json()
    assert (made["metadata"]["name"], made["spec"]["backoffLimit"], made["spec"]["parallelism"]) == ("tau", 0, 4)
    assert (await rerun(admin, job.metadata.uid, name="tau")).status_code == 409


async def test_a_dry_run_makes_nothing(registry: Registry, admin: httpx.AsyncClient) -> None:
    job = await a_finished_job(registry)

    answer = await admin.post(f"{RECORDS}/{job.metadata.uid}/rerun?dryRun=All", json={"name": "tau"})

    assert (answer.status_code, answer.json()["metadata"]["name"]) == (201, "tau")
    assert (await admin.get("/apis/batch/v1/namespaces/default/jobs/tau")).status_code == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param({"name": "Not_A_Name"}, 422, id="a bad name"),
        pytest.param({"patch": {"spec": {"backoffLimit": -1}}}, 422, id="an invalid Job"),
        pytest.param({"patch": {"metadata": {"namespace": "kube-system"}}}, 400, id="another namespace"),
        pytest.param({"patch": []}, 400, id="no patch"),
        pytest.param({"name": 3}, 400, id="no name"),
    ],
)
async def test_a_rerun_that_is_refused(
    registry: Registry, admin: httpx.AsyncClient, body: dict[str, Any], code: int
) -> None:
    job = await a_finished_job(registry)

    answer = await rerun(admin, job.metadata.uid, **body)

    assert (answer.status_code, answer.json()["kind"]) == (code, "Status")


async def test_what_was_never_there_cannot_be_run_again(registry: Registry, admin: httpx.AsyncClient) -> None:
    assert (await rerun(admin, "none")).status_code == 404
    assert (await admin.get(f"{RECORDS}/none/rerun")).status_code == 405


async def test_a_rerun_passes_admission(registry: Registry, admin: httpx.AsyncClient) -> None:
    """As any new Job does: here, a quota."""
    job = await a_finished_job(registry)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/jobs.batch": "1"}}}
    assert (await admin.post("/api/v1/namespaces/default/resourcequotas", json=quota)).status_code == 201
    async with running(registry, ResourceQuotaController):
        await settled(registry)

    answer = await rerun(admin, job.metadata.uid)

    assert (answer.status_code, "exceeded quota" in answer.text) == (403, True)


READS = rule("get", "jobs", "history.jobplane.dev")
RERUNS = rule("create", "jobs/rerun", "history.jobplane.dev")
CREATES = rule("create", "jobs", "batch")


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        pytest.param([READS, RERUNS, CREATES], 201, id="all of them"),
        pytest.param([RERUNS, CREATES], 403, id="not to read"),
        pytest.param([READS, CREATES], 403, id="not to rerun"),
        pytest.param([READS, RERUNS], 403, id="not to create"),
    ],
)
async def test_rights_for_a_rerun(
    registry: Registry, url: str, admin: httpx.AsyncClient, rules: list[dict[str, Any]], code: int
) -> None:
    job = await a_finished_job(registry)
    await cluster_role(admin, "reruns", *rules)
    await bind(admin, "reruns", ["User:bob"], namespace="default")
    async with meeting(registry, url) as people:
        bob = await people.user("bob", AUTHENTICATED)
        answers = await rerun(bob, job.metadata.uid)

    assert answers.status_code == code, answers.text


@pytest.mark.parametrize(("role", "code"), [("view", 403), ("edit", 201), ("admin", 201)])
async def test_roles_for_a_rerun(registry: Registry, url: str, admin: httpx.AsyncClient, role: str, code: int) -> None:
    job = await a_finished_job(registry)
    await bind(admin, role, ["User:bob"], namespace="default")
    async with meeting(registry, url) as people:
        bob = await people.user("bob", AUTHENTICATED)
        assert (await rerun(bob, job.metadata.uid)).status_code == code


async def test_messages_of_many_attempts_hold_up_no_other() -> None:
    """Users write them: a thousand of the longest, nested as deep as it goes, take a third of a second."""
    attempts = [Attempt(pod="p", pod_uid=str(number), message="[[1]]") for number in range(1_000)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    found = await job_history.with_outputs(attempts)
    other.cancel()

    assert [each.output for each in found] == [[[1]]] * 1_000
    assert turns >= 15
