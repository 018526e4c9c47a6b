"""Clients of users who are no administrators, and the objects that give them rights."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx

from app.api.auth.authenticator import User
from app.api.auth.tokens import issue
from app.registry.verbs.objects import Registry
from tests.conftest import NO_TLS

RBAC = "/apis/rbac.authorization.k8s.io/v1"


class People:
    """Makes users, and clients that are closed with it."""

    def __init__(self, registry: Registry, url: str, clients: AsyncExitStack) -> None:
        self._registry = registry
        self._url = url
        self._clients = clients

    async def holder(self, token: str) -> httpx.AsyncClient:
        """Whoever holds a token."""
        headers = {"Authorization": f"Bearer {token}"}
        return await self._clients.enter_async_context(
            httpx.AsyncClient(base_url=self._url, headers=headers, timeout=30, verify=NO_TLS)
        )

    async def user(self, name: str, *groups: str) -> httpx.AsyncClient:
        return await self.holder(await issue(self._registry, User(name=name, groups=groups)))


@asynccontextmanager
async def meeting(registry: Registry, url: str) -> AsyncIterator[People]:
    async with AsyncExitStack() as clients:
        yield People(registry, url, clients)


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> dict[str, Any]:
    return {"verbs": verbs.split(","), "resources": resources.split(","), "apiGroups": [group], **more}


async def cluster_role(admin: httpx.AsyncClient, name: str, *rules: dict[str, Any], **more: Any) -> httpx.Response:
    body = {"metadata": {"name": name, "labels": more.pop("labels", {})}, "rules": rules, **more}
    return await admin.post(f"{RBAC}/clusterroles", json=body)


async def bind(
    admin: httpx.AsyncClient, role: str, subjects: Sequence[str], namespace: str = "", name: str = "b"
) -> httpx.Response:
    """Bind `Role/r` or a cluster role to `User:ada`, `Group:g` or `ServiceAccount:ns/name`."""
    kind, _, role_name = role.rpartition("/")
    found = []
    for each in subjects:
        what, _, who = each.partition(":")
        home, _, who = who.rpartition("/")
        found.append({"kind": what, "name": who} | ({"namespace": home} if home else {}))
    place = f"{RBAC}/namespaces/{namespace}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
    role_ref = {"kind": kind or "ClusterRole", "name": role_name}
    return await admin.post(place, json={"metadata": {"name": name}, "roleRef": role_ref, "subjects": found})
