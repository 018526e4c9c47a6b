"""The CustomResourceDefinition kind (apiextensions.k8s.io/v1): an object that defines another kind.

Names and conditions are found out in `definition_conditions`, the kinds themselves made in `custom_kind`.
"""

from datetime import datetime
from functools import cache
from typing import Any

from msgspec.structs import replace

from app.kinds.admission.webhook_client_config import DEFAULT_PORT
from app.kinds.apiextensions.custom_resource_schema import (
    CustomResourceConversion,
    CustomResourceDefinition,
    CustomResourceDefinitionCondition,
    CustomResourceDefinitionVersion,
)
from app.kinds.apiextensions.definition_conditions import TERMINATING, with_conditions
from app.kinds.apiextensions.definition_validation import (
    validate_definition,
    validate_definition_status,
    validate_definition_update,
)
from app.kinds.apiextensions.schema_keywords import find_unknown_keywords
from app.machinery.base import Column, Kind
from app.machinery.cel import INSTALL, is_installed
from app.machinery.custom.structural_schema import StructuralSchema
from app.machinery.errors import Cause

__all__ = ["FINALIZER", "GROUP", "KIND", "CustomResourceDefinition", "is_terminating"]

GROUP = "apiextensions.k8s.io"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
RULES_NOT_CHECKED = (
    "spec.versions[{index}].schema.openAPIV3Schema: x-kubernetes-validations are kept, but none is checked: " + INSTALL
)


def prepare(crd: CustomResourceDefinition) -> CustomResourceDefinition:
    names = crd.spec.names
    singular, list_kind = names.singular or names.kind.lower(), names.list_kind
    if not list_kind and names.kind:
        list_kind = f"{names.kind}List"
    spec = replace(
        crd.spec,
        names=replace(names, singular=singular, list_kind=list_kind),
        conversion=_default_conversion(crd.spec.conversion),
    )
    return replace(crd, spec=spec)


def _default_conversion(conversion: CustomResourceConversion | None) -> CustomResourceConversion:
    """Strategy None, and port 443 of a webhook that is a Service."""
    if conversion is None or not conversion.strategy:
        conversion = replace(conversion or CustomResourceConversion(), strategy="None")
    webhook = conversion.webhook
    config = webhook.client_config if webhook else None
    if webhook is None or config is None or config.service is None or config.service.port is not None:
        return conversion
    config = replace(config, service=replace(config.service, port=DEFAULT_PORT))
    return replace(conversion, webhook=replace(webhook, client_config=config))


def on_create(crd: CustomResourceDefinition, _: datetime) -> CustomResourceDefinition:
    meta = crd.metadata
    finalizers = meta.finalizers if FINALIZER in meta.finalizers else (*meta.finalizers, FINALIZER)
    stored = tuple(each.name for each in crd.spec.versions if each.storage)
    status = replace(crd.status, stored_versions=stored)
    return replace(crd, metadata=replace(meta, generation=1, finalizers=finalizers), status=status)


def on_update(new: CustomResourceDefinition, old: CustomResourceDefinition) -> CustomResourceDefinition:
    """The status is what the registry has found out about the names, not the client's."""
    generation = old.metadata.generation + (new.spec != old.spec)
    return replace(new, metadata=replace(new.metadata, generation=generation))


def on_delete(crd: CustomResourceDefinition) -> CustomResourceDefinition:
    """From now on nothing is created; the controller deletes what there is."""
    since = crd.metadata.deletion_timestamp
    if since is None or is_terminating(crd):
        return crd
    condition = CustomResourceDefinitionCondition(
        type=TERMINATING,
        status="True",
        reason="InstanceDeletionPending",
        message="CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    )
    return with_conditions(crd, [condition], since)


def is_terminating(crd: CustomResourceDefinition) -> bool:
    return any(each.type == TERMINATING and each.status == "True" for each in crd.status.conditions)


@cache
def _builtin_groups() -> frozenset[str]:
    from app.kinds import KINDS  # this kind is one of them

    return frozenset(kind.group for kind in KINDS)


def validate(crd: CustomResourceDefinition) -> list[Cause]:
    return validate_definition(crd, _builtin_groups())


def warnings(crd: CustomResourceDefinition, _: CustomResourceDefinition | None) -> list[str]:
    if is_installed():
        return []
    return [RULES_NOT_CHECKED.format(index=index) for index, each in enumerate(crd.spec.versions) if _has_rules(each)]


def unknown_fields(crd: CustomResourceDefinition) -> list[str]:
    """Return the keywords of its schemas that mean nothing."""
    found: list[str] = []
    for index, each in enumerate(crd.spec.versions):
        schema = each.schema.open_apiv3_schema if each.schema else None
        found += find_unknown_keywords(schema, f"spec.versions[{index}].schema.openAPIV3Schema")
    return found


def _has_rules(version: CustomResourceDefinitionVersion) -> bool:
    schema = version.schema.open_apiv3_schema if version.schema else None
    return schema is not None and StructuralSchema(schema).root.has_rules


def row(crd: CustomResourceDefinition, _: datetime) -> list[Any]:
    created = crd.metadata.creation_timestamp
    return [crd.metadata.name, created.strftime("%Y-%m-%dT%H:%M:%SZ") if created else ""]


KIND = Kind(
    type=CustomResourceDefinition,
    group=GROUP,
    version="v1",
    plural="customresourcedefinitions",
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    namespaced=False,
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    on_delete=on_delete,
    validate=validate,
    validate_update=validate_definition_update,
    validate_status=validate_definition_status,
    warnings=warnings,
    unknown_fields=unknown_fields,
    columns=(
        Column(name="Name", format="name", description="Name of the definition."),
        Column(name="Created At", type="date", description="When the definition was created."),
    ),
    row=row,
    core_finalizers=False,
    example="""\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: sweeps.lab.example.com
spec:
  group: lab.example.com
  scope: Namespaced
  names:
    plural: sweeps
    kind: Sweep
    shortNames: ["sw"]
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: ["runs"]
            properties:
              runs:
                type: integer
                minimum: 1
""",
)
