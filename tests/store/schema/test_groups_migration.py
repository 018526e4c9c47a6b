"""Migration 0016: Workloads and PodGroups of Kubernetes 1.36 are the same in 1.37's words, and back again."""

import copy
from importlib import import_module
from typing import Any

import msgspec
import pytest

from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.machinery.base import Kind

migration = import_module("migrations.versions.0016_groups_of_kubernetes_1_37")
OWNER = {"apiVersion": migration.OLD, "kind": "Workload", "name": "w", "uid": "u"}
META = {"name": "g", "namespace": "default", "uid": "u2"}
GANG = {"schedulingPolicy": {"gang": {"minCount": 4}}, "disruptionMode": "PodGroup"}
CONDITION = {"status": "True", "reason": "Scheduled", "lastTransitionTime": "2026-11-01T00:00:00Z"}
OLD_GROUP = {
    "apiVersion": migration.OLD,
    "kind": "PodGroup",
    "metadata": {**META, "ownerReferences": [OWNER]},
    "spec": {**GANG, "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}},
    "status": {"conditions": [{"type": "PodGroupScheduled", **CONDITION}]},
}
NEW_GROUP = {
    "apiVersion": migration.NEW,
    "kind": "PodGroup",
    "metadata": {**META, "ownerReferences": [{**OWNER, "apiVersion": migration.NEW}]},
    "spec": {
        **GANG,
        "disruptionMode": {"all": {}},
        "workloadRef": {"workloadName": "w", "templateName": "t"},
    },
    "status": {"conditions": [{"type": "PodGroupInitiallyScheduled", **CONDITION}]},
}
OLD_WORKLOAD = {
    "apiVersion": migration.OLD,
    "kind": "Workload",
    "metadata": META,
    "spec": {"podGroupTemplates": [{"name": "t", **GANG, "disruptionMode": "Pod"}, {"name": "u", **GANG}]},
}
NEW_WORKLOAD = {
    "apiVersion": migration.NEW,
    "kind": "Workload",
    "metadata": META,
    "spec": {
        "podGroupTemplates": [
            {"name": "t", **GANG, "disruptionMode": {"single": {}}},
            {"name": "u", **GANG, "disruptionMode": {"all": {}}},
        ]
    },
}


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        pytest.param(POD_GROUPS, OLD_GROUP, NEW_GROUP, id="a group"),
        pytest.param(WORKLOADS, OLD_WORKLOAD, NEW_WORKLOAD, id="a workload"),
    ],
)
def test_an_object_is_the_same_in_other_words(kind: Kind, old: dict[str, Any], new: dict[str, Any]) -> None:
    ends = (migration.SCHEDULED, migration.INITIALLY)
    up = migration.convert_object(copy.deepcopy(old), migration.OLD, migration.NEW, migration.upgrade_terms, ends)

    assert up == new
    assert kind.validate(msgspec.convert(up, kind.type)) == []
    down = migration.convert_object(
        copy.deepcopy(new), migration.NEW, migration.OLD, migration.downgrade_terms, ends[::-1]
    )
    assert down == old
