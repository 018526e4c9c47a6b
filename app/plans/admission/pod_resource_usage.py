"""Resource usage of a pod: requests and limits, exactly, as quotas and limit ranges count them.

The scheduler's own figures, in `app.kinds.pod.pod_resources`, are rounded for speed. These are not.
"""

from collections.abc import Callable, Iterable, Mapping

from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod import Pod
from app.machinery.base import Quantity
from app.machinery.quantity import add, compare
from app.machinery.resource_names import is_hugepages

Amounts = dict[str, Quantity]
_Part = Callable[[ResourceRequirements], Mapping[str, Quantity]]
_NONE = ResourceRequirements()


def requests(pod: Pod, *, overhead: bool = True) -> Amounts:
    """The sum of containers and sidecars, or the largest step of initialisation if that is more; plus overhead."""
    total = _total(pod, effective_requests)
    return _plus(total, pod.spec.overhead) if overhead else total


def limits(pod: Pod, *, overhead: bool = True) -> Amounts:
    """Likewise. Overhead only adds to an existing limit."""
    total = _total(pod, lambda resources: resources.limits)
    if not overhead:
        return total
    limited = {name: each for name, each in pod.spec.overhead.items() if compare(total.get(name, 0), 0) > 0}
    return _plus(total, limited)


def effective_requests(resources: ResourceRequirements) -> Mapping[str, Quantity]:
    """Limits stand in for requests that are not given."""
    return {**resources.limits, **resources.requests} if resources.limits else resources.requests


def _total(pod: Pod, part: _Part) -> Amounts:
    spec = pod.spec
    total = _sum(part(container.resources or _NONE) for container in spec.containers)
    if spec.init_containers:
        peak, sidecars = _init_usage(spec.init_containers, part)
        total = _max(_plus(total, sidecars), peak)
    if spec.resources:  # requests and limits of the whole pod take precedence
        total |= {name: each for name, each in part(spec.resources).items() if _is_pod_level(name)}
    return total


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or is_hugepages(name)


def _init_usage(containers: Iterable[Container], part: _Part) -> tuple[Amounts, Amounts]:
    """The most that is used at once while init containers run, and what the sidecars among them continue to use."""
    peak: Amounts = {}
    sidecars: Amounts = {}
    for container in containers:
        running = _plus(sidecars, part(container.resources or _NONE))
        peak = _max(peak, running)
        if container.restart_policy == "Always":
            sidecars = running
    return peak, sidecars


def _sum(parts: Iterable[Mapping[str, Quantity]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        total = _plus(total, part)
    return total


def _plus(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> Amounts:
    if not one or not other:
        return dict(one or other)
    return {**one, **{name: add(one.get(name, 0), each) for name, each in other.items()}}


def _max(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> Amounts:
    larger = {name: each for name, each in other.items() if name not in one or compare(each, one[name]) > 0}
    return {**one, **larger}
