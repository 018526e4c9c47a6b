"""Validation of CustomResourceDefinitions (apiextensions' validation.go). Pure; texts and paths are Kubernetes'."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from app.kinds.admission.webhook_client_config import validate_client_config
from app.kinds.admission.webhook_defaults import REVIEW_VERSIONS
from app.kinds.apiextensions.custom_resource_schema import (
    CustomResourceColumnDefinition,
    CustomResourceConversion,
    CustomResourceDefinition,
    CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion,
    CustomResourceSubresourceScale,
    WebhookConversion,
)
from app.kinds.apiextensions.definition_conditions import APPROVAL, is_established, is_protected
from app.kinds.apiextensions.structural_rules import find_faults
from app.machinery.custom.json_path import JsonPathError, compile_path
from app.machinery.errors import Cause, duplicate, forbidden, invalid, not_supported, required, too_many
from app.machinery.meta.metadata_validation import IMMUTABLE
from app.machinery.name_validation import dns_label_1035, dns_subdomain

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_APPROVAL_URL = "https://github.com/kubernetes/enhancements/pull/1111"
_MOST_SELECTABLE = 8
_MIXED_CASE = "may have mixed case, but should otherwise match: {}"
_NOT_SELECTABLE = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
)


def validate_definition(crd: CustomResourceDefinition, builtin_groups: frozenset[str]) -> list[Cause]:
    """Return why a definition is invalid."""
    spec, causes = crd.spec, []
    wanted = f"{spec.names.plural}.{spec.group}"
    if crd.metadata.name != wanted:
        causes.append(invalid("metadata.name", crd.metadata.name, 'must be spec.names.plural+"."+spec.group'))
    if is_protected(spec.group) and not crd.metadata.annotations.get(APPROVAL):
        why = f'protected groups must have approval annotation "{APPROVAL}", see {_APPROVAL_URL}'
        causes.append(required(f"metadata.annotations[{APPROVAL}]", why))
    if spec.group in builtin_groups:
        causes.append(invalid("spec.group", spec.group, "is a group of built-in kinds, which no definition can add to"))
    causes += _validate_spec(spec)
    causes += _validate_stored_versions(crd)
    return causes


def _validate_spec(spec: CustomResourceDefinitionSpec) -> Iterator[Cause]:
    if not spec.group:
        yield required("spec.group")
    elif faults := dns_subdomain(spec.group):
        yield invalid("spec.group", spec.group, ",".join(faults))
    elif "." not in spec.group:
        yield invalid("spec.group", spec.group, "should be a domain with at least one dot")
    if not spec.scope:
        yield required("spec.scope")
    elif spec.scope not in ("Cluster", "Namespaced"):
        yield not_supported("spec.scope", spec.scope, ("Cluster", "Namespaced"))
    if spec.preserve_unknown_fields:
        why = "must be false in order to use defaults in the schema; set x-kubernetes-preserve-unknown-fields instead"
        yield invalid("spec.preserveUnknownFields", True, why)
    yield from _validate_versions(spec)
    yield from validate_names(spec.names, "spec.names")
    yield from _validate_conversion(spec.conversion)


def _validate_versions(spec: CustomResourceDefinitionSpec) -> Iterator[Cause]:
    versions = spec.versions
    if not versions:
        yield invalid("spec.versions", [], "must have exactly one version marked as storage version")
        return
    if sum(each.storage for each in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield invalid("spec.versions", msgspec.to_builtins(versions), why)
    for name, count in Counter(each.name for each in versions).items():
        if count > 1:
            yield invalid("spec.versions", name, "must contain unique version names")
    same = {word: _is_same(word, versions) for word in ("schema", "subresources", "additional_printer_columns")}
    for index, each in enumerate(versions):
        if faults := dns_label_1035(each.name):
            yield invalid(f"spec.versions[{index}].name", each.name, ",".join(faults))
        if each.deprecation_warning is not None and not each.deprecated:
            why = "can only be set for deprecated versions"
            yield invalid(f"spec.versions[{index}].deprecationWarning", each.deprecation_warning, why)
        yield from _validate_version(each, index, same)


def _is_same(word: str, versions: tuple[CustomResourceDefinitionVersion, ...]) -> bool:
    """Kubernetes' internal form holds what all versions have in common at the top, and paths tell of that."""
    return all(getattr(each, word) == getattr(versions[0], word) for each in versions)


def _validate_version(each: CustomResourceDefinitionVersion, index: int, same: dict[str, bool]) -> Iterator[Cause]:
    place = f"spec.versions[{index}]"
    schema = each.schema.open_apiv3_schema if each.schema else None
    if schema is None:
        yield required(f"{place}.schema.openAPIV3Schema")
    elif not same["schema"] or index == 0:
        path = "spec.validation" if same["schema"] else f"{place}.schema"
        yield from find_faults(schema, f"{path}.openAPIV3Schema")
    path = "spec" if same["additional_printer_columns"] else place
    if not same["additional_printer_columns"] or index == 0:
        for number, column in enumerate(each.additional_printer_columns):
            yield from _validate_column(column, f"{path}.additionalPrinterColumns[{number}]")
    scale = each.subresources.scale if each.subresources else None
    if scale is not None and (not same["subresources"] or index == 0):
        yield from _validate_scale(scale, f"{'spec' if same['subresources'] else place}.subresources.scale")
    yield from _validate_selectable(each, f"{place}.selectableFields")


def _validate_column(column: CustomResourceColumnDefinition, path: str) -> Iterator[Cause]:
    if not column.name:
        yield required(f"{path}.name")
    if not column.type:
        yield required(f"{path}.type", f"must be one of {','.join(_COLUMN_TYPES)}")
    elif column.type not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", column.type, f"must be one of {','.join(_COLUMN_TYPES)}")
    yield from _validate_path(column.json_path, f"{path}.JSONPath")


def _validate_path(given: str, path: str) -> Iterator[Cause]:
    if not given:
        yield required(path)
        return
    try:
        compile_path(given)
    except JsonPathError as error:
        yield invalid(path, given, f"is an invalid jsonpath: {error}")


def _validate_scale(scale: CustomResourceSubresourceScale, path: str) -> Iterator[Cause]:
    for name, given, places in (
        ("specReplicasPath", scale.spec_replicas_path, (".spec.",)),
        ("statusReplicasPath", scale.status_replicas_path, (".status.",)),
        ("labelSelectorPath", scale.label_selector_path, (".spec.", ".status.")),
    ):
        if given is None:
            continue
        if not given:
            yield required(f"{path}.{name}")
        elif not given.startswith(places):
            allowed = " or ".join(f"{each[:-1]}" for each in places)
            yield invalid(f"{path}.{name}", given, f"should be a json path under {allowed}")
        elif "[" in given:
            yield invalid(f"{path}.{name}", given, "should be a simple json path without array notation")


def _validate_selectable(version: CustomResourceDefinitionVersion, path: str) -> Iterator[Cause]:
    seen = set()
    if len(version.selectable_fields) > _MOST_SELECTABLE:
        yield too_many(path, len(version.selectable_fields), _MOST_SELECTABLE)
    for index, each in enumerate(version.selectable_fields):
        place = f"{path}[{index}].jsonPath"
        if each.json_path in seen:
            yield duplicate(place, each.json_path)
        elif each.json_path.startswith(".metadata."):
            yield invalid(place, each.json_path, "must not point to fields in metadata")
        elif "[" in each.json_path or not each.json_path.startswith("."):
            yield invalid(
                place, each.json_path, "is an invalid path: must be a simple json path without array notation"
            )
        elif why := _why_not_selectable(version, each.json_path):
            yield invalid(place, each.json_path, why)
        seen.add(each.json_path)


def _why_not_selectable(version: CustomResourceDefinitionVersion, path: str) -> str:
    """Return why a field has no value that can be compared; an empty text if it has one."""
    found: Any = version.schema.open_apiv3_schema if version.schema else None
    for name in path.removeprefix(".").split("."):
        if not isinstance(found, dict):
            return "is an invalid path: does not refer to a valid field"
        found = (found.get("properties") or {}).get(name, found.get("additionalProperties"))
    if not isinstance(found, dict):
        return "is an invalid path: does not refer to a valid field"
    return "" if found.get("type") in ("string", "boolean", "integer") else _NOT_SELECTABLE


def validate_names(names: CustomResourceDefinitionNames, path: str) -> Iterator[Cause]:
    """Check names for their form. Whether they are free is a condition."""
    for field, name, text in (
        ("plural", names.plural, "{}"),
        ("singular", names.singular, "{}"),
        ("kind", names.kind, _MIXED_CASE),
        ("listKind", names.list_kind, _MIXED_CASE),
    ):
        is_kind = text == _MIXED_CASE
        if not name:
            yield required(f"{path}.{field}")
        elif faults := dns_label_1035(name.lower() if is_kind else name):
            yield invalid(f"{path}.{field}", name, text.format(",".join(faults)))
    if names.kind and names.kind == names.list_kind:
        yield invalid(f"{path}.listKind", names.list_kind, "kind and listKind may not be the same")
    for word, values in (("shortNames", names.short_names), ("categories", names.categories)):
        for index, name in enumerate(values):
            if faults := dns_label_1035(name):
                yield invalid(f"{path}.{word}[{index}]", name, ",".join(faults))


def _validate_conversion(conversion: CustomResourceConversion | None) -> Iterator[Cause]:
    """Paths are those of Kubernetes' internal form, as its messages have them."""
    if conversion is None:
        return
    if conversion.strategy not in ("None", "Webhook"):
        yield not_supported("spec.conversion.strategy", conversion.strategy, ("None", "Webhook"))
    webhook = conversion.webhook
    if conversion.strategy == "Webhook":
        yield from _validate_webhook(webhook)
        return
    why = "should not be set when strategy is not set to Webhook"
    if webhook is not None and webhook.client_config is not None:
        yield forbidden("spec.conversion.webhookClientConfig", why)
    if webhook is not None and webhook.conversion_review_versions:
        yield forbidden("spec.conversion.conversionReviewVersions", why)


def _validate_webhook(webhook: WebhookConversion | None) -> Iterator[Cause]:
    path = "spec.conversion.webhookClientConfig"
    if webhook is None or webhook.client_config is None:
        yield required(path, "required when strategy is set to Webhook")
    else:
        yield from validate_client_config(webhook.client_config, path)
    yield from _validate_review_versions(webhook.conversion_review_versions if webhook else ())


def _validate_review_versions(versions: tuple[str, ...]) -> Iterator[Cause]:
    path = "spec.conversion.conversionReviewVersions"
    if not versions:
        yield required(path)
        return
    seen: set[str] = set()
    for index, each in enumerate(versions):
        if each in seen:
            yield invalid(f"{path}[{index}]", each, "duplicate version")
            continue
        seen.add(each)
        yield from (invalid(f"{path}[{index}]", each, fault) for fault in dns_label_1035(each))
    if not seen.intersection(REVIEW_VERSIONS):
        yield invalid(path, list(versions), f"must include at least one of {', '.join(REVIEW_VERSIONS)}")


def _validate_stored_versions(crd: CustomResourceDefinition) -> Iterator[Cause]:
    names = {each.name for each in crd.spec.versions}
    for index, each in enumerate(crd.status.stored_versions):
        if each not in names:
            why = (
                f"missing from spec.versions; {each} was previously a storage version, and must remain in spec.versions "
                f"until a storage migration ensures no data remains persisted in {each} and removes {each} from "
                "status.storedVersions"
            )
            yield invalid(f"status.storedVersions[{index}]", each, why)


def validate_definition_update(new: CustomResourceDefinition, old: CustomResourceDefinition) -> list[Cause]:
    """Return what an update may not change."""
    causes = [
        invalid(f"spec.{name}", getattr(new.spec, name), IMMUTABLE)
        for name in ("group",)
        if getattr(new.spec, name) != getattr(old.spec, name)
    ]
    if is_established(old):
        for path, one, other in (
            ("spec.scope", new.spec.scope, old.spec.scope),
            ("spec.names.kind", new.spec.names.kind, old.spec.names.kind),
        ):
            if one != other:
                causes.append(invalid(path, one, IMMUTABLE))
    if new.spec.names.plural != old.spec.names.plural:
        causes.append(invalid("spec.names.plural", new.spec.names.plural, IMMUTABLE))
    bundle, before = _ca_bundle(new), _ca_bundle(old)
    if bundle and not _is_pem(bundle) and _is_pem(before):  # tools that fill it in later begin with a placeholder
        why = "unable to load root certificates: unable to parse bytes as PEM block"
        causes.append(invalid("spec.conversion.webhookClientConfig.caBundle", bundle, why))
    return causes


def _ca_bundle(crd: CustomResourceDefinition) -> bytes:
    conversion = crd.spec.conversion
    config = conversion.webhook.client_config if conversion and conversion.webhook else None
    return config.ca_bundle if config else b""


def _is_pem(bundle: bytes) -> bool:
    return b"-----BEGIN CERTIFICATE-----" in bundle and b"-----END CERTIFICATE-----" in bundle


def validate_definition_status(new: CustomResourceDefinition, _: CustomResourceDefinition) -> list[Cause]:
    causes = list(_validate_stored_versions(new))
    if not new.status.stored_versions:
        causes.append(invalid("status.storedVersions", [], "must have at least one stored version"))
    storage = next((each.name for each in new.spec.versions if each.storage), "")
    if new.status.stored_versions and storage not in new.status.stored_versions:
        why = f"must have the storage version {storage}"
        causes.append(invalid("status.storedVersions", list(new.status.stored_versions), why))
    return causes
