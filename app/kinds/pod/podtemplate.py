"""The PodTemplate kind: a template of pods that is kept by itself. Nothing is made from it."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.pod.pod_schema import PodTemplate
from app.kinds.pod.pod_validation import validate_template
from app.kinds.pod.pod_warnings import warnings_of_spec
from app.kinds.pod.shared_specs import TEMPLATE_SPECS
from app.machinery.base import Column, Kind
from app.machinery.errors import Cause


def prepare(kept: PodTemplate) -> PodTemplate:
    return replace(kept, template=replace(kept.template, spec=TEMPLATE_SPECS.share(kept.template.spec)))


def on_create(kept: PodTemplate, _: datetime) -> PodTemplate:
    return replace(kept, metadata=replace(kept.metadata, generation=1))


def on_update(new: PodTemplate, old: PodTemplate) -> PodTemplate:
    generation = old.metadata.generation + (new.template != old.template)
    return replace(new, metadata=replace(new.metadata, generation=generation))


def validate(kept: PodTemplate) -> list[Cause]:
    return validate_template(kept.template, "template")


def warnings(new: PodTemplate, old: PodTemplate | None) -> list[str]:
    return [] if old and old.template == new.template else warnings_of_spec(new.template.spec, "template.spec")


def row(kept: PodTemplate, _: datetime) -> list[Any]:
    containers, labels = kept.template.spec.containers, kept.template.metadata.labels
    return [
        kept.metadata.name,
        ",".join(each.name for each in containers),
        ",".join(each.image for each in containers),
        ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>",
    ]


KIND = Kind(
    type=PodTemplate,
    group="",
    version="v1",
    plural="podtemplates",
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    warnings=warnings,
    columns=(
        Column(name="Name", format="name", description="Name of the template."),
        Column(name="Containers", description="Names of its containers."),
        Column(name="Images", description="Images of its containers."),
        Column(name="Pod Labels", description="Labels of its pods."),
    ),
    row=row,
    returns_deleted=True,
    example="""\
apiVersion: v1
kind: PodTemplate
metadata:
  name: report
template:
  metadata:
    labels:
      app: report
  spec:
    containers:
    - name: main
      image: busybox:1.37
""",
)
