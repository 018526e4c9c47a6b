"""Validation of requests, limits and claims. Part of `app.kinds.pod.pod_validation`."""

from collections.abc import Collection, Iterator, Mapping

from app.kinds.pod.container import ContainerResizePolicy, ResourceRequirements
from app.machinery.base import Quantity
from app.machinery.errors import Cause, duplicate, forbidden, format_value, invalid, one_of, required
from app.machinery.meta.metadata_validation import NEGATIVE
from app.machinery.quantity import canonical, compare, fault, parse
from app.machinery.resource_names import is_hugepages, is_native, is_overcommit_allowed, validate_container_name


def validate_resources(resources: ResourceRequirements, claims: Collection[str], path: str) -> Iterator[Cause]:
    yield from quantities(resources.limits, f"{path}.limits")
    yield from quantities(resources.requests, f"{path}.requests")
    for name, quantity in resources.requests.items():
        yield from _within(name, quantity, resources.limits, path)
    asked = resources.limits.keys() | resources.requests.keys()
    if any(map(is_hugepages, asked)) and not asked & {"cpu", "memory"}:
        yield forbidden(path, "HugePages require cpu or memory")
    yield from _claims(resources, claims, f"{path}.claims")


def quantities(amounts: Mapping[str, Quantity], path: str) -> Iterator[Cause]:
    """Each names a resource that containers can have, and how much of it."""
    for name, quantity in amounts.items():
        yield from validate_container_name(name, f"{path}[{name}]")
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


def _quantity(name: str, quantity: Quantity, path: str) -> Iterator[Cause]:
    if text := fault(quantity):
        yield invalid(path, quantity, text)
        return
    if compare(quantity, 0) < 0:
        yield invalid(path, canonical(quantity), NEGATIVE)
    if not is_native(name) and parse(quantity).denominator != 1:
        yield invalid(path, canonical(quantity), "must be an integer")


def _within(name: str, quantity: Quantity, limits: Mapping[str, Quantity], path: str) -> Iterator[Cause]:
    """Requests are at most the limit; exactly the limit for what cannot be shared."""
    shared = is_overcommit_allowed(name)
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
            yield Cause("FieldValueNotFound", f"Not found: {format_value(claim.name)}: {text}", f"{path}[{index}]")
        seen.add(key)
