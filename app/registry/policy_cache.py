"""Policy cache: a process's own copy of the few, small kinds that say who may do what and how much.

The API authorizes and admits from it; the controllers judge the pods that they make by it. It is as new as the feed's
cursor, which includes whatever this process has written itself. Correctness that others' writes could break is guarded
by the preconditions of the write set, as everywhere.
"""

import asyncio

from app.kinds import KINDS
from app.registry.rbac_cache import AccessCache
from app.store import Mirror, Store

POLICY = frozenset(
    {
        "namespaces",
        "resourcequotas",
        "limitranges",
        "serviceaccounts",
        "priorityclasses.scheduling.k8s.io",
        "storageclasses.storage.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    }
)


class PolicyCache:
    """Filled when it is first asked for, and anew after the feed has lost touch."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._mirror: Mirror | None = None
        self._since = 0
        self.rights = AccessCache(self.mirror)

    async def mirror(self) -> Mirror:
        """The objects of the kinds in `POLICY`, by key."""
        if (mirror := self._newest()) is not None:
            return mirror
        async with self._lock:
            return self._newest() or await self._fill()

    def _newest(self) -> Mirror | None:
        return self._mirror if self._since == self._store.feed.unbroken_since else None

    async def _fill(self) -> Mirror:
        if self._mirror is not None:
            self._store.feed.leave(self._mirror.apply)
            self._mirror = None
        since = self._store.feed.unbroken_since
        mirror = Mirror({kind.resource: kind.type for kind in KINDS if kind.resource in POLICY})
        await self._store.fill(mirror)
        self._mirror, self._since = mirror, since
        return mirror
