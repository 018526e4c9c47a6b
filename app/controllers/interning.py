"""Interning: less memory for the pods and Jobs in the controllers' mirror.

`PodInterner` and `JobInterner` share among objects what they have in common, as most of a pod or a Job is its template and its
managed fields: a fleet's pods take a quarter of the memory, Jobs of one shape a third. `PodStubs` cuts a pod that has finished
and that its Job has counted to what finds and selects it: a Job may have a hundred thousand of them. No controller plans from
such a pod; to write one, read it whole from the store.
"""

import sys
from typing import NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod, PodSpec, PodStatus, is_ready, is_terminal
from app.machinery.base import Condition, ManagedFieldsEntry, Object, ObjectMeta, OwnerReference
from app.machinery.meta.owner_references import controller_of
from app.plans.jobs.dormancy import CONTROLLER_UID
from app.plans.jobs.finalizers import is_tracked

T = TypeVar("T")
_MAX_VALUES = 4_000  # that are remembered
_MAX_OWNERS = 1_000
_encode = msgspec.json.Encoder().encode


class _Values:
    """Values that objects have, by their JSON; equal ones are one."""

    def __init__(self) -> None:
        self._known: dict[tuple[type, bytes], object] = {}

    def intern(self, value: T) -> T:
        key = type(value), _encode(value)
        if len(self._known) >= _MAX_VALUES:
            self._known.clear()
        return cast("T", self._known.setdefault(key, value))


class PodInterner:
    """Makes pods out of values that other pods have."""

    def __init__(self) -> None:
        self._values = _Values()

    def intern(self, obj: Object) -> Object:
        """An equal pod; any other object as it is."""
        if not isinstance(obj, Pod):
            return obj
        meta, spec, values = obj.metadata, obj.spec, self._values
        template = values.intern(replace(spec, node_name="", hostname=""))
        return replace(
            obj,
            metadata=replace(meta, namespace=sys.intern(meta.namespace), labels=values.intern(meta.labels)),
            spec=replace(template, node_name=sys.intern(spec.node_name), hostname=spec.hostname),
            status=values.intern(obj.status) if _is_common(obj.status) else obj.status,
        )


class JobInterner:
    """Makes Jobs out of values that other Jobs have."""

    def __init__(self) -> None:
        self._values = _Values()

    def intern(self, obj: Object) -> Object:
        """An equal Job; any other object as it is."""
        if not isinstance(obj, Job):
            return obj
        meta, template = obj.metadata, obj.spec.template
        labels = meta.labels if template.metadata.labels == meta.labels else template.metadata.labels
        return replace(
            obj,
            metadata=replace(
                meta,
                namespace=sys.intern(meta.namespace),
                managed_fields=meta.managed_fields and tuple(map(self._intern_fields, meta.managed_fields)),
            ),
            spec=replace(
                obj.spec,
                template=replace(
                    template,
                    metadata=replace(template.metadata, labels=labels),
                    spec=self._values.intern(template.spec),
                ),
            ),
            status=replace(obj.status, conditions=tuple(map(_intern_texts, obj.status.conditions))),
        )

    def _intern_fields(self, entry: ManagedFieldsEntry) -> ManagedFieldsEntry:
        """An equal entry; managers write the same fields of each Job."""
        return replace(
            entry,
            manager=sys.intern(entry.manager),
            operation=sys.intern(entry.operation),
            api_version=sys.intern(entry.api_version),
            fields_type=sys.intern(entry.fields_type),
            fields_v1=self._values.intern(entry.fields_v1),
        )


def _intern_texts(condition: Condition) -> Condition:
    return replace(
        condition,
        type=sys.intern(condition.type),
        status=sys.intern(condition.status),
        reason=sys.intern(condition.reason),
        message=sys.intern(condition.message),
    )


def _is_common(status: PodStatus) -> bool:
    """Other pods may have the same status: no node has reported yet."""
    return not (status.pod_ip or status.start_time or status.container_statuses or status.init_container_statuses)


class PodStub(Pod):
    """A type of its own, so that it cannot be written by mistake: it is of no kind."""


class _CommonFields(NamedTuple):
    """Fields that the pods of one owner share."""

    owners: tuple[OwnerReference, ...]
    namespace: str
    finalizers: tuple[str, ...]
    spec: PodSpec
    strings: dict[str, str]  # keys and values of labels


class PodStubs:
    def __init__(self) -> None:
        self._common: dict[str, _CommonFields] = {}  # by the owner's UID
        self._values = _Values()
        self._statuses: dict[tuple[str, str], PodStatus] = {}

    def cut(self, obj: Object) -> Object | None:
        """The stub of a pod; None if a controller may still plan from the object."""
        owner = controller_of(obj)
        if owner is None or not isinstance(obj, Pod) or not _is_settled(obj, owner):
            return None
        meta, common = obj.metadata, self._common_fields(owner.uid, obj)
        strings = common.strings
        cut_meta = ObjectMeta(
            name=meta.name,
            namespace=common.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels={strings.get(key, key): strings.get(value, value) for key, value in meta.labels.items()},
            owner_references=common.owners,
            finalizers=common.finalizers,
        )
        return PodStub(metadata=cut_meta, spec=common.spec, status=self._cut_status(obj.status))

    def _common_fields(self, uid: str, pod: Pod) -> _CommonFields:
        """The fields of the owner's last pod if they are equal, which is nearly always so."""
        meta, known = pod.metadata, self._common.get(uid)
        spec = replace(pod.spec, hostname="", node_name="")
        fields = (meta.owner_references, meta.namespace, meta.finalizers, spec)
        if known is not None and known[:4] == fields:
            return known
        if len(self._common) >= _MAX_OWNERS:
            self._common.clear()
        strings = {string: string for label in meta.labels.items() for string in label}
        owners = tuple(_intern_owner(each, strings) for each in meta.owner_references)
        made = _CommonFields(owners, sys.intern(meta.namespace), meta.finalizers, self._values.intern(spec), strings)
        self._common[uid] = made
        return made

    def _cut_status(self, status: PodStatus) -> PodStatus:
        key = (status.phase, status.qos_class)
        if key not in self._statuses:
            self._statuses[key] = PodStatus(phase=status.phase, qos_class=status.qos_class)
        return self._statuses[key]


def _intern_owner(reference: OwnerReference, strings: dict[str, str]) -> OwnerReference:
    """An equal reference, whose strings are those of the pod's labels."""
    return replace(
        reference,
        api_version=sys.intern(reference.api_version),
        kind=sys.intern(reference.kind),
        name=strings.get(reference.name, reference.name),
        uid=strings.get(reference.uid, reference.uid),
    )


def _is_settled(pod: Pod, owner: OwnerReference) -> bool:
    """It has finished, was counted, and has the label by which its Job selects it, so that the Job does not release it."""
    meta = pod.metadata
    return (
        is_terminal(pod)
        and not is_tracked(pod)
        and not is_ready(pod)
        and meta.deletion_timestamp is None
        and meta.labels.get(CONTROLLER_UID) == owner.uid
    )
