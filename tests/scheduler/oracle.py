"""Naive implementation of the filters: all pods are counted again for every question.

It shares nothing with what it checks but the kinds, and the sums of what containers request.
"""

from collections.abc import Iterable, Mapping, Sequence

from app.kinds.core.node import Node, Taint
from app.kinds.pod.affinity import NodeSelectorTerm, PodAffinityTerm, TopologySpreadConstraint
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import amount, requests
from app.machinery.base import LabelSelector

There = Sequence[tuple[Pod, str]]
"""Pods, and the nodes that they are on."""


class Oracle:
    def __init__(self, nodes: Iterable[Node], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.nodes = {node.metadata.name: node for node in nodes}
        self.namespaces = namespaces

    def fits(self, pod: Pod, node: Node, there: There) -> bool:
        here = [each for each, name in there if name == node.metadata.name]
        return (
            takes(pod, node)
            and has_room(pod, node, here)
            and not any(collide(pod, each) for each in here)
            and self.is_even(pod, node, there)
            and self.is_near(pod, node, there)
            and self.is_apart(pod, node, there)
        )

    def labels(self, name: str) -> Mapping[str, str]:
        node = self.nodes.get(name)
        return node.metadata.labels if node else {}

    def means(self, owner: Pod, term: PodAffinityTerm, other: Pod) -> bool:
        """Whether the pods that a term of `owner` is about include `other`."""
        space = other.metadata.namespace
        if not term.namespaces and term.namespace_selector is None:
            among = space == owner.metadata.namespace
        else:
            among = space in term.namespaces or selects(term.namespace_selector, self.namespaces.get(space, {}))
        mine, theirs = owner.metadata.labels, other.metadata.labels
        return (
            among
            and selects(term.label_selector, theirs)
            and all(theirs.get(key) == mine[key] for key in term.match_label_keys if key in mine)
            and all(theirs.get(key) != mine[key] for key in term.mismatch_label_keys if key in mine)
        )

    def is_near(self, pod: Pod, node: Node, there: There) -> bool:
        terms = _required(pod, "pod_affinity")
        if not terms:
            return True
        if any(term.topology_key not in node.metadata.labels for term in terms):
            return False
        meant = [name for each, name in there if all(self.means(pod, term, each) for term in terms)]
        if all(
            any(self.labels(name).get(term.topology_key) == node.metadata.labels[term.topology_key] for name in meant)
            for term in terms
        ):
            return True
        nowhere = not any(term.topology_key in self.labels(name) for name in meant for term in terms)
        return nowhere and all(self.means(pod, term, pod) for term in terms)

    def is_apart(self, pod: Pod, node: Node, there: There) -> bool:
        for each, name in there:
            for owner, term, other in (
                *((pod, term, each) for term in _required(pod, "pod_anti_affinity")),
                *((each, term, pod) for term in _required(each, "pod_anti_affinity")),
            ):
                value = node.metadata.labels.get(term.topology_key)
                together = value is not None and self.labels(name).get(term.topology_key) == value
                if together and self.means(owner, term, other):
                    return False
        return True

    def is_even(self, pod: Pod, node: Node, there: There) -> bool:
        hard = [each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == "DoNotSchedule"]
        return all(self._is_even(pod, node, there, each, {one.topology_key for one in hard}) for each in hard)

    def _is_even(
        self, pod: Pod, node: Node, there: There, constraint: TopologySpreadConstraint, keys: Iterable[str]
    ) -> bool:
        key = constraint.topology_key
        if key not in node.metadata.labels:
            return False
        counted = [each for each in self.nodes.values() if _is_place(pod, each, constraint, keys)]
        counts = {each.metadata.labels[key]: 0 for each in counted}
        names = {each.metadata.name for each in counted}
        for each, name in there:
            if name in names and each.metadata.deletion_timestamp is None and _is_counted(pod, each, constraint):
                counts[self.labels(name)[key]] += 1
        fewest = min(counts.values(), default=0) if len(counts) >= (constraint.min_domains or 1) else 0
        itself = _is_counted(pod, pod, constraint)
        return counts.get(node.metadata.labels[key], 0) + itself - fewest <= constraint.max_skew


def _is_place(pod: Pod, node: Node, constraint: TopologySpreadConstraint, keys: Iterable[str]) -> bool:
    return (
        all(key in node.metadata.labels for key in keys)
        and (constraint.node_affinity_policy == "Ignore" or is_wanted(pod, node))
        and (constraint.node_taints_policy != "Honor" or bears(pod, node.spec.taints))
    )


def _is_counted(pod: Pod, other: Pod, constraint: TopologySpreadConstraint) -> bool:
    mine, theirs = pod.metadata.labels, other.metadata.labels
    return (
        other.metadata.namespace == pod.metadata.namespace
        and selects(constraint.label_selector, theirs)
        and (
            constraint.label_selector is None
            or all(theirs.get(key) == mine[key] for key in constraint.match_label_keys)
        )
    )


def _required(pod: Pod, which: str) -> tuple[PodAffinityTerm, ...]:
    affinity = getattr(pod.spec.affinity, which, None)
    return affinity.required_during_scheduling_ignored_during_execution if affinity else ()


def takes(pod: Pod, node: Node) -> bool:
    cordon = (Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),) if node.spec.unschedulable else ()
    return bears(pod, (*node.spec.taints, *cordon)) and is_wanted(pod, node)


def bears(pod: Pod, taints: Iterable[Taint]) -> bool:
    return all(
        taint.effect == "PreferNoSchedule"
        or any(
            each.effect in ("", taint.effect)
            and (each.key == taint.key or (not each.key and each.operator == "Exists"))
            and (each.operator == "Exists" or each.value == taint.value)
            for each in pod.spec.tolerations
        )
        for taint in taints
    )


def is_wanted(pod: Pod, node: Node) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    needed = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    by_selector = all(node.metadata.labels.get(key) == value for key, value in pod.spec.node_selector.items())
    return by_selector and (needed is None or any(_holds(term, node) for term in needed.node_selector_terms))


def _holds(term: NodeSelectorTerm, node: Node) -> bool:
    fields = {"metadata.name": node.metadata.name}
    demands = [(each, node.metadata.labels) for each in term.match_expressions]
    demands += [(each, fields) for each in term.match_fields]
    return bool(demands) and all(_is_met(each.operator, labels.get(each.key), each.values) for each, labels in demands)


def _is_met(operator: str, value: str | None, values: Sequence[str]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.isdigit() and int(value) > int(values[0])
        case "Lt":
            return value is not None and value.isdigit() and int(value) < int(values[0])
    raise AssertionError(operator)


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _is_met(each.operator, labels.get(each.key), each.values) for each in selector.match_expressions
    )


def has_room(pod: Pod, node: Node, here: Sequence[Pod]) -> bool:
    size = {name: amount(name, quantity) for name, quantity in node.status.allocatable.items()}
    if len(here) + 1 > size.get("pods", 0):
        return False
    taken = [requests(each) for each in here]
    return all(
        needed <= 0 or needed + sum(each.get(name, 0) for each in taken) <= size.get(name, 0)
        for name, needed in requests(pod).items()
    )


def collide(one: Pod, other: Pod) -> bool:
    ports = [(each.protocol, each.host_port, each.host_ip) for each in one.spec.containers[0].ports if each.host_port]
    theirs = [
        (each.protocol, each.host_port, each.host_ip) for each in other.spec.containers[0].ports if each.host_port
    ]
    anywhere = ("", "0.0.0.0")
    return any(
        mine[:2] == their[:2] and (mine[2] == their[2] or mine[2] in anywhere or their[2] in anywhere)
        for mine in ports
        for their in theirs
    )
