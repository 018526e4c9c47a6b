"""The Namespace kind."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.core.lease import NODE_NAMESPACE
from app.kinds.core.namespace_schema import Namespace, NamespaceSpec, NamespaceStatus
from app.machinery import name_validation
from app.machinery.base import (
    Column,
    Kind,
)
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid

__all__ = [
    "FINALIZER",
    "FIRST",
    "KIND",
    "NAME_LABEL",
    "Namespace",
    "NamespaceSpec",
    "NamespaceStatus",
    "has_finalizers",
    "on_create",
    "on_delete",
    "on_finalize",
    "on_update",
    "phase",
    "prepare",
    "row",
    "validate",
    "validate_status",
]


NAME_LABEL = "kubernetes.io/metadata.name"
FIRST = ("default", "kube-system", "kube-public", NODE_NAMESPACE)  # of every cluster
FINALIZER = "kubernetes"  # goes once the namespace is empty


def prepare(namespace: Namespace) -> Namespace:
    """The name is also a label, so that selectors can pick namespaces by name."""
    meta = namespace.metadata
    if not meta.name or meta.labels.get(NAME_LABEL) == meta.name:
        return namespace
    return replace(namespace, metadata=replace(meta, labels=meta.labels | {NAME_LABEL: meta.name}))


def on_create(namespace: Namespace, _: datetime) -> Namespace:
    finalizers = tuple(dict.fromkeys((*namespace.spec.finalizers, FINALIZER)))
    return replace(namespace, spec=NamespaceSpec(finalizers=finalizers), status=NamespaceStatus(phase="Active"))


def on_update(new: Namespace, old: Namespace) -> Namespace:
    """Finalizers leave through the finalize subresource, the status through its own."""
    return replace(new, spec=old.spec, status=old.status)


def on_finalize(new: Namespace, old: Namespace) -> Namespace:
    return replace(new, status=old.status)


def on_delete(namespace: Namespace) -> Namespace:
    """There is no grace: it ends when it is empty."""
    metadata = replace(namespace.metadata, deletion_grace_period_seconds=None)
    return replace(namespace, metadata=metadata, status=replace(namespace.status, phase="Terminating"))


def has_finalizers(namespace: Namespace) -> bool:
    return bool(namespace.spec.finalizers)


def validate(namespace: Namespace) -> list[Cause]:
    return [
        invalid(f"spec.finalizers[{index}]", name, fault)
        for index, name in enumerate(namespace.spec.finalizers)
        for fault in name_validation.qualified_name(name)
    ]


def validate_status(new: Namespace, _: Namespace) -> list[Cause]:
    going = new.metadata.deletion_timestamp is not None
    only, when = ("Terminating", "not empty") if going else ("Active", "empty")
    if new.status.phase == only:
        return []
    return [invalid("status.Phase", new.status.phase, f"may only be '{only}' if `deletionTimestamp` is {when}")]


def row(namespace: Namespace, now: datetime) -> list[Any]:
    meta = namespace.metadata
    return [meta.name, phase(namespace), age(meta.creation_timestamp, now)]


def phase(namespace: Namespace) -> str:
    return namespace.status.phase or "Active"


KIND = Kind(
    type=Namespace,
    group="",
    version="v1",
    plural="namespaces",
    short_names=("ns",),
    namespaced=False,
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_status=validate_status,
    columns=(
        Column(name="Name", format="name", description="Name of the namespace."),
        Column(name="Status", description="Where the namespace is in its life."),
        Column(name="Age", description="Time since the namespace was created."),
    ),
    row=row,
    fields={"status.phase": phase},
    name_format="label",
    on_delete=on_delete,
    blocks_deletion=has_finalizers,
    immortal=frozenset(FIRST),  # without leases no node lives
    example="""\
apiVersion: v1
kind: Namespace
metadata:
  name: research
  labels:
    team: physics
""",
)
