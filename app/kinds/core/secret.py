"""The Secret kind."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from app.kinds.core.config_schema import Secret
from app.kinds.core.configmap import FROZEN, MOST_BYTES, faults_in_keys
from app.machinery.base import (
    Column,
    Kind,
)
from app.machinery.durations import age
from app.machinery.errors import Cause, forbidden, invalid, required, too_long
from app.machinery.meta.metadata_validation import IMMUTABLE

__all__ = ["ACCOUNT_NAME", "KIND", "Secret", "prepare", "row", "validate", "validate_update"]


def prepare(secret: Secret) -> Secret:
    data = secret.data | {key: text.encode() for key, text in secret.string_data.items()}
    return replace(secret, data=data, string_data={}, type=secret.type or "Opaque")


ACCOUNT_NAME = "kubernetes.io/service-account.name"  # the annotation of a service account's token

_NEEDED = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def validate(secret: Secret) -> list[Cause]:
    causes = faults_in_keys("data", secret.data)
    if sum(map(len, secret.data.values())) > MOST_BYTES:
        causes.append(too_long("data", MOST_BYTES))
    return causes + _faults_for_type(secret)


def _faults_for_type(secret: Secret) -> list[Cause]:
    """Return what each well-known type promises to those who use it."""
    match secret.type:
        case "kubernetes.io/service-account-token":
            named = secret.metadata.annotations.get(ACCOUNT_NAME)
            return [] if named else [required(f"metadata.annotations[{ACCOUNT_NAME}]")]
        case "kubernetes.io/basic-auth":
            keys = ("username", "password")
            return [] if secret.data.keys() & set(keys) else [required(f"data[{key}]") for key in keys]
        case known:
            needed = _NEEDED.get(known, ())
            return [cause for key in needed for cause in _faults_in_value(secret, key)]


def _faults_in_value(secret: Secret, key: str) -> list[Cause]:
    if key not in secret.data:
        return [required(f"data[{key}]")]
    if key.startswith(".docker") and not _is_json_object(secret.data[key]):
        return [invalid(f"data[{key}]", "<secret contents redacted>", "must be a JSON object")]
    return []


def _is_json_object(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def validate_update(new: Secret, old: Secret) -> list[Cause]:
    causes = [invalid("type", new.type, IMMUTABLE)] if new.type != old.type else []
    if old.immutable:
        changed = {"immutable": not new.immutable, "data": new.data != old.data}
        causes += [forbidden(field, FROZEN) for field, differs in changed.items() if differs]
    return causes


def row(secret: Secret, now: datetime) -> list[Any]:
    meta = secret.metadata
    return [meta.name, secret.type, len(secret.data), age(meta.creation_timestamp, now)]


KIND = Kind(
    type=Secret,
    group="",
    version="v1",
    plural="secrets",
    prepare=prepare,
    validate=validate,
    validate_update=validate_update,
    columns=(
        Column(name="Name", format="name", description="Name of the secret."),
        Column(name="Type", description="What the secret is for."),
        Column(name="Data", description="How many keys it has."),
        Column(name="Age", description="Time since the secret was created."),
    ),
    row=row,
    fields={"type": lambda secret: secret.type},
    example="""\
apiVersion: v1
kind: Secret
metadata:
  name: database
type: kubernetes.io/basic-auth
data:
  username: c2NpZW5jZQ==
stringData:
  password: not a good one
""",
)
