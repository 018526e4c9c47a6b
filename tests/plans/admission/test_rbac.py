"""Who may do what: rules, who has them, and what goes beyond them."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.kinds.auth.cluster_role import ClusterRole
from app.kinds.auth.cluster_role_binding import ClusterRoleBinding
from app.kinds.auth.rbac import PolicyRule
from app.kinds.auth.role import Role
from app.kinds.auth.role_binding import RoleBinding
from app.plans.admission.rbac import (
    EVERYTHING,
    Action,
    Policies,
    allows,
    allows_path,
    describe_escalation,
    find_uncovered,
    rules_of,
)


def rule(text: str) -> PolicyRule:
    """`get,list pods,pods/log @batch =name`, or `get /metrics`."""
    verbs, what, *more = text.split()
    found: dict[str, Any] = {"verbs": verbs.split(",")}
    if what.startswith("/") or (what == "*" and "path" in more):
        return msgspec.convert(found | {"nonResourceURLs": what.split(",")}, PolicyRule)
    found |= {"resources": what.split(","), "apiGroups": [each[1:] for each in more if each[0] == "@"] or [""]}
    return msgspec.convert(found | {"resourceNames": [each[1:] for each in more if each[0] == "="]}, PolicyRule)


@pytest.mark.parametrize(
    ("text", "action", "allowed"),
    [
        pytest.param("get pods", Action("get", "", "pods"), True, id="what it says"),
        pytest.param("get pods", Action("list", "", "pods"), False, id="no other verb"),
        pytest.param("get pods", Action("get", "batch", "pods"), False, id="no other group"),
        pytest.param("get pods", Action("get", "", "jobs"), False, id="no other resource"),
        pytest.param("get pods", Action("get", "", "pods", "log"), False, id="no part of it"),
        pytest.param("get pods/log", Action("get", "", "pods", "log"), True, id="a part that is named"),
        pytest.param("get pods/log", Action("get", "", "pods"), False, id="no whole for its part"),
        pytest.param("get */status", Action("get", "", "pods", "status"), True, id="a part of anything"),
        pytest.param("get */status", Action("get", "", "pods", "log"), False, id="no other part of anything"),
        pytest.param("get */status", Action("get", "", "pods"), False, id="no whole for a part of anything"),
        pytest.param("* * @*", Action("drop", "x", "y", "z", "n"), True, id="everything"),
        pytest.param("get pods =a", Action("get", "", "pods", name="a"), True, id="an object by its name"),
        pytest.param("get pods =a", Action("get", "", "pods", name="b"), False, id="no other object"),
        pytest.param("create pods =a", Action("create", "", "pods"), False, id="no create, whose name is not known"),
        pytest.param("get pods", Action("*", "", "pods"), False, id="not all verbs for one"),
        pytest.param("get /metrics", Action("get", "", "/metrics"), False, id="no resource for a path"),
    ],
)
def test_a_rule_allows(text: str, action: Action, allowed: bool) -> None:
    assert allows(rule(text), action) is allowed


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        ("get /metrics", "/metrics", True),
        ("get /metrics", "/metrics/", False),
        ("get /apis/*", "/apis/batch/v1", True),
        ("get /apis/*", "/apis", False),
        ("get * path", "/anything", True),
        ("post /metrics", "/metrics", False),
        ("get pods", "pods", False),
    ],
)
def test_a_rule_allows_paths(text: str, path: str, allowed: bool) -> None:
    assert allows_path(rule(text), "get", path) is allowed


def meta(name: str, namespace: str = "", **labels: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": labels}


def a_role(namespace: str, name: str, *rules: str) -> Role:
    role = msgspec.convert({"metadata": meta(name, namespace)}, Role)
    return msgspec.structs.replace(role, rules=tuple(map(rule, rules)))


def a_cluster_role(name: str, *rules: str, collects: str = "", **labels: str) -> ClusterRole:
    document: dict[str, Any] = {"metadata": meta(name, **labels)}
    if collects:
        document["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {collects: "yes"}}]}
    return msgspec.structs.replace(msgspec.convert(document, ClusterRole), rules=tuple(map(rule, rules)))


def bound(role: str, *subjects: str, namespace: str = "") -> Any:
    """`User:ada`, `Group:g`, `ServiceAccount:ns/name`; a role in a namespace is `Role/name`."""
    kind, _, name = role.rpartition("/")
    document = {
        "metadata": meta(f"to-{name}", namespace),
        "roleRef": {"kind": kind or "ClusterRole", "name": name},
        "subjects": [_subject(each) for each in subjects],
    }
    return msgspec.convert(document, RoleBinding if namespace else ClusterRoleBinding)


def _subject(text: str) -> dict[str, str]:
    kind, _, name = text.partition(":")
    namespace, _, name = name.rpartition("/")
    return {"kind": kind, "name": name, "namespace": namespace}


POLICIES = Policies(
    roles=[a_role("lab", "reader", "get,list pods")],
    cluster_roles=[
        a_cluster_role("watcher", "watch nodes", "get /metrics"),
        a_cluster_role("editor", "create jobs @batch"),
    ],
    bindings=[
        bound("watcher", "Group:operators", "User:ada"),
        bound("Role/reader", "User:ada", "ServiceAccount:robot", namespace="lab"),
        bound("editor", "ServiceAccount:ci/builder", namespace="lab"),
        bound("nowhere", "User:eve"),
        bound("Role/nowhere", "User:eve", namespace="lab"),
    ],
)


@pytest.mark.parametrize(
    ("user", "groups", "action", "allowed"),
    [
        pytest.param("ada", [], Action("watch", "", "nodes"), True, id="a user, everywhere"),
        pytest.param("bob", ["operators"], Action("watch", "", "nodes"), True, id="a member of a group"),
        pytest.param("operators", [], Action("watch", "", "nodes"), False, id="not a user named as a group"),
        pytest.param("bob", ["ada"], Action("watch", "", "nodes"), False, id="not a group named as a user"),
        pytest.param("ada", [], Action("get", "", "pods", "", "lab", "p"), True, id="a user, in a namespace"),
        pytest.param("ada", [], Action("get", "", "pods", "", "other", "p"), False, id="not in another namespace"),
        pytest.param("ada", [], Action("list", "", "pods"), False, id="not in all namespaces"),
        pytest.param("ada", [], Action("watch", "", "nodes", "", "lab"), True, id="in a namespace as everywhere"),
        pytest.param(
            "system:serviceaccount:ci:builder",
            [],
            Action("create", "batch", "jobs", "", "lab"),
            True,
            id="an account of another namespace",
        ),
        pytest.param(
            "system:serviceaccount:lab:robot",
            [],
            Action("get", "", "pods", "", "lab"),
            True,
            id="an account of the binding's own namespace",
        ),
        pytest.param(
            "system:serviceaccount:ci:robot", [], Action("get", "", "pods", "", "lab"), False, id="not its namesake"
        ),
    ],
)
def test_who_may(user: str, groups: list[str], action: Action, allowed: bool) -> None:
    assert (POLICIES.access(user, groups).allowing(action) is not None) is allowed


def test_a_grant_says_through_what_it_is() -> None:
    ada = POLICIES.access("ada", ["operators"])
    grants = [ada.allowing(Action("watch", "", "nodes")), ada.allowing(Action("get", "", "pods", "", "lab"))]

    assert [grant and grant.through for grant in grants] == [
        'ClusterRoleBinding "to-watcher" of ClusterRole "watcher" to User "ada"',
        'RoleBinding "to-reader/lab" of Role "reader" to User "ada"',
    ]
    assert len(ada.rules("lab")) == 3  # each binding counts once, though two of its subjects are ada
    assert ada.allowing_path("get", "/metrics") is not None


def test_a_binding_to_a_role_that_is_not_there_is_told() -> None:
    eve = POLICIES.access("eve", [])

    missing = [f'{kind}.rbac.authorization.k8s.io "nowhere" not found' for kind in ("clusterrole", "role")]
    assert eve.complaint("") == eve.complaint("other") == f"RBAC: {missing[0]}"
    assert eve.complaint("lab") == f"RBAC: [{missing[0]}, {missing[1]}]"
    assert POLICIES.access("ada", []).complaint("lab") == ""


def by_name(*roles: ClusterRole) -> dict[str, ClusterRole]:
    return {role.metadata.name: role for role in roles}


def test_a_role_has_the_rules_of_what_it_collects_also_through_others() -> None:
    roles = by_name(
        a_cluster_role("admin", collects="a"),
        a_cluster_role("edit", "delete pods", collects="b", a="yes"),
        a_cluster_role("some", "get pods", "list pods", b="yes"),
        a_cluster_role("more", "list pods", "watch pods", a="yes"),
        a_cluster_role("alien", "get secrets"),
    )

    assert rules_of(roles["edit"], roles) == (rule("get pods"), rule("list pods"))
    assert set(rules_of(roles["admin"], roles)) == {rule("get pods"), rule("list pods"), rule("watch pods")}


def test_roles_that_collect_each_other_come_to_an_end() -> None:
    roles = by_name(*(a_cluster_role(f"r{number}", collects="a", a="yes") for number in range(50)))
    roles |= by_name(a_cluster_role("plain", "get pods", a="yes"))

    assert {rules_of(role, roles) for role in roles.values()} == {(rule("get pods"),)}


@pytest.mark.parametrize(
    ("held", "wanted", "missing"),
    [
        pytest.param(["get,list pods"], ["get pods"], [], id="less"),
        pytest.param(["get pods", "list pods"], ["get,list pods"], [], id="the same in other pieces"),
        pytest.param(["* * @*"], ["get,list a,b/c @x @y =n"], [], id="of everything"),
        pytest.param(["get pods"], ["get,list,watch pods"], ["list,watch pods"], id="more verbs"),
        pytest.param(["get pods"], ["get pods,secrets"], ["get secrets"], id="more resources"),
        pytest.param(["get pods"], ["get pods @ @batch"], ["get pods @batch"], id="more groups"),
        pytest.param(["get pods =a"], ["get pods"], ["get pods"], id="all objects for one"),
        pytest.param(["get pods =a"], ["get pods =a =b"], ["get pods =b"], id="more objects"),
        pytest.param(["get pods"], ["get pods =a"], [], id="one object of all"),
        pytest.param(["get */log"], ["get pods/log"], [], id="a part of anything"),
        pytest.param(["get pods"], ["* pods"], ["* pods"], id="every verb for one"),
        pytest.param(["get pods"], ["get *"], ["get *"], id="every resource for one"),
        pytest.param(["get /a/*"], ["get /a/b,/a/*"], [], id="paths beneath"),
        pytest.param(["get /a/*"], ["get /a", "get * path"], ["get /a", "get * path"], id="paths above"),
        pytest.param(["* * @*"], ["get /metrics"], ["get /metrics"], id="paths for resources"),
        pytest.param([], [], [], id="nothing of nothing"),
    ],
)
def test_what_goes_beyond(held: list[str], wanted: list[str], missing: list[str]) -> None:
    assert find_uncovered([*map(rule, held)], map(rule, wanted)) == [*map(rule, missing)]


def test_an_escalation_is_told_as_kubernetes_tells_it() -> None:
    missing = [rule("get,list secrets =s"), rule("get /metrics")]

    assert describe_escalation("ada", ["dev", "system:authenticated"], missing) == (
        'user "ada" (groups=["dev" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["s"], Verbs:["get" "list"]}\n'
        '{NonResourceURLs:["/metrics"], Verbs:["get"]}'
    )


def texts(*values: str) -> some.SearchStrategy[tuple[str, ...]]:
    return some.lists(some.sampled_from(values), min_size=1, max_size=3, unique=True).map(tuple)


RULES = some.builds(
    PolicyRule,
    verbs=texts("get", "list", "*"),
    api_groups=texts("", "batch", "*"),
    resources=texts("pods", "pods/log", "*/log", "jobs", "*"),
    resource_names=some.one_of(some.just(()), texts("a", "b")),
)
ACTIONS = some.builds(
    Action,
    verb=some.sampled_from(["get", "list"]),
    group=some.sampled_from(["", "batch"]),
    resource=some.sampled_from(["pods", "jobs"]),
    subresource=some.sampled_from(["", "log"]),
    name=some.sampled_from(["", "a", "b"]),
)


@given(some.lists(RULES, max_size=4), some.lists(RULES, max_size=3), ACTIONS)
def test_what_does_not_go_beyond_allows_nothing_new(
    held: list[PolicyRule], wanted: list[PolicyRule], action: Action
) -> None:
    def allowed(rules: Iterable[PolicyRule]) -> bool:
        return any(allows(each, action) for each in rules)

    missing = find_uncovered(held, wanted)

    assert allowed(held) or not allowed(wanted) or allowed(missing)
    assert find_uncovered([*held, *missing], wanted) == []
    assert find_uncovered(EVERYTHING, wanted) == find_uncovered(wanted, wanted) == []
