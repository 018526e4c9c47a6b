"""What a node may not change about itself: labels that others rely on, its taints, its owners. As Kubernetes' admission
plugin NodeRestriction. Called by `rbac_escalation` for every write of a node.
"""

from collections.abc import Mapping
from typing import cast

from app.api.auth.authenticator import MASTERS, NODES, User
from app.kinds.core.node import Node
from app.machinery.base import Object
from app.machinery.errors import refused

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


def applies(user: User) -> bool:
    return NODES in user.groups and MASTERS not in user.groups


def check(new: Object, old: Object | None) -> None:
    """Raises 403."""
    if why := _why_not(cast("Node", new), cast("Node | None", old)):
        raise refused("nodes", (old or new).metadata.name, why)


def _why_not(new: Node, old: Node | None) -> str:
    name = new.metadata.name
    labels = _forbidden(new.metadata.labels, old.metadata.labels if old else {})
    if old is None:
        return f"is not allowed to set the following labels: {', '.join(labels)}" if labels else ""
    if new.metadata.owner_references != old.metadata.owner_references:
        return f'node "{name}" is not allowed to modify ownerReferences'
    if new.spec.taints != old.spec.taints:
        return f'node "{name}" is not allowed to modify taints'
    return f"is not allowed to modify labels: {', '.join(labels)}" if labels else ""


def _forbidden(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    return sorted(key for key in {*new, *old} if new.get(key) != old.get(key) and not is_own(key))


def is_own(label: str) -> bool:
    """Whether a node may set it: its kind's own, and whatever is not Kubernetes'."""
    prefix = label.rpartition("/")[0]
    if _under(prefix, _RESTRICTED):
        return False
    if label in _OWN or any(_under(prefix, each) for each in _OWN_PREFIXES):
        return True
    return not any(_under(prefix, each) for each in _KUBERNETES)


def _under(prefix: str, domain: str) -> bool:
    return prefix == domain or prefix.endswith(f".{domain}")
