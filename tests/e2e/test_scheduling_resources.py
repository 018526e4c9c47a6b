"""Whether there is room for a pod on a node: resources of every sort, host ports, the number of pods. As kubectl shows it."""

from typing import Any

import pytest

from tests.e2e.scheduling import Site, a_node, a_pod

KINDS = {
    "cpu": ("4", "2500m", "5"),
    "memory": ("8Gi", "5Gi", "9Gi"),
    "ephemeral-storage": ("10Gi", "6Gi", "11Gi"),
    "example.com/license": ("3", "2", "4"),
    "nvidia.com/gpu": ("8", "5", "9"),
    "hugepages-2Mi": ("64Mi", "40Mi", "66Mi"),
}


@pytest.mark.parametrize(("resource", "amounts"), [pytest.param(*each, id=each[0]) for each in KINDS.items()])
def test_of_no_resource_more_is_given_away_than_there_is(site: Site, resource: str, amounts: tuple[str, ...]) -> None:
    """More than half to each: so a node has room for one, and a pod that none could ever take is told the same."""
    all_of_it, most, too_much = amounts
    site.nodes(*(a_node(name, has={resource: all_of_it}) for name in "ab"))
    little = {"cpu": "1m"} if resource != "cpu" else {}  # which hugepages do not go without

    def asking(name: str, amount: str) -> dict[str, Any]:
        return a_pod(name, requests={**little, resource: amount})

    why = f"0/2 nodes are available: 2 Insufficient {resource}."
    assert site.try_(asking("one", most), asking("two", most), asking("three", most), asking("huge", too_much)) == {
        "one": "a",
        "two": "b",
        "three": why,
        "huge": why,
    }
    # Others could go from there, but none of them is less important; of one that is too large that is never asked.
    assert site.why("three") == (
        f"{why} preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )
    assert site.why("huge") == (
        f"{why} preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    site.remove("two")
    site.comes("three", "b")


def test_a_node_that_has_none_of_a_resource_is_told_apart_by_each_that_is_short(site: Site) -> None:
    site.nodes(a_node("a", cpu="1"), a_node("b", has={"nvidia.com/gpu": "1"}), a_node("c", memory="1Gi"))

    assert site.try_(
        a_pod("train", requests={"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "2"}),
        a_pod("infer", requests={"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "1"}),
    ) == {
        "train": "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 3 Insufficient nvidia.com/gpu.",
        "infer": "b",
    }


def test_a_node_takes_so_many_pods(site: Site) -> None:
    site.nodes(a_node("a", pods="2"), a_node("b", pods="0"))

    assert site.try_(*map(a_pod, ("one", "two", "three"))) == {
        "one": "a",
        "two": "a",
        "three": "0/2 nodes are available: 2 Too many pods.",
    }


def test_init_containers_and_overhead_count_as_in_kubernetes(site: Site) -> None:
    """The larger of what comes first and what comes then, sidecars to both."""
    site.nodes(a_node("a"))

    def of(name: str, cpu: str, **more: str) -> dict[str, Any]:
        return {"name": name, "image": "busybox", "resources": {"requests": {"cpu": cpu}}, **more}

    first, sidecar = of("first", "3"), of("sidecar", "1", restartPolicy="Always")
    assert site.try_(
        a_pod("large", requests={"cpu": "2"}, initContainers=[sidecar, of("first", "3500m")]),
        a_pod("fits", requests={"cpu": "2"}, initContainers=[sidecar, first]),
        a_pod("second", requests={"cpu": "1m"}),
    ) == {
        "large": "0/1 nodes are available: 1 Insufficient cpu.",
        "fits": "a",
        "second": "0/1 nodes are available: 1 Insufficient cpu.",
    }


def test_a_node_gives_a_port_once_for_each_protocol_and_address(site: Site) -> None:
    site.nodes(a_node("a"))

    def at(name: str, port: int, **more: str) -> dict[str, Any]:
        return a_pod(name, container={"ports": [{"containerPort": 80, "hostPort": port, **more}]})

    why = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    assert site.try_(at("any", 8080), at("again", 8080), at("one", 9090, hostIP="10.0.0.1")) == {
        "any": "a",
        "again": why,
        "one": "a",
    }
    assert site.try_(
        at("udp", 8080, protocol="UDP"),
        at("another", 9090, hostIP="10.0.0.2"),
        at("same", 9090, hostIP="10.0.0.1"),
        at("all", 9090),
    ) == {"udp": "a", "another": "a", "same": why, "all": why}
    shared = a_pod("shared", hostNetwork=True, container={"ports": [{"containerPort": 8080}]})
    assert site.try_(shared) == {"shared": why}

    site.remove("any")
    site.comes("again", "a")


def test_more_room_on_a_node_is_found(site: Site) -> None:
    """A device plug-in, or an operator, says that there is more of something."""
    site.nodes(a_node("a"))
    why = "0/1 nodes are available: 1 Insufficient example.com/license."
    assert site.try_(a_pod("waits", requests={"example.com/license": "1"})) == {"waits": why}

    more = '{"status": {"allocatable": {"example.com/license": "1"}}}'
    site.kubectl("patch", "node", "a", "--subresource=status", "--type=merge", "--patch", more)

    site.comes("waits", "a")
