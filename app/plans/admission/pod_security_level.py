"""Level of the Pod Security Standards that a namespace enforces (k8s.io/pod-security-admission). Pure."""

from collections.abc import Mapping
from typing import Literal, cast

ENFORCE = "pod-security.kubernetes.io/enforce"
Level = Literal["privileged", "baseline", "restricted"]
_LEVELS = ("privileged", "baseline", "restricted")


def enforced_level(labels: Mapping[str, str], default: Level) -> Level:
    """Return the level of the namespace with these labels. A level that does not exist is the strictest, as in Kubernetes."""
    level = labels.get(ENFORCE, default)
    return cast("Level", level) if level in _LEVELS else "restricted"
