"""Protection: a claim that is deleted stays while a pod uses it. Pure; kube-controller-manager's pvc-protection-controller.

A pod uses its claims from its binding to a node until it has ended. The scheduler binds no pod to a claim that is being deleted,
and its write demands that none is: so a claim that was found unused stays so.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.storage.persistentvolumeclaim import PROTECTION, PersistentVolumeClaim
from app.plans.plan import Plan, Update


def claim_names(pod: Pod) -> Iterator[str]:
    """Names of the claims of a pod, those of its generic ephemeral volumes included."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}"


def uses(pod: Pod) -> bool:
    """Return whether the pod uses its claims now."""
    return bool(pod.spec.node_name) and not is_terminal(pod)


def plan_protection(claim: PersistentVolumeClaim, pods: Iterable[Pod]) -> Plan:
    """`pods`: those that name the claim."""
    meta = claim.metadata
    if meta.deletion_timestamp is None or PROTECTION not in meta.finalizers or any(map(uses, pods)):
        return Plan()
    kept = tuple(each for each in meta.finalizers if each != PROTECTION)
    return Plan((Update(replace(claim, metadata=replace(meta, finalizers=kept)), claim),))
