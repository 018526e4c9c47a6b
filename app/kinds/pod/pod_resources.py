"""Resource requests of a pod, and its QoS class. The scheduler and defaulting use it.

CPU is counted in thousandths, everything else in units. A quantity that does not parse counts as nothing here:
validation names it.
"""

from collections.abc import Iterable, Iterator, Mapping

from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod_schema import Pod, PodSpec
from app.machinery.base import Quantity
from app.machinery.quantity import milli_value, value

Amounts = dict[str, int]

_NONE = ResourceRequirements()
_QUALITY = ("cpu", "memory")  # the resources that decide about quality of service


def requests(pod: Pod) -> Amounts:
    """Return what the scheduler sets aside for a pod on its node, apart from the place for the pod itself."""
    return spec_requests(pod.spec)


def spec_requests(spec: PodSpec) -> Amounts:
    """Containers and sidecars together, or the neediest step of initialisation if that is more; plus overhead."""
    total = _sum(_requests(container.resources) for container in spec.containers)
    if spec.init_containers:
        peak, sidecars = _initialisation(spec.init_containers)
        total = _most(_plus(total, sidecars), peak)
    if spec.resources:
        total |= _requests(spec.resources)  # said for the whole pod: wins
    return _plus(total, _amounts(spec.overhead)) if spec.overhead else total


def _initialisation(containers: Iterable[Container]) -> tuple[Amounts, Amounts]:
    """The most that is needed while init containers run, and what the sidecars among them go on needing."""
    peak: Amounts = {}
    sidecars: Amounts = {}
    for container in containers:
        running = _plus(sidecars, _requests(container.resources))
        peak = _most(peak, running)
        if container.restart_policy == "Always":
            sidecars = running
    return peak, sidecars


def _requests(resources: ResourceRequirements | None) -> Amounts:
    """Limits stand in for requests that are not given."""
    if resources is None:
        return {}
    if not resources.limits:
        return _amounts(resources.requests)
    return _amounts({**resources.limits, **resources.requests})


def _amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    return {name: amount(name, quantity) for name, quantity in quantities.items()}


def amount(resource: str, quantity: Quantity) -> int:
    """One amount as it is counted."""
    try:
        return milli_value(quantity) if resource == "cpu" else value(quantity)
    except ValueError:
        return 0


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        total = _plus(total, part)
    return total


def _plus(one: Amounts, other: Amounts) -> Amounts:
    if not one or not other:
        return dict(one or other)
    return {name: one.get(name, 0) + other.get(name, 0) for name in one | other}


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one | other}


def qos_class(spec: PodSpec) -> str:
    """Guaranteed if CPU and memory are limited everywhere, to what is requested; BestEffort if nothing is said."""
    if spec.resources and (spec.resources.requests or spec.resources.limits):
        parts = [spec.resources]
    else:
        parts = [container.resources or _NONE for container in (*spec.init_containers, *spec.containers)]
    asked = [dict(_quality(part.requests)) for part in parts]
    limited = [dict(_quality(part.limits)) for part in parts]
    if not any(asked) and not any(limited):
        return "BestEffort"
    limits = _sum(limited)
    full = all(len(each) == len(_QUALITY) for each in limited)
    return "Guaranteed" if full and _sum(asked) == limits else "Burstable"


def _quality(quantities: Mapping[str, Quantity]) -> Iterator[tuple[str, int]]:
    for name in _QUALITY:
        if name in quantities and (counted := amount(name, quantities[name])) > 0:
            yield name, counted
