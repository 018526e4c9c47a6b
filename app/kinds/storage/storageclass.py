"""The StorageClass kind: a kind of storage that claims ask for by name, and who makes it.

Two provisioners are Jobplane's own: SHARED_FOLDER makes a folder for each claim in a folder that all nodes have mounted, LOCAL
one on the disk of the node that the claim's first pod goes to. Volumes of other provisioners are made by whoever they name.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.storage.storageclass_schema import StorageClass, TopologySelectorTerm
from app.machinery import name_validation as names
from app.machinery.base import Column, Kind, ObjectMeta
from app.machinery.durations import age
from app.machinery.errors import Cause, forbidden, invalid, not_supported, one_of, required
from app.machinery.meta.metadata_validation import IMMUTABLE

__all__ = [
    "DEFAULT_ANNOTATION",
    "KIND",
    "LOCAL",
    "LOCAL_CLASS",
    "NO_PROVISIONER",
    "PATH",
    "PROVISIONERS",
    "REQUIRE_MOUNT",
    "SHARED_FOLDER",
    "WAIT_FOR_FIRST_CONSUMER",
    "StorageClass",
    "TopologySelectorTerm",
    "default_class",
    "is_delayed",
    "is_plain_path",
]

SHARED_FOLDER, LOCAL = "jobplane.dev/shared-folder", "jobplane.dev/local"
PROVISIONERS = (SHARED_FOLDER, LOCAL)
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
DEFAULT_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
PATH, REQUIRE_MOUNT = "path", "requireMount"  # parameters

LOCAL_CLASS = StorageClass(
    metadata=ObjectMeta(name="local", annotations={DEFAULT_ANNOTATION: "true"}),
    provisioner=LOCAL,
    reclaim_policy="Delete",
    volume_binding_mode=WAIT_FOR_FIRST_CONSUMER,
    allow_volume_expansion=True,
)
"""The default class that every cluster starts with: a folder on the disk of the node that the first pod goes to."""


def prepare(storage_class: StorageClass) -> StorageClass:
    return replace(
        storage_class,
        reclaim_policy=storage_class.reclaim_policy or "Delete",
        volume_binding_mode=storage_class.volume_binding_mode or "Immediate",
    )


def is_delayed(storage_class: StorageClass | None) -> bool:
    """Return whether claims of the class wait for their first pod."""
    return storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The class of claims that name none: of several that are marked as default the newest, as in Kubernetes."""
    marked = [each for each in classes if each.metadata.annotations.get(DEFAULT_ANNOTATION) == "true"]
    marked.sort(key=lambda each: each.metadata.name)
    marked.sort(key=_created_at, reverse=True)
    return marked[0] if marked else None


def _created_at(storage_class: StorageClass) -> float:
    created = storage_class.metadata.creation_timestamp
    return created.timestamp() if created else 0.0


def validate(storage_class: StorageClass) -> list[Cause]:
    return [
        *_provisioner(storage_class.provisioner),
        *one_of("reclaimPolicy", storage_class.reclaim_policy, ("Delete", "Retain")),
        *one_of("volumeBindingMode", storage_class.volume_binding_mode, ("Immediate", WAIT_FOR_FIRST_CONSUMER)),
        *_topologies(storage_class),
        *(_own_parameters(storage_class) if storage_class.provisioner in PROVISIONERS else ()),
    ]


def _provisioner(name: str) -> Iterator[Cause]:
    if not name:
        yield required("provisioner", name)
    for fault in names.qualified_name(name.lower()) if name else ():
        yield invalid("provisioner", name, fault)


def _topologies(storage_class: StorageClass) -> Iterator[Cause]:
    for number, term in enumerate(storage_class.allowed_topologies):
        for index, each in enumerate(term.match_label_expressions):
            path = f"allowedTopologies[{number}].matchLabelExpressions[{index}]"
            for fault in names.qualified_name(each.key):
                yield invalid(f"{path}.key", each.key, fault)
            if not each.values:
                yield required(f"{path}.values")


def _own_parameters(storage_class: StorageClass) -> Iterator[Cause]:
    """What Jobplane's provisioners need; a misspelt parameter must not count as absent."""
    is_local, parameters = storage_class.provisioner == LOCAL, storage_class.parameters
    known = (PATH,) if is_local else (PATH, REQUIRE_MOUNT)
    for name in parameters:
        if name not in known:
            yield not_supported("parameters", name, known)
    if PATH in parameters and not is_plain_path(parameters[PATH]):
        yield invalid("parameters[path]", parameters[PATH], "must be an absolute path below /, without '..'")
    if PATH not in parameters and not is_local:
        yield required("parameters[path]", "the folder that all nodes have mounted, such as /shared")
    if REQUIRE_MOUNT in parameters:
        yield from one_of("parameters[requireMount]", parameters[REQUIRE_MOUNT], ("true", "false"))
    if is_local and storage_class.volume_binding_mode == "Immediate":
        yield invalid(
            "volumeBindingMode", "Immediate", f"must be {WAIT_FOR_FIRST_CONSUMER}: the first pod chooses the node"
        )


def is_plain_path(path: str) -> bool:
    """Return whether it is an absolute path below /, as it is written: without `..` and bytes that no file system has."""
    parts = path.split("/")
    return path.startswith("/") and path.strip("/") != "" and ".." not in parts and "\0" not in path


def validate_update(new: StorageClass, old: StorageClass) -> list[Cause]:
    changed = {
        "parameters": new.parameters != old.parameters,
        "provisioner": new.provisioner != old.provisioner,
        "reclaimPolicy": new.reclaim_policy != old.reclaim_policy,
    }
    causes = [forbidden(name, f"updates to {name} are forbidden.") for name, differs in changed.items() if differs]
    if new.volume_binding_mode != old.volume_binding_mode:
        causes.append(invalid("volumeBindingMode", new.volume_binding_mode, IMMUTABLE))
    return causes


def row(storage_class: StorageClass, now: datetime) -> list[Any]:
    meta = storage_class.metadata
    is_default = meta.annotations.get(DEFAULT_ANNOTATION) == "true"
    return [
        f"{meta.name} (default)" if is_default else meta.name,
        storage_class.provisioner,
        storage_class.reclaim_policy or "Delete",
        storage_class.volume_binding_mode or "Immediate",
        bool(storage_class.allow_volume_expansion),
        age(meta.creation_timestamp, now),
    ]


KIND = Kind(
    type=StorageClass,
    group="storage.k8s.io",
    version="v1",
    plural="storageclasses",
    short_names=("sc",),
    namespaced=False,
    prepare=prepare,
    validate=validate,
    validate_update=validate_update,
    columns=(
        Column(name="Name", format="name", description="Name of the class."),
        Column(name="Provisioner", description="Who makes volumes."),
        Column(name="ReclaimPolicy", description="What becomes of a volume when its claim is deleted."),
        Column(name="VolumeBindingMode", description="When claims are bound."),
        Column(name="AllowVolumeExpansion", type="boolean", description="Whether claims may be enlarged."),
        Column(name="Age", description="Time since the class was created."),
    ),
    row=row,
    returns_deleted=True,
    example="""\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: shared
provisioner: jobplane.dev/shared-folder
parameters:
  path: /shared
reclaimPolicy: Retain
allowVolumeExpansion: true
""",
)
