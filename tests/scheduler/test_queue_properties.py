"""Scheduling queue on random events: no pod waits that would fit, no gang is placed in part, no node is overcommitted."""

from collections import Counter
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as some

from app.kinds.pod.pod import Pod
from app.scheduler.gang_scheduling import GangScheduler, schedule_gang
from tests.scheduler.cluster import a_node, a_pod, apart, near, term
from tests.scheduler.gangs import a_group, members, on_a_node
from tests.scheduler.test_scheduling_queue import SimulatedQueue, born

Step = tuple[str, int, int, str]
SPECS = [{}, {"priority": 5}, near(term(app="a")), apart(term(app="b"))]
LONER = some.tuples(some.just("loner"), some.integers(1, 4), some.integers(0, 3), some.sampled_from(["a", "b", "c"]))
GANG = some.tuples(some.just("gang"), some.integers(1, 5), some.integers(0, 1), some.just(""))
ENDS = some.tuples(some.just("end_pods"), some.integers(0, 9), some.just(0), some.just(""))
NODE = some.tuples(some.just("node"), some.integers(1, 6), some.just(0), some.just(""))
TURN = some.tuples(some.just("turn"), some.integers(1, 9), some.integers(0, 4), some.just(""))
# A round whose bindings are on their way while other things happen; and what has come of such bindings.
ROUND = some.tuples(some.just("round"), some.integers(1, 5), some.just(0), some.just(""))
OUTCOME = some.tuples(some.just("outcome"), some.integers(0, 3), some.just(0), some.just(""))
# Mostly what comes of something is seen before the next happens: only those who were looked at in vain have to be woken.
HAPPENING = some.one_of(LONER, GANG, ENDS, NODE, TURN).flatmap(
    lambda step: some.sampled_from([(step, True), (step, False)])
)
# Rounds one after the other, mostly, as when many pods wait.
IN_FLIGHT = some.one_of(LONER, GANG, ENDS, NODE, ROUND, ROUND, ROUND, OUTCOME)


class World(SimulatedQueue):
    """A queue, and what the controller does between rounds."""

    def __init__(self) -> None:
        super().__init__(a_node("n0", cpu="4"))
        self.count = 0
        self.least: dict[str, int] = {}
        self.on_their_way: dict[str, tuple[Pod, str]] = {}  # bindings, by the pod's UID

    def loner(self, cpu: int, sort: int, app: str) -> None:
        self.put(born(a_pod(f"p{self.count}", SPECS[sort], {"app": app}, cpu=str(cpu)), self.count))

    def gang(self, size: int, spare: int, _: str) -> None:
        name = f"g{self.count}"
        self.least[name] = size
        self.queue.requeue(self.groups.set(("default", name), a_group(name, size)))
        self.put(*members(size + spare, name))

    def end_pods(self, which: int, _: int, __: str) -> None:
        there = sorted(self.cluster.pods.keys() - self.on_their_way.keys())
        if there:
            pod = self.cluster.pods[there[which % len(there)]].pod
            self.frees(pod)
            if pod.spec.scheduling_group is not None:
                self.queue.requeue(self.groups.update_pod(pod, on_a_node(pod, phase="Succeeded"), None))

    def node(self, cpu: int, _: int, __: str) -> None:
        self.cluster.set_node(a_node(f"n{self.count % 3}", cpu=str(cpu)))
        self.queue.note_capacity_freed(f"n{self.count % 3}")

    def turn_of(self, most: int, seconds: int) -> None:
        self.later(seconds=seconds)
        before = set(self.cluster.pods)
        self.turn(most)
        new = [each for uid, each in self.cluster.pods.items() if uid not in before]
        for each in new:
            self.queue.note_pod_assigned()
            self.note_bound(each.pod, each.node)
        self.whole(each.pod for each in new)

    def round(self, most: int, _: int, __: str) -> None:
        """Places pods, none of which is placed already."""
        pending = self.queue.pop(self.now, most)
        assert not {pod.metadata.uid for pod, _ in pending} & self.cluster.pods.keys()
        outcome = GangScheduler(self.groups)(pending, self.cluster)
        self.queue.record_outcome([pod for pod, _ in outcome.bound], [pod for pod, _ in outcome.unbound], self.now)
        self.on_their_way |= {pod.metadata.uid: (pod, node) for pod, node in outcome.bound}

    def outcome(self, which: int, _: int, __: str) -> None:
        """Of four write sets one is refused. The pods of a gang are in one."""
        seen: list[Pod] = []
        for at, key in enumerate(
            dict.fromkeys(pod.spec.scheduling_group or uid for uid, (pod, _) in self.on_their_way.items())
        ):
            together = [
                each for uid, each in self.on_their_way.items() if (each[0].spec.scheduling_group or uid) == key
            ]
            for pod, node in together if at % 4 == which else ():
                self.cluster.unplace(pod.metadata.uid)
                self.queue.note_capacity_freed(node)
            for pod, node in together if at % 4 != which else ():
                self.queue.remove(pod.metadata.uid)
                self.queue.note_pod_assigned()
                self.note_bound(pod, node)
                seen.append(pod)
        self.queue.restore(self.on_their_way)
        self.on_their_way.clear()
        self.whole(seen)

    def note_bound(self, pod: Pod, node: str) -> None:
        if pod.spec.scheduling_group is not None:
            self.queue.requeue(self.groups.update_pod(pod, on_a_node(pod, node), None))

    def whole(self, new: Iterable[Pod]) -> None:
        """What this turn placed of a gang was enough, for none of it was placed before."""
        names = [pod.spec.scheduling_group.pod_group_name for pod in new if pod.spec.scheduling_group]
        for name, count in Counter(names).items():
            group = self.groups._groups["default", name]
            assert len(group.bound) + len(group.finished) >= self.least[name], (name, count)
            scheduled = a_group(name, self.least[name], scheduled="True")
            self.queue.requeue(self.groups.set(("default", name), scheduled))

    def run_until_idle(self) -> None:
        """Turns until nothing comes of them any more, with all back-off over."""
        for _ in range(50):
            there = len(self.cluster.pods)
            self.turn_of(100, 20)
            if len(self.cluster.pods) == there and not self.queue.has_more:
                return
        raise AssertionError("it does not come to rest")

    def check_no_pending_pod_fits(self) -> None:
        for (pod, info), _, _ in self.queue._pods.values():
            if self.groups.gang_of(pod) is None:
                assert self.cluster.ranking(pod, info).best_node() is None, pod.metadata.name
        for group in self.groups._groups.values():
            if group.pending and group.schedules_together:
                with self.cluster.trial():
                    assert not schedule_gang(group, self.cluster).bound, group.key


@settings(max_examples=100, deadline=None)
@given(some.lists(HAPPENING, min_size=6, max_size=25))
def test_it_comes_to_rest_and_nobody_waits_who_would_fit(happening: list[tuple[Step, bool]]) -> None:
    world = World()
    for (what, one, two, three), is_seen in happening:
        world.count += 1
        if what == "turn":
            world.turn_of(one, two)
        else:
            getattr(world, what)(one, two, three)
        if is_seen:
            world.turn_of(100, 0)
    world.run_until_idle()

    world.check_no_pending_pod_fits()


@settings(max_examples=100, deadline=None)
@given(some.lists(IN_FLIGHT, min_size=6, max_size=25))
def test_no_pod_is_placed_twice_while_bindings_are_on_their_way_and_refused_ones_find_a_node(
    happening: list[Step],
) -> None:
    world = World()
    for what, one, two, three in happening:
        world.count += 1
        getattr(world, what)(one, two, three)
    world.outcome(-1, 0, "")
    world.run_until_idle()

    world.check_no_pending_pod_fits()
