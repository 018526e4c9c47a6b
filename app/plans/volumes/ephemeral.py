"""Generic ephemeral volumes: the claim of one, which its pod owns. Pure; Kubernetes' ephemeral-volume-controller."""

from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import Volume
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim
from app.machinery.base import ObjectMeta, OwnerReference


def claim_name(pod: Pod, volume: Volume) -> str:
    return f"{pod.metadata.name}-{volume.name}"


def is_owned(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Return whether the claim was made for the pod, and not by somebody under the same name."""
    return any(each.controller and each.uid == pod.metadata.uid for each in claim.metadata.owner_references)


def make_claim(pod: Pod, volume: Volume) -> PersistentVolumeClaim:
    """Raises ValueError for a volume without a template, which validation refuses."""
    template = volume.ephemeral.volume_claim_template if volume.ephemeral is not None else None
    if template is None:
        raise ValueError(f"volume {volume.name} has no volumeClaimTemplate")
    owner = OwnerReference(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    meta = ObjectMeta(
        name=claim_name(pod, volume),
        namespace=pod.metadata.namespace,
        labels=dict(template.metadata.labels),
        annotations=dict(template.metadata.annotations),
        owner_references=(owner,),
    )
    return PersistentVolumeClaim(metadata=meta, spec=template.spec)
