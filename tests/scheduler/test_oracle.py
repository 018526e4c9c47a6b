"""Scheduling on random clusters, compared with a naive implementation: pods are placed where they fit, and wait if nowhere."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.scheduler import Cluster, PodInfos, ScoringSettings, pod_info_of, schedule
from tests.scheduler.cluster import a_cluster, on, why
from tests.scheduler.oracle import Oracle, There
from tests.scheduler.random_clusters import NAMESPACES, all_nodes, all_pods, nodes, pods

EXAMPLES = settings.default.max_examples  # fifty, or in `make test-long` a thousand
STRATEGIES = some.sampled_from([ScoringSettings("LeastAllocated"), ScoringSettings("MostAllocated")])


def placements(running: list[Pod], machines: list[Node]) -> list[tuple[Pod, str]]:
    """Pods that run already, on any nodes, as if bound by hand."""
    names = [node.metadata.name for node in machines] + ["gone"]
    return [(pod, names[number % len(names)]) for number, pod in enumerate(running)]


def a_copy(machines: list[Node], there: There, how: ScoringSettings) -> Cluster:
    spread: dict[str, list[Pod]] = {}
    for pod, node in there:
        spread.setdefault(node, []).append(pod)
    return a_cluster(machines, spread, how, NAMESPACES)


@settings(max_examples=2 * EXAMPLES)
@given(machines=all_nodes(), running=all_pods("r", 6), pending=all_pods("p", 8), how=STRATEGIES)
def test_a_pod_waits_only_if_it_fits_nowhere(
    machines: list[Node], running: list[Pod], pending: list[Pod], how: ScoringSettings
) -> None:
    oracle = Oracle(machines, NAMESPACES)
    there: list[tuple[Pod, str]] = placements(running, machines)
    cluster = a_copy(machines, there, how)

    outcome = on(cluster, pending)

    for pod, name in outcome.bound:
        assert oracle.fits(pod, oracle.nodes[name], there)
        there.append((pod, name))
    for pod, diagnosis in outcome.unbound:
        assert not any(oracle.fits(pod, node, there) for node in machines)
        assert set(diagnosis.reasons) == set(oracle.nodes)
        assert all(diagnosis.reasons.values())
        assert diagnosis.unresolvable <= set(oracle.nodes)
    assert len(outcome.bound) + len(outcome.unbound) == len(pending)


@settings(max_examples=EXAMPLES)
@given(machines=all_nodes(), running=all_pods("r", 6), pending=all_pods("p", 3), how=STRATEGIES)
def test_hopeless_is_what_stays_so_when_all_are_gone(
    machines: list[Node], running: list[Pod], pending: list[Pod], how: ScoringSettings
) -> None:
    oracle = Oracle(machines, NAMESPACES)
    cluster = a_copy(machines, placements(running, machines), how)

    for pod in pending:
        diagnosis = cluster.ranking(pod, pod_info_of(pod)).diagnose()
        for name in diagnosis.unresolvable:
            elsewhere = [(each, node) for each, node in placements(running, machines) if node != name]
            assert not oracle.fits(pod, oracle.nodes[name], elsewhere)


class Story:
    """A cluster after a series of changes, and its expected nodes and pods."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.infos = PodInfos()
        self.machines: dict[str, Node] = {}
        self.there: dict[str, tuple[Pod, str]] = {}

    def happen(self, what: str, thing: Any) -> None:
        getattr(self, what)(thing)

    def node(self, node: Node) -> None:
        self.machines[node.metadata.name] = node
        self.cluster.set_node(node)

    def lost(self, name: str) -> None:
        self.machines.pop(name, None)
        self.cluster.remove_node(name)

    def pod(self, placed: tuple[Pod, str]) -> None:
        pod, node = placed
        if known := self.there.get(pod.metadata.uid):  # what a pod asks for does not change
            pod = replace(pod, spec=known[0].spec)
        self.there[pod.metadata.uid] = pod, node
        self.cluster.place(pod, node, self.infos.get(pod))

    def ended(self, uid: str) -> None:
        self.there.pop(uid, None)
        self.cluster.unplace(uid)

    def tried(self, some_pods: list[Pod]) -> None:
        with self.cluster.trial():
            for uid in list(self.there)[:2]:
                self.cluster.unplace(uid)
            schedule([(each, self.infos.get(each)) for each in some_pods], self.cluster)


NAMES = some.sampled_from(["n0", "n1", "n2", "n3"])
UIDS = some.sampled_from([f"uid-of-r{number}" for number in range(4)])
EVENTS = some.one_of(
    some.tuples(some.just("node"), NAMES.flatmap(nodes)),
    some.tuples(some.just("lost"), NAMES),
    some.tuples(
        some.just("pod"),
        some.tuples(
            some.builds(lambda pod, uid: replace(pod, metadata=replace(pod.metadata, uid=uid)), pods("r"), UIDS), NAMES
        ),
    ),
    some.tuples(some.just("ended"), UIDS),
    some.tuples(some.just("tried"), all_pods("t", 3)),
)


@settings(max_examples=EXAMPLES)
@given(events=some.lists(EVENTS, max_size=20), pending=all_pods("p", 6), how=STRATEGIES)
def test_what_was_learned_bit_by_bit_is_what_is_learned_at_once(
    events: list[tuple[str, Any]], pending: list[Pod], how: ScoringSettings
) -> None:
    story = Story(Cluster(how))
    for name, labels in NAMESPACES.items():
        story.cluster.set_namespace(name, labels)
    for event in events:
        story.happen(*event)
        for pod in pending:  # so that classes are remembered, and have to follow
            story.cluster.ranking(pod, pod_info_of(pod)).best_node()
    afresh = a_copy(list(story.machines.values())[::-1], list(story.there.values()), how)

    for pod in pending:
        mine, other = (each.ranking(pod, pod_info_of(pod)).diagnose() for each in (story.cluster, afresh))
        assert dict(mine.reasons) == dict(other.reasons)
        assert mine.unresolvable == other.unresolvable
    outcome, expected = on(story.cluster, pending), on(afresh, pending)
    assert list(outcome.bound) == list(expected.bound)
    assert why(outcome) == why(expected)
