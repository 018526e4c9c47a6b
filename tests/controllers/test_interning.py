"""What pods have in common is kept once, and every pod stays what it was."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.controllers.interning import Shared
from app.controllers.manager import new_mirror
from app.kinds.core.configmap import ConfigMap
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, PodStatus
from app.machinery.base import Condition
from app.registry.codec import write_of
from app.registry.objects import Registry
from tests.build import a_job, pods
from tests.registry.examples import a_pod

TEMPLATE = pods("r", a_job())[0]


def stored(name: str, node: str = "", hostname: str = "", **status: object) -> Pod:
    """As it is read: nothing of it is anybody else's."""
    pod = replace(
        TEMPLATE,
        metadata=replace(TEMPLATE.metadata, name=name),
        spec=replace(TEMPLATE.spec, node_name=node, hostname=hostname),
        status=PodStatus(**status),
    )
    return msgspec.json.decode(msgspec.json.encode(pod), type=Pod)


def test_pods_of_one_template_share_it_on_whatever_node_they_are() -> None:
    shared = Shared()
    one, other = (shared.shared(stored(f"p-{n}", f"node-{n}", f"host-{n}", phase="Pending")) for n in range(2))

    assert isinstance(one, Pod)
    assert isinstance(other, Pod)
    assert one.spec.containers is other.spec.containers
    assert one.metadata.labels is other.metadata.labels
    assert one.status is other.status
    assert (other.metadata.name, other.spec.node_name, other.spec.hostname) == ("p-1", "node-1", "host-1")


def test_what_has_been_said_of_one_pod_is_its_own() -> None:
    shared = Shared()
    one, other = (shared.shared(stored(f"p-{n}", phase="Running", pod_ip="10.0.0.1")) for n in range(2))

    assert isinstance(one, Pod)
    assert isinstance(other, Pod)
    assert one.status == other.status
    assert one.status is not other.status


@given(st.lists(st.sampled_from(["", "a", "b"]), min_size=3, max_size=3), st.sampled_from(["Pending", "Running", ""]))
def test_a_shared_pod_is_equal_to_the_one_that_was_read(words: list[str], phase: str) -> None:
    name, node, hostname = words
    conditions = (Condition(type="PodScheduled", status="True"),) if node else ()
    pod = stored(name, node, hostname, phase=phase, conditions=conditions)

    assert Shared().shared(pod) == pod


def test_what_is_no_pod_stays_as_it_is() -> None:
    data = ConfigMap(data={"a": "b"})
    assert Shared().shared(data) is data


async def test_the_controllers_mirror_shares_what_it_reads(registry: Registry) -> None:
    made = [replace(a_pod(name), metadata=replace(a_pod(name).metadata, uid=name)) for name in ("a", "b")]
    await registry.store.commit([write_of(PODS, pod, "A") for pod in made])
    mirror = new_mirror()
    await registry.store.fill(mirror)

    one, other = mirror.all(PODS.resource)
    assert isinstance(one, Pod)
    assert isinstance(other, Pod)
    assert one.spec.containers is other.spec.containers
