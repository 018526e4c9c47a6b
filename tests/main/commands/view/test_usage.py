"""Sums of quantities, and how they are shown."""

from fractions import Fraction

import pytest

from app.main.commands.view.machines import describe_node
from app.main.commands.view.usage import Amounts, format_bytes, format_cpus, format_share, requests_of


def test_a_pod_asks_for_what_its_containers_ask_for_and_a_limit_stands_for_a_request() -> None:
    first = {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1"}}}
    second = {"resources": {"limits": {"memory": "1Gi"}}}
    pod = {"spec": {"containers": [first, second, {}]}}
    assert requests_of(pod) == Amounts(Fraction(1, 2), Fraction(2 * 2**30), Fraction(1))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (1023, "1023"), (2**20, "1Mi"), (15 * 2**29, "7.5Gi"), (2**61, "2048Pi"), (1010 * 2**20, "1010Mi")],
)
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(Fraction(count)) == text


@pytest.mark.parametrize(("cpus", "text"), [(Fraction(1, 4), "0.25"), (Fraction(12), "12"), (Fraction(12345), "12345")])
def test_cpus(cpus: Fraction, text: str) -> None:
    assert format_cpus(cpus) == text


def test_a_share_of_nothing_is_none() -> None:
    assert (format_share(Fraction(1), Fraction(4)), format_share(Fraction(1), Fraction(0))) == ("25%", "-")


def test_the_state_of_a_node_in_words() -> None:
    def node(status: str, **spec: bool) -> dict[str, object]:
        return {"spec": spec, "status": {"conditions": [{"type": "Ready", "status": status, "reason": "AgentLost"}]}}

    assert describe_node(node("True")) == "ready"
    assert describe_node(node("Unknown", unschedulable=True)) == "not ready (AgentLost), cordoned"
    assert describe_node({"spec": {}, "status": {}}) == "not ready"
