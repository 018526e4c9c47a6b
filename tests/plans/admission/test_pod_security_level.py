"""Which level a namespace enforces."""

import pytest

from app.plans.admission.pod_security.namespace_policy import Level, PodSecurityConfiguration, default_policy

ENFORCE = "pod-security.kubernetes.io/enforce"


@pytest.mark.parametrize(
    ("labels", "default", "expected"),
    [
        ({}, "privileged", "privileged"),
        ({}, "restricted", "restricted"),
        ({ENFORCE: "privileged"}, "restricted", "privileged"),
        ({ENFORCE: "baseline"}, "privileged", "baseline"),
        ({ENFORCE: "strictest"}, "privileged", "restricted"),
        ({ENFORCE: ""}, "privileged", "restricted"),
        ({ENFORCE: "Privileged"}, "privileged", "restricted"),
    ],
)
def test_level(labels: dict[str, str], default: Level, expected: Level) -> None:
    assert PodSecurityConfiguration(default_policy(default)).enforced_level("team", labels) == expected


def test_the_system_s_namespace_is_exempt() -> None:
    assert PodSecurityConfiguration().enforced_level("kube-system", {ENFORCE: "restricted"}) == "privileged"
