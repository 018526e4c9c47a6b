"""The RuntimeClass kind (node.k8s.io/v1): a name for a handler of the nodes' container engine.

Admission (`plans.admission.runtime_class`) applies it to pods that name it; the agent hands the handler to its runtime.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from app.kinds.core.runtimeclass_schema import Overhead, RuntimeClass, Scheduling
from app.kinds.pod.placement_validation import validate_tolerations
from app.kinds.pod.resource_validation import quantities
from app.machinery import name_validation
from app.machinery.base import Column, Kind
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid
from app.machinery.meta.metadata_validation import IMMUTABLE, validate_labels

__all__ = ["KIND", "Overhead", "RuntimeClass", "Scheduling", "row", "validate", "validate_update"]


def validate(made: RuntimeClass) -> list[Cause]:
    return [*_causes(made)]


def _causes(made: RuntimeClass) -> Iterator[Cause]:
    yield from (invalid("handler", made.handler, text) for text in name_validation.dns_label(made.handler))
    if made.overhead is not None:
        yield from quantities(made.overhead.pod_fixed, "overhead.podFixed")
    if made.scheduling is not None:
        yield from validate_labels(made.scheduling.node_selector, "scheduling.nodeSelector")
        yield from validate_tolerations(made.scheduling.tolerations, "scheduling.tolerations")


def validate_update(new: RuntimeClass, old: RuntimeClass) -> list[Cause]:
    return [] if new.handler == old.handler else [invalid("handler", new.handler, IMMUTABLE)]


def row(made: RuntimeClass, now: datetime) -> list[Any]:
    return [made.metadata.name, made.handler, age(made.metadata.creation_timestamp, now)]


KIND = Kind(
    type=RuntimeClass,
    group="node.k8s.io",
    version="v1",
    plural="runtimeclasses",
    namespaced=False,
    validate=validate,
    validate_update=validate_update,
    columns=(
        Column(name="Name", format="name", description="Name of the class."),
        Column(name="Handler", description="Handler of the nodes' container engine."),
        Column(name="Age", description="Time since the class was created."),
    ),
    row=row,
    example="""\
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata:
  name: nvidia
handler: nvidia
""",
)
