"""What agents say about pods: believed about their own, never against what has ended, and final when they say so."""

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from app.client.protocol import EventReport, StatusOutcome, StatusReport
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event import Event
from app.kinds.pod.pod import Pod, PodStatus, condition
from app.machinery.base import Condition, OwnerReference
from app.registry.agents.status_reports import accept
from app.registry.codec import decode, key_of
from app.registry.verbs import objects
from app.registry.verbs.binding import bound
from app.registry.verbs.deletion import Demand
from app.registry.verbs.lists import Scope
from app.registry.verbs.objects import Registry
from app.registry.verbs.watch import Watch
from app.store import Conflict, Key, Query, Store
from tests.registry.examples import NAMESPACES, PODS, a_pod, create, example, get, named

BEGIN = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def mine(node: str) -> bool:
    return node == "n1"


async def a_running_pod(registry: Registry, name: str = "p", **metadata: Any) -> Pod:
    pod = await create(registry, PODS, named(a_pod(name, node_name="n1"), **metadata))
    await tell(registry, pod, phase="Running")
    return await get(registry, PODS, name)


def report(pod: Pod, *, gone: bool = False, **status: Any) -> StatusReport:
    meta = pod.metadata
    return StatusReport(namespace="default", name=meta.name, uid=meta.uid, status=PodStatus(**status), gone=gone)


async def tell(registry: Registry, pod: Pod, **said: Any) -> StatusOutcome:
    (outcome,) = await accept(registry, PODS, [report(pod, **said)], mine)
    return outcome


async def phase(registry: Registry, name: str = "p") -> str:
    return (await get(registry, PODS, name)).status.phase


async def test_a_status_is_stored(registry: Registry) -> None:
    pod = await create(registry, PODS, a_pod(node_name="n1"))

    assert (await tell(registry, pod, phase="Running", pod_ip="10.0.0.7")).code == 200

    status = (await get(registry, PODS, "p")).status
    assert (status.phase, status.pod_ip, status.qos_class) == ("Running", "10.0.0.7", "BestEffort")


@pytest.mark.parametrize("ended", ["Succeeded", "Failed"])
@pytest.mark.parametrize("said", ["Pending", "Running", "Succeeded", "Failed", ""])
async def test_what_has_ended_stays_as_it_ended(registry: Registry, ended: str, said: str) -> None:
    pod = await a_running_pod(registry)
    await tell(registry, pod, phase=ended)
    before = await get(registry, PODS, "p")

    assert (await tell(registry, pod, phase=said, message="again")).code == 200

    assert await get(registry, PODS, "p") == before


async def test_what_was_said_already_is_not_stored_again(registry: Registry) -> None:
    pod = await a_running_pod(registry)
    before = await registry.store.revision()

    assert (await tell(registry, pod, phase="Running")).code == 200

    assert await registry.store.revision() == before


class Behind:
    """A store whose memory of pods stands still, as of a process that is behind the others."""

    def __init__(self, store: Store, *keys: Key) -> None:
        self._store = store
        self._known = {key: store.remembered(key) for key in keys}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def remembered(self, key: Key) -> Any:
        return self._known.get(key)


def behind(registry: Registry) -> Registry:
    store = Behind(registry.store, key_of(PODS, "default", "p"))
    assert store.remembered(key_of(PODS, "default", "p")) is not None
    return dataclasses.replace(registry, store=cast("Store", store))


async def test_a_process_that_is_behind_overwrites_nothing(registry: Registry) -> None:
    pod = await a_running_pod(registry)
    old = behind(registry)
    await objects.edit(
        registry, PODS, "default", "p", lambda now: replace(now, metadata=replace(now.metadata, labels={"new": "1"}))
    )

    assert (await tell(old, pod, phase="Succeeded")).code == 200
    now = await get(registry, PODS, "p")
    assert (now.status.phase, now.metadata.labels) == ("Succeeded", {"new": "1"})


async def test_a_process_that_is_behind_stores_what_was_so_before(registry: Registry) -> None:
    pod = await a_running_pod(registry)
    old = behind(registry)
    await tell(registry, pod, phase="Running", message="meanwhile")

    assert (await tell(old, pod, phase="Running")).code == 200
    assert (await get(registry, PODS, "p")).status.message == ""


async def test_a_process_that_is_behind_knows_a_pod_of_the_same_name(registry: Registry) -> None:
    before = await a_running_pod(registry)
    old = behind(registry)
    await objects.delete(registry, PODS, "default", "p", Demand(grace_seconds=0))
    pod = await create(registry, PODS, a_pod(node_name="n1"))

    assert (await tell(old, pod, phase="Running")).code == 200
    assert (await tell(old, before, phase="Running")).code == 404
    assert await phase(registry) == "Running"


async def test_the_servers_own_conditions_stay(registry: Registry) -> None:
    pod = await create(registry, PODS, a_pod())
    await objects.rewrite(registry, PODS, "default", "p", lambda old: bound(old, "n1", registry.now()))
    ready = Condition(type="Ready", status="True")
    lie = Condition(type="PodScheduled", status="False")

    await tell(registry, pod, phase="Running", conditions=(ready, lie))

    conditions = (await get(registry, PODS, "p")).status.conditions
    assert condition(conditions, "PodScheduled").status == "True"
    assert condition(conditions, "Ready").status == "True"
    assert len(conditions) == 2


@pytest.mark.parametrize("node", [pytest.param("n2", id="on another's node"), pytest.param("", id="on none")])
async def test_about_a_pod_that_is_not_its_own_an_agent_is_not_heard(registry: Registry, node: str) -> None:
    pod = await create(registry, PODS, a_pod(node_name=node))

    outcome = await tell(registry, pod, phase="Succeeded")

    assert outcome.code == 403
    assert await phase(registry) == "Pending"


@pytest.mark.parametrize(
    "how", [pytest.param("deleted", id="that is gone"), pytest.param("replaced", id="with another uid")]
)
async def test_about_a_pod_that_is_no_more(registry: Registry, how: str) -> None:
    pod = await a_running_pod(registry)
    await objects.delete(registry, PODS, "default", "p", Demand(grace_seconds=0))
    if how == "replaced":
        await create(registry, PODS, a_pod(node_name="n1"))

    assert (await tell(registry, pod, phase="Succeeded")).code == 404

    if how == "replaced":
        assert await phase(registry) == "Pending"


async def test_a_deleted_pod_goes_when_the_agent_says_that_it_is_gone(registry: Registry) -> None:
    pod = await a_running_pod(registry)
    await objects.delete(registry, PODS, "default", "p", Demand())
    await tell(registry, pod, phase="Failed")
    assert await phase(registry) == "Failed"

    await tell(registry, pod, phase="Failed", gone=True)

    assert await get(registry, PODS, "p") is None


async def played(watching: Watch) -> list[tuple[str, str]]:
    """What a watcher sees, as the type of each event and the phase of its pod."""
    told: list[tuple[str, str]] = []
    while events := await watching.next_events(0.05):
        told += [(each.type, decode(PODS, each.object).status.phase) for each in events]
    return told


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        pytest.param("", [("MODIFIED", "Failed"), ("DELETED", "Failed")], id="every pod"),
        pytest.param("Running", [("DELETED", "Running")], id="what runs"),
        pytest.param("Failed", [("ADDED", "Failed"), ("DELETED", "Failed")], id="what has failed"),
    ],
)
async def test_a_watcher_sees_how_a_deleted_pod_ended_before_it_is_gone(
    registry: Registry, phases: str, expected: list[tuple[str, str]]
) -> None:
    pod = await a_running_pod(registry)
    await objects.delete(registry, PODS, "default", "p", Demand())
    scope = Scope(kind=PODS, matches=lambda _, selector_index: phases in selector_index.fields.get("status.phase", ""))
    watching = Watch(registry, scope, await registry.store.revision())

    outcome = await tell(registry, pod, phase="Failed", gone=True)

    assert outcome.code == 200
    assert await played(watching) == expected


async def test_a_pod_that_has_ended_before_goes_in_one_version(registry: Registry) -> None:
    pod = await a_running_pod(registry)
    await objects.delete(registry, PODS, "default", "p", Demand())
    await tell(registry, pod, phase="Succeeded")
    before = await registry.store.revision()

    await tell(registry, pod, phase="Succeeded", gone=True)

    assert await registry.store.revision() == before + 1
    assert await get(registry, PODS, "p") is None


async def test_an_end_whose_removal_is_overtaken_is_told_once_more_and_removes_it(registry: Registry) -> None:
    pod = await a_running_pod(registry)
    await objects.delete(registry, PODS, "default", "p", Demand())
    commit, sets = registry.store.commit, []

    async def labelled_between(writes: Any) -> list[int]:
        sets.append("".join(each.change for each in writes))
        revisions = await commit(writes)
        if len(sets) == 1:
            registry.store.commit = commit
            await objects.edit(registry, PODS, "default", "p", lambda old: named(old, labels={"a": "b"}))
            registry.store.commit = labelled_between
        return revisions

    registry.store.commit = labelled_between
    outcome = await tell(registry, pod, phase="Failed", gone=True)
    registry.store.commit = commit

    assert (outcome.code, sets) == (200, ["M", "D", "D"])
    assert await get(registry, PODS, "p") is None


async def test_gone_it_still_waits_for_its_finalizers(registry: Registry) -> None:
    pod = await a_running_pod(registry, finalizers=("example.com/hold",))
    await objects.delete(registry, PODS, "default", "p", Demand())

    await tell(registry, pod, phase="Failed", gone=True)
    assert (await get(registry, PODS, "p")).metadata.deletion_grace_period_seconds == 0

    await objects.edit(registry, PODS, "default", "p", lambda old: named(old, finalizers=()))
    assert await get(registry, PODS, "p") is None


async def test_a_pod_that_nobody_deleted_is_not_gone(registry: Registry) -> None:
    pod = await a_running_pod(registry)

    await tell(registry, pod, phase="Running", gone=True)

    assert await phase(registry) == "Running"


async def test_many_are_stored_in_one_go_each_for_itself(registry: Registry) -> None:
    pods = [await a_running_pod(registry, f"p{number}") for number in range(5)]
    await objects.delete(registry, PODS, "default", "p2", Demand(grace_seconds=0))
    other = await create(registry, PODS, a_pod("other", node_name="n2"))

    outcomes = await accept(registry, PODS, [report(each, phase="Succeeded") for each in (*pods, other)], mine)

    assert [each.code for each in outcomes] == [200, 200, 404, 200, 200, 403]
    assert [each.uid for each in outcomes] == [each.metadata.uid for each in (*pods, other)]
    revisions = [int((await get(registry, PODS, f"p{n}")).metadata.resource_version) for n in (0, 1, 3, 4)]
    assert revisions == list(range(revisions[0], revisions[0] + 4))


async def test_several_about_one_pod_leave_the_last(registry: Registry) -> None:
    pod = await a_running_pod(registry)
    said = [report(pod, phase="Running", message=str(number)) for number in range(3)]

    outcomes = await accept(registry, PODS, said, mine)

    assert {each.code for each in outcomes} == {200}
    assert (await get(registry, PODS, "p")).status.message == "2"


async def test_a_report_that_is_overtaken_is_tried_again(registry: Registry) -> None:
    pod = await a_running_pod(registry)

    def label(old: Any) -> Any:
        return named(old, labels={"n": str(int(old.metadata.labels.get("n", 0)) + 1)}, resource_version="")

    meddling = [objects.edit(registry, PODS, "default", "p", label) for _ in range(3)]
    outcome, *_ = await asyncio.gather(tell(registry, pod, phase="Succeeded"), *meddling)

    assert outcome.code == 200
    assert await phase(registry) == "Succeeded"
    assert (await get(registry, PODS, "p")).metadata.labels == {"n": "3"}


async def test_one_that_is_overtaken_every_time_is_to_be_said_again(registry: Registry) -> None:
    pod = await a_running_pod(registry)
    commit = registry.store.commit

    async def overtaken(writes: Any) -> list[int]:
        raise Conflict([writes[0].key], await registry.store.revision())

    registry.store.commit = overtaken
    outcome = await tell(registry, pod, phase="Succeeded")
    registry.store.commit = commit

    assert outcome.code == 409
    assert await phase(registry) == "Running"


class TestEvents:
    @staticmethod
    def told(pod: Pod, *, seconds: int = 0, **event: Any) -> StatusReport:
        usual = {"reason": "Started", "message": "Started container main", "path": "spec.containers{main}"}
        when = BEGIN + timedelta(seconds=seconds)
        return replace(report(pod, phase="Running"), events=(EventReport(**(usual | {"when": when} | event)),))

    @staticmethod
    async def events(registry: Registry) -> list[Event]:
        found = await registry.store.list(Query(kind=EVENTS.resource))
        return [decode(EVENTS, head) for head in found.heads]

    async def test_are_about_the_pod_and_from_its_node(self, registry: Registry) -> None:
        pod = await a_running_pod(registry)
        await accept(registry, PODS, [self.told(pod)], mine)
        (event,) = await self.events(registry)
        about = event.involved_object

        assert (about.kind, about.name, about.uid) == ("Pod", "p", pod.metadata.uid)
        assert about.field_path == "spec.containers{main}"
        assert (event.source.component, event.source.host, event.count) == ("kubelet", "n1", 1)
        assert event.reporting_component == "kubelet"

    async def test_are_counted_if_they_happen_again(self, registry: Registry) -> None:
        pod = await a_running_pod(registry)
        await accept(registry, PODS, [self.told(pod)], mine)
        await accept(registry, PODS, [self.told(pod, seconds=5, count=2, known=True)], mine)
        (event,) = await self.events(registry)

        assert event.count == 3
        assert event.last_timestamp - event.first_timestamp == timedelta(seconds=5)

    async def test_are_known_even_to_an_agent_that_has_forgotten(self, registry: Registry) -> None:
        pod = await a_running_pod(registry)
        await accept(registry, PODS, [self.told(pod)], mine)
        (outcome,) = await accept(registry, PODS, [self.told(pod, seconds=5)], mine)
        (event,) = await self.events(registry)

        assert (outcome.code, event.count) == (200, 2)

    async def test_are_told_once_however_often_they_are_sent(self, registry: Registry) -> None:
        pod = await a_running_pod(registry)
        for _ in range(2):
            (outcome,) = await accept(registry, PODS, [self.told(pod)], mine)
            assert outcome.code == 200
        (event,) = await self.events(registry)

        assert event.count == 1

    async def test_of_anybody_elses_pods_are_refused(self, registry: Registry) -> None:
        pod = await create(registry, PODS, a_pod("p", node_name="n2"))
        (outcome,) = await accept(registry, PODS, [self.told(pod)], mine)

        assert outcome.code == 403
        assert await self.events(registry) == []

    async def test_are_left_out_where_the_namespace_is_going(self, registry: Registry) -> None:
        await create(registry, NAMESPACES, named(example(NAMESPACES), name="going"))
        pod = await create(registry, PODS, named(a_pod("p", node_name="n1"), namespace="going"))
        await objects.delete(registry, NAMESPACES, "", "going", Demand())
        (outcome,) = await accept(registry, PODS, [replace(self.told(pod), namespace="going")], mine)

        assert outcome.code == 200
        assert (await get(registry, PODS, "p", "going")).status.phase == "Running"
        assert await self.events(registry) == []

    async def test_of_a_controllers_pods_is_stored_once_whatever_nodes_tell_it(self, registry: Registry) -> None:
        owner = OwnerReference(api_version="batch/v1", kind="Job", name="pi", uid="j-1", controller=True)
        pods = [await a_running_pod(registry, name, owner_references=(owner,)) for name in ("p", "q", "r")]
        told = [self.told(each, reason="ImageNotUsed", message="m", path="", owner="j-1") for each in pods]
        first = await accept(registry, PODS, told[:1], mine)
        revision = await registry.store.revision()
        others = await accept(registry, PODS, told[1:], mine)

        (event,) = await self.events(registry)
        assert [each.code for each in (*first, *others)] == [200, 200, 200]
        assert (event.involved_object.name, event.count) == ("p", 1)
        assert await registry.store.revision() == revision

    async def test_of_a_controller_that_is_not_the_pods_are_the_pods_own(self, registry: Registry) -> None:
        pods = [await a_running_pod(registry, name) for name in ("p", "q")]
        await accept(registry, PODS, [self.told(each, owner="j-1") for each in pods], mine)

        assert sorted(each.involved_object.name for each in await self.events(registry)) == ["p", "q"]


PEAKS = "jobplane.dev/peak-memory"


async def tell_peaks(registry: Registry, pod: Pod, phase: str, *, gone: bool = False, **peaks: int) -> StatusOutcome:
    said = replace(report(pod, phase=phase, gone=gone), peak_memory=peaks)
    (outcome,) = await accept(registry, PODS, [said], mine)
    return outcome


async def test_the_peaks_of_a_pod_come_with_its_end(registry: Registry) -> None:
    """In the same write: whoever sees the end sees them."""
    pod = await a_running_pod(registry, annotations={"a": "b"})
    before = await registry.store.revision()

    await tell_peaks(registry, pod, "Succeeded", main=5 << 20)

    changes = await registry.store.history_of("pods", before, await registry.store.revision())
    assert [(each.change, decode(PODS, each).status.phase) for each in changes] == [("M", "Succeeded")]
    assert decode(PODS, changes[0]).metadata.annotations == {"a": "b", PEAKS: '{"main":5242880}'}


async def test_a_pod_that_goes_with_its_end_shows_its_peaks_before(registry: Registry) -> None:
    pod = await a_running_pod(registry)
    await objects.delete(registry, PODS, "default", "p", Demand(grace_seconds=30))
    before = await registry.store.revision()

    await tell_peaks(registry, pod, "Failed", gone=True, main=7)

    changes = await registry.store.history_of("pods", before, await registry.store.revision())
    assert [(each.change, decode(PODS, each).metadata.annotations) for each in changes] == [
        ("M", {PEAKS: '{"main":7}'}),
        ("D", {PEAKS: '{"main":7}'}),
    ]


@pytest.mark.parametrize(
    ("phase", "peaks"),
    [
        pytest.param("Running", {"main": 5}, id="while it runs"),
        pytest.param("Failed", {"another": 5}, id="of a container that it has not"),
        pytest.param("Failed", {"main": 0}, id="of nothing"),
        pytest.param("Failed", {"main": -1}, id="below nothing"),
        pytest.param("Failed", {}, id="unknown"),
    ],
)
async def test_no_peaks(registry: Registry, phase: str, peaks: dict[str, int]) -> None:
    pod = await a_running_pod(registry)

    assert (await tell_peaks(registry, pod, phase, **peaks)).code == 200

    assert (await get(registry, PODS, "p")).metadata.annotations == {}


async def test_peaks_of_a_pod_that_has_ended_stay(registry: Registry) -> None:
    pod = await a_running_pod(registry)
    await tell_peaks(registry, pod, "Failed", main=5)

    await tell_peaks(registry, pod, "Failed", main=9)

    assert (await get(registry, PODS, "p")).metadata.annotations == {PEAKS: '{"main":5}'}


async def test_an_agent_says_nothing_of_others_pods(registry: Registry) -> None:
    pod = await create(registry, PODS, a_pod(node_name="n2"))

    assert (await tell_peaks(registry, pod, "Failed", main=5)).code == 403

    assert (await get(registry, PODS, "p")).metadata.annotations == {}
