"""Quotas and lines of namespaces, on whatever happens: nobody over their quota, nobody overtaken, everything lent comes back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans.scheduling.cluster import a_node
from tests.plans.scheduling.queues import Town, a_queue

SPACES = ("a", "b", "c")
QUOTAS = st.fixed_dictionaries({space: st.integers(0, 4) for space in SPACES})
LIMITS = st.fixed_dictionaries({space: st.none() | st.integers(0, 2) for space in SPACES})
STEPS = st.lists(
    st.tuples(st.sampled_from(("comes", "comes", "ends", "turn")), st.sampled_from(SPACES), st.integers(1, 3)),
    min_size=1,
    max_size=40,
)


def a_town(quotas: dict[str, int], limits: dict[str, int | None], reclaims: bool, **node: str) -> Town:
    queues = {
        space: a_queue(
            quota={"cpu": str(quotas[space])},
            borrows={} if limits[space] is None else {"cpu": str(limits[space])},
            reclaims=reclaims,
        )
        for space in SPACES
    }
    return Town([a_node(**({"cpu": "100", "pods": "500"} | node))], **queues)


def ends_one(town: Town, space: str, number: int) -> None:
    there = sorted(
        each.pod.metadata.name for each in town.cluster.placed.values() if each.pod.metadata.namespace == space
    )
    if there:
        town.ends(space, there[number % len(there)])


def happens(town: Town, steps: list[tuple[str, str, int]]) -> None:
    for number, (what, space, count) in enumerate(steps):
        if what == "comes":
            town.comes(space, f"{space}{number:03}", cpu=str(count))
        elif what == "ends":
            ends_one(town, space, count)
        else:
            town.turns()


@settings(max_examples=150, deadline=None)
@given(QUOTAS, LIMITS, STEPS, st.booleans())
def test_no_namespace_is_over_its_quota_and_what_it_may_borrow(
    quotas: dict[str, int], limits: dict[str, int | None], steps: list[tuple[str, str, int]], reclaims: bool
) -> None:
    town = a_town(quotas, limits, reclaims)
    for step in (*steps, ("turn", "a", 1)):
        happens(town, [(step[0], step[1], step[2])] if step[0] != "comes" else [])
        if step[0] == "comes":
            town.comes(step[1], f"{step[1]}{town.now.timestamp()}-{len(town.queue)}-{town._born}", cpu=str(step[2]))
        for space in SPACES:
            limit = limits[space]
            assert limit is None or town.used(space) <= quotas[space] + limit
        assert sum(map(town.used, SPACES)) <= sum(quotas.values())


@settings(max_examples=100, deadline=None)
@given(QUOTAS, LIMITS, STEPS)
def test_in_a_namespace_whoever_asks_for_the_same_keeps_the_order(
    quotas: dict[str, int], limits: dict[str, int | None], steps: list[tuple[str, str, int]]
) -> None:
    """Also if some ask for less than those before them. What can never run is passed by."""
    town = a_town(quotas, limits, reclaims=False)
    started: dict[str, list[str]] = {space: [] for space in SPACES}
    for number, (what, space, count) in enumerate(steps):
        if what == "comes":
            town.comes(space, f"{space}{number:03}", cpu=str(count))
        elif what == "ends":
            ends_one(town, space, count)
        for name in town.turns():
            started[name[0]].append(name)
    assert all(names == sorted(names) for names in started.values())


@settings(max_examples=100, deadline=None)
@given(QUOTAS, STEPS)
def test_borrowed_quota_comes_back_to_who_reclaims_it(
    quotas: dict[str, int], steps: list[tuple[str, str, int]]
) -> None:
    """As much as is theirs runs in the end, whatever others do; and the evicted come again at once, as a Job's pods do."""
    town = a_town(quotas, dict.fromkeys(SPACES), reclaims=True)
    happens(town, [step for step in steps if step[1] != "a"])
    town.many("a", 6, "own")
    again = 0
    for _ in range(40):
        town.turns()
        for name in list(town.going):
            space = town.going[name].metadata.namespace
            cpu = str(town.going[name].spec.containers[0].resources.requests["cpu"])
            town.ends(space, name)
            again += 1
            town.comes(space, f"{space}again{again}", cpu=cpu)

    assert town.used("a") >= min(6, quotas["a"])


@settings(max_examples=60, deadline=None)
@given(QUOTAS, STEPS, st.booleans())
def test_when_pods_end_everybody_who_can_ever_run_does(
    quotas: dict[str, int], steps: list[tuple[str, str, int]], reclaims: bool
) -> None:
    town = a_town(quotas, dict.fromkeys(SPACES), reclaims, cpu="5")
    happens(town, [step for step in steps if step[0] != "ends"])
    for _ in range(60):
        town.turns()
        for each in list(town.cluster.placed.values())[:2]:
            town.ends(each.pod.metadata.namespace, each.pod.metadata.name)

    pool = min(5, sum(quotas.values()))
    left = [pod for (pod, _), _, _ in town.queue._pods.values()]
    assert all(int(str(pod.spec.containers[0].resources.requests["cpu"])) > pool for pod in left)
