"""Whom a node evicts when it runs short or when somebody uses too much, whom it does not take, and what it says."""

from typing import Any

import pytest

from app.kinds.pod.affinity import Toleration
from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod import Pod, PodSpec
from app.machinery.base import ObjectMeta
from app.plans.kubelet.node_pressure_eviction import (
    CRITICAL,
    DISK,
    MEMORY,
    PodUsage,
    Shortage,
    Volume,
    eviction_message,
    find_exceeded_limit,
    find_refusal,
    select_victim,
)

MI = 1 << 20
SHORT_OF_MEMORY = Shortage("memory.available", "100Mi", "90Mi")
SHORT_OF_DISK = Shortage("nodefs.available", "10Gi", "9Gi")
STORAGE = "ephemeral-storage"


def a_pod(name: str = "web", limits: dict[str, str] | None = None, **more: Any) -> Pod:
    requests = {each: more.pop(each) for each in ("memory", "cpu") if each in more}
    resources = ResourceRequirements(requests=requests, limits=limits or {})
    spec = PodSpec(containers=(Container(name="main", resources=resources),), **more)
    return Pod(metadata=ObjectMeta(name=name, namespace="default", uid=name), spec=spec)


def using(used: int = 0, disk: int = 0, name: str = "web", **more: Any) -> PodUsage:
    """MiB."""
    return PodUsage(a_pod(name, **more), {"main": used * MI}, {"main": disk * MI})


@pytest.mark.parametrize(
    ("pods", "shortage", "expected"),
    [
        pytest.param(
            [using(100, name="a", memory="200Mi"), using(10, name="b")],
            SHORT_OF_MEMORY,
            "b",
            id="who uses more than it asked for",
        ),
        pytest.param(
            [using(100, name="a"), using(10, name="b", priority=-1)], SHORT_OF_MEMORY, "b", id="the least important"
        ),
        pytest.param([using(100, name="a"), using(110, name="b")], SHORT_OF_MEMORY, "b", id="who uses most"),
        pytest.param(
            [using(300, name="a", memory="290Mi"), using(100, name="b", memory="50Mi")],
            SHORT_OF_MEMORY,
            "b",
            id="who uses most beyond what it asked for",
        ),
        pytest.param(
            [using(9, 1, name="a"), using(1, 9, name="b")], SHORT_OF_DISK, "b", id="who uses most of the disk"
        ),
        pytest.param([using(900, name="a", priority=CRITICAL)], SHORT_OF_MEMORY, "", id="never the node's own"),
        pytest.param([], SHORT_OF_MEMORY, "", id="nobody where nobody is"),
        pytest.param(
            [using(name="a", priority=1), using(name="b")],
            Shortage("pid.available", "5", "4"),
            "b",
            id="the least important when process ids are short",
        ),
    ],
)
def test_who_goes_first(pods: list[PodUsage], shortage: Shortage, expected: str) -> None:
    found = select_victim(pods, shortage)

    assert (found.pod.metadata.name if found else "") == expected


def test_an_evicted_pod_is_told_why_in_the_kubelets_words() -> None:
    assert eviction_message(using(100, memory="50Mi"), SHORT_OF_MEMORY) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
        "Container main was using 100Mi, request is 50Mi, has larger consumption of memory. "
    )
    assert eviction_message(using(disk=1), SHORT_OF_DISK).endswith(
        "Container main was using 1Mi, request is 0, has larger consumption of ephemeral-storage. "
    )


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        pytest.param(using(disk=900), "", id="nothing without a limit"),
        pytest.param(using(disk=10, limits={STORAGE: "10Mi"}), "", id="nothing at its limit"),
        pytest.param(
            PodUsage(a_pod(), volumes=(Volume("v", 2 * MI, "1Mi"),)),
            'Usage of EmptyDir volume "v" exceeds the limit "1Mi". ',
            id="a volume that is too large",
        ),
        pytest.param(
            PodUsage(a_pod(), volumes=(Volume("v", 2 * MI, "0"),)), "", id="nothing at a limit of 0, which is none"
        ),
        pytest.param(
            PodUsage(a_pod(limits={STORAGE: "1Mi"}), disk={"main": MI}, volumes=(Volume("v", MI, ""),)),
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
            id="more than its containers may have together",
        ),
        pytest.param(
            PodUsage(a_pod(limits={STORAGE: "1Mi"}), disk={"main": MI}, volumes=(Volume("v", MI, "", True),)),
            "",
            id="nothing for what is in memory",
        ),
    ],
)
def test_a_pod_that_uses_more_disk_than_it_may_goes(measured: PodUsage, expected: str) -> None:
    assert find_exceeded_limit(measured) == expected


def test_one_container_that_uses_more_than_it_may_takes_its_pod_along() -> None:
    containers = tuple(
        Container(name=name, resources=ResourceRequirements(limits={STORAGE: limit}))
        for name, limit in (("a", "9Mi"), ("b", "1Mi"))
    )
    pod = Pod(spec=PodSpec(containers=containers))

    assert find_exceeded_limit(PodUsage(pod, disk={"b": 2 * MI})) == (
        'Container b exceeded its local ephemeral storage limit "1Mi". '
    )


TOLERANT = (Toleration(key="node.kubernetes.io/memory-pressure", operator="Exists"),)


@pytest.mark.parametrize(
    ("pod", "conditions", "expected"),
    [
        pytest.param(a_pod(), set(), "", id="anything while there is no pressure"),
        pytest.param(a_pod(), {MEMORY}, "The node had condition: [MemoryPressure]. ", id="best effort"),
        pytest.param(a_pod(memory="1Mi"), {MEMORY}, "", id="what asks for memory"),
        pytest.param(a_pod(tolerations=TOLERANT), {MEMORY}, "", id="what tolerates it"),
        pytest.param(
            a_pod(memory="1Mi"),
            {MEMORY, DISK},
            "The node had condition: [DiskPressure MemoryPressure]. ",
            id="nothing when the disk is short",
        ),
        pytest.param(a_pod(priority=CRITICAL), {DISK}, "", id="the node's own always"),
    ],
)
def test_what_a_node_takes_under_pressure(pod: Pod, conditions: set[str], expected: str) -> None:
    assert find_refusal(pod, conditions) == expected
