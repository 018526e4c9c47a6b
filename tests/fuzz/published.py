"""What the published documents say that objects look like: clients in typed languages stumble over anything else."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from app.machinery.base import Kind

FOLDER = Path(__file__).parents[2] / "openapi"


@cache
def _validator(api_version: str, name: str) -> jsonschema_rs.Validator:
    prefix = "apis" if "/" in api_version else "api"
    document = json.loads((FOLDER / f"{prefix}_{api_version.replace('/', '_')}.json").read_text())
    schemas: dict[str, Any] = document["components"]["schemas"]
    group, _, version = api_version.rpartition("/")
    wanted = {"group": group, "version": version, "kind": name}
    found = next(
        each for each, schema in schemas.items() if wanted in schema.get("x-kubernetes-group-version-kind", ())
    )
    schema = {"$ref": f"#/components/schemas/{found}", "components": {"schemas": schemas}}
    return jsonschema_rs.validator_for(schema)


def fault_of(kind: Kind, document: Any) -> str:
    """How an object strays from its schema; nothing if it does not."""
    error = next(_validator(kind.api_version, kind.name).iter_errors(document), None)
    return "" if error is None else f"{kind.name} {'/'.join(map(str, error.instance_path))}: {error.message[:300]}"
