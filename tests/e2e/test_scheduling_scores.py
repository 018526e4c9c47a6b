"""Which of several nodes a pod gets: the emptier, the better balanced, the one with its image, always the same. By kubectl."""

from collections.abc import Callable
from typing import Any

from tests.e2e.parts import Parts
from tests.e2e.scheduling import Site, a_node, a_pod

MIB = 1 << 20


def _cpu(name: str, cpu: str) -> dict[str, Any]:
    return a_pod(name, requests={"cpu": cpu, "memory": "1Gi"})


def test_the_emptiest_node_comes_first(site: Site) -> None:
    site.nodes(*map(a_node, "abc"))

    assert [*site.try_(*(_cpu(f"p{number}", "500m") for number in range(4))).values()] == ["a", "b", "c", "a"]
    # What counts is the part that is left, not how much.
    site.nodes(a_node("d", cpu="64", memory="128Gi"))
    assert site.try_(_cpu("large", "2")) == {"large": "d"}


def test_with_most_allocated_the_fullest_does_as_long_as_it_has_room(site: Site, unstaffed: Parts) -> None:
    with unstaffed.controlled("--scoring-strategy", "MostAllocated"):
        site.nodes(*map(a_node, "abc"))
        first = site.try_(_cpu("first", "1"))
        site.pods(a_pod("there", requests={"cpu": "2", "memory": "4Gi"}, nodeName="b"))
        others = site.try_(*(_cpu(f"p{number}", "1") for number in range(6)))

    assert first == {"first": "a"}
    assert [*others.values()] == ["b", "b", "a", "a", "a", "c"]


def test_what_is_left_of_cpu_and_memory_is_to_be_balanced(site: Site) -> None:
    """On `a` there is much memory in use, on `b` much CPU; as much of both together."""
    site.nodes(*map(a_node, "ab"))
    site.pods(
        a_pod("memory", requests={"cpu": "1", "memory": "6Gi"}, nodeName="a"),
        a_pod("cpu", requests={"cpu": "3", "memory": "2Gi"}, nodeName="b"),
    )

    assert site.try_(
        a_pod("thinker", requests={"cpu": "1", "memory": "64Mi"}),
        a_pod("keeper", requests={"cpu": "50m", "memory": "1Gi"}),
    ) == {"thinker": "a", "keeper": "b"}


def test_a_node_that_has_the_image_is_better(site: Site) -> None:
    def having(name: str, *sizes: int) -> dict[str, Any]:
        some = [
            {"names": [f"example.com/large-{number}:v1"], "sizeBytes": size * MIB} for number, size in enumerate(sizes)
        ]
        return a_node(name, images=some)

    site.nodes(a_node("a"), having("b", 20, 400), having("c", 0, 900))

    def of(name: str, image: str) -> dict[str, Any]:
        return a_pod(name, container={"image": f"example.com/{image}"})

    first = {"name": "first", "image": "example.com/large-1:v1"}
    assert site.try_(
        of("another", "large-1:v2"),
        of("same", "large-1:v1"),
        of("small", "large-0:v1"),
        a_pod("before", initContainers=[first]),
    ) == {
        "another": "a",
        "same": "c",
        "small": "b",  # as the emptiest: an image of 20 MiB does not matter
        "before": "c",
    }


def _mixed(prefix: str) -> list[dict[str, Any]]:
    """Pods of several classes, some of which care about others."""
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    spread |= {"labelSelector": {"matchLabels": {"app": "even"}}}
    apart = {
        "weight": 10,
        "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "even"}}},
    }
    makes: list[Callable[[str], dict[str, Any]]] = [
        lambda name: a_pod(name, requests={"cpu": "300m"}),
        lambda name: a_pod(name, {"app": "even"}, topologySpreadConstraints=[spread]),
        lambda name: a_pod(
            name,
            requests={"cpu": "100m", "memory": "1Gi"},
            affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        ),
    ]
    return [makes[number % 3](f"{prefix}{number}") for number in range(12)]


def test_the_same_pods_come_to_the_same_nodes(site: Site) -> None:
    """Once more on nodes that were made in another order, and one pod after the other as before."""
    nodes = [a_node(name, labels={"zone": f"z{number // 2}"}) for number, name in enumerate("abcdef")]
    placed = []
    for some in (nodes, nodes[::-1]):
        site.nodes(*some)
        placed.append(site.try_(*_mixed("p")))
        site.clear()

    assert placed[0] == placed[1]
    assert len(set(placed[0].values())) > 3
