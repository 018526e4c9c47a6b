"""Device allocation: which devices of its node each container of a pod gets. Pure; the agent stores the result.

As in Kubernetes' device manager, containers first get the devices of init containers before them; sidecars keep theirs.
"""

from collections.abc import Iterator, Mapping, Sequence

from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import amount
from app.plans.admission.pod_resource_usage import effective_requests

# By container and resource, the ids of its devices.
Allocation = dict[str, dict[str, tuple[str, ...]]]


class InsufficientDevicesError(Exception):
    """A container asks for more devices than are free; the text is the kubelet's."""

    def __init__(self, resource: str, requested: int, available: int) -> None:
        super().__init__(
            f"requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
        )


def allocate(pod: Pod, free: Mapping[str, Sequence[str]]) -> Allocation:
    """`free`: by resource, devices that no pod has. Raises TooFewError."""
    found: Allocation = {}
    for resource, ids in free.items():
        for name, given in _allocate_resource(pod, resource, ids):
            found.setdefault(name, {})[resource] = given
    return found


def _allocate_resource(pod: Pod, resource: str, ids: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    free, reusable = list(ids), list[str]()  # reusable: of init containers, which end before the next one starts
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        count = requested_devices(container, resource)
        if not count:
            continue
        if count > len(reusable) + len(free):
            raise InsufficientDevicesError(resource, count, len(reusable) + len(free))
        given = (reusable + free)[:count]
        free = [each for each in free if each not in given]
        ends_first = container in pod.spec.init_containers and container.restart_policy != "Always"
        added = [each for each in given if each not in reusable]
        reusable = [*reusable, *added] if ends_first else _remove(reusable, given)
        yield container.name, tuple(given)


def _remove(ids: Sequence[str], taken: Sequence[str]) -> list[str]:
    return [each for each in ids if each not in taken]


def requested_devices(container: Container, resource: str) -> int:
    """Return how many devices a container requests."""
    if container.resources is None:
        return 0
    quantity = effective_requests(container.resources).get(resource)
    return 0 if quantity is None else amount(resource, quantity)
