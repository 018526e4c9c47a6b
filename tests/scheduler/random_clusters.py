"""Small random clusters for properties: few values of each field, so that many pods conflict."""

from typing import Any

from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.core.node import ContainerImage, Node, Taint
from app.kinds.pod.affinity import (
    Affinity,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from app.kinds.pod.container import ContainerPort
from app.kinds.pod.pod import Pod
from app.machinery.base import LabelSelector, LabelSelectorRequirement
from tests.build import NOW
from tests.scheduler.cluster import HOST, a_node, a_pod, a_selector, apart, near, spread

NAMESPACES = {"default": {"team": "x"}, "other": {}}
_KEYS = some.sampled_from(["zone", "zone", "rack", HOST])
_LABELS = some.fixed_dictionaries({"app": some.sampled_from("ab")}, optional={"run": some.sampled_from("12")})
_APPS = some.sampled_from("ab").map(lambda app: LabelSelector(match_labels={"app": app}))
_TAINTS = some.just(()) | some.lists(
    some.builds(
        Taint, key=some.sampled_from("kl"), effect=some.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
    ),
    max_size=1,
).map(tuple)
_SELECTORS = some.one_of(
    _APPS,
    _APPS,
    some.none(),
    _LABELS.map(lambda labels: LabelSelector(match_labels=labels)),
    some.builds(
        LabelSelectorRequirement,
        key=some.just("app"),
        operator=some.sampled_from(["In", "NotIn"]),
        values=some.just(("a",)),
    ).map(lambda demand: LabelSelector(match_expressions=(demand,))),
    some.sampled_from(["Exists", "DoesNotExist"]).map(
        lambda operator: LabelSelector(match_expressions=(LabelSelectorRequirement(key="run", operator=operator),))
    ),
)
_RUN = some.sampled_from([(), (), ("run",)])
_TERMS = some.builds(
    PodAffinityTerm,
    label_selector=_SELECTORS,
    topology_key=_KEYS,
    namespaces=some.sampled_from([(), (), ("other",)]),
    namespace_selector=some.sampled_from([None, None, LabelSelector(), LabelSelector(match_labels={"team": "x"})]),
    match_label_keys=_RUN,
    mismatch_label_keys=_RUN,
)
_SIMPLE = some.builds(PodAffinityTerm, label_selector=_APPS, topology_key=_KEYS)
_ONE = some.tuples(some.one_of(_SIMPLE, _SIMPLE, _TERMS))
_REQUIRED = some.lists(_TERMS, max_size=2).map(tuple)
_PREFERRED = some.lists(
    some.builds(WeightedPodAffinityTerm, weight=some.integers(1, 100), pod_affinity_term=_TERMS), max_size=1
).map(tuple)


def _of(sort: Any) -> some.SearchStrategy[Any]:
    return some.builds(
        sort,
        required_during_scheduling_ignored_during_execution=_REQUIRED,
        preferred_during_scheduling_ignored_during_execution=_PREFERRED,
    )


_NODE_SELECTORS = some.sampled_from(
    [
        a_selector(("zone", "In", ("a", "b"))),
        a_selector(("rack", "DoesNotExist", ())),
        a_selector(("zone", "NotIn", ("a",)), ("rack", "Exists", ())),
        a_selector(("rack", "Gt", ("1",))),
        a_selector(("rack", "Lt", ("2",))),
        a_selector(("metadata.name", "In", ("n1", "n2")), field=True),
    ]
)
_AFFINITIES = some.one_of(
    some.none(),
    some.none(),
    some.builds(
        Affinity,
        node_affinity=some.one_of(
            some.none(),
            some.builds(NodeAffinity, required_during_scheduling_ignored_during_execution=_NODE_SELECTORS),
        ),
        pod_affinity=some.one_of(some.none(), _of(PodAffinity)),
        pod_anti_affinity=some.one_of(some.none(), _of(PodAntiAffinity)),
    ),
)
_SPREADS = some.lists(
    some.builds(
        TopologySpreadConstraint,
        max_skew=some.integers(1, 2),
        topology_key=_KEYS,
        when_unsatisfiable=some.sampled_from(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
        label_selector=_SELECTORS,
        min_domains=some.sampled_from([None, None, 2, 3]),
        node_affinity_policy=some.sampled_from(["", "Ignore"]),
        node_taints_policy=some.sampled_from(["", "Honor"]),
    ),
    max_size=2,
).map(tuple)
_MIXED = some.fixed_dictionaries(
    {},
    optional={
        "affinity": _AFFINITIES,
        "topology_spread_constraints": _SPREADS,
        "node_selector": some.sampled_from([{}, {"zone": "a"}]),
        "tolerations": some.sampled_from([(), (Toleration(key="k", operator="Exists"),)]),
    },
)
_WHERE = some.one_of(
    _NODE_SELECTORS.map(
        lambda wanted: {
            "affinity": Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=wanted))
        }
    ),
    some.sampled_from([{"node_selector": {"zone": "a"}}, {"node_selector": {"rack": "1"}}]),
)
_NEAR = _ONE.map(lambda terms: near(*terms))
_APART = _ONE.map(lambda terms: apart(*terms))
_EVEN = some.tuples(
    some.builds(TopologySpreadConstraint, max_skew=some.integers(1, 2), topology_key=_KEYS, label_selector=_APPS)
).map(lambda constraints: spread(*(replace(each, when_unsatisfiable="DoNotSchedule") for each in constraints)))
_SPECS = some.one_of(_NEAR, _APART, _EVEN, _WHERE, _MIXED)  # mostly one thing, so that much of it is met
_NEEDS = some.fixed_dictionaries(
    {}, optional={"cpu": some.sampled_from(["0", "500m", "2"]), "gpu": some.sampled_from(["0", "1"])}
)
_PORTS = some.lists(
    some.builds(
        ContainerPort,
        container_port=some.just(80),
        host_port=some.sampled_from([0, 80]),
        host_ip=some.sampled_from(["", "10.0.0.1", "10.0.0.2"]),
        protocol=some.just("TCP"),
    ),
    max_size=1,
)


@some.composite
def nodes(draw: Any, name: str) -> Node:
    labels = draw(
        some.fixed_dictionaries({}, optional={"zone": some.sampled_from("abc"), "rack": some.sampled_from("12")})
    )
    spec = {"unschedulable": draw(some.sampled_from([False, False, True])), "taints": draw(_TAINTS)}
    has = draw(
        some.fixed_dictionaries(
            {"pods": some.sampled_from("234")}, optional={"gpu": some.just("1"), "cpu": some.just("3")}
        )
    )
    node = a_node(name, labels, spec, **has)
    images = draw(some.sampled_from([(), (ContainerImage(names=("busybox:latest",), size_bytes=10**9),)]))
    return replace(node, status=replace(node.status, images=images))


@some.composite
def pods(draw: Any, name: str) -> Pod:
    made = a_pod(
        name,
        spec=draw(_SPECS),
        labels=draw(_LABELS),
        namespace=draw(some.sampled_from(["default", "default", "other"])),
        ports=draw(_PORTS),
        **draw(_NEEDS),
    )
    if draw(some.integers(0, 9)):
        return made
    return replace(made, metadata=replace(made.metadata, deletion_timestamp=NOW))


@some.composite
def all_nodes(draw: Any) -> list[Node]:
    return [draw(nodes(f"n{number}")) for number in range(draw(some.integers(0, 5)))]


@some.composite
def all_pods(draw: Any, start: str, most: int) -> list[Pod]:
    """Of few sorts, as pods are."""
    sorts = [draw(pods(start)) for _ in range(draw(some.integers(1, 3)))]
    return [_named(draw(some.sampled_from(sorts)), f"{start}{n}") for n in range(draw(some.integers(0, most)))]


def _named(pod: Pod, name: str) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, name=name, uid=f"uid-of-{name}"))
