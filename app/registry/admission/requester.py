"""Requester: the user of the request that is being handled, for what judges a write by who asks for it.

The API sets it once a request is authorized; each request is a task of its own, so none sees another's. What this process
writes itself has no requester.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import NamedTuple, Protocol


class Requester(Protocol):
    """A user as admission policies see it."""

    @property
    def name(self) -> str: ...

    @property
    def groups(self) -> Sequence[str]: ...

    @property
    def uid(self) -> str: ...


class ServiceAccountUser(NamedTuple):
    """The service account that stands for a controller, by Kubernetes' name."""

    name: str
    groups: tuple[str, ...] = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
    uid: str = ""


REQUESTER: ContextVar[Requester | None] = ContextVar("requester", default=None)


def of_controller(component: str) -> Requester:
    return ServiceAccountUser(f"system:serviceaccount:kube-system:{component}")


def user_info(requester: Requester | None) -> dict[str, object]:
    """Return `request.userInfo`."""
    if requester is None:
        return {}
    user: dict[str, object] = {"username": requester.name, "groups": list(requester.groups)}
    return user | ({"uid": requester.uid} if requester.uid else {})
