"""Custom kinds: makes `Kind` records of a CustomResourceDefinition. What differs from a built-in kind is data, nothing else.

`app.registry.kind_table` calls `kinds_of` whenever a definition changes. Schemas are compiled when first needed.
"""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from app.kinds.apiextensions.custom_resource_schema import (
    CustomResourceDefinition,
    CustomResourceDefinitionVersion,
    CustomResourceSubresourceScale,
    WebhookConversion,
)
from app.kinds.apiextensions.printer_columns import columns_of, row_of
from app.machinery.base import Kind, Object, ScalePaths
from app.machinery.custom.checks import find_causes
from app.machinery.custom.correlation import is_same_json
from app.machinery.custom.custom_object import CustomObject, make_type, with_status_of
from app.machinery.custom.json_path import find_first
from app.machinery.custom.structural_schema import ABSENT, StructuralSchema
from app.machinery.errors import Cause, invalid
from app.machinery.object_codec import document_of


class CustomKinds(NamedTuple):
    """The kinds of a definition: how objects are stored, and each version that is served."""

    storage: Kind[Any]
    served: tuple[Kind[Any], ...]


def kinds_of(crd: CustomResourceDefinition) -> CustomKinds:
    """Make the kinds of a definition."""
    spec = crd.spec
    stored = next((each for each in spec.versions if each.storage), spec.versions[0])
    is_converted = len(spec.versions) > 1 or len(crd.status.stored_versions) > 1
    fields = {name: read for each in spec.versions for name, read in _fields_of(each).items()}
    storage = _make_kind(crd, stored, fields=fields)
    if is_converted and storage.conversion is None:
        storage = _with_kind(dataclasses.replace(storage, outward=_convert_to(storage)))
    others = {each.name: _second_version(crd, each, storage) for each in spec.versions if each is not stored}
    made = {stored.name: storage, **others}
    return CustomKinds(storage, tuple(made[each.name] for each in spec.versions if each.served))


def _second_version(crd: CustomResourceDefinition, version: CustomResourceDefinitionVersion, storage: Kind) -> Kind:
    kind = _make_kind(crd, version, fields=_fields_of(version))
    if kind.conversion is not None:
        return _with_kind(dataclasses.replace(kind, storage=storage))
    return _with_kind(
        dataclasses.replace(kind, storage=storage, inward=_convert_to(storage), outward=_convert_to(kind))
    )


def _make_kind(
    crd: CustomResourceDefinition,
    version: CustomResourceDefinitionVersion,
    fields: Mapping[str, Callable[[CustomObject], str]],
) -> Kind[Any]:
    names, has_status = crd.status.accepted_names, _has_status(version)
    schema = StructuralSchema(version.schema.open_apiv3_schema if version.schema else None)
    validate = _validator(names.kind, schema)
    kind: Kind[Any] = Kind(
        type=make_type(names.kind, schema),
        group=crd.spec.group,
        version=version.name,
        plural=names.plural,
        singular_name=names.singular,
        list_kind=names.list_kind,
        short_names=names.short_names,
        categories=names.categories,
        namespaced=crd.spec.scope == "Namespaced",
        has_status=has_status,
        on_create=_on_create(has_status=has_status),
        on_update=_on_update(has_status=has_status),
        on_status=_on_status,
        validate=validate,
        validate_ratcheting=validate,
        validate_status=validate,
        columns=columns_of(version.additional_printer_columns),
        row=row_of(version.additional_printer_columns),
        fields=fields,
        scale=_scale_of(version.subresources.scale if version.subresources else None),
        deprecation=_deprecation(crd, version),
        core_finalizers=False,
        definition=crd.metadata.name,
        conversion=_conversion_of(crd),
    )
    return _with_kind(kind)


def _conversion_of(crd: CustomResourceDefinition) -> WebhookConversion | None:
    conversion = crd.spec.conversion
    return conversion.webhook if conversion is not None and conversion.strategy == "Webhook" else None


def _with_kind(kind: Kind[Any]) -> Kind[Any]:
    """The kind, as its objects know it."""
    kind.type.kind_record = kind
    return kind


def _has_status(version: CustomResourceDefinitionVersion) -> bool:
    return version.subresources is not None and version.subresources.status is not None


def _convert_to(kind: Kind[Any]) -> Callable[[CustomObject], Object]:
    """Strategy None: only the version changes."""

    def convert(obj: CustomObject) -> Object:
        made: Object = kind.type(
            api_version=kind.api_version, kind=kind.name, metadata=obj.metadata, content=obj.content
        )
        return made

    return convert


def _on_create(*, has_status: bool) -> Callable[[CustomObject, datetime], CustomObject]:
    def on_create(obj: CustomObject, _: datetime) -> CustomObject:
        content = {name: each for name, each in obj.content.items() if name != "status" or not has_status}
        return replace(obj, metadata=replace(obj.metadata, generation=1), content=content)

    return on_create


def _on_update(*, has_status: bool) -> Callable[[CustomObject, CustomObject], CustomObject]:
    def on_update(new: CustomObject, old: CustomObject) -> CustomObject:
        if has_status:
            new = with_status_of(new, old)  # type: ignore[assignment]  # as it was
        generation = old.metadata.generation + (not is_same_json(new.content, old.content))
        return replace(new, metadata=replace(new.metadata, generation=generation))

    return on_update


def _on_status(new: CustomObject, old: CustomObject) -> CustomObject:
    """Labels and annotations stay, too."""
    return replace(new, metadata=old.metadata)


def _validator(name: str, schema: StructuralSchema) -> Callable[..., list[Cause]]:
    def validate(obj: CustomObject, old: CustomObject | None = None) -> list[Cause]:
        named = [invalid("kind", obj.kind, f"must be {name}")] if obj.kind != name else []
        before = ABSENT if old is None else _checked(old, schema)
        return [*named, *find_causes(_checked(obj, schema), schema.root, before, fits=schema.fits)]

    return validate


def _checked(obj: CustomObject, schema: StructuralSchema) -> dict[str, Any]:
    """Return the document that the schema is compared with: type and metadata are in it if the schema says anything of them."""
    root, metadata = schema.root, schema.root.properties.get("metadata")
    counts = "minProperties" in root.document or "maxProperties" in root.document
    if counts or (metadata is not None and metadata.properties) or set(root.required) & _TYPED:
        return document_of(obj)
    return obj.content


_TYPED = frozenset({"apiVersion", "kind", "metadata"})


def _fields_of(version: CustomResourceDefinitionVersion) -> dict[str, Callable[[CustomObject], str]]:
    paths = [each.json_path for each in version.selectable_fields]
    return {path.removeprefix("."): _field_reader(path) for path in paths}


def _field_reader(path: str) -> Callable[[CustomObject], str]:
    def read(obj: CustomObject) -> str:
        value = find_first(path, obj.content)
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value is None else str(value)

    return read


def _scale_of(scale: CustomResourceSubresourceScale | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(
        spec_replicas=_split(scale.spec_replicas_path),
        status_replicas=_split(scale.status_replicas_path),
        selector=_split(scale.label_selector_path or ""),
    )


def value_at(content: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of fields; None if there is none, or no path."""
    for name in path:
        content = content.get(name) if isinstance(content, dict) else None
    return content if path else None


def with_value(content: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy with another value at a path."""
    name, *rest = path
    below = content.get(name)
    inner = with_value(below if isinstance(below, dict) else {}, tuple(rest), value) if rest else value
    return {**content, name: inner}


def _split(path: str) -> tuple[str, ...]:
    return tuple(path.removeprefix(".").split(".")) if path else ()


def _deprecation(crd: CustomResourceDefinition, version: CustomResourceDefinitionVersion) -> str:
    if not version.deprecated:
        return ""
    name = f"{crd.spec.group}/{version.name} {crd.spec.names.kind}"
    return version.deprecation_warning or f"{name} is deprecated"
