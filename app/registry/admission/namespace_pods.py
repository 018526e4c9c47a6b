"""Pods of a namespace whose Pod Security level has become stricter: which of them the new level would refuse.

Called by the strategy of namespaces, before the change is stored. The pods stay: only the client is warned.
"""

from typing import cast

from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.plans.admission.pod_security import review as pod_security
from app.plans.admission.pod_security.namespace_policy import LevelVersion
from app.registry import offload
from app.registry.codec import decode
from app.registry.registry import Registry
from app.registry.verbs.lists import Scope, place_of
from app.store import Page

MOST_BYTES = 16 << 20  # of pods that are looked at


async def warn_of_pods(registry: Registry, namespace: str, enforce: LevelVersion) -> tuple[str, ...]:
    """Return what to say of the pods that are there: beside the event loop if they are many; not of all if they are very many."""
    scope = Scope(kind=PODS, namespace=namespace)
    page = await registry.store.list(scope.query(limit=pod_security.MOST_PODS, size=MOST_BYTES))
    left = 0
    if page.more:
        left = await registry.store.remaining(scope.query(place_of(page.heads[-1]), at=page.revision)) or 0
    size = sum(len(head.body) for head in page.heads)
    return await offload.run(size, _warn, namespace, enforce, page, len(page.heads) + left)


def _warn(namespace: str, enforce: LevelVersion, page: Page, total: int) -> tuple[str, ...]:
    pods = [cast("Pod", decode(PODS, head)) for head in page.heads]
    return pod_security.warn_of_pods(namespace, enforce, pod_security.by_controller(pods), total)
