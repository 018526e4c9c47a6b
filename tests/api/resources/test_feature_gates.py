"""Kinds behind a feature gate: absent where it is off; where it is on, the same objects in every version."""

import dataclasses

import httpx
import pytest

from app.kinds.auth.cluster_role import ClusterRole
from app.kinds.scheduling.priorityclass import KIND as CLASSES
from app.kinds.scheduling.priorityclass import PriorityClass
from app.machinery.base import ObjectMeta
from app.machinery.feature_gates import DEFAULTS, Features
from app.registry.authorization import default_roles
from app.registry.verbs.objects import Registry
from tests.build import EVERY_API
from tests.registry.examples import create

GROUPS = "/apis/scheduling.k8s.io/{}/namespaces/default/podgroups"
GROUP = {
    "apiVersion": "scheduling.k8s.io/v1alpha3",
    "kind": "PodGroup",
    "metadata": {"name": "workers"},
    "spec": {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "priorityClassName": "high",
    },
}


@pytest.fixture
def registry(registry: Registry, request: pytest.FixtureRequest) -> Registry:
    return dataclasses.replace(registry, features=request.param)


def test_who_may_edit_a_namespace_may_edit_groups_where_there_are_some() -> None:
    def may(features: Features) -> set[str]:
        (edit,) = (each for each in default_roles.objects(features) if each.metadata.name == "edit")
        assert isinstance(edit, ClusterRole)
        return {verb for rule in edit.rules if "podgroups" in rule.resources for verb in rule.verbs}

    assert may(DEFAULTS) == set()
    assert may(EVERY_API) >= {"get", "list", "watch", "create", "update", "patch", "delete"}


@pytest.mark.parametrize("registry", [frozenset()], indirect=True, ids=["off"])
async def test_without_its_gate_a_kind_is_not_there(admin: httpx.AsyncClient) -> None:
    for version in ("v1beta1", "v1alpha3"):
        assert (await admin.get(GROUPS.format(version))).status_code == 404
        assert (await admin.get(f"/apis/scheduling.k8s.io/{version}")).status_code == 404
    served = (await admin.get("/apis/scheduling.k8s.io")).json()["versions"]
    assert [each["version"] for each in served] == ["v1"]
    assert "apis/scheduling.k8s.io/v1beta1" not in (await admin.get("/openapi/v3")).json()["paths"]


@pytest.mark.parametrize("registry", [EVERY_API], indirect=True, ids=["on"])
async def test_with_its_gate_both_versions_are_served(registry: Registry, admin: httpx.AsyncClient) -> None:
    await create(registry, CLASSES, PriorityClass(metadata=ObjectMeta(name="high"), value=100))
    made = await admin.post(GROUPS.format("v1alpha3"), json=GROUP)
    seen = await admin.get(GROUPS.format("v1beta1") + "/workers")

    assert (made.status_code, made.json()["apiVersion"]) == (201, "scheduling.k8s.io/v1alpha3")
    assert seen.json()["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert seen.json()["spec"] == made.json()["spec"] | {"priority": 100}
    assert "schedulingConstraints" not in seen.json()["spec"]  # behind another gate
    served = (await admin.get("/apis/scheduling.k8s.io")).json()["versions"]
    assert [each["version"] for each in served] == ["v1", "v1beta1", "v1alpha3"]
    refused = await admin.put(
        GROUPS.format("v1alpha3") + "/workers", json=GROUP | {"spec": {"schedulingPolicy": {"basic": {}}}}
    )
    assert refused.status_code == 422
    assert refused.json()["details"]["causes"][0]["field"] == "spec.schedulingPolicy.basic"
