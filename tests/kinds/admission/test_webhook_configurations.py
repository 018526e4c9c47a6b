"""Defaults and validation of webhook configurations, with Kubernetes' texts."""

from typing import Any

import msgspec
import pytest

from app.kinds.admission.mutating_webhook_configuration import KIND as MUTATING
from app.kinds.admission.validating_webhook_configuration import KIND as VALIDATING

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
GOOD = {
    "name": "w.example.com",
    "clientConfig": {"url": "https://example.com/x"},
    "rules": [RULE],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
SERVICE = {"namespace": "n", "name": "s"}


def made(*webhooks: dict[str, Any]) -> Any:
    return MUTATING.prepare(msgspec.convert({"webhooks": webhooks}, MUTATING.type))


def test_defaults() -> None:
    (webhook,) = made(GOOD | {"clientConfig": {"service": SERVICE}}).webhooks

    assert (webhook.failure_policy, webhook.match_policy, webhook.timeout_seconds) == ("Fail", "Equivalent", 10)
    assert (webhook.reinvocation_policy, webhook.rules[0].scope) == ("Never", "*")
    assert webhook.client_config.service.port == 443
    assert MUTATING.validate(made(GOOD)) == []
    assert VALIDATING.validate(VALIDATING.prepare(msgspec.convert({"webhooks": [GOOD]}, VALIDATING.type))) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "name: Required value"),
        (
            {"name": "a.b"},
            'name: Invalid value: "a.b": should be a domain with at least three segments separated by dots',
        ),
        ({"sideEffects": None}, "sideEffects: Required value: must specify one of None, NoneOnDryRun"),
        (
            {"sideEffects": "Some"},
            'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
        ),
        (
            {"timeoutSeconds": 31},
            "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        ({"failurePolicy": "X"}, 'failurePolicy: Unsupported value: "X": supported values: "Fail", "Ignore"'),
        ({"matchPolicy": "X"}, 'matchPolicy: Unsupported value: "X": supported values: "Equivalent", "Exact"'),
        (
            {"reinvocationPolicy": "X"},
            'reinvocationPolicy: Unsupported value: "X": supported values: "IfNeeded", "Never"',
        ),
        ({"admissionReviewVersions": []}, "admissionReviewVersions: Required value: must specify one of v1, v1beta1"),
        (
            {"admissionReviewVersions": ["v2"]},
            'admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1',
        ),
        ({"clientConfig": {}}, "clientConfig: Required value: exactly one of url or service is required"),
        (
            {"clientConfig": {"url": "http://a"}},
            "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; "
            "desired format: https://host[/path]",
        ),
        (
            {"clientConfig": {"url": "https://a/?b=c"}},
            'clientConfig.url: Invalid value: "b=c": query parameters are not permitted in the URL',
        ),
        (
            {"clientConfig": {"service": SERVICE | {"path": "a//b"}}},
            "clientConfig.service.path: Invalid value: \"a//b\": must start with a '/'",
        ),
        (
            {"clientConfig": {"service": SERVICE | {"port": 0}}},
            "clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
        ),
        ({"rules": [RULE | {"operations": []}]}, "rules[0].operations: Required value"),
        (
            {"rules": [RULE | {"resources": ["*/*", "pods"]}]},
            'rules[0].resources: Invalid value: ["*/*","pods"]: '
            "if '*/*' is present, must not specify other resources",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "1"}]},
            'matchConditions[0].expression: Invalid value: "1": must evaluate to bool',
        ),
        ({"matchConditions": [{"name": "", "expression": "true"}]}, "matchConditions[0].name: Required value"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], message: str) -> None:
    causes = MUTATING.validate(made(GOOD | fields))

    assert f"webhooks[0].{message}" in [f"{cause.field}: {cause.message}" for cause in causes]


def test_names_of_webhooks_differ() -> None:
    assert [cause.field for cause in MUTATING.validate(made(GOOD, GOOD))] == ["webhooks[1].name"]
