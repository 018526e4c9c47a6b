"""The job recorder: what it stores of Jobs and pods, whatever happens to processes meanwhile, and for how long."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.controllers.retention import job_recorder
from app.controllers.retention.job_recorder import JobRecorder, RecordRetention
from app.kinds.batch.job import JobStatus
from app.kinds.core.event import KIND as EVENTS
from app.kinds.pod.container import ContainerState, ContainerStateTerminated, ContainerStatus
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition, ObjectReference, OwnerReference
from app.plans.jobs.job_record import MOST_RESTARTS, Attempt
from app.registry import job_history
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store.compaction import compact
from app.store.job_record_writer import AttemptRow, History, JobRecordWriter
from app.store.job_records import JobRow, RecordQuery
from tests.controllers.running import every, running, settled, until
from tests.registry.examples import JOBS, NAMESPACES, PODS, a_job, a_pod, create, example, get, named

TTL = timedelta(hours=720)
NOTHING = timedelta(0)
WAITING = "from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


async def a_finished_job(registry: Registry, name: str = "pi", pods: int = 1, namespace: str = "default") -> Any:
    """A Job whose pods have failed with exit code 3, and which has failed."""
    job = await create(registry, JOBS, named(a_job(name), namespace=namespace))
    for number in range(pods):
        await a_pod_that_failed(registry, job, f"{name}-{number}")
    await finish(registry, job)
    return job


async def a_pod_that_failed(registry: Registry, job: Any, name: str) -> None:
    await a_running_pod(registry, job, name)
    await objects.rewrite(registry, PODS, job.metadata.namespace, name, _failed)


async def a_running_pod(registry: Registry, job: Any, name: str) -> None:
    meta = job.metadata
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=meta.name, uid=meta.uid, controller=True)
    made = a_pod(name, {"owner_references": (owner,)}, node_name="n")
    await create(registry, PODS, named(made, namespace=meta.namespace))


def _failed(pod: Pod) -> Pod:
    end = ContainerStateTerminated(exit_code=3, reason="Error", message='{"lost": 1}')
    status = ContainerStatus(name="main", state=ContainerState(terminated=end))
    return replace(pod, status=replace(pod.status, phase="Failed", container_statuses=(status,)))


async def finish(registry: Registry, job: Any, condition: str = "Failed") -> None:
    made = Condition(type=condition, status="True", last_transition_time=registry.now())
    await objects.rewrite(
        registry,
        JOBS,
        job.metadata.namespace,
        job.metadata.name,
        lambda old: replace(old, status=JobStatus(start_time=registry.now(), failed=1, conditions=(made,))),
    )


async def delete(registry: Registry, name: str = "pi", pods: int = 1) -> None:
    for number in range(pods):
        await objects.delete(registry, PODS, "default", f"{name}-{number}", Demand(grace_seconds=0))
    await objects.delete(registry, JOBS, "default", name, Demand(propagation="Background"))


async def catch_up(registry: Registry, rows: int = job_recorder.ROWS) -> None:
    await JobRecorder(registry.store.job_record_writer, rows).run_once(registry.now())


async def recorded(registry: Registry) -> dict[str, JobRow]:
    return {row.summary.name: row for row in await registry.store.job_records.page(RecordQuery())}


async def attempts(registry: Registry, uid: str) -> list[tuple[str, str, int | None]]:
    found = (await registry.store.job_records.attempts({uid: "default"}, 5_000))[uid]
    return [(each.pod, each.phase, each.exit_code) for each in found]


async def test_a_job_that_ended_and_its_pods_are_recorded(registry: Registry) -> None:
    job = await a_finished_job(registry, pods=2)

    await catch_up(registry)

    assert (await recorded(registry))["pi"].summary.result == "Failed"
    assert sorted(await attempts(registry, job.metadata.uid)) == [("pi-0", "Failed", 3), ("pi-1", "Failed", 3)]


async def test_a_job_that_runs_is_not(registry: Registry) -> None:
    job = await create(registry, JOBS, a_job())
    await a_running_pod(registry, job, "pi-0")

    await catch_up(registry)

    assert await recorded(registry) == {}
    assert await attempts(registry, job.metadata.uid) == []


async def test_what_was_deleted_while_no_controllers_ran_is_recorded(registry: Registry) -> None:
    """Nor does compaction take it before."""
    await catch_up(registry)
    ran = await a_finished_job(registry, "ran")
    early = await create(registry, JOBS, a_job("early"))
    await a_running_pod(registry, early, "early-0")
    await delete(registry, "ran")
    await delete(registry, "early")
    await compact(registry.store.pool, NOTHING)

    await catch_up(registry)

    found = await recorded(registry)
    assert {name: row.summary.result for name, row in found.items()} == {"ran": "Failed", "early": "Deleted"}
    assert all(row.summary.deleted_at for row in found.values())
    assert await attempts(registry, ran.metadata.uid) == [("ran-0", "Failed", 3)]
    assert [pod for pod, _, code in await attempts(registry, early.metadata.uid)] == ["early-0"]


async def test_compaction_takes_what_is_recorded(registry: Registry) -> None:
    await a_finished_job(registry)
    await delete(registry)
    await catch_up(registry)

    await compact(registry.store.pool, NOTHING)

    assert await registry.store.pool.fetchval("select count(*) from history where kind = 'jobs.batch'") == 0
    assert set(await recorded(registry)) == {"pi"}


async def test_one_that_is_killed_in_the_middle_leaves_all_to_the_next(registry: Registry) -> None:
    """Its transaction is cut off by the server after its first writes."""
    job = await a_finished_job(registry, pods=3)
    async with registry.store.pool.acquire() as blocker:
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("lock table job_record_attempts in exclusive mode")
        killed = asyncio.ensure_future(catch_up(registry))
        await _until_one_waits(registry)
        await blocker.execute(f"select pg_terminate_backend(pid) {WAITING}")
        with pytest.raises(Exception):  # noqa: B017, PT011 - however the connection says it
            await killed
        await transaction.rollback()
    assert await recorded(registry) == {}

    await catch_up(registry)

    assert set(await recorded(registry)) == {"pi"}
    assert len(await attempts(registry, job.metadata.uid)) == 3


async def _until_one_waits(registry: Registry) -> None:
    async with asyncio.timeout(60):
        while not await registry.store.pool.fetchval(f"select count(*) {WAITING}"):  # noqa: ASYNC110 - Postgres tells nobody
            await asyncio.sleep(0.005)


async def test_of_two_that_record_the_same_one_does(registry: Registry) -> None:
    await a_finished_job(registry)
    records = registry.store.job_record_writer
    part = await records.next_history(1_000)
    assert part is not None

    assert [await records.record(part, [], []), await records.record(part, [], [])] == [True, False]


async def test_parts_of_any_size_lead_to_the_same(registry: Registry) -> None:
    job = await a_finished_job(registry, pods=3)
    await delete(registry, pods=3)

    await catch_up(registry, rows=1)

    assert len(await attempts(registry, job.metadata.uid)) == 3
    assert (await recorded(registry))["pi"].summary.deleted_at is not None


async def test_what_is_committed_during_a_run_waits_for_the_next(registry: Registry) -> None:
    parts: list[History] = []

    class Writer(JobRecordWriter):
        """As if clients never ceased to write: with each part that is recorded, another Job ends."""

        async def record(self, part: History, *rows: Any) -> bool:
            parts.append(part)
            is_recorded = await super().record(part, *rows)
            await a_finished_job(registry, f"next-{len(parts)}")
            return is_recorded

    await a_finished_job(registry)
    writer = Writer(registry.store.pool)

    for runs in (1, 2):
        async with asyncio.timeout(60):
            await JobRecorder(writer).run_once(registry.now())
        assert len(parts) == runs

    assert set(await recorded(registry)) == {"pi", "next-1"}


async def test_of_many_attempts_the_newest_stay_and_the_others_are_counted(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.job_record_writer.MOST_ATTEMPTS", 2)
    job = await create(registry, JOBS, a_job())
    for number in range(5):
        registry.clock.move(seconds=1)
        await a_pod_that_failed(registry, job, f"pi-{number}")
        await catch_up(registry)
    await finish(registry, job)
    await delete(registry, pods=5)
    await catch_up(registry)

    assert await attempts(registry, job.metadata.uid) == [("pi-4", "Failed", 3), ("pi-3", "Failed", 3)]
    assert (await registry.store.job_records.attempt_counts({job.metadata.uid: "default"})) == {job.metadata.uid: 5}


async def test_a_record_goes_when_its_time_after_the_deletion_has_come(registry: Registry) -> None:
    for name in ("stays", "goes"):
        await a_finished_job(registry, name)
    await delete(registry, "goes")
    await catch_up(registry)
    now = await registry.store.pool.fetchval("select now()")
    retention = RecordRetention(registry.store.job_record_writer, TTL)

    assert (await retention.run_once(now + TTL - timedelta(hours=1)))["deleted records"] == 0
    assert (await retention.run_once(now + TTL + timedelta(hours=1)))["deleted records"] == 1

    assert set(await recorded(registry)) == {"stays"}
    assert await registry.store.pool.fetchval("select array_agg(job) from job_record_attempts") == ["stays"]


async def test_many_records_go_in_parts(registry: Registry) -> None:
    for number in range(5):
        await a_finished_job(registry, f"pi{number}")
        await delete(registry, f"pi{number}")
    await catch_up(registry)
    now = await registry.store.pool.fetchval("select now()")

    await RecordRetention(registry.store.job_record_writer, TTL, batch=2).run_once(now + 2 * TTL)

    assert await recorded(registry) == {}
    assert await registry.store.pool.fetchval("select count(*) from job_record_attempts") == 0


async def test_records_go_with_their_namespace(registry: Registry) -> None:
    """Those of a new namespace of the same name stay."""
    await create(registry, NAMESPACES, named(example(NAMESPACES), name="lab"))
    await a_finished_job(registry, "before", namespace="lab")
    await a_finished_job(registry, "here")
    async with running(registry):
        await objects.delete(registry, NAMESPACES, "", "lab", Demand())
        await until(registry, lambda: _is_gone(registry, "lab"))
    await create(registry, NAMESPACES, named(example(NAMESPACES), name="lab"))
    await a_finished_job(registry, "after", namespace="lab")

    await catch_up(registry)

    assert set(await recorded(registry)) == {"here", "after"}
    jobs = await registry.store.pool.fetchval("select array_agg(distinct job order by job) from job_record_attempts")
    assert jobs == ["after", "here"]


async def _is_gone(registry: Registry, namespace: str) -> bool:
    return await get(registry, NAMESPACES, namespace, "") is None


async def test_events_stay_when_they_are_no_longer_objects(registry: Registry) -> None:
    """In order, though all of them happened in the same second."""
    job = await a_finished_job(registry)
    for number in range(4):
        await an_event(registry, f"pi.{number}", f"Number{number}", job)
    for number in range(2):
        await objects.delete(registry, EVENTS, "default", f"pi.{number}", Demand())
    await delete(registry)
    await catch_up(registry)

    record = await job_history.read_record(registry, "default", job.metadata.uid)

    assert record is not None
    reasons = [msgspec.json.decode(bytes(each))["reason"] for each in record.events]
    assert reasons == ["Number0", "Number1", "Number2", "Number3"]


async def an_event(registry: Registry, name: str, reason: str, job: Any) -> None:
    about = ObjectReference(
        api_version="batch/v1", kind="Job", name=job.metadata.name, namespace="default", uid=job.metadata.uid
    )
    event = replace(example(EVENTS), involved_object=about, reason=reason)
    await create(registry, EVENTS, named(event, name=name, namespace="default"))


async def test_events_of_another_namespace_do_not_count(registry: Registry) -> None:
    """Whoever may write events there could say anything about a Job here."""
    job = await a_finished_job(registry)
    await create(registry, NAMESPACES, named(example(NAMESPACES), name="lab"))
    about = ObjectReference(kind="Job", name="pi", namespace="lab", uid=job.metadata.uid)
    event = replace(example(EVENTS), involved_object=about, reason="Forged")
    await create(registry, EVENTS, named(event, name="pi.1", namespace="lab"))
    await objects.delete(registry, EVENTS, "lab", "pi.1", Demand())
    await catch_up(registry)
    assert await registry.store.pool.fetchval("select count(*) from job_record_events") == 1

    record = await job_history.read_record(registry, "default", job.metadata.uid)

    assert record is not None
    assert record.events == []


async def test_what_belongs_to_no_record_goes_in_time(registry: Registry) -> None:
    """Events of pods of no Job, and attempts of pods that outlived their Job's record; not those of a Job that runs."""
    runs = await create(registry, JOBS, a_job("runs"))
    await a_pod_that_failed(registry, runs, "runs-0")
    gone = named(a_job("gone"), uid="gone", namespace="default")
    await a_pod_that_failed(registry, gone, "gone-0")
    kept = await a_finished_job(registry, "kept", pods=0)
    for name, job in (("kept.1", kept), ("gone.1", gone), ("gone.2", gone)):
        await an_event(registry, name, "Created", job)
        await objects.delete(registry, EVENTS, "default", name, Demand())
        await catch_up(registry)
    now = await registry.store.pool.fetchval("select now()")
    retention = RecordRetention(registry.store.job_record_writer, TTL, batch=1)

    assert sum((await retention.run_once(now)).values()) == 0
    assert (await retention.run_once(now + TTL + timedelta(hours=1)))["deleted attempts and events"] == 3
    assert sum((await retention.run_once(now + TTL + timedelta(hours=2))).values()) == 0

    pool = registry.store.pool
    assert await pool.fetchval("select array_agg(job) from job_record_attempts") == ["runs"]
    assert await pool.fetchval("select array_agg(involved_uid) from job_record_events") == [kept.metadata.uid]


async def test_numbers_that_no_column_takes_are_left_out(registry: Registry) -> None:
    """Clients may write any annotation of a pod."""
    job = await create(registry, JOBS, a_job())
    odd = {"batch.kubernetes.io/job-completion-index": "9999999999", "jobplane.dev/peak-memory": f'{{"a":{2**64}}}'}
    await a_running_pod(registry, job, "pi-0")
    await objects.edit(registry, PODS, "default", "pi-0", lambda pod: named(pod, annotations=odd))
    await objects.rewrite(registry, PODS, "default", "pi-0", _failed)

    await catch_up(registry)

    (found,) = (await registry.store.job_records.attempts({job.metadata.uid: "default"}, 10))[job.metadata.uid]
    assert (found.exit_code, found.index, found.peak_memory_bytes) == (3, None, None)


async def test_of_rows_that_are_refused_the_others_are_recorded(registry: Registry) -> None:
    await a_finished_job(registry)
    records = registry.store.job_record_writer
    part = await records.next_history(1_000)
    assert part is not None
    rows = [
        AttemptRow("u", "default", "pi", Attempt(pod=name, pod_uid=f"{number}"))
        for number, name in enumerate(["a", "b\0", "c", "d\0", "e"])
    ]

    assert await records.record(part, [], rows)

    found = (await registry.store.job_records.attempts({"u": "default"}, 10))["u"]
    assert {each.pod for each in found} == {"a", "c", "e"}


async def restart(registry: Registry, name: str, count: int, code: int) -> None:
    """The container has ended and runs again."""
    end = ContainerStateTerminated(exit_code=code, reason="Error", finished_at=registry.now())
    status = ContainerStatus(name="main", restart_count=count, last_state=ContainerState(terminated=end))
    await objects.rewrite(
        registry,
        PODS,
        "default",
        name,
        lambda pod: replace(pod, status=replace(pod.status, phase="Running", container_statuses=(status,))),
    )


def _ended_after(count: int) -> Any:
    """How a pod looks that has ended after so many restarts."""
    last = ContainerStateTerminated(exit_code=count, reason="Error")
    end = ContainerState(terminated=ContainerStateTerminated(exit_code=0, reason="Completed"))
    status = ContainerStatus(name="main", state=end, restart_count=count, last_state=ContainerState(terminated=last))
    return lambda pod: replace(pod, status=replace(pod.status, phase="Succeeded", container_statuses=(status,)))


async def restarts(registry: Registry, job: Any) -> list[list[tuple[int, int]]]:
    record = await job_history.read_record(registry, "default", job.metadata.uid)
    assert record is not None
    return [[(each.run, each.exit_code) for each in attempt.restarts] for attempt in record.attempts]


async def test_each_restart_of_a_container_is_recorded_once(registry: Registry) -> None:
    """While the pod runs, when it has ended, and when it is gone; however the parts of history are cut."""
    job = await create(registry, JOBS, a_job())
    await a_running_pod(registry, job, "pi-0")
    for count in (1, 2):
        await restart(registry, "pi-0", count, code=count)
        await catch_up(registry, rows=1)
    assert await restarts(registry, job) == [[(1, 2), (0, 1)]]

    await objects.rewrite(registry, PODS, "default", "pi-0", _ended_after(4))
    await finish(registry, job, "Complete")
    await delete(registry)
    await catch_up(registry)

    assert await restarts(registry, job) == [[(1, 2), (0, 1), (3, 4)]]  # the third was never reported
    sql = "select run, exit_code from job_attempt_restarts where job = 'pi' order by run"
    assert [tuple(row) for row in await registry.store.pool.fetch(sql)] == [(0, 1), (1, 2), (3, 4)]
    assert await registry.store.pool.fetchval("select restart_count from job_attempts") == 4


async def test_of_many_restarts_the_newest_stay_and_go_with_their_record(registry: Registry) -> None:
    job = await create(registry, JOBS, a_job())
    await a_running_pod(registry, job, "pi-0")
    for count in range(1, MOST_RESTARTS + 4):
        await restart(registry, "pi-0", count, code=1)
        await catch_up(registry)
    await delete(registry)
    await catch_up(registry)

    ((*_, (oldest, _)),) = await restarts(registry, job)
    assert oldest == 3
    assert await registry.store.pool.fetchval("select count(*) from job_record_restarts") == MOST_RESTARTS

    now = await registry.store.pool.fetchval("select now()")
    await RecordRetention(registry.store.job_record_writer, TTL).run_once(now + 2 * TTL)
    assert await registry.store.pool.fetchval("select count(*) from job_record_restarts") == 0


async def test_pods_of_another_namespace_are_no_attempts(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may create pods there could claim any Job: neither do they show, nor do they drive out what is true."""
    monkeypatch.setattr("app.store.job_record_writer.MOST_ATTEMPTS", 2)
    await create(registry, NAMESPACES, named(example(NAMESPACES), name="lab"))
    job = await a_finished_job(registry)
    forged = named(job, namespace="lab")
    for number in range(3):
        registry.clock.move(seconds=1)
        await a_pod_that_failed(registry, forged, f"forged-{number}")
    await a_running_pod(registry, forged, "forged-runs")

    await catch_up(registry)

    record = await job_history.read_record(registry, "default", job.metadata.uid)
    assert record is not None
    assert ([each.pod for each in record.attempts], record.attempts_omitted) == (["pi-0"], 0)
    assert await registry.store.pool.fetchval("select attempts_omitted from finished_jobs") == 0


async def test_of_many_events_the_newest_stay(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each object and namespace, so that those of another namespace drive out none."""
    monkeypatch.setattr("app.store.job_records.MOST_EVENTS", 3)
    monkeypatch.setattr("app.store.job_record_writer.MOST_EVENTS", 3)
    job = await a_finished_job(registry)
    await create(registry, NAMESPACES, named(example(NAMESPACES), name="lab"))
    about = ObjectReference(kind="Job", name="pi", namespace="lab", uid=job.metadata.uid)
    for number in range(6):
        await an_event(registry, f"pi.{number}", f"Number{number}", job)
        await objects.delete(registry, EVENTS, "default", f"pi.{number}", Demand())
        forged = replace(example(EVENTS), involved_object=about, reason="Forged")
        await create(registry, EVENTS, named(forged, name=f"pi.{number}", namespace="lab"))
        await objects.delete(registry, EVENTS, "lab", f"pi.{number}", Demand())
        if number % 3:
            await catch_up(registry)
    await catch_up(registry)

    record = await job_history.read_record(registry, "default", job.metadata.uid)

    assert record is not None
    assert [msgspec.json.decode(bytes(each))["reason"] for each in record.events] == ["Number3", "Number4", "Number5"]
    kept = await registry.store.pool.fetchval("select sum(cardinality(bodies)) from job_record_events")
    assert kept <= 2 * (3 + 2)  # a row that begins within the bound stays whole


async def test_large_objects_come_in_small_parts(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of history is in memory at a time than fits, and one object that is larger is recorded as well."""
    monkeypatch.setattr("app.store.job_record_writer.MOST_BYTES", 1_000)
    for number in range(3):
        await create(registry, JOBS, a_job(f"pi{number}", {"annotations": {"large": "x" * 5_000}}))
        await objects.delete(registry, JOBS, "default", f"pi{number}", Demand(propagation="Background"))
    sizes = []
    while part := await registry.store.job_record_writer.next_history(1_000):
        sizes.append(sum(len(each.body) for each in part.versions))
        assert await registry.store.job_record_writer.record(part, [], [])

    assert 5_000 < max(sizes) < 10_000


async def test_a_job_that_real_controllers_end_is_recorded_once(registry: Registry) -> None:
    async with running(registry):
        job = await create(registry, JOBS, a_job(backoff_limit=0))
        (pod,) = await until(registry, lambda: every(registry, PODS))
        await objects.rewrite(registry, PODS, "default", pod.metadata.name, _failed)
        await settled(registry)
        await catch_up(registry)
        await objects.delete(registry, JOBS, "default", "pi", Demand(propagation="Background"))
        await settled(registry)
    await catch_up(registry)

    summary = (await recorded(registry))["pi"].summary
    assert (summary.result, summary.deleted_at is not None) == ("Failed", True)
    assert await attempts(registry, job.metadata.uid) == [(pod.metadata.name, "Failed", 3)]
