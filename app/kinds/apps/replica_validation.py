"""Validation that Deployments and ReplicaSets share: selector, template, numbers. Their Kind records call it.

Causes come in Kubernetes' order and words.
"""

from collections.abc import Iterator

from app.kinds.pod.placement_validation import validate_selector
from app.kinds.pod.pod_schema import PodTemplateSpec
from app.kinds.pod.pod_validation import validate_template
from app.machinery.base import LabelSelector
from app.machinery.errors import Cause, forbidden, invalid, not_supported, required
from app.machinery.meta.metadata_validation import NEGATIVE
from app.machinery.selectors import from_label_selector

_NO_DEADLINE = "activeDeadlineSeconds in ReplicaSet is not Supported"
_OF_REPLICAS = frozenset({"fullyLabeledReplicas", "updatedReplicas", "readyReplicas", "availableReplicas"})


def not_negative(path: str, **numbers: int | None) -> Iterator[Cause]:
    """Numbers by their name in JSON, none of which may be below zero."""
    for name, number in numbers.items():
        if number is not None and number < 0:
            yield invalid(f"{path}.{name}", number, NEGATIVE)


def validate_pods(selector: LabelSelector | None, template: PodTemplateSpec) -> Iterator[Cause]:
    """The selector, and the template that it must match."""
    faults = [*validate_selector(selector, "spec.selector")]
    if selector is None:
        yield required("spec.selector")
    yield from faults
    if selector is not None and not (selector.match_labels or selector.match_expressions):
        yield invalid("spec.selector", selector, "empty selector is invalid for deployment")
    elif selector is not None and not faults and not from_label_selector(selector).matches(template.metadata.labels):
        labels = template.metadata.labels
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from validate_template(template)
    if template.spec.restart_policy != "Always":
        yield not_supported("spec.template.spec.restartPolicy", template.spec.restart_policy, ("Always",))
    if template.spec.active_deadline_seconds is not None:
        yield forbidden("spec.template.spec.activeDeadlineSeconds", _NO_DEADLINE)


def validate_counts(replicas: int, **others: int) -> Iterator[Cause]:
    """The numbers of a status, by their name in JSON: none is negative, and no part is above `replicas`."""
    yield from not_negative("status", replicas=replicas, **others)
    for name, number in others.items():
        if name in _OF_REPLICAS and number > replicas:
            yield invalid(f"status.{name}", number, "cannot be greater than status.replicas")
    if others["availableReplicas"] > others["readyReplicas"]:
        yield invalid("status.availableReplicas", others["availableReplicas"], "cannot be greater than readyReplicas")
