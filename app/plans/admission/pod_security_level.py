"""Level of the Pod Security Standards that a namespace enforces (k8s.io/pod-security-admission). Pure."""

from collections.abc import Mapping
from typing import Literal, cast

ENFORCE = "pod-security.kubernetes.io/enforce"
Level = Literal["privileged", "baseline", "restricted"]
_LEVELS = ("privileged", "baseline", "restricted")
_EXEMPT = frozenset({"kube-system"})


def enforced_level(namespace: str, labels: Mapping[str, str], default: Level) -> Level:
    """Return the level of a namespace with these labels. A level that does not exist is the strictest, as in Kubernetes."""
    if namespace in _EXEMPT:
        return "privileged"
    level = labels.get(ENFORCE, default)
    return cast("Level", level) if level in _LEVELS else "restricted"
