"""Scheduling queue: the order of pods; pods that are not tried again until an event may help; back-off."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.scheduler import Cluster, PlacementResult, PodInfos
from app.scheduler.gang_scheduling import GangScheduler, PodGroups
from app.scheduler.scheduling_queue import HEAD_BUCKETS, SchedulingQueue
from tests.scheduler.cluster import a_cluster, a_node, a_pod, many, near, term
from tests.scheduler.gangs import a_group, members

NOW = datetime(2026, 11, 1, tzinfo=UTC)


class SimulatedQueue:
    """A queue on a cluster, and a clock."""

    def __init__(self, *nodes: Node) -> None:
        self.cluster: Cluster = a_cluster(nodes)
        self.groups = PodGroups()
        self.queue = SchedulingQueue(self.cluster, self.groups)
        self.infos = PodInfos()
        self.now = NOW

    def put(self, *pods: Pod) -> None:
        for pod in pods:
            pending = pod, self.infos.get(pod)
            self.queue.requeue(self.groups.update_pod(pod, pod, pending) if pod.spec.scheduling_group else [])
            self.queue.add(*pending)

    def turn(self, most: int = 100) -> list[str]:
        """The names of those that were looked at; who finds a place is on its node afterwards."""
        pending = self.queue.pop(self.now, most)
        outcome: PlacementResult = GangScheduler(self.groups)(pending, self.cluster)
        bound = [pod for pod, _ in outcome.bound]
        self.queue.record_outcome(bound, [pod for pod, _ in outcome.unbound], self.now)
        for pod in bound:
            self.queue.remove(pod.metadata.uid)
        return [pod.metadata.name for pod, _ in pending]

    def frees(self, pod: Pod) -> None:
        placed = self.cluster.unplace(pod.metadata.uid)
        assert placed is not None
        self.queue.note_capacity_freed(placed.node)

    def later(self, **span: float) -> None:
        self.now += timedelta(**span)


def born(pod: Pod, seconds: int) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, creation_timestamp=NOW + timedelta(seconds=seconds)))


def test_the_more_important_come_first_then_the_older() -> None:
    harness = SimulatedQueue()
    pods: list[tuple[str, int, int]] = [("young", 0, 9), ("old", 0, 1), ("great", 5, 9), ("twin", 0, 9)]
    harness.put(*(born(a_pod(name, {"priority": priority}), age) for name, priority, age in pods))

    assert harness.turn() == ["great", "old", "twin", "young"]


def test_without_an_event_nobody_is_looked_at_twice() -> None:
    harness = SimulatedQueue(a_node(cpu="1"))
    harness.put(*many(3, cpu="2"))

    assert harness.turn() == ["p0", "p1", "p2"]
    harness.later(minutes=4)
    assert harness.turn() == []


def test_after_five_minutes_all_are_looked_at() -> None:
    harness = SimulatedQueue(a_node(cpu="1"))
    harness.put(*many(3, cpu="2"))
    harness.turn()
    assert harness.queue.next_pop_at(harness.now) == NOW + timedelta(minutes=5)

    harness.later(minutes=5)

    assert harness.turn() == ["p0", "p1", "p2"]


def test_of_many_alike_only_as_many_are_looked_at_as_may_fit_and_one_more() -> None:
    harness = SimulatedQueue(a_node(cpu="2"))
    there = many(2, "there", cpu="1")
    harness.put(*there)
    harness.turn()
    harness.put(*many(50, cpu="1"))
    assert len(harness.turn()) == 50

    harness.frees(there[0])

    assert harness.turn() == ["p0", "p1"]
    assert harness.turn() == []


def test_a_turn_takes_so_many_and_says_that_there_are_more() -> None:
    harness = SimulatedQueue()
    harness.put(*many(5))

    assert harness.turn(2) == ["p0", "p1"]
    assert harness.queue.next_pop_at(harness.now) == harness.now
    assert harness.turn(2) == ["p2", "p3"]
    assert harness.turn(2) == ["p4"]
    assert not harness.queue.has_more


def test_who_was_looked_at_in_vain_is_not_forgotten_when_a_node_comes_for_more_than_a_turn_takes() -> None:
    harness = SimulatedQueue()
    harness.put(*many(9, cpu="1"))
    assert len(harness.turn()) == 9
    harness.cluster.set_node(a_node(cpu="9"))
    harness.queue.note_capacity_freed("n1")

    assert [len(harness.turn(most=4)) for _ in range(4)] == [4, 4, 1, 0]


def test_whose_turn_did_not_come_is_not_forgotten() -> None:
    """A pop that took only some of the pods that an event may help."""
    harness = SimulatedQueue(a_node(cpu="2"))
    there = many(1, "there", cpu="2")
    harness.put(*there)
    harness.turn()
    harness.put(*(born(a_pod(f"p{number}", cpu="1", memory=f"{number + 1}Mi"), number) for number in range(2)))
    harness.turn()

    harness.frees(there[0])

    assert harness.turn(1) == ["p0"]
    assert harness.turn(1) == ["p1"]


def test_who_wants_to_be_near_others_is_looked_at_when_any_come() -> None:
    harness = SimulatedQueue(a_node())
    harness.put(a_pod("p", near(term(app="db"))), *many(1, "large", cpu="50"))
    harness.turn()

    harness.queue.note_pod_assigned()

    assert harness.turn() == ["p"]


def test_an_assumed_pod_is_tried_again_only_when_its_binding_is_refused() -> None:
    harness = SimulatedQueue(a_node())
    harness.put(*many(3))
    assume(harness, 2)
    assert [pod.metadata.name for pod, _ in harness.queue.pop(harness.now, 9)] == ["p2"]

    harness.queue.restore(["uid-of-default-p0", "uid-of-default-p1", "uid-of-default-p2", "unknown"])

    assert harness.turn() == ["p0", "p1", "p2"]


def assume(harness: SimulatedQueue, most: int) -> None:
    """Their bindings are on the way."""
    pods = [pod for pod, _ in harness.queue.pop(harness.now, most)]
    harness.queue.record_outcome(pods, [], harness.now)


def test_an_assumed_pod_that_changes_is_not_tried_before_its_binding_is_refused() -> None:
    """It would be placed a second time, and what it has on the first node given to others."""
    harness = SimulatedQueue(a_node())
    harness.put(a_pod("p"))
    assume(harness, 1)
    harness.put(a_pod("p", cpu="2"))
    assert harness.turn() == []

    harness.queue.restore(["uid-of-default-p"])

    assert harness.turn() == ["p"]


def test_of_an_assumed_pod_nothing_is_left_when_it_is_gone() -> None:
    harness = SimulatedQueue(a_node())
    harness.put(*many(2))
    assume(harness, 1)

    for uid in ("uid-of-default-p1", "uid-of-default-p0"):
        harness.queue.remove(uid)

    assert (len(harness.queue), harness.queue.bucket_count) == (0, 0)


def test_an_assumed_pod_needs_its_nominated_node_no_more() -> None:
    harness = SimulatedQueue(a_node())
    pod = a_pod("p")
    harness.put(replace(pod, status=replace(pod.status, nominated_node_name="n1")))
    assume(harness, 1)
    assert harness.queue.nominated_pods() == []

    harness.queue.restore([pod.metadata.uid])

    assert len(harness.queue.nominated_pods()) == 1


def test_a_pod_with_room_of_its_own_is_looked_at_wherever_it_is_in_line() -> None:
    harness = SimulatedQueue(a_node(cpu="1"))
    harness.put(*many(9, cpu="2"))
    harness.turn()
    last = many(9, cpu="2")[8]
    harness.queue.update(replace(last, status=replace(last.status, nominated_node_name="n1")))
    assert [pod.metadata.name for pod, _ in harness.queue.nominated_pods()] == ["p8"]

    harness.queue.note_capacity_freed("n1")

    assert harness.turn() == ["p0", "p8"]


def test_each_look_in_vain_makes_the_next_wait_longer() -> None:
    harness = SimulatedQueue(a_node(cpu="1"))
    harness.put(a_pod("p", cpu="2"))
    harness.turn()
    waits = []
    for _ in range(6):
        harness.queue.note_capacity_freed("n1")
        assert harness.turn() == ["p"]
        harness.queue.note_capacity_freed("n1")
        assert harness.turn() == []
        waits.append((harness.queue.next_pop_at(harness.now) or harness.now) - harness.now)
        harness.now += waits[-1]

    assert [wait.total_seconds() for wait in waits] == [1, 2, 4, 8, 10, 10]


def test_who_is_next_and_would_fit_waits_for_no_back_off() -> None:
    harness = SimulatedQueue(a_node(cpu="2"))
    there = many(2, "there", cpu="1")
    harness.put(*there)
    harness.turn()
    harness.put(
        *(born(a_pod(f"p{number:03}", cpu="2", memory=f"{number + 1}Mi"), number) for number in range(HEAD_BUCKETS + 9))
    )
    harness.turn()
    harness.frees(there[0])
    assert len(harness.turn()) == HEAD_BUCKETS + 9
    assert harness.turn() == []

    harness.frees(there[1])

    assert harness.turn() == [f"p{number:03}" for number in range(HEAD_BUCKETS)]


def a_gang_of(count: int, **more: Any) -> list[Pod]:
    return [born(pod, 0) for pod in members(count, **more)]


def test_a_gang_is_looked_at_as_a_whole() -> None:
    harness = SimulatedQueue(a_node())
    harness.queue.requeue(harness.groups.set(("default", "g"), a_group(least=3)))
    harness.put(*a_gang_of(3), born(a_pod("p"), 5))
    harness.later(seconds=1)

    assert harness.turn(2) == ["g-000", "g-001", "g-002"]
    assert harness.turn(2) == ["p"]


def test_a_gang_waits_while_bindings_of_it_are_on_the_way() -> None:
    """It would be placed again as a whole: it does not know yet which of its pods are on nodes."""
    harness = SimulatedQueue(a_node())
    harness.queue.requeue(harness.groups.set(("default", "g"), a_group(least=2)))
    harness.put(*a_gang_of(2))
    harness.later(seconds=1)
    assume(harness, 9)
    harness.put(*a_gang_of(1, start=2))
    assert harness.turn() == []

    harness.queue.restore(["uid-of-default-g-000", "uid-of-default-g-001"])

    assert harness.turn() == ["g-000", "g-001", "g-002"]


def test_a_gang_that_is_still_being_made_is_not_looked_at_for_a_moment() -> None:
    harness = SimulatedQueue(a_node())
    harness.groups.set(("default", "g"), a_group(least=3))
    harness.put(*a_gang_of(2))

    assert harness.turn() == []
    assert harness.queue.next_pop_at(harness.now) == NOW + timedelta(seconds=2)
    harness.later(seconds=2)
    assert harness.turn() == ["g-000", "g-001"]
    harness.put(*a_gang_of(1, start=2))
    assert harness.turn() == ["g-000", "g-001", "g-002"]


def test_pods_wait_for_their_group() -> None:
    harness = SimulatedQueue(a_node())
    harness.put(*a_gang_of(2))
    harness.later(seconds=2)
    harness.turn()
    assert harness.turn() == []

    harness.queue.requeue(harness.groups.set(("default", "g"), a_group(least=2)))

    assert harness.turn() == ["g-000", "g-001"]
    assert len(harness.cluster.pods) == 2
