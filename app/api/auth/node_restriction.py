"""NodeRestriction: labels, taints and owners of its own Node that an agent may not change, as Kubernetes' admission plugin.

`rbac_escalation` calls it for every write of a Node.
"""

from collections.abc import Mapping
from typing import cast

from app.api.auth.authenticator import MASTERS, NODES, User
from app.kinds.core.node import Node
from app.machinery.base import Object
from app.machinery.errors import forbidden_error

_RESTRICTED = "node-restriction.kubernetes.io"
_KUBERNETES = ("kubernetes.io", "k8s.io")
_OWN_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OWN = frozenset({
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
})  # fmt: skip


def is_restricted(user: User) -> bool:
    return NODES in user.groups and MASTERS not in user.groups


def check(new: Object, old: Object | None) -> None:
    """Raise 403 for a write that an agent may not make."""
    if why := _find_violation(cast("Node", new), cast("Node | None", old)):
        raise forbidden_error("nodes", (old or new).metadata.name, why)


def _find_violation(new: Node, old: Node | None) -> str:
    name = new.metadata.name
    labels = _forbidden_labels(new.metadata.labels, old.metadata.labels if old else {})
    if old is None:
        return f"is not allowed to set the following labels: {', '.join(labels)}" if labels else ""
    if new.metadata.owner_references != old.metadata.owner_references:
        return f'node "{name}" is not allowed to modify ownerReferences'
    if new.spec.taints != old.spec.taints:
        return f'node "{name}" is not allowed to modify taints'
    return f"is not allowed to modify labels: {', '.join(labels)}" if labels else ""


def _forbidden_labels(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    return sorted(key for key in {*new, *old} if new.get(key) != old.get(key) and not is_allowed_label(key))


def is_allowed_label(label: str) -> bool:
    """Return whether an agent may set the label: kubelet's own ones, and all outside of Kubernetes' domains."""
    prefix = label.rpartition("/")[0]
    if _is_in_domain(prefix, _RESTRICTED):
        return False
    if label in _OWN or any(_is_in_domain(prefix, each) for each in _OWN_PREFIXES):
        return True
    return not any(_is_in_domain(prefix, each) for each in _KUBERNETES)


def _is_in_domain(prefix: str, domain: str) -> bool:
    return prefix == domain or prefix.endswith(f".{domain}")
