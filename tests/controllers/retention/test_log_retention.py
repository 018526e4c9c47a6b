"""Logs outlive pods for a while, and then go; what was written in small pieces is put together."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.controllers.retention.log_retention import LogRetention
from app.registry.codec import key_of
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.store import Append, Stream
from app.store.logs.kept_logs import KeptLog
from tests.registry.examples import NAMESPACES, PODS, a_pod, create, example, named

TTL = timedelta(hours=168)


async def a_log(registry: Registry, name: str, attempt: int = 0, uid: str = "", namespace: str = "default") -> Stream:
    """Of a pod that runs, unless a uid is given: then of one that is gone."""
    if not uid:
        uid = (await create(registry, PODS, a_pod(name, node_name="n"))).metadata.uid
    stream = Stream(uid, "main", attempt)
    await registry.store.logs.append([Append(stream, namespace, name, 0, b"hello\n")])
    return stream


async def phase(registry: Registry, name: str, phase: str) -> None:
    await objects.rewrite(
        registry, PODS, "default", name, lambda pod: replace(pod, status=replace(pod.status, phase=phase))
    )


async def kept(registry: Registry, namespace: str = "default") -> dict[str, KeptLog]:
    found = await registry.store.kept_logs.of(namespace)
    return {f"{each.pod}/{each.attempt}": each for each in found}


async def chunks(registry: Registry, stream: Stream) -> list[tuple[int, int]]:
    sql = "select start, length(data) from log_chunks where pod_uid = $1 and container = $2 and attempt = $3 order by 1"
    return [tuple(row) for row in await registry.store.pool.fetch(sql, *stream)]


async def look(registry: Registry, **how: Any) -> dict[str, int]:
    return await LogRetention(registry.store.kept_logs, TTL, **how).run_once(registry.now())


async def test_a_log_goes_when_its_time_after_the_end_has_come(registry: Registry) -> None:
    await a_log(registry, "runs")
    await a_log(registry, "done")
    gone = await a_log(registry, "gone", uid="1")
    await phase(registry, "done", "Succeeded")
    await look(registry)
    assert await _ended(registry, {"done/0", "gone/0"})
    assert {each.ended_at for each in (await kept(registry)).values()} == {registry.now(), None}

    registry.clock.now += TTL
    assert (await look(registry))["deleted logs"] == 0
    registry.clock.move(seconds=60)
    assert (await look(registry))["deleted logs"] == 2

    assert set(await kept(registry)) == {"runs/0"}
    assert await chunks(registry, gone) == []


async def _ended(registry: Registry, names: set[str]) -> bool:
    return {name for name, each in (await kept(registry)).items() if each.ended_at} == names


@pytest.mark.parametrize(
    ("phases", "ended"),
    [
        pytest.param(["Running"], False, id="runs has not ended"),
        pytest.param(["Running", "Failed"], True, id="failed has ended"),
        pytest.param(["Pending"], False, id="is still pending has not ended"),
    ],
)
async def test_the_log_of_a_pod_that(registry: Registry, phases: list[str], ended: bool) -> None:
    await a_log(registry, "p")
    for each in phases:
        await phase(registry, "p", each)

    await look(registry)

    assert (await kept(registry))["p/0"].ended_at == (registry.now() if ended else None)


async def test_a_run_has_ended_when_the_next_one_writes(registry: Registry) -> None:
    first = await a_log(registry, "p")
    await a_log(registry, "p", attempt=1, uid=first.pod_uid)

    await look(registry)

    assert await _ended(registry, {"p/0"})


async def test_a_log_that_is_being_written_to_is_left_for_later(registry: Registry) -> None:
    """Whoever waited for it, while the writer waits for another log, would end as a deadlock."""
    written, idle = await a_log(registry, "written", uid="1"), await a_log(registry, "idle", uid="2")
    end = registry.store.kept_logs.end
    async with registry.store.pool.acquire() as writer:
        async with writer.transaction():
            await writer.execute("select from log_streams where pod_uid = $1 for update", written.pod_uid)
            assert await end(registry.now(), 10) == [idle]
        assert await end(registry.now(), 10) == [written]


async def test_another_pod_of_the_same_name_holds_no_log(registry: Registry) -> None:
    await a_log(registry, "p")
    await a_log(registry, "p", uid="before")

    await look(registry)

    ended = {each.pod_uid for each in await registry.store.kept_logs.of("default") if each.ended_at}
    assert ended == {"before"}


async def test_small_pieces_are_put_together_once_no_more_come(registry: Registry) -> None:
    stream, line = Stream("1", "main", 0), b"x" * 999 + b"\n"
    for number in range(150):
        await registry.store.logs.append([Append(stream, "default", "p", number * 1000, line)])

    await look(registry)

    assert await chunks(registry, stream) == [(0, 66_000), (66_000, 66_000), (132_000, 18_000)]
    assert (await registry.store.logs.read(stream, 65_500)).data == (line * 150)[65_500:]
    await registry.store.logs.append([Append(stream, "default", "p", 149_000, line * 2)])
    assert (await registry.store.logs.span(stream)).end == 151_000


async def test_of_a_container_that_fails_over_and_over_the_newest_runs_are_kept(registry: Registry) -> None:
    for attempt in range(10):
        await a_log(registry, "p", attempt, uid="1")  # six bytes each

    await look(registry, cap=10)

    assert sorted(await kept(registry)) == ["p/5", "p/6", "p/7", "p/8", "p/9"]


async def test_the_newest_two_runs_are_kept_however_long_they_are(registry: Registry) -> None:
    for attempt in range(4):
        await a_log(registry, "p", attempt, uid="1")

    await look(registry, cap=1)

    assert sorted(await kept(registry)) == ["p/2", "p/3"]


async def test_logs_go_with_their_namespace(registry: Registry) -> None:
    await create(registry, NAMESPACES, named(example(NAMESPACES), name="lab"))
    for namespace in ("default", "lab", "gone", "zzz"):
        await a_log(registry, "p", uid=namespace, namespace=namespace)

    await look(registry)

    left = await registry.store.pool.fetch("select namespace from log_streams order by 1")
    assert [row["namespace"] for row in left] == ["default", "lab"]


async def test_many_go_in_parts(registry: Registry) -> None:
    for number in range(15):
        await a_log(registry, f"p{number}", uid=f"{number}")

    await look(registry, batch=4)
    assert all(each.ended_at for each in (await kept(registry)).values())
    registry.clock.now += TTL + timedelta(seconds=1)
    assert (await look(registry, batch=4))["deleted logs"] == 15

    assert await kept(registry) == {}
    assert await registry.store.pool.fetchval("select count(*) from log_chunks") == 0


async def test_a_pod_and_its_node_may_go_before_its_log(registry: Registry) -> None:
    stream = await a_log(registry, "p")
    await objects.delete(registry, PODS, "default", "p", objects.deletion.Demand(grace_seconds=0))
    assert await registry.store.get(key_of(PODS, "default", "p")) is None

    await look(registry)

    assert (await registry.store.logs.read(stream, 0)).data == b"hello\n"
