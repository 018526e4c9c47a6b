"""Gang preemption: pods are evicted for all pods of a gang or for none; PodGroups that are disrupted whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.node import Node
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget
from app.kinds.pod.container import ContainerPort
from app.kinds.pod.pod import Pod, PodSchedulingGroup
from app.kinds.scheduling.podgroup import PodGroup
from app.scheduler import Cluster, PodInfos
from app.scheduler.eviction_units import DisruptionBudgets
from app.scheduler.gang_preemption import gang_priority
from app.scheduler.gang_scheduling import GangScheduler, PodGroups
from app.scheduler.preemption import LowestPriorities
from app.scheduler.scheduling_round import MAX_GANG_PODS, PreemptionEvaluator, RoundResult, schedule_round
from tests.scheduler.cluster import a_cluster, a_node, apart, near, term
from tests.scheduler.gangs import a_group, members, the_group
from tests.scheduler.test_preemption import a_budget, pod_of, terminating, with_nomination


def a_member(name: str, group: str = "g", priority: int = 10, cpu: str = "4", **more: Any) -> Pod:
    spec = {"scheduling_group": PodSchedulingGroup(pod_group_name=group)} | more.pop("spec", {})
    return pod_of(priority, name, cpu, spec=spec, **more)


def two(cpu: str = "4", **more: Any) -> list[Pod]:
    return [a_member(f"g{number}", cpu=cpu, **more) for number in range(2)]


def a_round(
    waiting: Sequence[Pod],
    cluster: Cluster,
    groups: Sequence[PodGroup],
    budgets: Sequence[PodDisruptionBudget] = (),
) -> RoundResult:
    known, infos = PodGroups(), PodInfos()
    for group in groups:
        known.set(("default", group.metadata.name), group)
    for each in cluster.pods.values():
        known.update_pod(None, each.pod, None)
    pending = [(pod, infos.get(pod)) for pod in waiting]
    for one in pending:
        known.update_pod(None, one[0], one)
    nominated = [each for each in pending if each[0].status.nominated_node_name]
    evaluator = PreemptionEvaluator(cluster, LowestPriorities(cluster), DisruptionBudgets(budgets), known)
    return schedule_round(pending, nominated, cluster, evaluator, GangScheduler(known))


def describe(result: RoundResult) -> str:
    """`g0 to n1; g1 for n1, g2 for n2; a, b go; p: <why not>`"""
    parts = [f"{pod.metadata.name} to {node}" for pod, node in result.bound]
    nominated = [each for each in result.post_filter_results if each.nominated_node]
    if waiting := [f"{each.pod.metadata.name} for {each.nominated_node}" for each in nominated]:
        parts.append(", ".join(waiting))
    if gone := sorted(victim.metadata.name for each in result.post_filter_results for victim in each.victims):
        parts.append(f"{', '.join(gone)} go")
    whys = {each.message.partition(" preemption: ")[2] for each in result.post_filter_results} - {""}
    return "; ".join([*parts, *sorted(whys)]) or "nobody goes"


@dataclass
class Case:
    """4 CPUs on each node; by default a gang of two pods that fill one each."""

    there: Mapping[str, Sequence[Pod]]
    expected: str
    waiting: Sequence[Pod] = field(default_factory=two)
    groups: Sequence[PodGroup] = (a_group(least=2),)
    budgets: Sequence[PodDisruptionBudget] = ()
    nodes: Sequence[Node] = ()


def low(name: str, cpu: str = "4", priority: int = 1, **more: Any) -> Pod:
    return pod_of(priority, name, cpu, **more)


def of_other(name: str, cpu: str = "4", priority: int = 1, **more: Any) -> Pod:
    """Of another group, which is running."""
    return a_member(name, "other", priority, cpu, **more)


IN_VAIN = "no place for enough pods of the group if those of lower priority went."
CASES = {
    "for each of its pods": Case({"n1": [low("a")], "n2": [low("b")]}, "g0 for n1, g1 for n2; a, b go"),
    "for none if that is not enough": Case({"n1": [low("a")], "n2": [pod_of(10, "b", "4")]}, IN_VAIN),
    "for nobody of its own priority": Case({"n1": [pod_of(10, "a", "4")], "n2": [pod_of(10, "b", "4")]}, "nobody goes"),
    "only where there is no room as it is": Case(
        {"n1": [low("a")], "n2": [], "n3": [low("c")]}, "g0 for n2, g1 for n1; a go"
    ),
    "the least important": Case(
        {"n1": [low("a", priority=3)], "n2": [low("b", priority=1)], "n3": [low("c", priority=2)]},
        "g0 for n2, g1 for n3; b, c go",
    ),
    "as few as possible": Case(
        {"n1": [low("a", "2"), low("b", "2")], "n2": [low("c")], "n3": [low("d")]}, "g0 for n2, g1 for n3; c, d go"
    ),
    "as many on a node as have room there": Case(
        {"n1": [low("a", "2"), low("b", "1"), low("c", "1")], "n2": [pod_of(10, "d", "4")]},
        "g0 for n1, g1 for n1; b, c go",
        waiting=two("1"),
    ),
    "nobody who could stay in the end": Case(
        {"n1": [low("small", "1"), low("big", "3", priority=2)]},
        "g0 for n1, g1 for n1; big go",
        waiting=[a_member("g0", cpu="1"), a_member("g1", cpu="2")],
    ),
    "nor if they mind who is near": Case(
        {"n1": [low("small", "1"), low("big", "3", priority=2)]},
        "g0 for n1, g1 for n1; big go",
        waiting=[a_member(f"g{n}", cpu=str(n + 1), spec=apart(term(app="x"))) for n in range(2)],
    ),
    "elsewhere if what is free leads nowhere": Case(
        {"n1": [pod_of(10, "a", "2")], "n2": [low("b")], "n3": [low("c")], "n4": [low("d")]},
        "g0 for n2, g1 for n3; b, c go",
        waiting=two("2", labels={"app": "g"}, spec=near(term("rack", app="g"))),
        nodes=[a_node(f"n{n}", {"rack": "a" if n < 2 else "b"}) for n in range(1, 5)],
    ),
    "not for more pods than it needs": Case(
        {"n1": [low("a")], "n2": [low("b")], "n3": [low("c")]},
        "g0 for n1, g1 for n2; a, b go",
        waiting=[*two(), a_member("g2")],
    ),
    "rather those that their budgets let go": Case(
        {"n1": [low("kept", labels={"app": "x"})], "n2": [low("b", priority=5)], "n3": [low("c", priority=6)]},
        "g0 for n2, g1 for n3; b, c go",
        budgets=[a_budget(0, app="x")],
    ),
    "of a budget as many as it allows": Case(
        {f"n{n}": [low(name, labels={"app": "x"})] for n, name in enumerate("ab")} | {"n3": [low("c", priority=5)]},
        "g0 for n0, g1 for n3; a, c go",
        budgets=[a_budget(1, app="x")],
    ),
    "in spite of a budget if nothing else helps": Case(
        {"n1": [low("a", labels={"app": "x"})], "n2": [low("b", labels={"app": "x"})]},
        "g0 for n1, g1 for n2; a, b go",
        budgets=[a_budget(0, app="x")],
    ),
    "nobody if one of them never preempts": Case(
        {"n1": [low("a")], "n2": [low("b")]},
        "not eligible due to preemptionPolicy=Never.",
        waiting=[a_member("g0"), a_member("g1", spec={"preemption_policy": "Never"})],
    ),
    "no more than for its least important pod": Case(
        {"n1": [low("a", priority=5)], "n2": [low("b", priority=1)]},
        IN_VAIN,
        waiting=[a_member("g0", priority=10), a_member("g1", priority=3)],
    ),
    "for the less important pods, too": Case(
        {"n1": [low("a")], "n2": [low("b")]},
        "g0 for n1, g1 for n2; a, b go",
        waiting=[a_member("g0", priority=10), a_member("g1", priority=3)],
    ),
    "nobody instead of those who go anyway": Case(
        {"n1": [terminating(low("a"))], "n2": [low("b")], "n3": [low("c")]}, "g0 for n1, g1 for n2; b go"
    ),
    "only what fits in one place": Case(
        {"n1": [low("a")], "n2": [pod_of(10, "b", "4")], "n3": [low("c", priority=5)], "n4": [low("d", priority=5)]},
        "g0 for n3, g1 for n4; c, d go",
        groups=[a_group(least=2, topology="rack")],
        nodes=[a_node(f"n{n}", {"rack": "a" if n < 3 else "b"}) for n in range(1, 5)],
    ),
    "the cheaper place of two": Case(
        {"n1": [low("a")], "n2": [low("b", priority=5)], "n3": [low("c", priority=4)], "n4": [low("d", priority=4)]},
        "g0 for n3, g1 for n4; c, d go",
        groups=[a_group(least=2, topology="rack")],
        nodes=[a_node(f"n{n}", {"rack": "a" if n < 3 else "b"}) for n in range(1, 5)],
    ),
    "each on a host of its own": Case(
        {"n1": [low("a", "2"), low("b", "2")], "n2": [low("c")]},
        "g0 for n1, g1 for n2; b, c go",
        waiting=two("2", labels={"app": "g"}, spec=apart(term(app="g"))),
    ),
    "all near each other": Case(
        {"n1": [pod_of(10, "a", "4")], "n2": [low("b", priority=2)], "n3": [low("c", priority=3)]},
        "g0 for n2, g1 for n3; b, c go",
        waiting=two(labels={"app": "g"}, spec=near(term("rack", app="g"))),
        nodes=[a_node("n1", {"rack": "a"}), a_node("n2", {"rack": "b"}), a_node("n3", {"rack": "b"})],
    ),
    "who has the port": Case(
        {
            "n1": [low("a", "1", ports=[ContainerPort(container_port=80, host_port=80)]), low("x", "1")],
            "n2": [low("b", "1", ports=[ContainerPort(container_port=80, host_port=80)]), low("y", "1")],
        },
        "g0 for n1, g1 for n2; a, b go",
        waiting=two("1", ports=[ContainerPort(container_port=80, host_port=80)]),
    ),
    "members of another gang one by one": Case(
        {"n1": [of_other("a")], "n2": [of_other("b")], "n3": [of_other("c")]},
        "g0 for n1, g1 for n2; a, b go",
        groups=[a_group(least=2), a_group("other", 3, scheduled="True")],
    ),
    "all of another gang if it goes as a whole": Case(
        {"n1": [of_other("a")], "n2": [of_other("b")], "n3": [of_other("c")]},
        "g0 for n1, g1 for n2; a, b, c go",
        groups=[a_group(least=2), a_group("other", 3, scheduled="True", mode="all")],
    ),
    "rather others than all of a gang": Case(
        {"n1": [of_other("a")], "n2": [of_other("b")], "n3": [low("c")], "n4": [low("d")]},
        "g0 for n3, g1 for n4; c, d go",
        groups=[a_group(least=2), a_group("other", 2, scheduled="True", mode="all")],
    ),
    "nobody of a gang that goes as a whole and has a more important member": Case(
        {"n1": [of_other("a")], "n2": [of_other("b", priority=20)], "n3": [low("c")]},
        IN_VAIN,
        groups=[a_group(least=2), a_group("other", 2, scheduled="True", mode="all")],
    ),
    "rather a pod than a member of a gang": Case(
        {"n1": [of_other("a", "2"), low("p", "2")], "n2": [of_other("b", "2"), low("q", "2")]},
        "g0 for n1, g1 for n2; p, q go",
        waiting=two("2"),
        groups=[a_group(least=2), a_group("other", 2, scheduled="True")],
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_for_a_gang_there_go(case: Case) -> None:
    cluster = a_cluster(case.nodes or [a_node(name) for name in case.there], case.there)
    before = set(cluster.pods)

    assert describe(a_round(case.waiting, cluster, case.groups, case.budgets)) == case.expected
    assert set(cluster.pods) == before


# While they go


def waits_for(pods: Sequence[Pod], *nodes: str) -> list[Pod]:
    return [with_nomination(pod, node) for pod, node in zip(pods, nodes, strict=True)]


def test_while_they_go_it_waits_and_nobody_else_has_to() -> None:
    there = {"n1": [terminating(low("a"))], "n2": [terminating(low("b"))], "n3": [low("c", priority=-5)]}
    result = a_round(waits_for(two(), "n1", "n2"), a_cluster(map(a_node, there), there), [a_group(least=2)])

    why = "not eligible due to terminating pods on the nominated nodes."
    assert describe(result) == f"g0 for n1, g1 for n2; {why}"


def test_once_they_are_gone_it_goes_where_its_room_is() -> None:
    nodes = [a_node("n1"), a_node("n2"), a_node("n3", cpu="64")]
    result = a_round(waits_for(two(), "n1", "n2"), a_cluster(nodes), [a_group(least=2)])

    assert describe(result) == "g0 to n1; g1 to n2"


def test_while_one_of_them_still_goes_none_is_bound() -> None:
    there = {"n1": [terminating(low("a"))]}
    cluster = a_cluster([a_node("n1"), a_node("n2")], there)
    result = a_round(waits_for(two(), "n1", "n2"), cluster, [a_group(least=2)])

    assert not result.bound
    assert set(cluster.pods) == {"uid-of-default-a"}


@pytest.mark.parametrize(
    ("other", "has_it"),
    [
        pytest.param(pod_of(9, "p", "4"), False, id="against the less important"),
        pytest.param(pod_of(10, "p", "4"), False, id="against equals"),
        pytest.param(pod_of(11, "p", "4"), True, id="not against the more important"),
    ],
)
def test_room_is_held_for_all_of_it(other: Pod, has_it: bool) -> None:
    cluster = a_cluster([a_node("n1"), a_node("n2")], {"n1": [terminating(low("a"))]})
    result = a_round([other, *waits_for(two(), "n1", "n2")], cluster, [a_group(least=2)])

    assert [(pod.metadata.name, node) for pod, node in result.bound] == [("p", "n2")] * has_it


def test_what_others_took_meanwhile_it_looks_for_anew() -> None:
    there = {"n1": [terminating(low("a"))], "n2": [pod_of(20, "urgent", "4")], "n3": [low("c")]}
    result = a_round(waits_for(two(), "n1", "n2"), a_cluster(map(a_node, there), there), [a_group(least=2)])

    assert describe(result) == "g0 for n1, g1 for n3; c go"


def test_it_is_kept_no_room_any_more_if_it_can_have_none() -> None:
    there = {"n1": [terminating(low("a"))], "n2": [pod_of(20, "urgent", "4")]}
    result = a_round(waits_for(two(), "n1", "n2"), a_cluster(map(a_node, there), there), [a_group(least=2)])

    assert describe(result) == IN_VAIN


def test_two_gangs_have_different_pods_go() -> None:
    there = {f"n{n}": [low(name)] for n, name in enumerate("abcd")}
    waiting = [*two(), *(a_member(f"h{number}", "h") for number in range(2))]
    groups = [a_group(least=2), a_group("h", 2)]
    result = a_round(waiting, a_cluster(map(a_node, there), there), groups)

    assert describe(result) == "g0 for n0, g1 for n1, h0 for n2, h1 for n3; a, b, c, d go"


def test_what_is_cleared_for_its_last_pod_is_not_given_to_who_comes_before_that() -> None:
    there = {f"n{n}": [low(name)] for n, name in enumerate("ab")}
    first, second = two()
    result = a_round([first, pod_of(10, "p", "4"), second], a_cluster(map(a_node, there), there), [a_group(least=2)])

    assert describe(result).startswith("g0 for n0, g1 for n1; a, b go")


def test_a_round_has_an_end_and_the_next_goes_on_with_other_gangs() -> None:
    large = [a_member(f"g{n}", cpu="1") for n in range(MAX_GANG_PODS)]
    nodes = [a_node(cpu=str(MAX_GANG_PODS), pods="999"), a_node("n2")]
    there = {"n1": [low("a", str(MAX_GANG_PODS))], "n2": [low("b")]}
    groups = [a_group(least=MAX_GANG_PODS), a_group("h", 1)]
    result = a_round([*large, a_member("h0", "h")], a_cluster(nodes, there), groups)

    assert len(result.post_filter_results) == MAX_GANG_PODS
    assert [victim.metadata.name for each in result.post_filter_results for victim in each.victims] == ["a"]


def test_nobody_goes_for_a_gang_that_is_not_complete() -> None:
    result = a_round(two(), a_cluster([a_node("n1")], {"n1": [low("a")]}), [a_group(least=3)])

    assert describe(result) == "nobody goes"


def test_a_pod_by_itself_has_all_of_a_gang_go_that_goes_as_a_whole() -> None:
    there = {"n1": [of_other("a")], "n2": [of_other("b", "2"), low("c", "2", priority=3)]}
    cluster = a_cluster(map(a_node, there), there)
    result = a_round([pod_of(10, "p", "4"), pod_of(10, "q", "2")], cluster, [a_group("other", 2, mode="all")])

    assert describe(result) == "p for n1, q for n2; a, b go"


@pytest.mark.parametrize(
    ("own", "counts"),
    [
        pytest.param(None, 10, id="without a priority of its own"),
        pytest.param(5, 5, id="that is less important"),
        pytest.param(50, 10, id="that is more important"),
    ],
)
def test_the_priority_of_a_gang_is_the_lowest_of_all(own: int | None, counts: int) -> None:
    group = a_group(least=2)
    group = replace(group, spec=replace(group.spec, priority=own))

    pods = [*members(1, spec={"priority": 20}), *members(1, start=1, spec={"priority": 10})]

    assert gang_priority(the_group(group, pods)) == counts
