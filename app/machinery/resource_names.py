"""Names of resources, such as cpu, requests.nvidia.com/gpu or count/jobs.batch: what they may be, and where.

Validation of containers, quotas and limit ranges uses them, and whoever counts what they name.
"""

from collections.abc import Iterator

from app.machinery import name_validation
from app.machinery.errors import Cause, invalid

COMPUTE = ("cpu", "memory", "ephemeral-storage")
REQUESTS, LIMITS = "requests.", "limits."
HUGE = "hugepages-"
COUNTED = (
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
)
_QUOTA = frozenset(
    (
        *COMPUTE,
        *(REQUESTS + name for name in COMPUTE),
        *(LIMITS + name for name in COMPUTE),
        *COUNTED,
        "requests.storage",
    )
)
_STANDARD = _QUOTA | {"storage"}


def is_native(name: str) -> bool:
    """Kubernetes' own, not what a device plug-in or an administrator added."""
    return "/" not in name or "kubernetes.io/" in name


def is_huge(name: str) -> bool:
    return name.startswith(HUGE)


def is_extended(name: str) -> bool:
    """What pods may ask for beyond Kubernetes' own resources, such as nvidia.com/gpu."""
    return not is_native(name) and not name.startswith(REQUESTS) and not name_validation.qualified_name(REQUESTS + name)


def is_shared(name: str) -> bool:
    """More of it may be promised than there is."""
    return is_native(name) and not is_huge(name)


def is_whole(name: str) -> bool:
    """Counted in whole numbers only."""
    return name in COUNTED or is_extended(name)


def is_of_quotas(name: str) -> bool:
    """A name without a domain that quotas know."""
    return name in _QUOTA or name.startswith((HUGE, REQUESTS + HUGE))


def validate_name(name: str, path: str) -> Iterator[Cause]:
    """For any resource."""
    faults = name_validation.qualified_name(name)
    for text in faults:
        yield invalid(path, name, text)
    if not faults and "/" not in name and name not in _STANDARD and not name.startswith((HUGE, REQUESTS + HUGE)):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def validate_container_name(name: str, path: str) -> Iterator[Cause]:
    """For what a container may ask for."""
    yield from validate_name(name, path)
    if "/" not in name:
        if name not in COMPUTE and not is_huge(name):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def validate_quota_name(name: str, path: str) -> Iterator[Cause]:
    """For what a quota may limit."""
    yield from validate_name(name, path)
    if "/" not in name and not is_of_quotas(name):
        yield invalid(path, name, "must be a standard resource for quota")
