"""The ServiceAccount kind."""

from datetime import datetime
from typing import Any

from app.kinds.core.namespace_schema import ServiceAccount
from app.machinery.base import (
    Column,
    Kind,
)
from app.machinery.durations import age

__all__ = ["KIND", "ServiceAccount", "row"]


def row(account: ServiceAccount, now: datetime) -> list[Any]:
    meta = account.metadata
    return [meta.name, len(account.secrets), age(meta.creation_timestamp, now)]


KIND = Kind(
    type=ServiceAccount,
    group="",
    version="v1",
    plural="serviceaccounts",
    short_names=("sa",),
    columns=(
        Column(name="Name", format="name", description="Name of the service account."),
        Column(name="Secrets", description="How many secrets it lists."),
        Column(name="Age", description="Time since the service account was created."),
    ),
    row=row,
    returns_deleted=True,
    example="""\
apiVersion: v1
kind: ServiceAccount
metadata:
  name: builder
imagePullSecrets:
- name: registry
automountServiceAccountToken: false
""",
)
