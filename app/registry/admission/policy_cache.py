"""Policy cache: a process's own copy of the few, small kinds that say who may do what and how much.

The API authorizes and admits from it; the controllers judge the pods that they make by it. It is as new as the feed's
cursor, which includes whatever this process has written itself. Correctness that others' writes could break is guarded
by the preconditions of the write set, as everywhere.
"""

from app.registry.authorization.rbac_cache import AccessCache
from app.registry.mirror_cache import MirrorCache
from app.store import Store

POLICY = frozenset(
    {
        "namespaces",
        "resourcequotas",
        "limitranges",
        "serviceaccounts",
        "priorityclasses.scheduling.k8s.io",
        "storageclasses.storage.k8s.io",
        "runtimeclasses.node.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)


class PolicyCache(MirrorCache):
    """The objects of the kinds in `POLICY`, and the rights that follow from them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, POLICY)
        self.rights = AccessCache(self.mirror)
