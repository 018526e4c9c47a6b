"""The ServiceAccount kind."""

from datetime import datetime
from typing import Annotated, Any

from app.machinery.base import (
    Column,
    Kind,
    LocalObjectReference,
    Object,
    ObjectReference,
    at,
)
from app.machinery.durations import age


class ServiceAccount(Object):
    """Who pods are when they talk to the API."""

    secrets: Annotated[
        tuple[ObjectReference, ...],
        at(2, "Secrets meant for pods of this account.", patch="merge", patch_key="name"),
    ] = ()
    image_pull_secrets: Annotated[
        tuple[LocalObjectReference, ...], at(3, "Secrets for registries, given to pods that name none themselves.")
    ] = ()
    automount_service_account_token: Annotated[
        bool | None, at(4, "If false, pods get no token unless they ask for one.")
    ] = None


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
