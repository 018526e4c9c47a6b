"""The ConfigMap kind."""

from datetime import datetime
from typing import Any

from app.kinds.core.config_schema import ConfigMap
from app.machinery import name_validation
from app.machinery.base import (
    Column,
    Kind,
)
from app.machinery.durations import age
from app.machinery.errors import Cause, forbidden, invalid, too_long

__all__ = ["FROZEN", "KIND", "MOST_BYTES", "ConfigMap", "faults_in_keys", "row", "validate", "validate_update"]


MOST_BYTES = 1024 * 1024  # of all values together, as for a Secret
FROZEN = "field is immutable when `immutable` is set"


def validate(config_map: ConfigMap) -> list[Cause]:
    causes = [
        *faults_in_keys("data", config_map.data),
        *(
            invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
            for key in config_map.data.keys() & config_map.binary_data.keys()
        ),
        *faults_in_keys("binaryData", config_map.binary_data),
    ]
    size = sum(len(text.encode()) for text in config_map.data.values())
    if size + sum(map(len, config_map.binary_data.values())) > MOST_BYTES:
        causes.append(too_long("[]", MOST_BYTES))  # Kubernetes names no field here, and prints that as []
    return causes


def faults_in_keys(field: str, data: dict[str, Any]) -> list[Cause]:
    """Keys become file names, so not every text will do. Secrets have the same rule."""
    return [invalid(f"{field}[{key}]", key, fault) for key in data for fault in name_validation.config_key(key)]


def validate_update(new: ConfigMap, old: ConfigMap) -> list[Cause]:
    if not old.immutable:
        return []
    changed = {
        "immutable": not new.immutable,
        "data": new.data != old.data,
        "binaryData": new.binary_data != old.binary_data,
    }
    return [forbidden(field, FROZEN) for field, differs in changed.items() if differs]


def row(config_map: ConfigMap, now: datetime) -> list[Any]:
    meta = config_map.metadata
    return [meta.name, len(config_map.data) + len(config_map.binary_data), age(meta.creation_timestamp, now)]


KIND = Kind(
    type=ConfigMap,
    group="",
    version="v1",
    plural="configmaps",
    short_names=("cm",),
    validate=validate,
    validate_update=validate_update,
    columns=(
        Column(name="Name", format="name", description="Name of the config map."),
        Column(name="Data", description="How many keys it has."),
        Column(name="Age", description="Time since the config map was created."),
    ),
    row=row,
    example="""\
apiVersion: v1
kind: ConfigMap
metadata:
  name: simulation
data:
  steps: "1000"
  model.toml: |
    [grid]
    width = 64
binaryData:
  seed.bin: 3q2+7w==
""",
)
