"""The RBAC evaluator against a brute-force oracle: random policies, and random requests of random users.

The oracle has no index, no cache and no early end: it walks over all bindings, subjects, rules and words, as Kubernetes'
documentation tells them. JOBPLANE_PROPERTIES=thorough makes 100,000 policies, each with a request for a resource and one for a
path, instead of 10,000. A failure names its seed.
"""

import os
import random
from typing import Any

import msgspec
import pytest

from app.kinds.auth.cluster_role import ClusterRole
from app.kinds.auth.cluster_role_binding import ClusterRoleBinding
from app.kinds.auth.role import Role
from app.kinds.auth.role_binding import RoleBinding
from app.plans.admission.rbac import Action, Policies

PARTS = 10
CASES = (100_000 if os.environ.get("JOBPLANE_PROPERTIES") == "thorough" else 10_000) // PARTS
VERBS, GROUPS = ("get", "list", "create", "delete"), ("", "batch", "apps")
RESOURCES, PARTS_OF = ("pods", "jobs", "secrets"), ("", "log", "status")
NAMESPACES, NAMES = ("a", "b"), ("x", "y")
USERS, TEAMS = (
    ("ada", "bob", "system:serviceaccount:a:x", "system:serviceaccount:b:x"),
    ("staff", "system:authenticated"),
)
PATHS = ("/metrics", "/metrics/x", "/healthz", "/")
Document = dict[str, Any]


def some(dice: random.Random, values: tuple[str, ...], *more: str) -> list[str]:
    return dice.sample((*values, *more), dice.randint(1, min(3, len(values) + len(more))))


def a_rule(dice: random.Random, *, is_cluster: bool) -> Document:
    if is_cluster and dice.random() < 0.3:
        return {"verbs": some(dice, VERBS, "*"), "nonResourceURLs": some(dice, PATHS, "*", "/metrics/*", "/heal*")}
    whole = tuple(f"{each}/{part}" if part else each for each in RESOURCES for part in PARTS_OF)
    rule: Document = {
        "verbs": some(dice, VERBS, "*"),
        "apiGroups": some(dice, GROUPS, "*"),
        "resources": some(dice, whole, "*", "*/log", "*/status", "pods/*"),
    }
    return rule | ({"resourceNames": some(dice, NAMES)} if dice.random() < 0.3 else {})


def a_role(dice: random.Random, name: str, namespace: str = "") -> Document:
    rules = [a_rule(dice, is_cluster=not namespace) for _ in range(dice.randint(0, 3))]
    role: Document = {"metadata": {"name": name, "labels": {"set": dice.choice("123")}}, "rules": rules}
    if namespace:
        role["metadata"]["namespace"] = namespace
    elif dice.random() < 0.2:
        role["rules"] = []
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"set": dice.choice("123")}}]}
    return role


def a_binding(dice: random.Random, name: str, namespace: str = "") -> Document:
    subjects: list[Document] = []
    for _ in range(dice.randint(0, 4)):
        kind = dice.choice(("User", "Group", "ServiceAccount"))
        match kind:
            case "User":
                subjects.append({"kind": kind, "name": dice.choice(USERS)})
            case "Group":
                subjects.append({"kind": kind, "name": dice.choice(TEAMS)})
            case _:
                subjects.append({"kind": kind, "name": dice.choice(NAMES), "namespace": dice.choice(NAMESPACES)})
    role = {
        "kind": dice.choice(("Role", "ClusterRole")) if namespace else "ClusterRole",
        "name": dice.choice(("r", "s", "t", "gone")),
    }
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"metadata": meta, "subjects": subjects, "roleRef": role}


def a_policy(dice: random.Random) -> dict[str, list[Document]]:
    return {
        "roles": [
            a_role(dice, name, namespace) for name in ("r", "s") for namespace in NAMESPACES if dice.random() < 0.7
        ],
        "cluster_roles": [a_role(dice, name) for name in ("r", "s", "t") if dice.random() < 0.8],
        "bindings": [a_binding(dice, f"b{each}", dice.choice(NAMESPACES)) for each in range(dice.randint(0, 8))],
        "cluster_bindings": [a_binding(dice, f"c{each}") for each in range(dice.randint(0, 4))],
    }


def an_action(dice: random.Random) -> Action:
    return Action(
        dice.choice(VERBS),
        dice.choice(GROUPS),
        dice.choice(RESOURCES),
        dice.choice(PARTS_OF),
        dice.choice(("", *NAMESPACES)),
        dice.choice(("", *NAMES)),
    )


# --- the oracle


def rules_of_role(policy: dict[str, list[Document]], reference: Document, namespace: str) -> list[Document]:
    if reference["kind"] == "Role":
        found = [
            each
            for each in policy["roles"]
            if each["metadata"] == each["metadata"] | {"name": reference["name"], "namespace": namespace}
        ]
        return [rule for role in found for rule in role["rules"]]
    return cluster_rules(policy, reference["name"], ())


def cluster_rules(policy: dict[str, list[Document]], name: str, seen: tuple[str, ...]) -> list[Document]:
    rules = []
    for role in policy["cluster_roles"]:
        if role["metadata"]["name"] != name or name in seen:
            continue
        if "aggregationRule" not in role:
            rules += role["rules"]
            continue
        wanted = role["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"]["set"]
        for other in policy["cluster_roles"]:
            if other["metadata"]["labels"]["set"] == wanted:
                rules += cluster_rules(policy, other["metadata"]["name"], (*seen, name))
    return rules


def is_subject(subject: Document, user: str, groups: tuple[str, ...]) -> bool:
    if subject["kind"] == "ServiceAccount":
        return user == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return subject["name"] == user if subject["kind"] == "User" else subject["name"] in groups


def rule_allows(rule: Document, action: Action) -> bool:
    whole = action.resource + (f"/{action.subresource}" if action.subresource else "")
    resources = rule.get("resources", [])
    return (
        (action.verb in rule["verbs"] or "*" in rule["verbs"])
        and (action.group in rule.get("apiGroups", []) or "*" in rule.get("apiGroups", []))
        and (
            whole in resources
            or "*" in resources
            or (action.subresource != "" and f"*/{action.subresource}" in resources)
        )
        and ("resourceNames" not in rule or action.name in rule["resourceNames"])
    )


def rule_allows_path(rule: Document, verb: str, path: str) -> bool:
    urls = rule.get("nonResourceURLs", [])
    return (verb in rule["verbs"] or "*" in rule["verbs"]) and any(
        url == path or (url[-1] == "*" and path[: len(url) - 1] == url[:-1]) for url in urls
    )


def bound(policy: dict[str, list[Document]], user: str, groups: tuple[str, ...], namespace: str) -> list[Document]:
    """The rules of all bindings that reach the user in a namespace, or everywhere."""
    rules = []
    for binding in (*policy["bindings"], *policy["cluster_bindings"]):
        home = binding["metadata"].get("namespace", "")
        if home and home != namespace:
            continue
        if any(is_subject(each, user, groups) for each in binding["subjects"]):
            rules += rules_of_role(policy, binding["roleRef"], home)
    return rules


@pytest.mark.parametrize("part", range(PARTS))
def test_the_evaluator_agrees_with_the_oracle(part: int) -> None:
    allowed = asked = 0
    for case in range(CASES):
        seed = part * CASES + case
        dice = random.Random(seed)
        policy = a_policy(dice)
        policies = Policies(
            msgspec.convert(policy["roles"], list[Role]),
            msgspec.convert(policy["cluster_roles"], list[ClusterRole]),
            [
                *msgspec.convert(policy["bindings"], list[RoleBinding]),
                *msgspec.convert(policy["cluster_bindings"], list[ClusterRoleBinding]),
            ],
        )
        user, groups = dice.choice(USERS), tuple(dice.sample(TEAMS, dice.randint(0, 2)))
        access, action, path = policies.access(user, groups), an_action(dice), dice.choice(PATHS)
        expected = any(rule_allows(each, action) for each in bound(policy, user, groups, action.namespace))
        assert (access.allowing(action) is not None) == expected, (seed, user, groups, action)
        everywhere = bound(policy, user, groups, "")
        expected_path = any(rule_allows_path(each, action.verb, path) for each in everywhere)
        assert (access.allowing_path(action.verb, path) is not None) == expected_path, (seed, user, path)
        allowed, asked = allowed + expected, asked + 1
    assert asked == CASES
    assert 0.03 < allowed / asked < 0.6  # both answers are tried
