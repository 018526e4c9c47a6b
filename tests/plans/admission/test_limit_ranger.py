"""What limit ranges give to a pod, and what they refuse."""

from typing import Any

import msgspec
import pytest

from app.kinds.core.limitrange import KIND, LimitRange
from app.kinds.pod.pod import Pod
from app.plans.admission.limit_ranger import ANNOTATION, apply_defaults, find_violation


def a_range(type_: str = "Container", **item: Any) -> LimitRange:
    return KIND.prepare(msgspec.convert({"spec": {"limits": [{"type": type_, **item}]}}, LimitRange))


def a_pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> Pod:
    """Containers by their resources, named a, b, ...; init containers x, y, ..."""
    return msgspec.convert(
        {
            "spec": {
                "containers": [
                    {"name": name, "resources": each} for name, each in zip("abc", containers, strict=False)
                ],
                "initContainers": [{"name": name, "resources": each} for name, each in zip("xyz", init, strict=False)],
                **spec,
            }
        },
        Pod,
    )


def test_a_container_gets_what_it_leaves_open() -> None:
    pod = a_pod({}, {"limits": {"cpu": "2"}}, init=({"requests": {"memory": "1Mi"}},))

    made = apply_defaults(pod, [a_range(default={"cpu": "1", "memory": "64Mi"}, defaultRequest={"cpu": "500m"})])

    a, b = (each.resources for each in made.spec.containers)
    (x,) = (each.resources for each in made.spec.init_containers)
    assert (a.requests, a.limits) == ({"cpu": "500m", "memory": "64Mi"}, {"cpu": "1", "memory": "64Mi"})
    assert (b.requests, b.limits) == ({"cpu": "2", "memory": "64Mi"}, {"cpu": "2", "memory": "64Mi"})
    assert (x.requests, x.limits) == ({"cpu": "500m", "memory": "1Mi"}, {"cpu": "1", "memory": "64Mi"})
    assert made.metadata.annotations[ANNOTATION] == (
        "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a; "
        "memory request for container b; memory limit for container b; "
        "cpu request for init container x; cpu, memory limit for init container x"
    )


def test_a_pod_that_leaves_nothing_open_stays_as_it_is() -> None:
    pod = a_pod({"limits": {"cpu": "1"}})

    assert apply_defaults(pod, [a_range(default={"cpu": "2"}), a_range("Pod", max={"memory": "1"})]) is pod


def test_the_first_of_two_defaults_counts() -> None:
    made = apply_defaults(a_pod({}), [a_range(default={"cpu": "1"}), a_range(default={"cpu": "2"})])

    assert made.spec.containers[0].resources.limits == {"cpu": "1"}


CPU = "cpu usage per Container is"
RATIO = "cpu max limit to request ratio per Container is 2"


@pytest.mark.parametrize(
    ("bounds", "resources", "expected"),
    [
        pytest.param({"max": {"cpu": "1"}}, {"limits": {"cpu": "1"}}, "", id="at its most"),
        pytest.param({"min": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, "", id="at its least"),
        pytest.param(
            {"max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}},
            f"maximum {CPU} 1, but limit is 2",
            id="with too high a limit",
        ),
        pytest.param({"max": {"cpu": "1"}}, {}, f"maximum {CPU} 1.  No limit is specified", id="without a limit"),
        pytest.param(
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "0.5"}},
            f"minimum {CPU} 1, but request is 500m",
            id="with too low a request",
        ),
        pytest.param(
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "500m"}},
            f"minimum {CPU} 1, but limit is 500m",
            id="with too low a limit",
        ),
        pytest.param({"min": {"cpu": "1"}}, {}, f"minimum {CPU} 1.  No request is specified", id="without a request"),
        pytest.param(
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "2500m"}},
            f"{RATIO}, but provided ratio is 2.500000",
            id="with a limit far over its request",
        ),
        pytest.param(
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"limits": {"memory": "1"}},
            f"{RATIO}, but no request is specified or request is 0",
            id="without a request to compare with",
        ),
        pytest.param(
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}},
            f"{RATIO}, but no limit is specified or limit is 0",
            id="without a limit to compare with",
        ),
        pytest.param(
            {"max": {"cpu": "1", "memory": "1Mi"}},
            {"limits": {"cpu": "2", "memory": "2Mi"}},
            f"[maximum {CPU} 1, but limit is 2, maximum memory usage per Container is 1Mi, but limit is 2Mi]",
            id="with two faults",
        ),
    ],
)
def test_a_container(bounds: dict, resources: dict, expected: str) -> None:
    assert find_violation(a_pod(resources), [a_range(**bounds)]) == expected
    assert find_violation(a_pod(init=(resources,)), [a_range(**bounds)]) == expected


def test_a_pod_is_judged_by_what_all_its_containers_ask_for() -> None:
    one = {"limits": {"cpu": "1"}}

    assert find_violation(a_pod(one, one, init=(one,)), [a_range("Pod", max={"cpu": "2"})]) == ""
    assert find_violation(a_pod(one, one, one), [a_range("Pod", max={"cpu": "2"})]) == (
        "maximum cpu usage per Pod is 2, but limit is 3"
    )


def test_overhead_is_not_the_pods_own() -> None:
    pod = a_pod({"limits": {"cpu": "1"}}, overhead={"cpu": "1"})

    assert find_violation(pod, [a_range("Pod", max={"cpu": "1"})]) == ""


def test_claims_are_nobodys_business_here() -> None:
    assert find_violation(a_pod({}), [a_range("PersistentVolumeClaim", max={"storage": "1"})]) == ""
