"""The ServiceAccount kind."""

from typing import Annotated

from app.kinds.base import (
    LocalObjectReference,
    Object,
    ObjectReference,
    at,
)


class ServiceAccount(Object):
    """TODO-DOC"""

    secrets: Annotated[tuple[ObjectReference, ...], at(2)] = ()
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], at(3)] = ()
    automount_service_account_token: Annotated[bool | None, at(4)] = None
