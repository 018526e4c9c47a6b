"""Which level a namespace enforces."""

import pytest

from app.plans.admission.pod_security_level import ENFORCE, Level, enforced_level


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
    assert enforced_level("team", labels, default) == expected


def test_the_system_s_namespace_is_exempt() -> None:
    assert enforced_level("kube-system", {ENFORCE: "restricted"}, "restricted") == "privileged"
