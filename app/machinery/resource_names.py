"""Resource names, such as cpu, requests.nvidia.com/gpu or count/jobs.batch: their classes, and where each is valid.

Validation of containers, quotas and limit ranges calls this, and usage accounting. The rules are those of Kubernetes'
`core/helper`.
"""

from collections.abc import Iterator

from app.machinery import name_validation
from app.machinery.errors import Cause, invalid

COMPUTE = ("cpu", "memory", "ephemeral-storage")
REQUESTS, LIMITS = "requests.", "limits."
HUGEPAGES = "hugepages-"
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
    """Return whether the resource is Kubernetes' own, not a device plug-in's or an administrator's."""
    return "/" not in name or "kubernetes.io/" in name


def is_hugepages(name: str) -> bool:
    return name.startswith(HUGEPAGES)


def is_extended(name: str) -> bool:
    """Return whether it is an extended resource that pods may request, such as nvidia.com/gpu."""
    return not is_native(name) and not name.startswith(REQUESTS) and not name_validation.qualified_name(REQUESTS + name)


def is_overcommit_allowed(name: str) -> bool:
    """Return whether limits may exceed requests, as they may for CPU and memory."""
    return is_native(name) and not is_hugepages(name)


def is_integer_resource(name: str) -> bool:
    """Return whether only whole numbers of it are valid."""
    return name in COUNTED or is_extended(name)


def is_standard_quota_resource(name: str) -> bool:
    """Return whether it is a standard resource name for quotas, without a domain."""
    return name in _QUOTA or name.startswith((HUGEPAGES, REQUESTS + HUGEPAGES))


def validate_name(name: str, path: str) -> Iterator[Cause]:
    """Validate the name of any resource."""
    faults = name_validation.qualified_name(name)
    for text in faults:
        yield invalid(path, name, text)
    if (
        not faults
        and "/" not in name
        and name not in _STANDARD
        and not name.startswith((HUGEPAGES, REQUESTS + HUGEPAGES))
    ):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def validate_container_name(name: str, path: str) -> Iterator[Cause]:
    """Validate a resource name in a container's requests or limits."""
    yield from validate_name(name, path)
    if "/" not in name:
        if name not in COMPUTE and not is_hugepages(name):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def validate_quota_name(name: str, path: str) -> Iterator[Cause]:
    """Validate a resource name in a quota."""
    yield from validate_name(name, path)
    if "/" not in name and not is_standard_quota_resource(name):
        yield invalid(path, name, "must be a standard resource for quota")
