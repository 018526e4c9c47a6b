"""Fair sharing, on random events: no request is starved, no quota exceeded, no earlier request overtaken, and
all borrowed quota returns to its owner.
"""

from collections import Counter
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.cluster import a_node
from tests.scheduler.queues import SimulatedScheduler, a_queue

SPACES = ("a", "b", "c")
QUOTAS = st.fixed_dictionaries({space: st.integers(0, 4) for space in SPACES})
LIMITS = st.fixed_dictionaries({space: st.none() | st.integers(0, 2) for space in SPACES})
STEPS = st.lists(
    st.tuples(st.sampled_from(("comes", "comes", "ends", "turn")), st.sampled_from(SPACES), st.integers(1, 3)),
    min_size=1,
    max_size=40,
)


def a_town(quotas: dict[str, int], limits: dict[str, int | None], reclaims: bool, **node: str) -> SimulatedScheduler:
    queues = {
        space: a_queue(
            quota={"cpu": str(quotas[space])},
            borrows={} if limits[space] is None else {"cpu": str(limits[space])},
            reclaims=reclaims,
        )
        for space in SPACES
    }
    return SimulatedScheduler([a_node(**({"cpu": "100", "pods": "500"} | node))], **queues)


def ends_one(scheduler: SimulatedScheduler, space: str, number: int) -> None:
    there = sorted(
        each.pod.metadata.name for each in scheduler.cluster.pods.values() if each.pod.metadata.namespace == space
    )
    if there:
        scheduler.end_pods(space, there[number % len(there)])


def apply_step(scheduler: SimulatedScheduler, steps: list[tuple[str, str, int]]) -> None:
    for number, (what, space, count) in enumerate(steps):
        if what == "comes":
            scheduler.add_pod(space, f"{space}{number:03}", cpu=str(count))
        elif what == "ends":
            ends_one(scheduler, space, count)
        else:
            scheduler.run_round()


@settings(max_examples=150, deadline=None)
@given(QUOTAS, LIMITS, STEPS, st.booleans())
def test_no_namespace_is_over_its_quota_and_what_it_may_borrow(
    quotas: dict[str, int], limits: dict[str, int | None], steps: list[tuple[str, str, int]], reclaims: bool
) -> None:
    scheduler = a_town(quotas, limits, reclaims)
    for step in (*steps, ("turn", "a", 1)):
        apply_step(scheduler, [(step[0], step[1], step[2])] if step[0] != "comes" else [])
        if step[0] == "comes":
            scheduler.add_pod(
                step[1],
                f"{step[1]}{scheduler.now.timestamp()}-{len(scheduler.queue)}-{scheduler._born}",
                cpu=str(step[2]),
            )
        for space in SPACES:
            limit = limits[space]
            assert limit is None or scheduler.used(space) <= quotas[space] + limit
        assert sum(map(scheduler.used, SPACES)) <= sum(quotas.values())


@settings(max_examples=100, deadline=None)
@given(QUOTAS, LIMITS, STEPS)
def test_in_a_namespace_whoever_asks_for_the_same_keeps_the_order(
    quotas: dict[str, int], limits: dict[str, int | None], steps: list[tuple[str, str, int]]
) -> None:
    """Also if some request less than earlier ones. A request that can never be admitted is passed over."""
    scheduler = a_town(quotas, limits, reclaims=False)
    started: dict[str, list[str]] = {space: [] for space in SPACES}
    for number, (what, space, count) in enumerate(steps):
        if what == "comes":
            scheduler.add_pod(space, f"{space}{number:03}", cpu=str(count))
        elif what == "ends":
            ends_one(scheduler, space, count)
        for name in scheduler.run_round():
            started[name[0]].append(name)
    assert all(names == sorted(names) for names in started.values())


@settings(max_examples=100, deadline=None)
@given(QUOTAS, STEPS)
def test_borrowed_quota_comes_back_to_who_reclaims_it(
    quotas: dict[str, int], steps: list[tuple[str, str, int]]
) -> None:
    """A namespace runs its nominal quota in the end, whatever others do; evicted pods are created again at once, as a Job's."""
    scheduler = a_town(quotas, dict.fromkeys(SPACES), reclaims=True)
    apply_step(scheduler, [step for step in steps if step[1] != "a"])
    scheduler.add_pods("a", 6, "own")
    again = 0
    for _ in range(40):
        scheduler.run_round()
        for name in list(scheduler.terminating):
            space = scheduler.terminating[name].metadata.namespace
            cpu = str(scheduler.terminating[name].spec.containers[0].resources.requests["cpu"])
            scheduler.end_pods(space, name)
            again += 1
            scheduler.add_pod(space, f"{space}again{again}", cpu=cpu)

    assert scheduler.used("a") >= min(6, quotas["a"])


@settings(max_examples=60, deadline=None)
@given(QUOTAS, STEPS, st.booleans())
def test_when_pods_end_everybody_who_can_ever_run_does(
    quotas: dict[str, int], steps: list[tuple[str, str, int]], reclaims: bool
) -> None:
    scheduler = a_town(quotas, dict.fromkeys(SPACES), reclaims, cpu="5")
    apply_step(scheduler, [step for step in steps if step[0] != "ends"])
    for _ in range(60):
        scheduler.run_round()
        for each in list(scheduler.cluster.pods.values())[:2]:
            scheduler.end_pods(each.pod.metadata.namespace, each.pod.metadata.name)

    pool = min(5, sum(quotas.values()))
    left = [pod for (pod, _), _, _ in scheduler.queue._pods.values()]
    assert all(int(str(pod.spec.containers[0].resources.requests["cpu"])) > pool for pod in left)


# Nobody starves. Places become free one at a time, in any order, and others ask for more without end.

WEIGHTS = st.fixed_dictionaries({space: st.integers(1, 4) for space in SPACES})
ENDINGS = st.lists(st.integers(0, 99), min_size=60, max_size=60)
PRIORITIES = st.fixed_dictionaries({space: st.integers(0, 3) for space in SPACES[1:]})


class Rush:
    """Namespaces b and c always have more pending pods than fit, older than those of a."""

    def __init__(self, scheduler: SimulatedScheduler, priorities: dict[str, int] | None = None, **needs: str) -> None:
        self.scheduler = scheduler
        self._priorities = priorities or {}
        self._count = 0
        self._lived: Counter[str] = Counter()  # so many endings, by UID
        for _ in range(12):
            self.more()
        scheduler.run_round()

    def more(self) -> None:
        for space in SPACES[1:]:
            self._count += 1
            self.scheduler.add_pod(
                space, f"{space}{self._count:04}", {"priority": self._priorities.get(space, 0)}, cpu="1"
            )

    def goes_on(self, ending: int) -> None:
        """A pod ends, whichever, unless one has run long enough; one of each namespace that asks for more joins the line."""
        if there := sorted(self.scheduler.cluster.pods):
            self._lived.update(there)
            oldest = max(there, key=lambda uid: self._lived[uid])
            uid = oldest if self._lived[oldest] > 2 * len(there) else there[ending % len(there)]
            gone = self.scheduler.cluster.pods[uid].pod.metadata
            self.scheduler.end_pods(gone.namespace, gone.name)
        self.more()
        self.scheduler.run_round()


@settings(max_examples=40, deadline=None)
@given(WEIGHTS, st.integers(3, 8), st.integers(1, 5), ENDINGS)
def test_among_equals_each_gets_its_share_of_what_becomes_free_whoever_asked_before(
    weights: dict[str, int], places: int, pods: int, endings: list[int]
) -> None:
    """A pod waits for at most as many endings as its namespace needs for the pods before it."""
    queues = {space: a_queue(weight=weight) for space, weight in weights.items()}
    scheduler = SimulatedScheduler([a_node(cpu=str(places), pods="500")], **queues)
    rush = Rush(scheduler)
    own = {pod.metadata.uid for pod in scheduler.add_pods("a", pods, "own")}
    turns_of_all = ceil((pods + 1) * sum(weights.values()) / weights["a"])
    for ending in endings[: 2 * places + turns_of_all + 2]:
        rush.goes_on(ending)

    assert not own & scheduler.queue._pods.keys()


@settings(max_examples=40, deadline=None)
@given(WEIGHTS, st.integers(6, 12), ENDINGS)
def test_in_the_long_run_shares_follow_weights_in_whatever_order_pods_end(
    weights: dict[str, int], places: int, endings: list[int]
) -> None:
    queues = {space: a_queue(weight=weight) for space, weight in weights.items()}
    scheduler = SimulatedScheduler([a_node(cpu=str(places), pods="500")], **queues)
    rush = Rush(scheduler)
    scheduler.add_pods("a", 80, "own")
    for ending in endings[: 5 * places]:
        rush.goes_on(ending)

    for space, weight in weights.items():
        assert scheduler.running()[space] >= int(places * weight / sum(weights.values())) - 1


@settings(max_examples=40, deadline=None)
@given(QUOTAS, PRIORITIES, st.booleans(), ENDINGS)
def test_what_is_a_namespaces_by_quota_it_gets_whatever_priority_others_have(
    quotas: dict[str, int], priorities: dict[str, int], reclaims: bool, endings: list[int]
) -> None:
    """If nominal quotas add up to at most what is allocatable: others may borrow, but not keep it, nor preempt the owner."""
    total = sum(quotas.values())
    scheduler = a_town(quotas, dict.fromkeys(SPACES), reclaims, cpu=str(total + 1))
    rush = Rush(scheduler, priorities)
    assert sum(scheduler.running().values()) == total
    scheduler.add_pods("a", 30, "own")
    scheduler.run_round()
    for ending in endings[: 5 * total] if total else ():
        assert reclaims or not scheduler.terminating
        assert all(each.metadata.namespace != "a" for each in scheduler.terminating.values())
        for name in list(scheduler.terminating):
            scheduler.end_pods(scheduler.terminating[name].metadata.namespace, name)
        if quotas["a"] <= scheduler.used("a"):
            break
        rush.goes_on(ending)

    assert scheduler.used("a") >= quotas["a"]
