"""Gang preemption on random clusters: compared with an exhaustive search, and as part of random events."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as some

from app.kinds.pod.pod import Pod, PodSchedulingGroup
from app.kinds.pod.pod_resources import requests
from app.scheduler.eviction_units import priority_of
from tests.scheduler.cluster import a_cluster, a_node
from tests.scheduler.gangs import a_group
from tests.scheduler.queues import SimulatedScheduler
from tests.scheduler.test_gang_preemption import a_member, a_round
from tests.scheduler.test_preemption import a_budget, pod_of

CPUS = 4
There = dict[str, list[Pod]]


def cpus(pod: Pod) -> int:
    return requests(pod)["cpu"] // 1000


def fit(sizes: Sequence[int], left: Sequence[int]) -> bool:
    """By trying all assignments."""
    if not sizes:
        return True
    return any(
        fit(sizes[1:], [*left[:n], free - sizes[0], *left[n + 1 :]]) for n, free in enumerate(left) if free >= sizes[0]
    )


def without(there: There, gone: Iterable[Pod]) -> list[int]:
    """What is left on each node."""
    names = {pod.metadata.name for pod in gone}
    return [CPUS - sum(cpus(pod) for pod in pods if pod.metadata.name not in names) for pods in there.values()]


@some.composite
def clusters(draw: some.DrawFn) -> There:
    there: There = {}
    for number in range(draw(some.integers(1, 3))):
        ones = draw(some.lists(some.tuples(some.integers(0, 3), some.integers(1, 4)), max_size=3))
        node_info, there[f"n{number}"] = CPUS, []
        for priority, cpu in ones:
            if cpu <= node_info:
                node_info -= cpu
                name = f"a{number}{len(there[f'n{number}'])}"
                there[f"n{number}"].append(pod_of(priority, name, str(cpu), labels={"app": "xy"[cpu % 2]}))
    return there


def alike(count: int, cpu: int) -> list[Pod]:
    return [a_member(f"g{number}", priority=2, cpu=str(cpu)) for number in range(count)]


ALIKE = some.builds(alike, some.integers(1, 4), some.integers(1, 4))
MIXED = some.lists(some.integers(1, 4), min_size=1, max_size=4).map(
    lambda sizes: [a_member(f"g{number}", priority=2, cpu=str(cpu)) for number, cpu in enumerate(sizes)]
)


def decided(there: There, gang: list[Pod], allowed: int) -> tuple[dict[str, str], list[Pod]]:
    """Returns the nodes of a gang and its victims, after checks that hold for every result."""
    cluster = a_cluster([a_node(name, cpu=str(CPUS)) for name in there], there)
    before = set(cluster.pods)
    result = a_round(gang, cluster, [a_group(least=len(gang))], [a_budget(allowed, app="x")])

    bound = {pod.metadata.name: node for pod, node in result.bound}
    kept = {each.pod.metadata.name: each.nominated_node for each in result.post_filter_results if each.nominated_node}
    gone = [victim for each in result.post_filter_results for victim in each.victims]
    assert len(bound) in (0, len(gang))
    assert len(kept) in (0, len(gang))
    assert set(cluster.pods) == before | {pod.metadata.uid for pod, _ in result.bound}
    assert not gone or kept
    assert len({pod.metadata.uid for pod in gone}) == len(gone)
    assert all(priority_of(pod) < 2 for pod in gone)
    return bound or kept, gone


@settings(max_examples=500, deadline=None)
@given(there=clusters(), gang=some.one_of(MIXED, ALIKE), allowed=some.integers(0, 2))
def test_all_of_it_fits_then_and_nobody_goes_who_could_stay(there: There, gang: list[Pod], allowed: int) -> None:
    nodes, gone = decided(there, gang, allowed)

    def is_over(among: Sequence[Pod]) -> bool:
        left = dict(zip(there, without(there, among), strict=True))
        for pod in gang if nodes else ():
            left[nodes[pod.metadata.name]] -= cpus(pod)
        return min(left.values()) < 0

    assert not is_over(gone)
    for one in gone:
        assert is_over([pod for pod in gone if pod is not one])


def subsets(pods: Sequence[Pod]) -> Iterator[tuple[Pod, ...]]:
    return chain.from_iterable(combinations(pods, count) for count in range(len(pods) + 1))


@settings(max_examples=150, deadline=None)
@given(there=clusters(), gang=ALIKE)
def test_room_is_made_for_alike_pods_if_and_only_if_it_can_be_and_by_the_lowest(there: There, gang: list[Pod]) -> None:
    lower = [pod for pods in there.values() for pod in pods if priority_of(pod) < 2]
    sizes = [cpus(pod) for pod in gang]
    ways = [gone for gone in subsets(lower) if fit(sizes, without(there, gone))]
    nodes, gone = decided(there, gang, allowed=9)

    assert bool(nodes) == bool(ways)
    if ways:
        assert max(map(priority_of, gone), default=-1) == min(max(map(priority_of, way), default=-1) for way in ways)


@settings(max_examples=150, deadline=None)
@given(there=clusters(), gang=MIXED)
def test_for_pods_that_differ_nobody_goes_if_all_that_may_would_not_be_enough(there: There, gang: list[Pod]) -> None:
    lower = [pod for pods in there.values() for pod in pods if priority_of(pod) < 2]
    nodes, _ = decided(there, gang, allowed=9)

    assert not nodes or fit([cpus(pod) for pod in gang], without(there, lower))


# One thing after the other

PRIORITY = some.integers(0, 3)
STEPS = some.lists(
    some.one_of(
        some.tuples(some.just("pod"), PRIORITY, some.integers(1, 4), some.booleans()),
        some.tuples(some.just("gang"), PRIORITY, some.integers(1, 4), some.booleans()),
        some.tuples(some.just("ends"), some.integers(0, 9), some.just(0), some.booleans()),
        some.tuples(some.just("turn"), some.just(0), some.just(0), some.booleans()),
    ),
    max_size=25,
)


class World(SimulatedScheduler):
    """A scheduler whose victims terminate at random times."""

    def __init__(self) -> None:
        super().__init__([a_node(f"n{number}", cpu="4") for number in range(3)])
        self.budgets = [a_budget(0, app="kept")]
        self.least: dict[str, int] = {}

    def apply_step(self, number: int, what: str, one: int, two: int, flag: bool) -> None:
        if what == "pod":
            self.add_pod("default", f"p{number}", {"priority": one}, cpu=str(two))
        elif what == "gang":
            name = f"g{number}"
            self.least[name] = two
            self.group(a_group(name, two, mode="all" if flag else None))
            spec = {"priority": one, "scheduling_group": PodSchedulingGroup(pod_group_name=name)}
            self.add_pods("default", two, f"{name}-", spec=spec, cpu="2")
        elif what == "ends":
            names = sorted(
                self.terminating if flag else (each.pod.metadata.name for each in self.cluster.pods.values())
            )
            if names:
                self.end_pods("default", names[one % len(names)])
        else:
            self.turn()

    def turn(self) -> int:
        """How many came to nodes."""
        waiting = {name: group for name in self.least if (group := self.groups._groups.get(("default", name)))}
        new = {name: not group.bound for name, group in waiting.items()}
        running = {name: set(group.bound) for name, group in waiting.items()}
        terminating = set(self.terminating)
        names = self.run_round()
        for name, begins in new.items():
            count = sum(each.startswith(f"{name}-") for each in names)
            assert not (begins and count) or count >= self.least[name], name
        for name in set(self.terminating) - terminating:
            group = self.groups._groups.get(("default", name.partition("-")[0]))
            if group is not None and group.disrupts_whole:
                assert not group.bound, running
        self.check_no_node_is_overcommitted()
        return len(names)

    def check_no_node_is_overcommitted(self) -> None:
        for name in self.cluster.node_infos:
            assert sum(cpus(each.pod) for each in self.cluster.pods.values() if each.node == name) <= 4
        assert all(each.pod.spec.node_name for each in self.cluster.pods.values())

    def run_until_idle(self) -> None:
        """Those who go end, and nothing else happens."""
        for _ in range(80):
            for name in list(self.terminating):
                self.end_pods("default", name)
            self.now += timedelta(seconds=20)  # no back-off
            if not self.turn() and not self.terminating and not self.queue.has_more:
                return
        raise AssertionError("it does not come to rest")


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_whoever_had_others_go_has_their_places_in_the_end(steps: list[tuple[str, int, int, bool]]) -> None:
    """Never a part of a gang, never too much on a node, of a gang that goes as a whole never a part; and it comes to rest."""
    world = World()
    for number, step in enumerate(steps):
        world.apply_step(number, *step)
    world.run_until_idle()

    assert not world.queue.nominated_pods()
    waiting = [pod for (pod, _), _, _ in world.queue._pods.values()]
    lowest = min((priority_of(each.pod) for each in world.cluster.pods.values()), default=9)
    alone = [pod for pod in waiting if pod.spec.scheduling_group is None and cpus(pod) == 1]
    assert all(priority_of(pod) <= lowest for pod in alone)
