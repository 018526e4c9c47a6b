"""PATCH finds and changes elements of the lists that are stored, by their key or by their place."""

from typing import Any

import httpx
import pytest

PODS = "/api/v1/namespaces/default/pods"
STRATEGIC, JSON = "application/strategic-merge-patch+json", "application/json-patch+json"


@pytest.mark.parametrize(
    ("form", "patch"),
    [
        pytest.param(STRATEGIC, {"spec": {"containers": [{"name": "side", "image": "new"}]}}, id="by key"),
        pytest.param(JSON, [{"op": "replace", "path": "/spec/containers/1/image", "value": "new"}], id="by place"),
    ],
)
async def test_one_container_changes_and_the_other_stays(admin: httpx.AsyncClient, form: str, patch: Any) -> None:
    containers = [{"name": name, "image": "old", "command": ["run"]} for name in ("main", "side")]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    assert (await admin.post(PODS, json=pod)).status_code == 201

    answer = await admin.patch(f"{PODS}/p", json=patch, headers={"Content-Type": form})

    assert answer.status_code == 200
    found = [(each["name"], each["image"], each["command"]) for each in answer.json()["spec"]["containers"]]
    assert found == [("main", "old", ["run"]), ("side", "new", ["run"])]
