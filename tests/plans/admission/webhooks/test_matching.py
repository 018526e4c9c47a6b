"""Which webhooks a write concerns, in what order they are called again, and what is made of their answers."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.kinds import by_name
from app.kinds.admission.mutating_webhook_configuration import KIND as MUTATING
from app.kinds.admission.validating_webhook_configuration import KIND as VALIDATING
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event_v1 import KIND as EVENTS_V1
from app.machinery.base import Kind, ObjectMeta
from app.plans.admission.policies.matching import Target
from app.plans.admission.webhooks.admission_review import CallError, choose_version, read_patch, read_response
from app.plans.admission.webhooks.matching import NO_WEBHOOKS, NONE, Hook, Webhooks, is_selected
from app.plans.admission.webhooks.reinvocation import Reinvocation

JOBS, PODS, NODES = by_name("batch", "Job"), by_name("", "Pod"), by_name("", "Node")


def configuration(kind: Kind, name: str, *webhooks: dict[str, Any]) -> Any:
    body = {"webhooks": [{"name": f"{name}{index}.example.com"} | each for index, each in enumerate(webhooks)]}
    return kind.prepare(replace(msgspec.convert(body, kind.type), metadata=ObjectMeta(name=name, uid=name)))


def rule(resource: str, group: str = "*", version: str = "*", operation: str = "*", scope: str = "*") -> dict[str, Any]:
    return {
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [version],
                "operations": [operation],
                "resources": [resource],
                "scope": scope,
            }
        ]
    }


def called(webhooks: Webhooks, kind: Kind, operation: str = "CREATE", subresource: str = "") -> list[str]:
    found = webhooks.relevant(kind, operation, subresource)
    return [each.hook.webhook.name.partition(".")[0] for each in (*found.mutating, *found.validating)]


@pytest.mark.parametrize(
    ("wanted", "kind", "operation", "subresource", "matches"),
    [
        (rule("jobs", "batch", "v1", "CREATE"), JOBS, "CREATE", "", True),
        (rule("jobs", "batch", "v1", "CREATE"), JOBS, "UPDATE", "", False),
        (rule("jobs", "batch", "v1beta1"), JOBS, "CREATE", "", False),
        (rule("jobs", ""), JOBS, "CREATE", "", False),
        (rule("jobs"), JOBS, "UPDATE", "status", False),
        (rule("jobs/status"), JOBS, "UPDATE", "status", True),
        (rule("jobs/*"), JOBS, "UPDATE", "", True),
        (rule("*"), JOBS, "UPDATE", "status", False),
        (rule("*/*"), JOBS, "UPDATE", "status", True),
        (rule("*", scope="Cluster"), JOBS, "CREATE", "", False),
        (rule("*", scope="Cluster"), NODES, "CREATE", "", True),
        (rule("*", scope="Namespaced"), NODES, "CREATE", "", False),
        (rule("*"), MUTATING, "CREATE", "", False),
    ],
)
def test_rules(wanted: dict[str, Any], kind: Kind, operation: str, subresource: str, matches: bool) -> None:
    webhooks = Webhooks([configuration(MUTATING, "m", wanted)], [])

    assert bool(called(webhooks, kind, operation, subresource)) is matches


def test_configurations_by_name_and_webhooks_as_they_are_listed() -> None:
    pods = rule("pods")
    webhooks = Webhooks(
        [configuration(MUTATING, "b", pods, pods), configuration(MUTATING, "a", pods)],
        [configuration(VALIDATING, "a", pods)],
    )

    assert called(webhooks, PODS) == ["a0", "b0", "b1", "a0"]
    assert called(webhooks, JOBS) == []
    assert NO_WEBHOOKS.relevant(PODS, "CREATE") is NONE


def test_a_webhook_for_another_version_is_called_with_that_one_if_equivalent() -> None:
    newer = rule("events", "events.k8s.io", "v1")
    exact, equivalent = (
        Webhooks([configuration(MUTATING, "m", newer | {"matchPolicy": policy})]) for policy in ("Exact", "Equivalent")
    )

    def versions(_: Kind) -> tuple[Kind, ...]:
        return (EVENTS, EVENTS_V1)

    assert exact.relevant(EVENTS, "CREATE", "", versions) == NONE
    assert [each.kind for each in equivalent.relevant(EVENTS, "CREATE", "", versions).mutating] == [EVENTS_V1]


@pytest.mark.parametrize(
    ("selectors", "matches"),
    [
        ({}, True),
        ({"objectSelector": {"matchLabels": {"a": "new"}}}, True),
        ({"objectSelector": {"matchLabels": {"a": "old"}}}, True),
        ({"objectSelector": {"matchLabels": {"a": "other"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, False),
    ],
)
def test_selectors(selectors: dict[str, Any], matches: bool) -> None:
    (hook,) = configuration(MUTATING, "m", rule("pods") | selectors).webhooks
    target = Target(PODS, "UPDATE", "default", "p", "", [{"a": "new"}, {"a": "old"}], {"team": "x"})

    assert is_selected(hook, target) is matches


def test_only_what_wants_it_is_called_again_after_a_later_change() -> None:
    hooks = [
        Hook("c", configuration(MUTATING, "m", rule("pods") | {"reinvocationPolicy": policy}).webhooks[0], str(index))
        for index, policy in enumerate(["IfNeeded", "Never", "IfNeeded"])
    ]
    followed = Reinvocation()

    for hook, changed in zip(hooks, [True, True, True], strict=True):
        followed.note(hook, changed=changed)

    assert [followed.is_due(hook) for hook in hooks] == [True, False, False]


def test_an_old_webhook_gets_an_old_review() -> None:
    assert choose_version(["v2", "v1beta1", "v1"]) == "v1beta1"
    with pytest.raises(CallError, match="does not accept known AdmissionReview versions"):
        choose_version(["v2"])
    response = read_response("v1beta1", "u", b'{"response":{"allowed":true,"patch":"W10="}}', mutating=True)
    assert read_patch("v1beta1", response) == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"response":{"uid":"u","allowed":true}}'])
def test_bodies_that_are_no_review(body: bytes) -> None:
    with pytest.raises(CallError):
        read_response("v1", "u", body, mutating=True)
