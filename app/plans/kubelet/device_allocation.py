"""Device allocation: which devices of its node each container of a pod gets. Pure; the agent remembers the outcome.

As Kubernetes' device manager has it: what an init container had, those that follow it get first; sidecars keep theirs.
"""

from collections.abc import Iterator, Mapping, Sequence

from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import amount
from app.plans.admission.pod_resource_usage import effective_requests

# By container and resource, the ids of its devices.
Pins = dict[str, dict[str, tuple[str, ...]]]


class TooFewError(Exception):
    """A container asks for more devices than are free; the text is the kubelet's."""

    def __init__(self, resource: str, requested: int, available: int) -> None:
        super().__init__(
            f"requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
        )


def pins(pod: Pod, free: Mapping[str, Sequence[str]]) -> Pins:
    """`free`: by resource, devices that no pod has. Raises TooFewError."""
    found: Pins = {}
    for resource, ids in free.items():
        for name, given in _shared_out(pod, resource, ids):
            found.setdefault(name, {})[resource] = given
    return found


def _shared_out(pod: Pod, resource: str, ids: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    left, again = list(ids), list[str]()  # again: of init containers, which end before the next one starts
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        count = wanted(container, resource)
        if not count:
            continue
        if count > len(again) + len(left):
            raise TooFewError(resource, count, len(again) + len(left))
        given = (again + left)[:count]
        left = [each for each in left if each not in given]
        ends_first = container in pod.spec.init_containers and container.restart_policy != "Always"
        again = [*again, *(each for each in given if each not in again)] if ends_first else _without(again, given)
        yield container.name, tuple(given)


def _without(ids: Sequence[str], taken: Sequence[str]) -> list[str]:
    return [each for each in ids if each not in taken]


def wanted(container: Container, resource: str) -> int:
    """How many a container asks for."""
    if container.resources is None:
        return 0
    quantity = effective_requests(container.resources).get(resource)
    return 0 if quantity is None else amount(resource, quantity)
