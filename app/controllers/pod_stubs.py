"""Pod stubs: what the controllers keep of a pod that has ended and that its Job has counted: enough to find and select it.

Nobody plans from such a pod any more, but a Job may have a hundred thousand of them. The controllers' mirror makes each
short as it comes; what its pods have in common, a Job's short pods share. To write one, read it whole from the store.
"""

from typing import NamedTuple

from msgspec.structs import replace

from app.kinds.pod.pod import Pod, PodSpec, PodStatus, is_ready, is_terminal
from app.machinery.base import Object, ObjectMeta, OwnerReference
from app.machinery.owner_references import controller_of
from app.plans.jobs.finalizers import is_tracked

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
_REMEMBERED = 1_000  # owners
_STATUSES = 100


class CountedPod(Pod):
    """Of a type of its own, so that it cannot be written by mistake: no kind of objects has it."""


class _Common(NamedTuple):
    """What the pods of one owner share."""

    owners: tuple[OwnerReference, ...]
    namespace: str
    finalizers: tuple[str, ...]
    spec: PodSpec
    words: dict[str, str]


class Counted:
    """Makes pods short."""

    def __init__(self) -> None:
        self._common: dict[str, _Common] = {}  # by the owner's UID
        self._statuses: dict[tuple[str, str], PodStatus] = {}

    def shortened(self, obj: Object) -> Object | None:
        """What is to be kept of a pod; None for one that somebody may still plan from."""
        owner = controller_of(obj)
        if owner is None or not isinstance(obj, Pod) or not _is_over(obj, owner):
            return None
        meta, common = obj.metadata, self._of(owner.uid, obj)
        words = common.words
        kept = ObjectMeta(
            name=meta.name,
            namespace=common.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels={words.get(key, key): words.get(value, value) for key, value in meta.labels.items()},
            owner_references=common.owners,
            finalizers=common.finalizers,
        )
        return CountedPod(metadata=kept, spec=common.spec, status=self._status(obj.status))

    def _of(self, uid: str, pod: Pod) -> _Common:
        """What this pod has in common with the one before of the same owner, which is nearly always everything."""
        meta, known = pod.metadata, self._common.get(uid)
        spec = replace(pod.spec, hostname="", node_name="")
        own = (meta.owner_references, meta.namespace, meta.finalizers, spec)
        if known is not None and known[:4] == own:
            return known
        if len(self._common) >= _REMEMBERED:
            self._common.clear()
        words = {word: word for pair in meta.labels.items() for word in pair}
        self._common[uid] = _Common(*own, words)
        return self._common[uid]

    def _status(self, status: PodStatus) -> PodStatus:
        key = (status.phase, status.qos_class)
        if key not in self._statuses:
            self._statuses[key] = PodStatus(phase=status.phase, qos_class=status.qos_class)
        return self._statuses[key]


def _is_over(pod: Pod, owner: OwnerReference) -> bool:
    """It has ended, nobody waits for it, and it has the label by which its Job selects it: it will not be let go of."""
    meta = pod.metadata
    return (
        is_terminal(pod)
        and not is_tracked(pod)
        and not is_ready(pod)
        and meta.deletion_timestamp is None
        and meta.labels.get(CONTROLLER_UID) == owner.uid
    )
