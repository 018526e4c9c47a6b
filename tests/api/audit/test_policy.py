"""Audit policies: which rule counts, what a malformed file comes to, what holds whatever a policy says."""

import re
from typing import Any

import pytest
import yaml

from app.api.audit.policy import (
    DEFAULT,
    LEVELS,
    CompiledPolicy,
    has_secrets,
    is_always_audited,
    read_policy,
)
from app.plans.admission.rbac import Action


def policy(*rules: dict[str, Any], **more: Any) -> CompiledPolicy:
    return read_policy(
        yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, **more}).encode()
    )


def level(policy: CompiledPolicy, action: Action | None, path: str = "/x", user: str = "ada", *groups: str) -> str:
    verb = action.verb if action else "get"
    return LEVELS[policy.judge(user, groups, verb, action, path).level]


GET = Action("get", "", "pods", "", "team", "p")
LOG = Action("get", "", "pods", "log", "team", "p")
JOB = Action("create", "batch", "jobs", "", "team", "j")
NODE = Action("get", "", "nodes", "", "", "n")


@pytest.mark.parametrize(
    ("rule", "action", "matches"),
    [
        pytest.param({}, GET, True, id="a rule without lists matches a resource"),
        pytest.param({}, None, True, id="and a path"),
        pytest.param({"users": ["ada"]}, GET, True, id="user"),
        pytest.param({"users": ["bob"]}, GET, False, id="another user"),
        pytest.param({"userGroups": ["staff", "x"]}, GET, True, id="one of the groups"),
        pytest.param({"userGroups": ["x"]}, GET, False, id="no group"),
        pytest.param({"verbs": ["get"]}, GET, True, id="verb"),
        pytest.param({"verbs": ["*"]}, GET, False, id="a star is no verb, as in Kubernetes"),
        pytest.param({"resources": [{"group": ""}]}, GET, True, id="every resource of the group"),
        pytest.param({"resources": [{"group": "batch"}]}, GET, False, id="another group"),
        pytest.param({"resources": [{"group": "", "resources": ["pods"]}]}, GET, True, id="resource"),
        pytest.param({"resources": [{"group": "", "resources": ["pods"]}]}, LOG, False, id="not its subresource"),
        pytest.param({"resources": [{"group": "", "resources": ["pods/log"]}]}, LOG, True, id="subresource"),
        pytest.param({"resources": [{"group": "", "resources": ["pods/*"]}]}, LOG, True, id="any subresource"),
        pytest.param({"resources": [{"group": "", "resources": ["pods/*"]}]}, GET, True, id="and the resource itself"),
        pytest.param({"resources": [{"group": "", "resources": ["*/log"]}]}, LOG, True, id="log of anything"),
        pytest.param({"resources": [{"group": "", "resources": ["*/log"]}]}, GET, False, id="which is no resource"),
        pytest.param({"resources": [{"group": "", "resources": ["*"]}]}, LOG, True, id="star"),
        pytest.param(
            {"resources": [{"group": "", "resources": ["pods"], "resourceNames": ["p"]}]}, GET, True, id="name"
        ),
        pytest.param(
            {"resources": [{"group": "", "resources": ["pods"], "resourceNames": ["q"]}]}, GET, False, id="another name"
        ),
        pytest.param({"namespaces": ["team"]}, GET, True, id="namespace"),
        pytest.param({"namespaces": ["other"]}, GET, False, id="another namespace"),
        pytest.param({"namespaces": [""]}, NODE, True, id="no namespace"),
        pytest.param({"namespaces": ["team"]}, None, False, id="a path has no namespace"),
        pytest.param({"nonResourceURLs": ["/x*"]}, None, True, id="path"),
        pytest.param({"nonResourceURLs": ["/y*"]}, None, False, id="another path"),
        pytest.param({"nonResourceURLs": ["*"]}, None, True, id="every path"),
        pytest.param({"nonResourceURLs": ["*"]}, GET, False, id="a resource is no path"),
    ],
)
def test_a_rule_matches(rule: dict[str, Any], action: Action | None, matches: bool) -> None:
    made = policy({"level": "Request", **rule})
    for _ in range(2):  # the second time it is remembered
        assert level(made, action, "/x", "ada", "staff") == ("Request" if matches else "None")


def test_the_first_rule_that_matches_counts() -> None:
    made = policy(
        {"level": "None", "users": ["system:quiet"]},
        {"level": "RequestResponse", "resources": [{"group": "batch", "resources": ["jobs"]}]},
        {"level": "Metadata"},
        {"level": "Request"},
    )
    assert [level(made, each) for each in (JOB, GET, None)] == ["RequestResponse", "Metadata", "Metadata"]
    assert level(made, JOB, "/x", "system:quiet") == "None"


def test_stages_are_omitted_by_the_policy_and_by_the_rule() -> None:
    made = policy(
        {"level": "Metadata", "verbs": ["get"], "omitStages": ["ResponseStarted"]},
        {"level": "Metadata"},
        omitStages=["RequestReceived"],
    )
    assert made.judge("", (), "get", GET, "").omitted == {"RequestReceived", "ResponseStarted"}
    assert made.judge("", (), "create", JOB, "").omitted == {"RequestReceived"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("", "rules: Required value: a policy without rules audits nothing", id="empty"),
        pytest.param("{", "error converting YAML to JSON", id="no YAML"),
        pytest.param("[]", "cannot be handled as a Policy", id="a list"),
        pytest.param("kind: Pod", "cannot be handled as a Policy", id="another kind"),
        pytest.param("apiVersion: audit.k8s.io/v1beta1\nkind: Policy", "(audit.k8s.io/v1beta1)", id="another version"),
        pytest.param("rules: [{level: Foo}]", 'rules[0].level: Unsupported value: "Foo"', id="level"),
        pytest.param("rules: [{verbs: [get]}]", "rules[0].level: Required value", id="no level"),
        pytest.param("rules: [{level: None, verb: [x]}]", 'unknown field "rules[0].verb"', id="unknown field"),
        pytest.param(
            "rules: [{level: None, omitStages: [X]}]", 'rules[0].omitStages: Unsupported value: "X"', id="stage"
        ),
        pytest.param(
            "rules: [{level: None, nonResourceURLs: [x]}]", "rules[0].nonResourceURLs: Invalid value", id="url"
        ),
        pytest.param("rules: [{level: None, nonResourceURLs: [/a*b]}]", "have a * at its end only", id="star within"),
        pytest.param(
            "rules: [{level: None, nonResourceURLs: [/a], namespaces: [b]}]",
            "cannot apply to both",
            id="path and namespace",
        ),
        pytest.param(
            "rules: [{level: None, resources: [{group: '', resourceNames: [b]}]}]",
            "requires at least one",
            id="name of nothing",
        ),
        pytest.param(
            "rules: [{level: None, resources: [{group: apps/v1}]}]", "name the group only", id="group with version"
        ),
    ],
)
def test_a_malformed_policy_is_refused_in_one_line(text: str, line: str) -> None:
    if text.startswith("rules"):
        text = f"apiVersion: audit.k8s.io/v1\nkind: Policy\n{text}"
    with pytest.raises(ValueError, match=re.escape(line)) as refused:
        read_policy(text.encode())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("action", "code", "impersonates", "always"),
    [
        pytest.param(GET, 200, False, False, id="an ordinary read"),
        pytest.param(GET, 403, False, True, id="a denial"),
        pytest.param(None, 401, False, True, id="nobody"),
        pytest.param(GET, 200, True, True, id="impersonation"),
        *(
            pytest.param(Action("create", "", "pods", each, "n", "p"), 101, False, True, id=each)
            for each in ("exec", "attach", "portforward")
        ),
        pytest.param(LOG, 200, False, False, id="a log"),
        pytest.param(Action("create", "", "serviceaccounts", "token", "n", "a"), 201, False, True, id="TokenRequest"),
        *(
            pytest.param(Action(each, "", "secrets", "", "n"), 200, False, True, id=each)
            for each in ("get", "list", "watch")
        ),
        pytest.param(
            Action("create", "", "secrets", "", "n"), 201, False, False, id="writes of Secrets follow the policy"
        ),
        pytest.param(Action("get", "example.com", "secrets"), 200, False, False, id="secrets of another group"),
    ],
)
def test_what_is_audited_whatever_the_policy_says(
    action: Action | None, code: int, impersonates: bool, always: bool
) -> None:
    assert is_always_audited(action, code, impersonates=impersonates) is always


def test_bodies_that_may_hold_secrets_are_never_shown() -> None:
    for action in (
        None,
        Action("update", "", "secrets"),
        Action("create", "", "serviceaccounts", "token"),
        Action("create", "authentication.k8s.io", "tokenreviews"),
        Action("create", "agents.jobplane.dev", "jointokens"),
    ):
        assert has_secrets(action), action
    assert not has_secrets(JOB)
    assert not has_secrets(Action("get", "", "serviceaccounts"))


def test_the_default_policy() -> None:
    made = read_policy(DEFAULT)
    node = ("system:node:n1", "system:nodes")
    base = "/apis/agents.jobplane.dev/v1"
    assert [level(made, each) for each in (JOB, GET, LOG, NODE)] == ["Metadata", "None", "None", "None"]
    assert level(made, Action("update", "", "nodes", "status", "", "n1"), "", *node) == "None"
    assert level(made, Action("update", "", "nodes", "status", "", "n1"), "", "ada") == "Metadata"
    assert level(made, Action("create", "", "nodes", "", "", "n1"), "", *node) == "Metadata"
    assert (
        level(made, Action("update", "coordination.k8s.io", "leases", "", "kube-node-lease", "n1"), "", *node) == "None"
    )
    assert level(made, Action("create", "", "events", "", "x"), "", *node) == "None"
    assert level(made, None, f"{base}/nodes/n1/statuses") == "None"
    assert level(made, Action("list", "agents.jobplane.dev", "tokens")) == "Metadata"
    assert level(made, Action("create", "authorization.k8s.io", "selfsubjectaccessreviews")) == "None"
    assert not made.has_bodies
    assert made.omits_receipt
