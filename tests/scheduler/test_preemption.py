"""Preemption: victims and nodes for a pod that fits nowhere, and its message if there are none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.core.node import Node, Taint
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from app.kinds.pod.container import ContainerPort
from app.kinds.pod.pod import Pod
from app.machinery.base import LabelSelector, ObjectMeta
from app.scheduler import Cluster, PodInfos
from app.scheduler.eviction_units import DisruptionBudgets, EvictionUnits
from app.scheduler.fit_hints import without_hint
from app.scheduler.gang_scheduling import PodGroups
from app.scheduler.preemption import LowestPriorities, PreemptionContext, select_victims_on_node
from app.scheduler.scheduling_round import MAX_PREEMPTIONS, PreemptionEvaluator, RoundResult, schedule_round
from tests.scheduler.cluster import a_cluster, a_node, a_pod, apart, even, near, spread, term

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def pod_of(priority: int, name: str, cpu: str = "1", ran: int | None = None, **more: Any) -> Pod:
    """A pod of this priority, which has run for so many minutes."""
    spec = {"priority": priority} | more.pop("spec", {})
    pod = a_pod(name, spec=spec, cpu=cpu, **more)
    began = None if ran is None else NOW - timedelta(minutes=ran)
    return replace(pod, status=replace(pod.status, start_time=began))


def with_nomination(pod: Pod, node: str) -> Pod:
    """With a nominated node."""
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def terminating(pod: Pod) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=NOW))


def a_budget(allowed: int, disrupted: Sequence[str] = (), **labels: str) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace="default", uid=f"b-{labels}"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=labels)),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed, disrupted_pods=dict.fromkeys(disrupted, NOW)),
    )


def a_round(
    pods: Sequence[Pod], cluster: Cluster, budgets: Sequence[PodDisruptionBudget] = (), others: Sequence[Pod] = ()
) -> RoundResult:
    """`others`: nominated pods that are not tried."""
    infos = PodInfos()
    pending = [(pod, infos.get(pod)) for pod in pods]
    nominated = [each for each in pending if each[0].status.nominated_node_name]
    nominated += [(pod, infos.get(pod)) for pod in others]
    return schedule_round(
        pending, nominated, cluster, PreemptionEvaluator(cluster, LowestPriorities(cluster), DisruptionBudgets(budgets))
    )


def describe(result: RoundResult) -> str:
    """`p to n1; q for n2: a, b go; r: <why not>`"""
    parts = [f"{pod.metadata.name} to {node}" for pod, node in result.bound]
    for report in result.post_filter_results:
        name, _, why = report.pod.metadata.name, *without_hint(report.message).partition(" preemption: ")[1:]
        if report.victims:
            gone = ", ".join(each.metadata.name for each in report.victims)
            parts.append(f"{name} for {report.nominated_node}: {gone} go")
        elif report.nominated_node:
            parts.append(f"{name} waits for {report.nominated_node}" + (f": {why}" if why else ""))
        else:
            parts.append(f"{name}: {why}")
    return "; ".join(parts)


@dataclass
class Case:
    """4 CPUs on each node."""

    there: Mapping[str, Sequence[Pod]]
    expected: str
    pod: Pod = field(default_factory=lambda: pod_of(10, "p", "4"))
    budgets: Sequence[PodDisruptionBudget] = ()


WHICH_PODS = {
    "only as many as are needed": Case(
        {"n1": [pod_of(1, "a"), pod_of(1, "b"), pod_of(1, "c"), pod_of(1, "d")]},
        "p for n1: c, d go",
        pod=pod_of(10, "p", "2"),
    ),
    "the least important": Case(
        {"n1": [pod_of(3, "a"), pod_of(1, "b"), pod_of(2, "c"), pod_of(4, "d")]},
        "p for n1: c, b go",
        pod=pod_of(10, "p", "2"),
    ),
    "of equals those that began last": Case(
        {"n1": [pod_of(1, "a", ran=1), pod_of(1, "b", ran=9), pod_of(1, "c", ran=5), pod_of(1, "d")]},
        "p for n1: a, d go",
        pod=pod_of(10, "p", "2"),
    ),
    "not one that would not help": Case(
        {"n1": [pod_of(1, "small", "1"), pod_of(2, "big", "3")]}, "p for n1: big go", pod=pod_of(10, "p", "2")
    ),
    "none of the same priority": Case(
        {"n1": [pod_of(10, "a", "2"), pod_of(1, "b", "2")]},
        "p: 0/1 nodes are available: 1 Insufficient cpu.",
    ),
    "rather those that their budget lets go": Case(
        {"n1": [pod_of(1, "kept", "2", labels={"app": "kept"}), pod_of(2, "a", "2")]},
        "p for n1: a go",
        pod=pod_of(10, "p", "2"),
        budgets=[a_budget(0, app="kept")],
    ),
    "of a budget as many as it allows": Case(
        {"n1": [pod_of(1, "a", "2", labels={"app": "x"}), pod_of(1, "b", labels={"app": "x"}), pod_of(3, "c")]},
        "p for n1: a go",
        pod=pod_of(10, "p", "2"),
        budgets=[a_budget(1, app="x")],
    ),
    "in spite of a budget if nothing else helps": Case(
        {"n1": [pod_of(1, "kept", "4", labels={"app": "kept"})]},
        "p for n1: kept go",
        budgets=[a_budget(0, app="kept")],
    ),
    "nobody instead of those who go anyway": Case(
        {"n1": [terminating(pod_of(1, "a", "2")), pod_of(0, "b", "2")]}, "p waits for n1", pod=pod_of(10, "p", "2")
    ),
    "who else is needed besides those who go anyway": Case(
        {"n1": [terminating(pod_of(1, "a", "2")), pod_of(0, "b"), pod_of(1, "c")]},
        "p for n1: b go",
        pod=pod_of(10, "p", "3"),
    ),
    "who has the port": Case(
        {
            "n1": [
                pod_of(1, "a", ports=[ContainerPort(container_port=80, host_port=80)]),
                pod_of(0, "b", ports=[ContainerPort(container_port=80, host_port=81)]),
            ]
        },
        "p for n1: a go",
        pod=pod_of(10, "p", ports=[ContainerPort(container_port=80, host_port=80)]),
    ),
    "who does not want it near": Case(
        {"n1": [pod_of(1, "a", spec=apart(term(app="p"))), pod_of(0, "b")]},
        "p for n1: a go",
        pod=pod_of(10, "p", labels={"app": "p"}),
    ),
    "whom it does not want near": Case(
        {"n1": [pod_of(1, "a", labels={"app": "a"}), pod_of(0, "b")]},
        "p for n1: a go",
        pod=pod_of(10, "p", spec=apart(term(app="a"))),
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in WHICH_PODS.items()])
def test_there_go(case: Case) -> None:
    cluster = a_cluster([a_node(name) for name in case.there], case.there)
    assert describe(a_round([case.pod], cluster, case.budgets)) == case.expected


WHICH_NODE = {
    "with the fewest violations of budgets": Case(
        {"n1": [pod_of(1, "kept", "4", labels={"app": "kept"})], "n2": [pod_of(5, "a", "4")]},
        "p for n2: a go",
        budgets=[a_budget(0, app="kept")],
    ),
    "whose most important victim is the least": Case(
        {"n1": [pod_of(5, "a", "4")], "n2": [pod_of(3, "b", "2"), pod_of(3, "c", "2")]}, "p for n2: b, c go"
    ),
    "with the lowest sum of priorities": Case(
        {"n1": [pod_of(5, "a", "2"), pod_of(4, "b", "2")], "n2": [pod_of(5, "c", "2"), pod_of(3, "d", "2")]},
        "p for n2: c, d go",
    ),
    "with the fewest victims": Case(
        {"n1": [pod_of(5, "a", "2"), pod_of(-9, "b", "2")], "n2": [pod_of(5, "c", "4")]}, "p for n2: c go"
    ),
    "whose most important victim began last": Case(
        {"n1": [pod_of(5, "a", "4", ran=9)], "n2": [pod_of(5, "b", "4", ran=1)], "n3": [pod_of(5, "c", "4", ran=5)]},
        "p for n2: b go",
    ),
    "with the first name, if all is the same": Case(
        {"n3": [pod_of(5, "a", "4")], "n2": [pod_of(5, "b", "4")], "n4": [pod_of(5, "c", "4")]}, "p for n2: b go"
    ),
    "where somebody goes anyway": Case(
        {"n1": [pod_of(1, "a", "4")], "n2": [terminating(pod_of(5, "b", "4"))]}, "p waits for n2"
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in WHICH_NODE.items()])
def test_they_go_from_the_node(case: Case) -> None:
    cluster = a_cluster([a_node(name) for name in case.there], case.there)
    assert describe(a_round([case.pod], cluster, case.budgets)) == case.expected


FULL = [pod_of(1, "a", "4")]
WHY_NOT = {
    "all are as important": ([a_node()], pod_of(1, "p"), "1 No preemption victims found for incoming pod"),
    "it would be barred": (
        [a_node(spec={"unschedulable": True})],
        pod_of(10, "p"),
        "1 Preemption is not helpful for scheduling",
    ),
    "the node is too small": ([a_node()], pod_of(10, "p", "5"), "1 Preemption is not helpful for scheduling"),
    "nobody is near whom it needs": (
        [a_node()],
        pod_of(10, "p", spec=near(term(app="x"))),
        "1 Preemption is not helpful for scheduling",
    ),
    "nodes differ": (
        [a_node(), a_node("n2", spec={"taints": (Taint(key="gpu", effect="NoSchedule"),)}), a_node("n3", cpu="1")],
        pod_of(1, "p", "2"),
        "1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling",
    ),
}


@pytest.mark.parametrize(("nodes", "pod", "why"), [pytest.param(*case, id=name) for name, case in WHY_NOT.items()])
def test_nobody_goes_and_it_is_told_that(nodes: Sequence[Node], pod: Pod, why: str) -> None:
    found = describe(a_round([pod], a_cluster(nodes, {"n1": FULL})))
    assert found == f"p: 0/{len(nodes)} nodes are available: {why}."


def test_the_whole_text_is_kubernetes() -> None:
    (report,) = a_round([pod_of(1, "p")], a_cluster([a_node()], {"n1": FULL})).post_filter_results
    assert report.message == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod. "
        "Fits if a node has 1 free CPU: the most free is 0 on n1."
    )


def test_a_pod_that_others_go_for_is_told_only_what_is_lacking() -> None:
    (report,) = a_round([pod_of(10, "p")], a_cluster([a_node()], {"n1": FULL})).post_filter_results
    assert without_hint(report.message) == "0/1 nodes are available: 1 Insufficient cpu."


def test_without_nodes_nothing_is_said_of_preemption() -> None:
    (report,) = a_round([pod_of(10, "p")], a_cluster([])).post_filter_results
    assert report.message == "no nodes available to schedule pods"


def test_who_never_preempts_does_not() -> None:
    pod = pod_of(10, "p", spec={"preemption_policy": "Never"})
    assert describe(a_round([pod], a_cluster([a_node()], {"n1": FULL}))) == (
        "p: not eligible due to preemptionPolicy=Never."
    )


# While they go


def test_while_they_go_it_waits_and_nobody_else_has_to() -> None:
    there = {"n1": [terminating(pod_of(1, "a", "4"))], "n2": [pod_of(0, "b", "4")]}
    result = a_round([with_nomination(pod_of(10, "p", "4"), "n1")], a_cluster([a_node(), a_node("n2")], there))
    assert describe(result) == "p waits for n1: not eligible due to a terminating pod on the nominated node."


def test_once_they_are_gone_it_goes_where_its_room_is() -> None:
    nodes = [a_node("n1", cpu="2"), a_node("n2")]
    assert describe(a_round([with_nomination(pod_of(10, "p", "1"), "n1")], a_cluster(nodes))) == "p to n1"


def test_if_there_is_room_elsewhere_meanwhile_it_goes_there() -> None:
    there = {"n1": [terminating(pod_of(1, "a", "4"))]}
    assert (
        describe(a_round([with_nomination(pod_of(10, "p", "4"), "n1")], a_cluster([a_node(), a_node("n2")], there)))
        == "p to n2"
    )


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(pod_of(9, "q"), "q: ", id="against the less important"),
        pytest.param(pod_of(10, "q"), "q: ", id="against equals"),
        pytest.param(pod_of(11, "q"), "q to n1; ", id="not against the more important"),
    ],
)
def test_room_is_held(other: Pod, expected: str) -> None:
    """Of n1 three parts are free, and one is of a pod that goes."""
    there = {"n1": [terminating(pod_of(1, "a", "1"))]}
    p = with_nomination(pod_of(10, "p", "4"), "n1")
    assert expected in describe(a_round([other, p], a_cluster([a_node()], there)))


def test_room_is_held_also_for_those_whose_turn_it_is_not() -> None:
    result = a_round([pod_of(5, "q")], a_cluster([a_node()]), others=[with_nomination(pod_of(10, "p", "4"), "n1")])
    assert "q: 0/1 nodes are available" in describe(result)


def test_what_was_held_is_free_again_after_the_round() -> None:
    cluster = a_cluster([a_node()], {"n1": [terminating(pod_of(1, "a", "1"))]})
    a_round([with_nomination(pod_of(10, "p", "4"), "n1"), pod_of(5, "q")], cluster)
    assert set(cluster.pods) == {"uid-of-default-a"}


def test_a_node_that_does_not_do_any_more_is_kept_no_longer() -> None:
    nodes = [a_node(spec={"unschedulable": True})]
    (report,) = a_round(
        [with_nomination(pod_of(10, "p", "4"), "n1")], a_cluster(nodes, {"n1": [terminating(pod_of(1, "a"))]})
    ).post_filter_results
    assert report.nominated_node == ""


def test_if_the_node_is_given_to_a_more_important_pod_it_looks_for_another() -> None:
    there = {"n1": [pod_of(1, "a", "4")], "n2": [pod_of(2, "b", "4")]}
    result = a_round(
        [pod_of(20, "urgent", "4"), with_nomination(pod_of(10, "p", "4"), "n1")],
        a_cluster([a_node(), a_node("n2")], there),
    )
    assert describe(result) == "urgent for n1: a go; p for n2: b go"


def test_if_it_is_not_its_turn_it_is_just_kept_nothing_any_longer() -> None:
    there, p = {"n1": [pod_of(1, "a", "4")]}, with_nomination(pod_of(10, "p", "4"), "n1")
    result = a_round([pod_of(20, "urgent", "4")], a_cluster([a_node()], there), others=[p])
    assert describe(result) == "urgent for n1: a go; p: "
    assert result.post_filter_results[1].message == ""


def test_a_pod_that_does_not_come_is_no_neighbour_yet() -> None:
    nodes = [a_node(), a_node("n2")]
    there = {"n1": [terminating(pod_of(1, "a", "4"))], "n2": [pod_of(10, "b", "2")]}
    p = with_nomination(pod_of(10, "p", "3", labels={"app": "p"}), "n1")
    result = a_round([p, pod_of(5, "friend", "1", spec=near(term(app="p")))], a_cluster(nodes, there))
    assert [pod.metadata.name for pod, _ in result.bound] == []


# Many


def test_many_find_their_victims_in_one_round() -> None:
    there = {f"n{n}": [pod_of(1, f"a{n}", "4")] for n in range(3)}
    result = a_round([pod_of(10, f"p{n}", "4") for n in range(4)], a_cluster([a_node(name) for name in there], there))
    assert describe(result) == (
        "p0 for n0: a0 go; p1 for n1: a1 go; p2 for n2: a2 go; p3: 0/3 nodes are available: 3 Insufficient cpu."
    )


def test_on_one_node_each_has_only_whom_it_needs_go() -> None:
    there = {"n1": [pod_of(1, name) for name in "abcd"]}
    result = a_round([pod_of(10, f"p{n}") for n in range(3)], a_cluster([a_node()], there))
    assert describe(result) == "p0 for n1: d go; p1 for n1: c go; p2 for n1: b go"


def test_a_budget_that_one_has_used_up_counts_for_the_next() -> None:
    labels = {"app": "x"}
    there = {
        "n1": [pod_of(1, "a", "4", labels=labels)],
        "n2": [pod_of(1, "b", "4", labels=labels)],
        "n3": [pod_of(5, "c", "4")],
    }
    cluster = a_cluster([a_node(name) for name in there], there)
    result = a_round([pod_of(10, "p", "4"), pod_of(10, "q", "4")], cluster, [a_budget(1, app="x")])
    assert describe(result) == "p for n1: a go; q for n3: c go"


def test_what_an_eviction_took_from_a_budget_is_not_taken_twice() -> None:
    there = {"n1": [pod_of(1, "a", "4", labels={"app": "x"})], "n2": [pod_of(5, "c", "4")]}
    cluster = a_cluster([a_node(name) for name in there], there)
    assert (
        describe(a_round([pod_of(10, "p", "4")], cluster, [a_budget(0, disrupted=["a"], app="x")])) == "p for n1: a go"
    )


def test_those_who_are_to_be_even_see_what_the_one_before_did() -> None:
    there = {name: [pod_of(1, f"on-{name}", "4")] for name in ("n1", "n2", "n3")}
    cluster = a_cluster([a_node(name, labels={"zone": name[:2]}) for name in there], there)
    spec = spread(even())
    pods = [pod_of(10, f"p{n}", "3", spec=spec, labels={"app": "a"}) for n in range(2)]
    result = a_round(pods, cluster)
    assert sorted(report.nominated_node for report in result.post_filter_results) == ["n1", "n2"]


def test_a_round_has_an_end() -> None:
    there = {f"n{n}": [pod_of(1, f"a{n}", "4")] for n in range(MAX_PREEMPTIONS + 5)}
    result = a_round(
        [pod_of(10, f"p{n}", "4") for n in range(MAX_PREEMPTIONS + 5)],
        a_cluster([a_node(name) for name in there], there),
    )
    assert (len(result.post_filter_results), len(result.unbound)) == (MAX_PREEMPTIONS, MAX_PREEMPTIONS + 5)


# Always


PRIORITIES = some.integers(0, 3)
CPUS = some.integers(1, 4)


@given(
    there=some.lists(some.lists(some.tuples(PRIORITIES, CPUS, some.booleans()), max_size=4), min_size=1, max_size=4),
    pods=some.lists(some.tuples(PRIORITIES, CPUS), min_size=1, max_size=4),
    allowed=some.integers(0, 2),
)
def test_whatever_there_is(there: list[list[tuple[int, int, bool]]], pods: list[tuple[int, int]], allowed: int) -> None:
    """The pod fits then; no victim of equal priority, none that could be reprieved; nothing is given away twice."""
    placed: dict[str, list[Pod]] = {}
    for number, ones in enumerate(there):
        fitting = [one for at, one in enumerate(ones) if sum(each[1] for each in ones[: at + 1]) <= 4]
        placed[f"n{number}"] = [
            pod_of(priority, f"a{number}{at}", str(cpu), labels={"app": "x"} if is_kept else {})
            for at, (priority, cpu, is_kept) in enumerate(fitting)
        ]
    cluster = a_cluster([a_node(name) for name in placed], placed)
    before = dict(cluster.pods)
    waiting = [pod_of(priority, f"p{at}", str(cpu)) for at, (priority, cpu) in enumerate(pods)]
    result = a_round(waiting, cluster, [a_budget(allowed, app="x")])

    assert set(cluster.pods) == set(before) | {pod.metadata.uid for pod, _ in result.bound}
    infos, gone = PodInfos(), []
    for report in result.post_filter_results:
        if not report.nominated_node:
            continue
        for victim in report.victims:
            assert (victim.spec.priority or 0) < (report.pod.spec.priority or 0)
            cluster.unplace(victim.metadata.uid)
            gone.append(victim.metadata.uid)
        info = infos.get(report.pod)
        assert cluster.filter_reasons(report.pod, info, report.nominated_node) == ()
        for victim in report.victims:
            with cluster.trial():
                cluster.place(victim, report.nominated_node, infos.get(victim))
                assert cluster.filter_reasons(report.pod, info, report.nominated_node)
        cluster.place(report.pod, report.nominated_node, info)
    assert len(gone) == len(set(gone))
    assert all(min(node_info.free.values()) >= 0 for node_info in cluster.node_infos.values())


@given(
    there=some.lists(some.tuples(PRIORITIES, CPUS, some.booleans()), max_size=8),
    cpu=CPUS,
    allowed=some.integers(0, 2),
)
def test_what_is_worked_out_is_what_comes_of_trying(there: list[tuple[int, int, bool]], cpu: int, allowed: int) -> None:
    pods = [
        pod_of(2 - n, f"a{at}", str(c), labels={"app": "x"} if is_kept else {})
        for at, (n, c, is_kept) in enumerate(there)
    ]
    cluster = a_cluster([a_node(cpu="12", pods="7")], {"n1": pods})
    pod, budgets = pod_of(2, "p", str(cpu + 4)), DisruptionBudgets([a_budget(allowed, app="x")])
    info = PodInfos().get(pod)
    context = PreemptionContext(cluster, LowestPriorities(cluster), budgets, EvictionUnits(cluster, PodGroups()))
    tried = select_victims_on_node("n1", pod, info, context)
    assert select_victims_on_node("n1", pod, info, context, is_plain=True) == tried
