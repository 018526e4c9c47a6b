"""Validation of where a pod may run: tolerations, affinity, spreading. Part of `app.kinds.pod.pod_validation`."""

from collections.abc import Iterator

from app.kinds.core.node import EFFECTS
from app.kinds.pod.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    Toleration,
    TopologySpreadConstraint,
)
from app.machinery import name_validation
from app.machinery.base import LabelSelector
from app.machinery.errors import Cause, duplicate, forbidden, invalid, not_supported, required
from app.machinery.meta.metadata_validation import validate_labels

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

_SET, _EXISTENCE = ("In", "NotIn"), ("Exists", "DoesNotExist")
_VALUES_NEEDED = "must be specified when `operator` is 'In' or 'NotIn'"
_NO_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_BAD_OPERATOR = "not a valid selector operator"


def validate_tolerations(tolerations: tuple[Toleration, ...], path: str) -> Iterator[Cause]:
    for index, toleration in enumerate(tolerations):
        yield from _toleration(toleration, f"{path}[{index}]")


def _toleration(toleration: Toleration, path: str) -> Iterator[Cause]:
    for text in name_validation.qualified_name(toleration.key) if toleration.key else ():
        yield invalid(f"{path}.key", toleration.key, text)
    if not toleration.key and toleration.operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{path}.operator", toleration.operator, text)
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid(f"{path}.effect", toleration.effect, text)
    if toleration.operator in ("Equal", ""):
        if faults := name_validation.label_value(toleration.value):
            yield invalid(f"{path}.operator", toleration.value, ";".join(faults))
    elif toleration.operator != "Exists":
        yield not_supported(f"{path}.operator", toleration.operator, ("Equal", "Exists"))
    elif toleration.value:
        yield invalid(f"{path}.operator", toleration, "value must be empty when `operator` is 'Exists'")
    if toleration.effect and toleration.effect not in EFFECTS:
        yield not_supported(f"{path}.effect", toleration.effect, EFFECTS)


def validate_affinity(affinity: Affinity | None, path: str) -> Iterator[Cause]:
    if affinity is None:
        return
    if affinity.node_affinity:
        yield from _node_affinity(affinity.node_affinity, f"{path}.nodeAffinity")
    if affinity.pod_affinity:
        yield from _pod_affinity(affinity.pod_affinity, f"{path}.podAffinity")
    if affinity.pod_anti_affinity:
        yield from _pod_affinity(affinity.pod_anti_affinity, f"{path}.podAntiAffinity")


def _node_affinity(affinity: NodeAffinity, path: str) -> Iterator[Cause]:
    if needed := affinity.required_during_scheduling_ignored_during_execution:
        yield from validate_node_selector(needed, f"{path}.{REQUIRED}")
    for index, wish in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        here = f"{path}.{PREFERRED}[{index}]"
        yield from _weight(wish.weight, here)
        yield from _node_term(wish.preference or NodeSelectorTerm(), f"{here}.preference")


def validate_node_selector(selector: NodeSelector, path: str) -> Iterator[Cause]:
    if not selector.node_selector_terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(selector.node_selector_terms):
        yield from _node_term(term, f"{path}.nodeSelectorTerms[{index}]")


def _weight(weight: int, path: str) -> Iterator[Cause]:
    if not 1 <= weight <= 100:
        yield invalid(f"{path}.weight", weight, "must be in the range 1-100")


def _node_term(term: NodeSelectorTerm, path: str) -> Iterator[Cause]:
    for index, demand in enumerate(term.match_expressions):
        yield from _node_labels(demand, f"{path}.matchExpressions[{index}]")
    for index, demand in enumerate(term.match_fields):
        yield from _node_fields(demand, f"{path}.matchFields[{index}]")


def _node_labels(demand: NodeSelectorRequirement, path: str) -> Iterator[Cause]:
    if demand.operator in ("Gt", "Lt"):
        if len(demand.values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield from _operator(demand.operator, demand.values, path)
    for text in name_validation.qualified_name(demand.key):
        yield invalid(f"{path}.key", demand.key, text)


def _operator(operator: str, values: tuple[str, ...], path: str) -> Iterator[Cause]:
    if operator in _SET:
        if not values:
            yield required(f"{path}.values", _VALUES_NEEDED)
    elif operator not in _EXISTENCE:
        yield invalid(f"{path}.operator", operator, _BAD_OPERATOR)
    elif values:
        yield forbidden(f"{path}.values", _NO_VALUES)


def _node_fields(demand: NodeSelectorRequirement, path: str) -> Iterator[Cause]:
    if demand.operator not in _SET:
        yield invalid(f"{path}.operator", demand.operator, _BAD_OPERATOR)
    elif len(demand.values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{path}.values", text)
    if demand.key != "metadata.name":
        yield invalid(f"{path}.key", demand.key, "not a valid field selector key")
        return
    for index, value in enumerate(demand.values):
        for text in name_validation.dns_subdomain(value):
            yield invalid(f"{path}.values[{index}]", value, text)


def _pod_affinity(affinity: PodAffinity | PodAntiAffinity, path: str) -> Iterator[Cause]:
    for index, term in enumerate(affinity.required_during_scheduling_ignored_during_execution):
        yield from _pod_term(term, f"{path}.{REQUIRED}[{index}]")
    for index, wish in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        here = f"{path}.{PREFERRED}[{index}]"
        yield from _weight(wish.weight, here)
        yield from _pod_term(wish.pod_affinity_term or PodAffinityTerm(), f"{here}.podAffinityTerm")


def _pod_term(term: PodAffinityTerm, path: str) -> Iterator[Cause]:
    yield from validate_selector(term.label_selector, f"{path}.labelSelector")
    yield from validate_selector(term.namespace_selector, f"{path}.namespaceSelector")
    for name in term.namespaces:
        for text in name_validation.dns_label(name):
            yield invalid(f"{path}.namespace", name, text)
    for wire, keys in (("matchLabelKeys", term.match_label_keys), ("mismatchLabelKeys", term.mismatch_label_keys)):
        yield from _label_keys(keys, term.label_selector, f"{path}.{wire}")
    mismatched = set(term.mismatch_label_keys)
    for index, key in enumerate(term.match_label_keys):
        if key in mismatched:
            text = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{path}.matchLabelKeys[{index}]", key, text)
    if not term.topology_key:
        yield required(f"{path}.topologyKey", "can not be empty")
    for text in name_validation.qualified_name(term.topology_key):
        yield invalid(f"{path}.topologyKey", term.topology_key, text)


def _label_keys(keys: tuple[str, ...], selector: LabelSelector | None, path: str) -> Iterator[Cause]:
    if keys and selector is None:
        yield forbidden(path, "must not be specified when labelSelector is not set")
    for index, key in enumerate(keys):
        for text in name_validation.qualified_name(key):
            yield invalid(f"{path}[{index}]", key, text)


def validate_selector(selector: LabelSelector | None, path: str) -> Iterator[Cause]:
    """A label selector, wherever one stands."""
    if selector is None:
        return
    yield from validate_labels(selector.match_labels, f"{path}.matchLabels")
    for index, demand in enumerate(selector.match_expressions):
        here = f"{path}.matchExpressions[{index}]"
        yield from _operator(demand.operator, demand.values, here)
        for text in name_validation.qualified_name(demand.key):
            yield invalid(f"{here}.key", demand.key, text)
        for position, value in enumerate(demand.values):
            for text in name_validation.label_value(value):
                yield invalid(f"{here}.values[{position}]", value, text)


def validate_spread(constraints: tuple[TopologySpreadConstraint, ...], path: str) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        here = f"{path}[{index}]"
        yield from _constraint(constraint, here)
        key = (constraint.topology_key, constraint.when_unsatisfiable)
        if key in seen:
            yield duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{key[0]}, {key[1]}}}")
        seen.add(key)


def _constraint(constraint: TopologySpreadConstraint, path: str) -> Iterator[Cause]:
    if constraint.max_skew <= 0:
        yield invalid(f"{path}.maxSkew", constraint.max_skew, "must be greater than zero")
    if not constraint.topology_key:
        yield required(f"{path}.topologyKey", "can not be empty")
    for text in name_validation.qualified_name(constraint.topology_key) if constraint.topology_key else ():
        yield invalid(f"{path}.topologyKey", constraint.topology_key, text)
    answers = ("DoNotSchedule", "ScheduleAnyway")
    if constraint.when_unsatisfiable not in answers:
        yield not_supported(f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, answers)
    yield from _min_domains(constraint, f"{path}.minDomains")
    for wire, policy in (
        ("nodeAffinityPolicy", constraint.node_affinity_policy),
        ("nodeTaintsPolicy", constraint.node_taints_policy),
    ):
        if policy not in ("", "Honor", "Ignore"):
            yield not_supported(f"{path}.{wire}", policy, ("Honor", "Ignore"))
    yield from _label_keys(constraint.match_label_keys, constraint.label_selector, f"{path}.matchLabelKeys")
    yield from validate_selector(constraint.label_selector, f"{path}.labelSelector")


def _min_domains(constraint: TopologySpreadConstraint, path: str) -> Iterator[Cause]:
    if constraint.min_domains is None:
        return
    if constraint.min_domains <= 0:
        yield invalid(path, constraint.min_domains, "must be greater than zero")
    answer = constraint.when_unsatisfiable
    if answer != "DoNotSchedule":
        text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {answer}"
        yield invalid(path, constraint.min_domains, text)
