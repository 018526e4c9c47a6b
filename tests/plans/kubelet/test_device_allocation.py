"""Which container gets which devices: by a table, and never one device for two that run together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod import Pod, PodSpec
from app.plans.kubelet.device_allocation import InsufficientDevicesError, allocate

GPU = "nvidia.com/gpu"


def a_container(name: str, count: int, **more: Any) -> Container:
    limits = {GPU: str(count)} if count else {}
    return Container(name=name, resources=ResourceRequirements(limits=limits), **more)


def a_pod(apps: tuple[int, ...], inits: tuple[int, ...] = (), sidecars: tuple[int, ...] = ()) -> Pod:
    """Containers a0, a1, ...; init containers i0, ... and after them sidecars s0, ..."""
    first = [a_container(f"i{number}", count) for number, count in enumerate(inits)]
    first += [a_container(f"s{number}", count, restart_policy="Always") for number, count in enumerate(sidecars)]
    return Pod(
        spec=PodSpec(
            init_containers=tuple(first),
            containers=tuple(a_container(f"a{number}", count) for number, count in enumerate(apps)),
        )
    )


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_pod((0,)), {}, id="nobody asks"),
        pytest.param(a_pod((1, 2)), {"a0": "A", "a1": "BC"}, id="each has its own"),
        pytest.param(a_pod((2,), (1,)), {"i0": "A", "a0": "AB"}, id="what an init container had comes first"),
        pytest.param(a_pod((0,), (3, 1)), {"i0": "ABC", "i1": "A"}, id="init containers one after the other"),
        pytest.param(a_pod((1,), (1,), (1,)), {"i0": "A", "s0": "A", "a0": "B"}, id="a sidecar keeps its own"),
    ],
)
def test_pins(pod: Pod, expected: dict[str, str]) -> None:
    assert {name: "".join(given[GPU]) for name, given in allocate(pod, {GPU: "ABC"}).items()} == expected


def test_too_few_are_told_in_kubernetes_words() -> None:
    with pytest.raises(InsufficientDevicesError) as told:
        allocate(a_pod((2, 1)), {GPU: "AB"})

    assert str(told.value) == "requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0"


def test_what_the_node_has_none_of_is_not_for_it_to_give() -> None:
    assert allocate(a_pod((4,)), {"example.com/fpga": "X"}) == {}


counts = some.lists(some.integers(0, 3), max_size=3).map(tuple)


@given(apps=counts, inits=counts, sidecars=counts)
def test_none_is_given_twice_to_what_runs_together(
    apps: tuple[int, ...], inits: tuple[int, ...], sidecars: tuple[int, ...]
) -> None:
    found = allocate(a_pod(apps, inits, sidecars), {GPU: [str(number) for number in range(18)]})

    given_to = {name: each[GPU] for name, each in found.items()}
    together = [one for name, ids in given_to.items() if not name.startswith("i") for one in ids]
    assert len(together) == len(set(together))
    assert [len(given_to.get(f"a{number}", ())) for number in range(len(apps))] == list(apps)
