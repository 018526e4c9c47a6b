"""What `kubectl cluster-info dump` reads of kinds that are not here: empty lists, and nothing else."""

import httpx
import pytest

from app.api.auth import User
from app.api.tokens import issue
from app.registry.objects import Registry


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/v1/replicationcontrollers", "ReplicationControllerList"),
        ("/api/v1/namespaces/default/replicationcontrollers", "ReplicationControllerList"),
        ("/apis/apps/v1/deployments", "DeploymentList"),
        ("/apis/apps/v1/namespaces/default/daemonsets/", "DaemonSetList"),
    ],
)
async def test_their_lists_are_empty(admin: httpx.AsyncClient, path: str, kind: str) -> None:
    answer = (await admin.get(path)).json()
    assert (answer["kind"], answer["items"]) == (kind, [])
    assert answer["apiVersion"] in {"v1", "apps/v1"}
    assert int(answer["metadata"]["resourceVersion"]) > 0


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/apis/apps/v1/namespaces/default/deployments/web"),
        ("POST", "/apis/apps/v1/namespaces/default/deployments"),
        ("GET", "/api/v1/namespaces/default/frobs"),
        ("GET", "/apis/apps/v2/deployments"),
    ],
)
async def test_nothing_else_of_them_is_there(admin: httpx.AsyncClient, method: str, path: str) -> None:
    assert (await admin.request(method, path)).status_code == 404


async def test_they_are_in_no_discovery_document(admin: httpx.AsyncClient) -> None:
    assert (await admin.get("/apis/apps/v1")).status_code == 404
    assert "replicationcontrollers" not in (await admin.get("/api/v1")).text


async def test_who_may_not_list_them_is_told_so(registry: Registry, url: str) -> None:
    token = await issue(registry, User(name="bob", groups=()))
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}) as bob:
        assert (await bob.get("/apis/apps/v1/deployments")).status_code == 403
        assert (await bob.get("/api/v1/namespaces/default/replicationcontrollers")).status_code == 403
