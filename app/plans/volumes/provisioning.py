"""Provisioning: the volume that one of Jobplane's provisioners makes for a claim. Pure.

Only the object is made here, in the write set that binds it. The folder is made by the agent that mounts it first, under a name
that comes from the claim's UID: nothing is lost when a process is killed in between, and no name of a claim names a path.
"""

from collections.abc import Sequence

from app.kinds.core.node import Node
from app.kinds.pod.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from app.kinds.storage.access_modes import STORAGE
from app.kinds.storage.persistentvolume import (
    DATA,
    PROTECTION,
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
)
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim, requested
from app.kinds.storage.storageclass import LOCAL, PROVISIONERS, StorageClass
from app.machinery.base import ObjectMeta
from app.plans.nodes.node_selector import selects
from app.plans.volumes.binding import reference_to

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
HOST_NAME = "kubernetes.io/hostname"


def find_obstacle(claim: PersistentVolumeClaim, storage_class: StorageClass) -> str:
    """Return why no volume of the class can be made for the claim; empty if one can, by Jobplane."""
    if storage_class.provisioner not in PROVISIONERS:
        return f"{storage_class.provisioner} is not a provisioner of Jobplane"
    if claim.spec.selector is not None:
        return "claim.Spec.Selector is not supported"
    if (claim.spec.volume_mode or "Filesystem") != "Filesystem":
        return f"{storage_class.provisioner} does not support block volume provisioning"
    if claim.spec.data_source is not None or claim.spec.data_source_ref is not None:
        return f"{storage_class.provisioner} does not fill volumes from a dataSource"
    return ""


def allows(storage_class: StorageClass, node: Node) -> bool:
    """Return whether volumes of the class may be made for the node."""
    topology = _topology(storage_class)
    return topology is None or selects(topology, node)


def _topology(storage_class: StorageClass) -> NodeSelector | None:
    """`allowedTopologies` as a node selector; None for all nodes."""
    terms = [
        NodeSelectorTerm(
            match_expressions=tuple(
                NodeSelectorRequirement(key=each.key, operator="In", values=each.values)
                for each in term.match_label_expressions
            )
        )
        for term in storage_class.allowed_topologies
    ]
    return NodeSelector(node_selector_terms=tuple(terms)) if terms else None


def provision(claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node | None = None) -> PersistentVolume:
    """The volume for a claim, reserved for it. `node`: on whose disk it is, for the provisioner LOCAL."""
    name = f"pvc-{claim.metadata.uid}"
    return PersistentVolume(
        metadata=ObjectMeta(
            name=name,
            annotations={PROVISIONED_BY: storage_class.provisioner},
            finalizers=(PROTECTION, DATA),
        ),
        spec=PersistentVolumeSpec(
            capacity={STORAGE: requested(claim)},
            access_modes=claim.spec.access_modes,
            claim_ref=reference_to(claim),
            persistent_volume_reclaim_policy=storage_class.reclaim_policy or "Delete",
            storage_class_name=storage_class.metadata.name,
            mount_options=storage_class.mount_options,
            volume_mode="Filesystem",
            csi=CSIPersistentVolumeSource(
                driver=storage_class.provisioner,
                volume_handle=name,
                volume_attributes=dict(storage_class.parameters),
            ),
            node_affinity=_node_affinity(storage_class, node),
        ),
    )


def _node_affinity(storage_class: StorageClass, node: Node | None) -> VolumeNodeAffinity | None:
    if storage_class.provisioner != LOCAL or node is None:
        topology = _topology(storage_class)
        return None if topology is None else VolumeNodeAffinity(required=topology)
    host = node.metadata.labels.get(HOST_NAME, node.metadata.name)
    own = NodeSelectorRequirement(key=HOST_NAME, operator="In", values=(host,))
    term = NodeSelectorTerm(
        match_expressions=(own,),
        match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=(node.metadata.name,)),),
    )
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,)))


def only_node(volume: PersistentVolume) -> str:
    """Name of the one node that a volume of LOCAL is on; empty for any other volume."""
    affinity = volume.spec.node_affinity
    terms: Sequence[NodeSelectorTerm] = affinity.required.node_selector_terms if affinity and affinity.required else ()
    names = {value for term in terms for each in term.match_fields if each.operator == "In" for value in each.values}
    return names.pop() if len(names) == 1 else ""
