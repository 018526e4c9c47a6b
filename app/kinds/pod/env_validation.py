"""Validation of environment variables and of the fields that they refer to. Part of `app.kinds.pod.pod_validation`."""

import re
from collections.abc import Callable, Iterator

from app.kinds.pod.container import (
    ConfigMapKeySelector,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    SecretKeySelector,
)
from app.kinds.pod.volume import ObjectFieldSelector, ResourceFieldSelector
from app.machinery import name_validation
from app.machinery.errors import Cause, invalid, not_supported, required
from app.machinery.quantity import canonical, fault

IN_ENV = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
IN_VOLUME = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")

_RESOURCES = tuple(f"{of}.{name}" for of in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory"))
_HUGE = ("limits.hugepages-", "requests.hugepages-")
_SUBSCRIPT = re.compile(r"(.*)\['(.*)'\]", re.DOTALL)
_SIZES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_KNOWN_PATHS = {*IN_ENV, *IN_VOLUME}


def validate_env(variables: tuple[EnvVar, ...], path: str) -> Iterator[Cause]:
    for index, variable in enumerate(variables):
        here = f"{path}[{index}]"
        if not variable.name:
            yield required(f"{here}.name")
        for text in name_validation.env_name(variable.name) if variable.name else ():
            yield invalid(f"{here}.name", variable.name, text)
        if variable.value_from:
            yield from _source(variable.value_from, bool(variable.value), f"{here}.valueFrom")


def _source(source: EnvVarSource, has_value: bool, path: str) -> Iterator[Cause]:
    given = 0
    if source.field_ref:
        given += 1
        yield from validate_field(source.field_ref, IN_ENV, f"{path}.fieldRef")
    if source.resource_field_ref:
        given += 1
        yield from validate_resource_field(source.resource_field_ref, f"{path}.resourceFieldRef")
    for wire, key in (("configMapKeyRef", source.config_map_key_ref), ("secretKeyRef", source.secret_key_ref)):
        if key:
            given += 1
            yield from _key(key, f"{path}.{wire}")
    given += source.file_key_ref is not None
    if not given:
        options = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield invalid(path, "", f"must specify one of: {options}")
    elif has_value:
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif given > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")


def _key(selector: ConfigMapKeySelector | SecretKeySelector, path: str) -> Iterator[Cause]:
    for text in name_validation.dns_subdomain(selector.name):
        yield invalid(f"{path}.name", selector.name, text)
    if not selector.key:
        yield required(f"{path}.key")
    for text in name_validation.config_key(selector.key) if selector.key else ():
        yield invalid(f"{path}.key", selector.key, text)


def validate_field(selector: ObjectFieldSelector, allowed: tuple[str, ...], path: str) -> Iterator[Cause]:
    """A reference to a field of the pod: one of `allowed`, or a single label or annotation."""
    if not selector.api_version:
        yield required(f"{path}.apiVersion")
    elif not selector.field_path:
        yield required(f"{path}.fieldPath")
    elif selector.api_version != "v1":
        text = f"error converting fieldPath: unsupported pod version: {selector.api_version}"
        yield invalid(f"{path}.fieldPath", selector.field_path, text)
    elif match := _SUBSCRIPT.fullmatch(selector.field_path):
        yield from _subscript(match[1], match[2], path)
    elif selector.field_path not in _KNOWN_PATHS:
        text = f"error converting fieldPath: field label not supported: {selector.field_path}"
        yield invalid(f"{path}.fieldPath", selector.field_path, text)
    elif selector.field_path not in allowed:
        yield not_supported(f"{path}.fieldPath", selector.field_path, allowed)


def _subscript(field: str, key: str, path: str) -> Iterator[Cause]:
    lowered: dict[str, Callable[[str], str]] = {"metadata.annotations": str.lower, "metadata.labels": str}
    if field not in lowered:
        text = f"error converting fieldPath: field label does not support subscript: {field}"
        yield invalid(f"{path}.fieldPath", f"{field}['{key}']", text)
        return
    key = lowered[field](key)
    for text in name_validation.qualified_name(key):
        yield invalid(path, key, text)


def validate_resource_field(selector: ResourceFieldSelector, path: str, *, in_volume: bool = False) -> Iterator[Cause]:
    if in_volume and not selector.container_name:
        yield required(f"{path}.containerName")
    elif not selector.resource:
        yield required(f"{path}.resource")
    elif selector.resource not in _RESOURCES and not selector.resource.startswith(_HUGE):
        yield not_supported(f"{path}.resource", selector.resource, _RESOURCES)
    yield from _divisor(selector, f"{path}.divisor")


def _divisor(selector: ResourceFieldSelector, path: str) -> Iterator[Cause]:
    if selector.divisor is None:
        return
    if text := fault(selector.divisor):
        yield invalid(path, selector.divisor, text)
        return
    divisor, resource = canonical(selector.divisor), selector.resource.partition(".")[2]
    if divisor == "0":
        return
    if resource == "cpu" and divisor not in ("1m", "1"):
        text = "only divisor's values 1m and 1 are supported with the cpu resource"
        yield invalid(path, selector.resource, text)
    kinds = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}
    kind = "hugepages" if resource.startswith("hugepages-") else kinds.get(resource)
    if kind and divisor not in _SIZES:
        text = f"only divisor's values {', '.join(_SIZES)} are supported with the {kind} resource"
        yield invalid(path, selector.resource, text)


def validate_env_from(sources: tuple[EnvFromSource, ...], path: str) -> Iterator[Cause]:
    for index, source in enumerate(sources):
        here = f"{path}[{index}]"
        for text in name_validation.env_name(source.prefix) if source.prefix else ():
            yield invalid(f"{here}.prefix", source.prefix, text)
        given = [
            (wire, ref.name)
            for wire, ref in (("configMapRef", source.config_map_ref), ("secretRef", source.secret_ref))
            if ref
        ]
        for wire, name in given:
            if not name:
                yield required(f"{here}.{wire}.name")
            for text in name_validation.dns_subdomain(name) if name else ():
                yield invalid(f"{here}.{wire}.name", name, text)
        if not given:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")
