"""The ResourceQuota kind: how much a namespace may hold and ask for.

What is charged, and what to, is decided in `app.plans.admission.resource_quota`.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.core.quota_schema import (
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    ScopedResourceSelectorRequirement,
)
from app.machinery.base import Column, Kind, Quantity
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid, required
from app.machinery.meta.metadata_validation import IMMUTABLE, NEGATIVE
from app.machinery.quantity import canonical, compare, fault, parse
from app.machinery.resource_names import (
    COMPUTE,
    LIMITS,
    REQUESTS,
    is_integer_resource,
    is_standard_quota_resource,
    validate_quota_name,
)

__all__ = [
    "BEST_EFFORT",
    "CROSS_NAMESPACE",
    "KIND",
    "NOT_BEST_EFFORT",
    "NOT_TERMINATING",
    "PRIORITY_CLASS",
    "TERMINATING",
    "Hard",
    "ResourceQuota",
    "ResourceQuotaSpec",
    "ResourceQuotaStatus",
    "ScopedResourceSelectorRequirement",
    "on_create",
    "on_update",
    "prepare",
    "row",
    "validate",
    "validate_status",
    "validate_update",
]


TERMINATING, NOT_TERMINATING = "Terminating", "NotTerminating"
BEST_EFFORT, NOT_BEST_EFFORT = "BestEffort", "NotBestEffort"
PRIORITY_CLASS, CROSS_NAMESPACE = "PriorityClass", "CrossNamespacePodAffinity"

Hard = dict[str, Quantity]


def prepare(quota: ResourceQuota) -> ResourceQuota:
    status = ResourceQuotaStatus(hard=_canonical(quota.status.hard), used=_canonical(quota.status.used))
    return replace(quota, spec=replace(quota.spec, hard=_canonical(quota.spec.hard)), status=status)


def _canonical(amounts: Hard) -> Hard:
    return {name: each if fault(each) else canonical(each) for name, each in amounts.items()}


def on_create(quota: ResourceQuota, _: datetime) -> ResourceQuota:
    return replace(quota, status=ResourceQuotaStatus())


def on_update(new: ResourceQuota, old: ResourceQuota) -> ResourceQuota:
    return replace(new, status=old.status)


def validate(quota: ResourceQuota) -> list[Cause]:
    spec = quota.spec
    return [
        *_amounts(spec.hard, "spec.hard"),
        *_scopes(spec),
        *(_selector(spec, spec.scope_selector.match_expressions) if spec.scope_selector else ()),
    ]


def validate_update(new: ResourceQuota, old: ResourceQuota) -> list[Cause]:
    same = set(new.spec.scopes) == set(old.spec.scopes)
    return [] if same else [invalid("spec.scopes", new.spec.scopes, IMMUTABLE)]


def validate_status(new: ResourceQuota, _: ResourceQuota) -> list[Cause]:
    return [*_amounts(new.status.hard, "status.hard"), *_amounts(new.status.used, "status.used")]


def _amounts(amounts: Hard, path: str) -> Iterator[Cause]:
    for name, amount in amounts.items():
        at_name = f"{path}[{name}]"
        yield from validate_quota_name(name, at_name)
        if text := fault(amount):
            yield invalid(at_name, amount, text)
        elif compare(amount, 0) < 0:
            yield invalid(at_name, canonical(amount), NEGATIVE)
        elif is_integer_resource(name) and parse(amount).denominator != 1:
            yield invalid(at_name, canonical(amount), "must be an integer")


_ONLY_COUNTS = frozenset({"pods"})
_OF_PODS = _ONLY_COUNTS | {
    prefix + name for prefix in ("", REQUESTS, LIMITS) for name in COMPUTE if name != "ephemeral-storage"
}
_VALID = {
    TERMINATING: _OF_PODS,
    NOT_TERMINATING: _OF_PODS,
    BEST_EFFORT: _ONLY_COUNTS,
    NOT_BEST_EFFORT: _OF_PODS,
    PRIORITY_CLASS: _OF_PODS,
    CROSS_NAMESPACE: _OF_PODS,
}
_EXCLUSIVE = ({BEST_EFFORT, NOT_BEST_EFFORT}, {TERMINATING, NOT_TERMINATING})


def _scopes(spec: ResourceQuotaSpec) -> Iterator[Cause]:
    path = "spec.scopes"
    for scope in spec.scopes:
        if scope not in _VALID:
            yield invalid(path, spec.scopes, "unsupported scope")
        for _ in _beyond(scope, spec.hard):
            yield invalid(path, spec.scopes, "unsupported scope applied to resource")
    yield from _conflicts(spec, spec.scopes)


def _beyond(scope: str, hard: Hard) -> list[str]:
    """The limits that a scope cannot be about."""
    valid = _VALID.get(scope)
    return [] if valid is None else [name for name in hard if is_standard_quota_resource(name) and name not in valid]


def _conflicts(spec: ResourceQuotaSpec, scopes: Iterable[str]) -> Iterator[Cause]:
    present = set(scopes)
    for pair in _EXCLUSIVE:
        if pair <= present:
            yield invalid("spec.scopes", spec.scopes, "conflicting scopes")


_ONLY_EXISTS = (
    "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _selector(spec: ResourceQuotaSpec, demands: tuple[ScopedResourceSelectorRequirement, ...]) -> Iterator[Cause]:
    path = "spec.scopeSelector.matchExpressions"
    for each in demands:
        if each.scope_name not in _VALID:
            yield invalid(f"{path}.scopeName", each.scope_name, "unsupported scope")
        for _ in _beyond(each.scope_name, spec.hard):
            yield invalid(path, spec.scope_selector, "unsupported scope applied to resource")
        if each.scope_name in _VALID and each.scope_name != PRIORITY_CLASS and each.operator != "Exists":
            yield invalid(f"{path}.operator", each.operator, _ONLY_EXISTS)
        yield from _operator(each, path)
    yield from _conflicts(spec, [each.scope_name for each in demands])


def _operator(demand: ScopedResourceSelectorRequirement, path: str) -> Iterator[Cause]:
    if demand.operator in ("In", "NotIn"):
        if not demand.values:
            text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield required(f"{path}.values", text)
    elif demand.operator in ("Exists", "DoesNotExist"):
        if demand.values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid(f"{path}.values", demand.values, text)
    else:
        yield invalid(f"{path}.operator", demand.operator, "not a valid selector operator")


def row(quota: ResourceQuota, now: datetime) -> list[Any]:
    meta, status = quota.metadata, quota.status
    shares = {name: f"{name}: {status.used.get(name, '0')}/{hard}" for name, hard in sorted(status.hard.items())}
    requests = ", ".join(text for name, text in shares.items() if not name.startswith(LIMITS))
    limits = ", ".join(text for name, text in shares.items() if name.startswith(LIMITS))
    return [meta.name, requests, limits, age(meta.creation_timestamp, now)]


KIND = Kind(
    type=ResourceQuota,
    group="",
    version="v1",
    plural="resourcequotas",
    short_names=("quota",),
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_update=validate_update,
    validate_status=validate_status,
    columns=(
        Column(name="Name", format="name", description="Name of the quota."),
        Column(name="Request", description="Use and limit of all but what starts with limits."),
        Column(name="Limit", description="Use and limit of what starts with limits."),
        Column(name="Age", description="Time since the quota was created."),
    ),
    row=row,
    returns_deleted=True,
    example="""\
apiVersion: v1
kind: ResourceQuota
metadata:
  name: team
spec:
  hard:
    pods: "10"
    requests.cpu: "4"
    requests.memory: 8Gi
    limits.cpu: "8"
  scopeSelector:
    matchExpressions:
    - scopeName: PriorityClass
      operator: NotIn
      values: [system-cluster-critical]
""",
)
