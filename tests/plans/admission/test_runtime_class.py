"""What a pod gets of its RuntimeClass, and why it may be refused."""

import pytest

from app.kinds.core.runtimeclass import KIND, Overhead, RuntimeClass, Scheduling
from app.kinds.pod.affinity import Toleration
from app.kinds.pod.pod import Pod
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.plans.admission.runtime_class import apply_runtime_class
from tests.build import a_pod

GPU, SPOT = Toleration(key="gpu", operator="Exists"), Toleration(key="spot", operator="Exists")
CLASS = RuntimeClass(
    metadata=ObjectMeta(name="vm"),
    handler="kata",
    overhead=Overhead(pod_fixed={"memory": "128Mi"}),
    scheduling=Scheduling(node_selector={"vm": "yes"}, tolerations=(GPU,)),
)


def applied(pod: Pod) -> Pod:
    return apply_runtime_class(pod, {"vm": CLASS, "plain": RuntimeClass(handler="runc")}, "p")


def test_a_pod_gets_overhead_selector_and_tolerations() -> None:
    spec = applied(a_pod(runtime_class_name="vm", node_selector={"zone": "a"}, tolerations=(SPOT,))).spec

    assert spec.overhead == {"memory": "128Mi"}
    assert spec.node_selector == {"vm": "yes", "zone": "a"}
    assert spec.tolerations == (SPOT, GPU)


def test_what_it_has_already_stays_as_it_is() -> None:
    once = applied(a_pod(runtime_class_name="vm"))
    assert applied(once) == once
    for pod in (a_pod(), a_pod(runtime_class_name="plain")):
        assert applied(pod) is pod


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (a_pod(runtime_class_name="none"), 'pod rejected: RuntimeClass "none" not found'),
        (
            a_pod(runtime_class_name="vm", overhead={"memory": "1Mi"}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            a_pod(runtime_class_name="vm", node_selector={"vm": "no"}),
            "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no",
        ),
    ],
    ids=str,
)
def test_a_pod_is_refused(pod: Pod, why: str) -> None:
    with pytest.raises(ApiError) as refused:
        applied(pod)
    assert (refused.value.code, refused.value.message) == (403, f'pods "p" is forbidden: {why}')


def test_a_handler_is_a_label_and_stays() -> None:
    assert KIND.validate(CLASS) == []
    bad = RuntimeClass(handler="No/Such", overhead=Overhead(pod_fixed={"memory": "-1"}))
    assert [each.field for each in KIND.validate(bad)] == ["handler", "overhead.podFixed[memory]"]
    assert [each.field for each in KIND.validate_update(RuntimeClass(handler="runc"), CLASS)] == ["handler"]
