"""Volumes of a pod as the scheduler sees them: on which nodes they can be had. Pure; kube-scheduler's plugin VolumeBinding.

`resolve` looks at the pod's claims once, when one of them has changed. `PodVolumes.filter` asks about a node, and `choose`
decides what the unbound claims get there. That is written together with the pod's binding (`bind_claims`): no claim is ever bound
for a pod that then goes elsewhere.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from msgspec.structs import replace

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import Volume
from app.kinds.storage.persistentvolume import PersistentVolume
from app.kinds.storage.persistentvolumeclaim import (
    PersistentVolumeClaim,
    class_name,
    is_exclusive,
    is_single_node,
    requested,
)
from app.kinds.storage.storageclass import StorageClass, is_delayed
from app.machinery.base import Object
from app.machinery.quantity import parse
from app.plans.plan import Action
from app.plans.volumes import binding, ephemeral
from app.plans.volumes.claims import provision_and_bind
from app.plans.volumes.provisioning import SELECTED_NODE, allows, find_obstacle, provision

CLAIM_NOT_FOUND = 'persistentvolumeclaim "{}" not found'
CLAIM_DELETED = 'persistentvolumeclaim "{}" is being deleted'
CLAIM_LOST = 'persistentvolumeclaim "{}" bound to non-existent persistentvolume "{}"'
CLAIM_AWAITED = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "{}"'
CLAIM_NOT_OWNED = 'PVC "{}/{}" was not created for pod "{}/{}" (pod is not owner)'
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
NODE_CONFLICT = "node(s) had volume node affinity conflict"
NO_VOLUMES = "node(s) didn't find available persistent volumes to bind"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
ON_ANOTHER_NODE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOnce access mode already in-use on another node"
)
_OF_POD = tuple(each.partition("{")[0] for each in (CLAIM_NOT_FOUND, CLAIM_AWAITED, CLAIM_NOT_OWNED, UNBOUND_IMMEDIATE))
_encode = msgspec.json.Encoder(order="deterministic").encode

Choice = tuple[PersistentVolumeClaim, PersistentVolume | None]
"""A claim, and the volume that it gets; None: a new one."""


@dataclass(frozen=True, slots=True)
class UnboundClaim:
    """A claim that waits for its first pod: the free volumes that may do, and its class if that can make one."""

    claim: PersistentVolumeClaim
    volumes: tuple[PersistentVolume, ...]
    storage_class: StorageClass | None


@dataclass(frozen=True, slots=True, eq=False)
class PodVolumes:
    """Shared by pods with equal keys.

    error:     why no node will do; empty if some may.
    exclusive: UIDs of claims that one pod may have at a time (ReadWriteOncePod).
    single_node: UIDs of claims that several nodes reach, of which one may have them at a time (ReadWriteOnce).
    in_use_on: of each of these that is in use, names of the nodes that have it.
    """

    error: str = ""
    exclusive: tuple[str, ...] = ()
    single_node: tuple[str, ...] = ()
    in_use_on: tuple[tuple[str, ...], ...] = ()
    bound: tuple[PersistentVolume, ...] = ()
    unbound: tuple[UnboundClaim, ...] = ()
    key: bytes = b""

    def filter(self, node: Node) -> str:
        """Why the node is rejected; empty if it passes."""
        if self.error:
            return self.error
        if not all(binding.reaches(volume, node) for volume in self.bound):
            return NODE_CONFLICT
        if not all(node.metadata.name in names for names in self.in_use_on):
            return ON_ANOTHER_NODE
        return "" if not self.unbound or self.choose(node) is not None else NO_VOLUMES

    def choose(self, node: Node, taken: Collection[str] = ()) -> Sequence[Choice] | None:
        """What the unbound claims get on a node, the smallest first; None if one gets nothing.

        taken: names of volumes that are promised to others.
        """
        choices: list[Choice] = []
        names = set(taken)
        for each in self.unbound:
            found = binding.find_volume(each.claim, each.volumes, node, names)
            if found is not None:
                names.add(found.metadata.name)
            elif each.storage_class is None or not allows(each.storage_class, node):
                return None
            choices.append((each.claim, found))
        return choices


def is_pod_reason(reason: str) -> bool:
    """Return whether a reason is about the pod, not about nodes."""
    return reason.startswith(_OF_POD)


@dataclass(frozen=True)
class Storage:
    """What is stored, for `resolve`.

    volumes: those that a claim may get.
    users:   UIDs of the pods that use a claim.
    nodes:   nodes of these pods, in order.
    """

    claim: Callable[[str, str], PersistentVolumeClaim | None]
    volume: Callable[[str], PersistentVolume | None]
    volumes: Callable[[PersistentVolumeClaim], Iterable[PersistentVolume]]
    storage_class: Callable[[str], StorageClass | None]
    users: Callable[[str, str], Collection[str]]
    nodes: Callable[[str, str], tuple[str, ...]]


def has_claims(pod: Pod) -> bool:
    return any(each.persistent_volume_claim is not None or each.ephemeral is not None for each in pod.spec.volumes)


def resolve(pod: Pod, storage: Storage) -> PodVolumes | None:
    """None for a pod without claims."""
    named = [
        each for each in pod.spec.volumes if each.persistent_volume_claim is not None or each.ephemeral is not None
    ]
    if not named:
        return None
    claims: dict[str, PersistentVolumeClaim] = {}
    for volume in named:
        claim, error = _find_claim(pod, volume, storage)
        if claim is None:
            return _failed(error)
        claims[claim.metadata.name] = claim
    return _resolve(pod, tuple(claims.values()), storage)


def _find_claim(pod: Pod, volume: Volume, storage: Storage) -> tuple[PersistentVolumeClaim | None, str]:
    namespace = pod.metadata.namespace
    source = volume.persistent_volume_claim
    name = source.claim_name if source is not None else ephemeral.claim_name(pod, volume)
    claim = storage.claim(namespace, name)
    if claim is None:
        return None, (CLAIM_NOT_FOUND if source is not None else CLAIM_AWAITED).format(name)
    if source is None and not ephemeral.is_owned(claim, pod):
        return None, CLAIM_NOT_OWNED.format(namespace, name, namespace, pod.metadata.name)
    if claim.metadata.deletion_timestamp is not None:
        return None, CLAIM_DELETED.format(name)
    if claim.status.phase == "Lost":
        return None, CLAIM_LOST.format(name, claim.spec.volume_name)
    return claim, ""


def _failed(error: str) -> PodVolumes:
    return PodVolumes(error=error, key=error.encode())


def _resolve(pod: Pod, claims: tuple[PersistentVolumeClaim, ...], storage: Storage) -> PodVolumes:
    bound: list[PersistentVolume] = []
    unbound: list[UnboundClaim] = []
    nodes: dict[str, tuple[str, ...]] = {}  # that have a claim of one node, by its UID
    for claim in claims:
        key = (claim.metadata.namespace, claim.metadata.name)
        if is_exclusive(claim) and set(storage.users(*key)) - {pod.metadata.uid}:
            return _failed(IN_USE)
        if binding.is_bound(claim):
            volume = storage.volume(claim.spec.volume_name)
            if volume is None:
                return _failed(CLAIM_LOST.format(claim.metadata.name, claim.spec.volume_name))
            bound.append(volume)
            if is_single_node(claim) and _moves(volume):
                nodes[claim.metadata.uid] = storage.nodes(*key)
            continue
        storage_class = storage.storage_class(class_name(claim))
        if claim.spec.volume_name or storage_class is None or not is_delayed(storage_class):
            return _failed(UNBOUND_IMMEDIATE)
        makes = None if find_obstacle(claim, storage_class) else storage_class
        volumes = tuple(each for each in storage.volumes(claim) if binding.satisfies(each, claim))
        unbound.append(UnboundClaim(claim, volumes, makes))
    unbound.sort(key=lambda each: (parse(requested(each.claim)), each.claim.metadata.name))
    exclusive = tuple(each.metadata.uid for each in claims if is_exclusive(each))
    found = PodVolumes("", exclusive, tuple(nodes), tuple(filter(None, nodes.values())), tuple(bound), tuple(unbound))
    return dataclasses.replace(found, key=_key(found))


def _moves(volume: PersistentVolume) -> bool:
    """Whether Kubernetes would attach it to a node: hostPath and nfs volumes are not attached; a local one stays where it is."""
    return volume.spec.csi is not None and volume.spec.node_affinity is None


def _key(volumes: PodVolumes) -> bytes:
    """Pods share a class if the same nodes reach their volumes; while claims are unbound, with those of the same claims.

    Versions are part of it, as what is decided is written in the place of these.
    """
    where = [each.spec.node_affinity for each in volumes.bound if each.spec.node_affinity is not None]
    waiting = [
        (_version(each.claim), _version(each.storage_class), *map(_version, each.volumes)) for each in volumes.unbound
    ]
    parts = (where, waiting, volumes.exclusive, volumes.single_node, volumes.in_use_on)
    return _encode(parts) if any(parts) else b""


def _version(obj: Object | None) -> str:
    return "" if obj is None else f"{obj.metadata.uid}/{obj.metadata.resource_version}"


def bind_claims(volumes: PodVolumes, choices: Sequence[Choice], node: Node, now: datetime) -> tuple[Action, ...]:
    """Actions that bind the pod's unbound claims, for a node."""
    actions: list[Action] = []
    classes = {each.claim.metadata.uid: each.storage_class for each in volumes.unbound}
    for claim, volume in choices:
        storage_class = classes[claim.metadata.uid]
        if volume is not None:
            actions += binding.bind(claim, volume, now)
        elif storage_class is not None:
            annotations = claim.metadata.annotations | {SELECTED_NODE: node.metadata.name}
            selected = replace(claim, metadata=replace(claim.metadata, annotations=annotations))
            made = provision(claim, storage_class, node)
            actions += provision_and_bind(selected, made, now, old=claim)
    return tuple(actions)
