"""Where a pod may be, or is best, for what other pods are there: affinity, anti-affinity, spreading. As kubectl shows it."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.kubectl import TIMEOUT
from tests.e2e.scheduling import Site, a_node, a_pod, taint

NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_APART = "node(s) didn't match pod anti-affinity rules"
UNWELCOME = "node(s) didn't satisfy existing pods anti-affinity rules"
UNEVEN = "node(s) didn't match pod topology spread constraints"
HOST = "kubernetes.io/hostname"
FOUR = (("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"))  # nodes, and their zones


def zoned(site: Site, *nodes: tuple[str, str]) -> None:
    site.nodes(*(a_node(name, labels={"zone": zone} if zone else {}) for name, zone in nodes))


def chosen(app: str) -> dict[str, Any]:
    return {"matchLabels": {"app": app}}


def term(app: str, key: str = "zone", **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": chosen(app), **more}


def near(*terms: Mapping[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [*terms]}}


def apart(*terms: Mapping[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [*terms]}}


def liking(kind: str, *wishes: tuple[int, Mapping[str, Any]]) -> dict[str, Any]:
    some = [{"weight": weight, "podAffinityTerm": one} for weight, one in wishes]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": some}}


def app(name: str, of: str, affinity: Any = None, **spec: Any) -> dict[str, Any]:
    return a_pod(name, {"app": of}, **({"affinity": affinity} if affinity else {}), **spec)


def on(node: str) -> dict[str, Any]:
    return {"nodeSelector": {HOST: node}}


def all_four(count: int, reason: str, then: str = "") -> str:
    return f"0/4 nodes are available: {count} {reason}{then}."


# Affinity


def test_a_pod_that_is_to_be_near_another_waits_for_it_and_follows(site: Site) -> None:
    zoned(site, *FOUR)
    assert site.try_(app("web", "web", near(term("db")))) == {"web": all_four(4, NOT_NEAR)}

    assert site.try_(app("db", "db", **on("d"))) == {"db": "d"}
    site.comes("web", "c")  # in its zone, where there is more room
    assert site.try_(app("same", "web", near(term("db", HOST)))) == {"same": "d"}
    # Of pods that are meant by both terms, not of one for each.
    both = near(term("db"), {**term("db"), "labelSelector": {"matchLabels": {"tier": "gold"}}})
    assert site.try_(app("both", "web", both)) == {"both": all_four(4, NOT_NEAR)}


def test_the_first_of_those_that_are_to_be_together_goes_anywhere_with_such_a_place(site: Site) -> None:
    zoned(site, ("a", ""), *FOUR[1:])
    ring = [app(f"p{number}", "ring", near(term("ring"))) for number in range(3)]

    assert site.try_(*ring) == {"p0": "b", "p1": "b", "p2": "b"}


def test_whoever_keeps_others_away_keeps_them_away_whether_they_say_so_or_not(site: Site) -> None:
    zoned(site, *FOUR)
    loner = apart(term("noisy"))
    assert site.try_(app("quiet", "quiet", loner, **on("a"))) == {"quiet": "a"}
    assert site.try_(app("noisy", "noisy")) == {"noisy": "c"}

    assert site.try_(
        app("quiet-too", "quiet", loner),
        app("noisy-too", "noisy", {**near(term("quiet"))}),
        app("neither", "other"),
    ) == {
        "quiet-too": "b",
        "noisy-too": all_four(2, NOT_NEAR, f", 2 {UNWELCOME}"),
        "neither": "d",
    }
    assert site.try_(app("third", "quiet", apart(term("noisy"), term("quiet")))) == {
        "third": all_four(4, NOT_APART),
    }
    assert site.why("third").endswith(
        " preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod."
    )


def test_one_to_a_node_leaves_those_over_that_are_too_many(site: Site) -> None:
    zoned(site, *FOUR)
    assert site.try_(*(app(f"p{number}", "one", apart(term("one", HOST))) for number in range(5))) == {
        "p0": "a",
        "p1": "b",
        "p2": "c",
        "p3": "d",
        "p4": all_four(4, NOT_APART),
    }
    site.remove("p2")
    site.comes("p4", "c")


def test_pods_of_other_namespaces_count_if_they_are_named_or_chosen(site: Site) -> None:
    zoned(site, *FOUR)
    other = site.kubectl.apart("other")
    other("label", "namespace", other.namespace, f"team={site.kubectl.namespace}")
    site.pods(app("db", "db"), namespace=other.namespace)
    other("wait", "--for=condition=PodScheduled", "pod/db", TIMEOUT)

    named = term("db", HOST, namespaces=[other.namespace])
    selected = term("db", HOST, namespaceSelector={"matchLabels": {"team": site.kubectl.namespace}})
    assert site.try_(
        app("own", "web", near(term("db"))),
        app("named", "web", near(named)),
        app("selected", "web", near(selected)),
        app("all", "web", near(term("db", HOST, namespaceSelector={}))),
        app("away", "web", apart(selected)),
        app("none", "web", near(term("db", namespaceSelector={"matchLabels": {"team": "nobody"}}))),
    ) == {
        "own": all_four(4, NOT_NEAR),
        "named": "a",
        "selected": "a",
        "all": "a",
        "away": "b",
        "none": all_four(4, NOT_NEAR),
    }
    # A namespace that comes to be chosen helps as well.
    other("label", "namespace", other.namespace, "team=nobody", "--overwrite")
    site.comes("none", "b")
    other("delete", "namespace", other.namespace, "--wait=false")


def test_labels_of_others_that_change_let_in_who_waited_for_that(site: Site) -> None:
    zoned(site, *FOUR[:2])
    assert site.try_(
        app("noise", "noise", **on("a")),
        app("away", "web", apart(term("noise"))),
        app("near", "web", near(term("music", HOST))),
    ) == {
        "noise": "a",
        "away": f"0/2 nodes are available: 2 {NOT_APART}.",
        "near": f"0/2 nodes are available: 2 {NOT_NEAR}.",
    }
    site.kubectl("label", "pod", "noise", "app=music", "--overwrite")
    site.comes("near", "a")
    site.comes("away", "b")


@pytest.mark.parametrize(
    ("theirs", "its", "reason"),
    [
        pytest.param(apart(term("noise")), None, NOT_APART, id="who stay away from it"),
        pytest.param(None, apart(term("web")), UNWELCOME, id="whom it keeps away"),
    ],
)
def test_who_goes_from_a_full_node_lets_in_all(site: Site, theirs: Any, its: Any, reason: str) -> None:
    """As many as there is room for in its zone, not only where it was."""
    zoned(site, *FOUR[:2])
    site.pods(app("filler", "other", requests={"cpu": "3900m"}, nodeName="a"))
    assert site.try_(app("noise", "noise", its, **on("a"))) == {"noise": "a"}
    why = f"0/2 nodes are available: 1 Insufficient cpu, 1 {reason}."
    waiting = [app(f"p{number}", "web", theirs, requests={"cpu": "1"}) for number in range(4)]
    assert site.try_(*waiting) == dict.fromkeys(("p0", "p1", "p2", "p3"), why)

    site.remove("noise")
    for number in range(4):
        site.comes(f"p{number}", "b")


def test_preferred_neighbours_are_weighed_against_those_to_avoid(site: Site) -> None:
    zoned(site, *FOUR)
    assert site.try_(app("db", "db", **on("a")), app("noise", "noise", **on("c"))) == {"db": "a", "noise": "c"}

    to_db, from_noise = term("db"), term("noise")
    assert site.try_(
        app("likes", "web", liking("podAffinity", (10, to_db))),
        app("avoids", "web", liking("podAntiAffinity", (10, from_noise))),
        app("heavier", "web", liking("podAffinity", (10, to_db), (90, from_noise))),
        app("alone", "web", liking("podAntiAffinity", (10, term("db", HOST)), (5, from_noise))),
    ) == {"likes": "b", "avoids": "a", "heavier": "d", "alone": "b"}


# Spreading


def even(of: str, key: str = "zone", skew: int = 1, **more: Any) -> dict[str, Any]:
    hard = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": chosen(of)}
    return {"topologySpreadConstraints": [hard | more]}


def test_no_zone_gets_further_ahead_than_its_skew(site: Site) -> None:
    zoned(site, *FOUR, ("e", ""))
    site.kubectl("cordon", "c", "d")
    assert site.try_(*(app(f"p{number}", "even", **even("even")) for number in range(2))) == {
        "p0": "a",
        "p1": (
            f"0/5 nodes are available: 1 {UNEVEN} (missing required label), 2 {UNEVEN}, 2 node(s) were unschedulable."
        ),
    }
    assert site.try_(app("wide", "even", **even("even", skew=2)), app("other", "other", **even("even", skew=2))) == {
        "wide": "b",
        "other": "a",  # is not counted itself
    }
    site.kubectl("uncordon", "d")
    site.comes("p1", "d")


def test_as_a_wish_it_spreads_and_keeps_nobody_out(site: Site) -> None:
    zoned(site, ("a", "x"), ("b", "x"), ("c", "y"))
    wish = even("even", whenUnsatisfiable="ScheduleAnyway")
    found = site.try_(*(app(f"p{number}", "even", **wish) for number in range(4)))
    assert [*found.values()] == ["a", "c", "b", "c"]

    site.kubectl("cordon", "c")
    assert site.try_(app("more", "even", **wish)) == {"more": "a"}


def test_with_min_domains_places_that_do_not_exist_yet_count_as_empty(site: Site) -> None:
    zoned(site, *FOUR)
    some = [app(f"p{number}", "even", **even("even", minDomains=3)) for number in range(3)]
    assert site.try_(*some) == {"p0": "a", "p1": "c", "p2": all_four(4, UNEVEN)}

    zoned(site, ("e", "z"))
    site.comes("p2", "e")


def test_taints_and_affinity_limit_the_places_if_they_are_to(site: Site) -> None:
    site.nodes(a_node("a", labels={"zone": "x"}), a_node("c", taint("a=b:NoSchedule"), labels={"zone": "y"}))
    tainted, unselected = "node(s) had untolerated taint {a: b}", "node(s) didn't match Pod's node affinity/selector"

    assert site.try_(
        app("first", "even", **even("even")),
        app("ignores-taints", "even", **even("even")),  # so y is a place, and an empty one
        app("honors-taints", "even", **even("even", nodeTaintsPolicy="Honor")),
    ) == {
        "first": "a",
        "ignores-taints": f"0/2 nodes are available: 1 {UNEVEN}, 1 {tainted}.",
        "honors-taints": "a",
    }
    zoned(site, ("d", "z"))
    there = {"nodeSelector": {"zone": "x"}}
    wide = even("even", skew=2, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor")
    assert site.try_(
        app("honors-affinity", "even", **even("even", nodeTaintsPolicy="Honor"), **there),
        app("ignores-affinity", "even", **wide, **there),
    ) == {
        "honors-affinity": "a",
        "ignores-affinity": f"0/3 nodes are available: 1 {unselected}, 1 {UNEVEN}, 1 {tainted}.",
    }


def test_label_keys_keep_apart_what_belongs_to_different_runs(site: Site) -> None:
    zoned(site, ("a", "x"), ("c", "y"))
    site.kubectl("cordon", "c")  # and so y stays empty

    def run(name: str, number: str) -> dict[str, Any]:
        return a_pod(name, {"app": "even", "run": number}, **even("even", matchLabelKeys=["run"]))

    assert site.try_(run("old", "1"), run("new", "2"), run("newer", "2")) == {
        "old": "a",
        "new": "a",
        "newer": f"0/2 nodes are available: 1 {UNEVEN}, 1 node(s) were unschedulable.",
    }
