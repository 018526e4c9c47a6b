"""The scale of a Deployment: read, replaced, patched, and refused in Kubernetes' words."""

from typing import Any

import httpx
import pytest

from app.kinds.apps.deployment import KIND
from app.registry.verbs.objects import Registry
from tests.registry.examples import create, example

PATH = "/apis/apps/v1/namespaces/default/deployments/operator"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def registry(restored: Registry) -> Registry:
    return restored


@pytest.fixture
def admin(lasting_admin: httpx.AsyncClient) -> httpx.AsyncClient:
    return lasting_admin


async def replicas(admin: httpx.AsyncClient) -> tuple[int, int]:
    """Wanted ones, and the generation."""
    found: dict[str, Any] = (await admin.get(PATH)).json()
    return found["spec"]["replicas"], found["metadata"]["generation"]


async def test_a_deployment_is_scaled(registry: Registry, admin: httpx.AsyncClient) -> None:
    await create(registry, KIND, example(KIND))
    scale = (await admin.get(f"{PATH}/scale")).json()
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 0, "selector": "app=operator"},
    )

    scale["spec"]["replicas"] = 5
    assert (await admin.put(f"{PATH}/scale", json=scale)).json()["spec"] == {"replicas": 5}
    assert await replicas(admin) == (5, 2)
    merge = {"Content-Type": "application/merge-patch+json"}
    answer = await admin.patch(f"{PATH}/scale", content=b'{"spec":{"replicas":0}}', headers=merge)
    assert answer.status_code == 200
    assert await replicas(admin) == (0, 3)

    assert (await admin.put(f"{PATH}/scale", json=scale)).status_code == 409
    answer = await admin.patch(f"{PATH}/scale", content=b'{"spec":{"replicas":-1}}', headers=merge)
    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
