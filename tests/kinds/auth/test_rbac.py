"""Roles and bindings: what is filled in, refused and shown."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from app.kinds.auth.cluster_role import KIND as CLUSTER_ROLES
from app.kinds.auth.cluster_role_binding import KIND as CLUSTER_ROLE_BINDINGS
from app.kinds.auth.role import KIND as ROLES
from app.kinds.auth.role_binding import KIND as ROLE_BINDINGS
from app.registry.admission.policy_cache import POLICY

NOW = datetime(2025, 1, 2, 3, 5, 5, tzinfo=UTC)
GROUP = "rbac.authorization.k8s.io"
ROLE_REF = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "edit"}


def faults(kind: Any, **document: Any) -> list[str]:
    obj = kind.prepare(msgspec.convert(document, kind.type))
    return [f"{cause.field}: {cause.message}" for cause in kind.validate(obj)]


def test_every_process_has_its_own_copy_of_them() -> None:
    assert {kind.resource for kind in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)} <= POLICY


@pytest.mark.parametrize(
    ("kind", "rule", "expected"),
    [
        pytest.param(ROLES, {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}, [], id="is complete"),
        pytest.param(
            ROLES,
            {"apiGroups": [""], "resources": ["pods"]},
            ["rules[0].verbs: Required value: verbs must contain at least one value"],
            id="has no verbs",
        ),
        pytest.param(
            ROLES,
            {"verbs": ["get"]},
            [
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ],
            id="is about nothing",
        ),
        pytest.param(
            CLUSTER_ROLES,
            {"apiGroups": [""], "resources": ["pods", "secrets"], "resourceNames": ["a"], "verbs": ["get"]},
            [],
            id="names objects of two kinds",
        ),
        pytest.param(CLUSTER_ROLES, {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, [], id="is about a path"),
        pytest.param(
            ROLES,
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
            [
                'rules[0].nonResourceURLs: Invalid value: ["/metrics"]: '
                "namespaced rules cannot apply to non-resource URLs"
            ],
            id="is about a path in a namespace",
        ),
        pytest.param(
            CLUSTER_ROLES,
            {"nonResourceURLs": ["/a"], "resources": ["pods"], "verbs": ["get"]},
            [
                'rules[0].nonResourceURLs: Invalid value: ["/a"]: '
                "rules cannot apply to both regular resources and non-resource URLs"
            ],
            id="is about both",
        ),
    ],
)
def test_a_rule_that(kind: Any, rule: dict, expected: list[str]) -> None:
    assert faults(kind, rules=[rule]) == expected


def test_a_role_that_collects_others_says_which() -> None:
    path = "aggregationRule.clusterRoleSelectors"

    assert faults(CLUSTER_ROLES, aggregationRule={}) == [
        f"{path}: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
    ]
    assert faults(CLUSTER_ROLES, aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a b": ""}}]})[
        0
    ].startswith(f'{path}[0].matchLabels: Invalid value: "a b"')


@pytest.mark.parametrize(
    ("kind", "role_ref", "expected"),
    [
        pytest.param(ROLE_BINDINGS, {"kind": "Role", "name": "a"}, [], id="has its group filled in"),
        pytest.param(
            CLUSTER_ROLE_BINDINGS,
            {"kind": "Role", "name": "a"},
            ['roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'],
            id="binds a role of a namespace everywhere",
        ),
        pytest.param(
            ROLE_BINDINGS,
            {"apiGroup": "batch", "kind": "Job"},
            [
                f'roleRef.apiGroup: Unsupported value: "batch": supported values: "{GROUP}"',
                'roleRef.kind: Unsupported value: "Job": supported values: "Role", "ClusterRole"',
                "roleRef.name: Required value",
            ],
            id="names no role",
        ),
        pytest.param(
            ROLE_BINDINGS,
            {"kind": "Role", "name": "a/b"},
            ["roleRef.name: Invalid value: \"a/b\": may not contain '/'"],
            id="names what is no name",
        ),
    ],
)
def test_a_reference_that(kind: Any, role_ref: dict, expected: list[str]) -> None:
    assert faults(kind, roleRef=role_ref) == expected


@pytest.mark.parametrize(
    ("kind", "subject", "expected"),
    [
        pytest.param(ROLE_BINDINGS, {"kind": "User", "name": "ada"}, [], id="is a user"),
        pytest.param(ROLE_BINDINGS, {"kind": "ServiceAccount", "name": "a"}, [], id="is an account beside the binding"),
        pytest.param(
            CLUSTER_ROLE_BINDINGS,
            {"kind": "ServiceAccount", "name": "a"},
            ["subjects[0].namespace: Required value"],
            id="is an account of no namespace",
        ),
        pytest.param(
            ROLE_BINDINGS,
            {"kind": "ServiceAccount", "name": "a", "apiGroup": GROUP},
            [f'subjects[0].apiGroup: Unsupported value: "{GROUP}": supported values: ""'],
            id="is an account of a group",
        ),
        pytest.param(
            ROLE_BINDINGS,
            {"kind": "Group", "apiGroup": "v1"},
            [
                "subjects[0].name: Required value",
                'subjects[0].name: Invalid value: "": group name cannot be empty',
                f'subjects[0].apiGroup: Unsupported value: "v1": supported values: "{GROUP}"',
            ],
            id="is nobody",
        ),
        pytest.param(
            ROLE_BINDINGS,
            {"kind": "Robot", "name": "r"},
            ['subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"'],
            id="is something else",
        ),
    ],
)
def test_a_subject_that(kind: Any, subject: dict, expected: list[str]) -> None:
    assert faults(kind, roleRef=ROLE_REF, subjects=[subject]) == expected


@pytest.mark.parametrize("kind", [ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS], ids=lambda kind: kind.plural)
def test_a_binding_stays_with_its_role(kind: Any) -> None:
    old = msgspec.convert({"roleRef": ROLE_REF}, kind.type)
    new = msgspec.convert({"roleRef": ROLE_REF | {"name": "admin"}}, kind.type)

    assert kind.validate_update(old, old) == []
    (cause,) = kind.validate_update(new, old)
    assert (cause.field, cause.message.rpartition(": ")[2]) == ("roleRef", "cannot change roleRef")


def test_a_binding_is_shown_with_whom_it_is_for() -> None:
    subjects = [
        {"kind": "User", "name": "ada"},
        {"kind": "User", "name": "bob"},
        {"kind": "Group", "name": "physicists"},
        {"kind": "ServiceAccount", "namespace": "lab", "name": "robot"},
    ]
    meta = {"name": "b", "creationTimestamp": "2025-01-02T03:04:05Z"}
    binding = msgspec.convert({"metadata": meta, "roleRef": ROLE_REF, "subjects": subjects}, ROLE_BINDINGS.type)

    row = ROLE_BINDINGS.row(binding, NOW)

    assert row == ["b", "ClusterRole/edit", "60s", "ada, bob", "physicists", "lab/robot"]


def test_a_role_is_shown_with_when_it_was_created() -> None:
    meta = {"name": "r", "creationTimestamp": "2025-01-02T03:04:05Z"}

    assert ROLES.row(msgspec.convert({"metadata": meta}, ROLES.type), NOW) == ["r", "2025-01-02T03:04:05Z"]
