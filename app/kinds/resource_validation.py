"""Validation of requests, limits and claims. Part of `app.kinds.pod_validation`."""

from collections.abc import Collection, Iterator, Mapping

from app.kinds import names
from app.kinds.base import Quantity
from app.kinds.container import ContainerResizePolicy, ResourceRequirements
from app.kinds.errors import Cause, duplicate, forbidden, invalid, one_of, required, shown
from app.kinds.metadata import NEGATIVE
from app.kinds.quantity import canonical, compare, fault, parse

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_HUGE = "hugepages-"
_OTHER_STANDARD = (
    "configmaps",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "storage",
)


def validate_resources(resources: ResourceRequirements, claims: Collection[str], path: str) -> Iterator[Cause]:
    yield from quantities(resources.limits, f"{path}.limits")
    yield from quantities(resources.requests, f"{path}.requests")
    for name, quantity in resources.requests.items():
        yield from _within(name, quantity, resources.limits, path)
    asked = resources.limits.keys() | resources.requests.keys()
    if any(name.startswith(_HUGE) for name in asked) and not asked & {"cpu", "memory"}:
        yield forbidden(path, "HugePages require cpu or memory")
    yield from _claims(resources, claims, f"{path}.claims")


def quantities(amounts: Mapping[str, Quantity], path: str) -> Iterator[Cause]:
    """Each names a resource that containers can have, and how much of it."""
    for name, quantity in amounts.items():
        yield from _resource_name(name, f"{path}[{name}]")
        yield from _quantity(name, quantity, f"{path}[{name}]")


def validate_resize(policies: tuple[ContainerResizePolicy, ...], pod_policy: str, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        if policy.resource_name in seen:
            yield duplicate(f"{path}[{index}]", policy.resource_name)
        seen.add(policy.resource_name)
        yield from one_of(path, policy.resource_name, ("cpu", "memory"))
        yield from one_of(path, policy.restart_policy, ("NotRequired", "RestartContainer"))
        if pod_policy == "Never" and policy.restart_policy != "NotRequired":
            yield invalid(path, policy.restart_policy, "must be 'NotRequired' when `restartPolicy` is 'Never'")


def _resource_name(name: str, path: str) -> Iterator[Cause]:
    for text in names.qualified_name(name):
        yield invalid(path, name, text)
    if "/" in name:
        if not _is_native(name) and name.startswith("requests."):
            yield invalid(path, name, "doesn't follow extended resource name standard")
    elif name not in _NATIVE and not name.startswith(_HUGE):
        if name not in _OTHER_STANDARD:
            yield invalid(path, name, "must be a standard resource type or fully qualified")
        yield invalid(path, name, "must be a standard resource for containers")


def _quantity(name: str, quantity: Quantity, path: str) -> Iterator[Cause]:
    if text := fault(quantity):
        yield invalid(path, quantity, text)
        return
    if compare(quantity, 0) < 0:
        yield invalid(path, canonical(quantity), NEGATIVE)
    if not _is_native(name) and parse(quantity).denominator != 1:
        yield invalid(path, canonical(quantity), "must be an integer")


def _within(name: str, quantity: Quantity, limits: Mapping[str, Quantity], path: str) -> Iterator[Cause]:
    """Requests are at most the limit; exactly the limit for what cannot be shared."""
    shared = _is_native(name) and not name.startswith(_HUGE)
    if name not in limits:
        if not shared:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        return
    limit = limits[name]
    if fault(quantity) or fault(limit):
        return
    order = compare(quantity, limit)
    if order and not shared:
        yield invalid(f"{path}.requests", canonical(quantity), f"must be equal to {name} limit of {canonical(limit)}")
    elif order > 0:
        text = f"must be less than or equal to {name} limit of {canonical(limit)}"
        yield invalid(f"{path}.requests", canonical(quantity), text)


def _is_native(name: str) -> bool:
    """Kubernetes' own, not what a device plug-in or an administrator added."""
    return "/" not in name or "kubernetes.io/" in name


def _claims(resources: ResourceRequirements, known: Collection[str], path: str) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(resources.claims):
        key = (claim.name, claim.request)
        if not claim.name:
            yield required(f"{path}[{index}]")
        elif key in seen:
            yield duplicate(f"{path}[{index}]", claim.name)
        elif claim.name not in known:
            text = "must be one of the names in pod.spec.resourceClaims" + ("" if known else " which is empty")
            yield Cause("FieldValueNotFound", f"Not found: {shown(claim.name)}: {text}", f"{path}[{index}]")
        seen.add(key)
