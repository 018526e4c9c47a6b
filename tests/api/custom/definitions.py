"""A custom kind to try everything with."""

import dataclasses
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec

from app.kinds.apiextensions import custom_resource_definition, definition_conditions
from app.kinds.apiextensions.custom_kind import kinds_of
from app.kinds.apiextensions.custom_resource_definition import CustomResourceDefinition
from app.machinery.base import Kind

GROUP = "lab.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["color"],
    "properties": {
        "replicas": {"type": "integer", "minimum": 0, "default": 1},
        "color": {"type": "string", "enum": ["red", "blue"]},
        "size": {"x-kubernetes-int-or-string": True},
        "note": {"type": "string", "nullable": True, "maxLength": 10, "pattern": "^[a-z]*$"},
        "since": {"type": "string", "format": "date-time"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "weight": {"type": "integer", "default": 5}},
            },
        },
    },
}
STATUS = {
    "type": "object",
    "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}, "selector": {"type": "string"}},
}


def version(name: str = "v1", **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
    return {
        "name": name,
        "served": True,
        "storage": name == "v1",
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        ],
        "selectableFields": [{"jsonPath": ".spec.color"}],
        **more,
    }


def definition(plural: str = "widgets", kind: str = "Widget", *versions: Any, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": list(versions) or [version()],
            **spec,
        },
    }


def widget(name: str = "w", kind: str = "Widget", api_version: str = f"{GROUP}/v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {"color": "red", **spec}}


def path(plural: str = "widgets", name: str = "", namespace: str = "default", version: str = "v1") -> str:
    return f"/apis/{GROUP}/{version}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def custom_kind() -> Kind:
    """The kind of a definition, with an example, as the suites over every kind want it."""
    crd = custom_resource_definition.prepare(msgspec.convert(definition(), CustomResourceDefinition))
    named = definition_conditions.with_names(crd, (), datetime.now(UTC))
    example = msgspec.yaml.encode(widget()).decode()
    return dataclasses.replace(kinds_of(named).storage, example=example)


async def define(admin: httpx.AsyncClient, document: dict[str, Any]) -> dict[str, Any]:
    answer = await admin.post(DEFINITIONS, json=document)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made
