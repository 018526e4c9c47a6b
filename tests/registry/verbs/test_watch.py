"""Lists and watches: what a watcher sees through its selectors, and that a list and the watch after it miss nothing."""

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.plans.nodes.node_lifecycle import fail_pod
from app.plans.plan import Plan
from app.registry.codec import decode
from app.registry.plan_writer import write_set
from app.registry.verbs import objects
from app.registry.verbs import watch as watch_module
from app.registry.verbs.deletion import Demand
from app.registry.verbs.lists import Scope, list_page
from app.registry.verbs.objects import Registry
from app.registry.verbs.watch import Event, Watch
from app.store import Key, SelectorIndex, Store, open_store
from app.store.compaction import compact
from tests.registry.examples import PODS, a_pod, create, get, named

FOREVER = 300  # seconds

ALL = Scope(kind=CONFIGMAPS)


def a_map(name: str, **labels: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels=labels))


async def relabel(registry: Registry, name: str, **labels: str) -> None:
    await objects.edit(registry, CONFIGMAPS, "default", name, lambda old: named(old, labels=labels))


async def delete(registry: Registry, name: str) -> None:
    await objects.delete(registry, CONFIGMAPS, "default", name, Demand())


def team(wanted: str) -> Scope:
    return Scope(kind=CONFIGMAPS, matches=lambda _, selector_index: selector_index.labels.get("team") == wanted)


async def watch(registry: Registry, scope: Scope = ALL) -> Watch:
    return Watch(registry, scope, await registry.store.revision())


async def seen(watching: Watch, seconds: float = 0.05) -> list[str]:
    """Everything up to now, as `ADDED a`."""
    told: list[str] = []
    while events := await watching.next_events(seconds):
        told += [f"{each.type} {each.object.key.name}" for each in events]
    return told


async def test_a_watch_shows_every_change(registry: Registry) -> None:
    watching = await watch(registry)
    await create(registry, CONFIGMAPS, a_map("a"))
    await relabel(registry, "a", x="y")
    await delete(registry, "a")

    assert await seen(watching) == ["ADDED a", "MODIFIED a", "DELETED a"]


async def test_what_enters_is_added_and_what_leaves_is_deleted(registry: Registry) -> None:
    watching = await watch(registry, team("red"))
    await create(registry, CONFIGMAPS, a_map("a", team="blue"))
    await relabel(registry, "a", team="red")
    await relabel(registry, "a", team="red", more="x")
    await relabel(registry, "a", team="blue")
    await relabel(registry, "a", team="blue", more="x")
    await relabel(registry, "a", team="red")
    await delete(registry, "a")
    await create(registry, CONFIGMAPS, a_map("a", team="blue"))
    await delete(registry, "a")

    told = await seen(watching)
    assert told == ["ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a"]


async def test_selected_by_a_field_a_pod_is_added_when_it_is_bound(registry: Registry) -> None:
    """What an agent's watch rests on."""
    mine = Scope(
        kind=PODS, node="n1", matches=lambda _, selector_index: selector_index.fields.get("spec.nodeName") == "n1"
    )
    watching = await watch(registry, mine)
    await create(registry, PODS, a_pod("p"))
    await create(registry, PODS, a_pod("elsewhere", node_name="n2"))

    def bind(pod: Any) -> Any:
        return replace(pod, spec=replace(pod.spec, node_name="n1"))

    await objects.rewrite(registry, PODS, "default", "p", bind)
    await objects.delete(registry, PODS, "default", "p", Demand(grace_seconds=0))

    assert await seen(watching) == ["ADDED p", "DELETED p"]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        pytest.param(Scope(kind=CONFIGMAPS, namespace="default"), ["ADDED a"], id="one namespace"),
        pytest.param(Scope(kind=CONFIGMAPS), ["ADDED a", "ADDED b"], id="all namespaces"),
        pytest.param(Scope(kind=CONFIGMAPS, namespace="kube-system", name="b"), ["ADDED b"], id="one object"),
        pytest.param(Scope(kind=PODS), [], id="another kind"),
    ],
)
async def test_a_watch_keeps_to_its_scope(registry: Registry, scope: Scope, expected: list[str]) -> None:
    watching = await watch(registry, scope)
    await create(registry, CONFIGMAPS, a_map("a"))
    await create(registry, CONFIGMAPS, named(a_map("b"), namespace="kube-system"))

    assert await seen(watching) == expected


async def test_the_object_of_an_event_is_what_a_get_shows(registry: Registry) -> None:
    watching = await watch(registry)
    await create(registry, CONFIGMAPS, a_map("a"))

    (event,) = await watching.next_events(1)

    assert event == Event("ADDED", event.object)
    assert event.object.wire == (await objects.find(registry, CONFIGMAPS, "default", "a")).wire


async def test_the_last_state_of_what_was_deleted_has_the_revision_of_the_deletion(registry: Registry) -> None:
    there = await create(registry, CONFIGMAPS, a_map("a"))
    watching = await watch(registry)
    await delete(registry, "a")

    (event,) = await watching.next_events(1)

    assert event.object.revision > int(there.metadata.resource_version)
    assert b'"resourceVersion":"%d"' % event.object.revision in event.object.wire


@pytest.mark.parametrize("ring_bytes", [pytest.param(1, id="from history"), pytest.param(32 << 20, id="from memory")])
async def test_what_leaves_is_shown_as_it_was_under_the_revision_of_the_change(
    dsn: str, registry: Registry, ring_bytes: int
) -> None:
    async with open_store(dsn, ring_bytes=ring_bytes) as store:
        await create(registry, CONFIGMAPS, a_map("a", team="red"))
        watching = Watch(dataclasses.replace(registry, store=store), team("red"), await registry.store.revision())
        await relabel(registry, "a", team="blue")
        await store.feed.reach(await registry.store.revision())
        (event,) = await watching.next_events(1)

    assert event.type == "DELETED"
    assert event.object.revision == await registry.store.revision()
    assert b'"labels":{"team":"red"}' in event.object.wire
    assert b'"resourceVersion":"%d"' % event.object.revision in event.object.wire
    assert event.object.selector_index == SelectorIndex({"team": "red"}, event.object.selector_index.fields)


@pytest.mark.parametrize(
    ("phase", "shown"), [pytest.param("", "Failed", id="still selected"), pytest.param("Running", "Running", id="left")]
)
async def test_a_pod_whose_last_write_changed_it_is_shown_in_its_last_state_that_was_selected(
    registry: Registry, phase: str, shown: str
) -> None:
    pod = await create(registry, PODS, a_pod(node_name="n1"))
    running = replace(pod, status=replace(pod.status, phase="Running"))
    await objects.rewrite(registry, PODS, "default", "p", lambda _: running)
    pod = await get(registry, PODS, "p")
    watching = await watch(registry, Scope(kind=PODS, matches=lambda _, m: phase in m.fields["status.phase"]))
    lost = fail_pod(pod, "DeletionByTaintManager", "NodeLost", "its node is lost", registry.now())
    await registry.store.commit(write_set(Plan((lost,)), (), "node-controller", registry.now()))

    (event,) = await watching.next_events(1)

    last = decode(PODS, event.object)
    assert (event.type, last.status.phase) == ("DELETED", shown)
    assert int(last.metadata.resource_version) == await registry.store.revision()


async def test_what_left_so_long_ago_that_nobody_knows_its_last_state_is_shown_as_it_is(registry: Registry) -> None:
    made = await create(registry, CONFIGMAPS, a_map("a", team="red"))
    watching = Watch(registry, team("red"), await registry.store.revision())
    await relabel(registry, "a", team="blue")
    await registry.store.pool.execute("delete from history where revision = $1", int(made.metadata.resource_version))

    (event,) = await watching.next_events(1)

    assert (event.type, b'"team":"blue"' in event.object.wire) == ("DELETED", True)


async def test_what_many_look_back_at_is_read_once(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    await create(registry, CONFIGMAPS, a_map("a", team="red"))
    several = [Watch(registry, team("red"), await registry.store.revision()) for _ in range(5)]
    await relabel(registry, "a", team="blue")
    reader, asked = registry.store.reader, []
    read = reader.versions

    async def counted(revisions: Any) -> Any:
        asked.append(revisions)
        return await read(revisions)

    monkeypatch.setattr(reader, "versions", counted)
    events = await asyncio.gather(*(each.next_events(1) for each in several))

    assert len(asked) == 1
    assert len({event.object.wire for (event,) in events}) == 1


@pytest.mark.parametrize("ring_bytes", [pytest.param(1, id="from history"), pytest.param(32 << 20, id="from memory")])
async def test_an_old_revision_is_replayed(dsn: str, registry: Registry, ring_bytes: int) -> None:
    async with open_store(dsn, ring_bytes=ring_bytes) as store:
        watching = Watch(dataclasses.replace(registry, store=store), team("red"), await store.revision())
        for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
            await create(registry, CONFIGMAPS, a_map(name, team=colour))
        await relabel(registry, "a", team="blue")
        await store.feed.reach(await store.revision())

        assert await seen(watching) == ["ADDED a", "ADDED c", "DELETED a"]
        await create(registry, CONFIGMAPS, a_map("d", team="red"))
        await store.feed.reach(await store.revision())
        assert await seen(watching) == ["ADDED d"]


async def test_a_revision_that_only_another_process_has_seen_is_waited_for(dsn: str, registry: Registry) -> None:
    async with open_store(dsn) as behind:
        await create(registry, CONFIGMAPS, a_map("before"))
        watching = Watch(
            dataclasses.replace(registry, store=behind), Scope(kind=CONFIGMAPS), await registry.store.revision()
        )
        await behind.feed.reach(await registry.store.revision())
        await create(registry, CONFIGMAPS, a_map("after"))
        await behind.feed.reach(await registry.store.revision())

        assert await seen(watching) == ["ADDED after"]


async def test_a_long_history_is_replayed_a_part_at_a_time(
    dsn: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "REPLAYED", 2)
    async with open_store(dsn, ring_bytes=1) as store:
        watching = Watch(dataclasses.replace(registry, store=store), ALL, await store.revision())
        for name in "abcde":
            await create(registry, CONFIGMAPS, a_map(name))
        await store.feed.reach(await store.revision())

        parts = [[event.object.key.name for event in await watching.next_events(0)] for _ in range(4)]

    assert parts == [["a", "b"], ["c", "d"], ["e"], []]


def end_waits(store: Store) -> None:
    """As when the time of those who wait is over."""
    for waiter in {each for waiters in store.feed._waiters.values() for each in waiters}:
        store.feed._time_out(waiter)


@pytest.mark.parametrize("comes", [pytest.param(True, id="until a change"), pytest.param(False, id="to its end")])
async def test_who_waits_does_not_read_what_happened_elsewhere(
    dsn: str, registry: Registry, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    async with open_store(dsn, ring_bytes=5_000) as store:
        watching = Watch(
            dataclasses.replace(registry, store=store), Scope(kind=PODS, node="n1"), await store.revision()
        )
        waiting = asyncio.ensure_future(watching.next_events(FOREVER))
        for number in range(20):  # more than the ring holds
            await create(registry, PODS, a_pod(f"p{number}", node_name="n2"))
        await store.feed.reach(await registry.store.revision())
        monkeypatch.setattr(store, "history_of", None)
        if comes:
            await create(registry, PODS, a_pod("mine", node_name="n1"))
        else:
            end_waits(store)

        assert [event.object.key.name for event in await waiting] == (["mine"] if comes else [])
        assert store.feed.after(PODS.resource, 1) is None
        assert watching.revision == store.feed.cursor


async def test_a_watch_that_waits_while_the_feed_loses_touch_is_told_that_it_is_too_late(registry: Registry) -> None:
    watching = await watch(registry)
    waiting = asyncio.ensure_future(watching.next_events(FOREVER))
    await asyncio.sleep(0)
    await create(registry, PODS, a_pod("p"))
    await compact(registry.store.pool, timedelta(0))
    registry.store.feed.start_at(await registry.store.revision())
    end_waits(registry.store)

    with pytest.raises(ApiError) as caught:
        await waiting
    assert caught.value.code == 410


async def test_a_quiet_watch_returns_with_nothing_and_moves_on(registry: Registry) -> None:
    watching = await watch(registry)
    await create(registry, PODS, a_pod())

    assert await watching.next_events(0.01) == []
    assert watching.revision == await registry.store.revision()


# Lists.


async def names(registry: Registry, scope: Scope, limit: int | None) -> tuple[list[str], int]:
    """Page by page; the revision is that of the first."""
    after: tuple[str, str] | None = None
    found: list[str] = []
    first = 0
    while True:
        page = await list_page(registry, scope, after, limit)
        first = first or page.revision
        found += [head.key.name for head in page.heads]
        assert limit is None or len(page.heads) <= limit
        if not page.more:
            return found, first
        after = (page.heads[-1].key.namespace, page.heads[-1].key.name)


@pytest.mark.parametrize("limit", [None, 1, 2, 3, 7, 100])
async def test_pages_together_are_the_list(registry: Registry, limit: int | None) -> None:
    for number in range(7):
        await create(registry, CONFIGMAPS, a_map(f"m{number}", team="red" if number % 3 == 0 else "blue"))

    assert (await names(registry, Scope(kind=CONFIGMAPS), limit))[0] == [f"m{number}" for number in range(7)]
    assert (await names(registry, team("red"), limit))[0] == ["m0", "m3", "m6"]


async def test_a_page_says_how_many_are_left(registry: Registry) -> None:
    for number in range(5):
        await create(registry, CONFIGMAPS, a_map(f"m{number}"))

    page = await list_page(registry, Scope(kind=CONFIGMAPS), None, 2)

    assert (len(page.heads), page.more, page.remaining) == (2, True, 3)


async def test_names_sort_by_their_bytes_within_namespaces(registry: Registry) -> None:
    for namespace, name in (("kube-system", "a"), ("default", "b-1"), ("default", "b.0"), ("default", "b0")):
        await create(registry, CONFIGMAPS, named(a_map(name), namespace=namespace))

    assert (await names(registry, Scope(kind=CONFIGMAPS), 1))[0] == ["b-1", "b.0", "b0", "a"]


@pytest.mark.parametrize(
    "scope", [pytest.param(Scope(kind=CONFIGMAPS), id="all"), pytest.param(team("red"), id="some")]
)
async def test_pages_and_the_watch_after_them_lose_nothing_while_all_changes(registry: Registry, scope: Scope) -> None:
    """The list need not be a cut; with the watch from its revision it becomes what there is."""
    for number in range(30):
        await create(registry, CONFIGMAPS, a_map(f"m{number:02}", team="red"))

    async def meddle() -> None:
        for number in range(30):
            match number % 3:
                case 0:
                    await delete(registry, f"m{29 - number:02}")
                case 1:
                    await create(registry, CONFIGMAPS, a_map(f"new{number}", team="red"))
                case _:
                    await relabel(registry, f"m{29 - number:02}", team="blue")

    meddling = asyncio.ensure_future(meddle())
    found, revision = await names(registry, scope, 3)
    await meddling
    watching = Watch(registry, scope, revision)
    known = set(found)
    for told in await seen(watching):
        what, name = told.split()
        known = known - {name} if what == "DELETED" else known | {name}

    assert known == set((await names(registry, scope, None))[0])


async def test_a_list_and_its_revision_are_one_cut(registry: Registry) -> None:
    """Unlimited lists are from one statement: every change after the revision is news, none before it is missing."""

    async def make() -> None:
        for number in range(40):
            await create(registry, CONFIGMAPS, a_map(f"m{number:02}"))

    making = asyncio.ensure_future(make())
    while not making.done():
        page = await list_page(registry, Scope(kind=CONFIGMAPS), None, None)
        newest = max((head.revision for head in page.heads), default=0)
        assert newest <= page.revision
        made_by_then = await registry.store.pool.fetchval(
            "select count(*) from history where kind = 'configmaps' and revision <= $1", page.revision
        )
        assert len(page.heads) == made_by_then
    await making


def test_a_scope_asks_for_what_an_index_can_give() -> None:
    scope = Scope(kind=PODS, namespace="default", node="n1", matches=lambda *_: False)

    assert scope.query(("default", "a"), 5).node == "n1"
    assert not scope.selects(Key("pods", "default", "p"), SelectorIndex())
    assert not Scope(kind=PODS, namespace="other").selects(Key("pods", "default", "p"), SelectorIndex())


async def test_what_was_never_there_is_not_found(registry: Registry) -> None:
    assert await get(registry, CONFIGMAPS, "nobody") is None
