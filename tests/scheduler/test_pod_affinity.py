"""Pod affinity and anti-affinity: required and preferred, of incoming pods and of pods on nodes."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.machinery.base import LabelSelector
from app.scheduler import pod_info_of
from app.scheduler.pod_affinity import AFFINITY_MISMATCH, ANTI_AFFINITY_MISMATCH, EXISTING_ANTI_AFFINITY_MISMATCH
from tests.build import NOW
from tests.scheduler.cluster import (
    a_cluster,
    a_node,
    a_pod,
    apart,
    counts,
    likes,
    many,
    near,
    on,
    placed,
    term,
    where,
    why,
    why_on,
)

WEB = {"app": "web"}
ZONES = [a_node("n1", {"zone": "a"}), a_node("n2", {"zone": "a"}), a_node("n3", {"zone": "b"})]


def web(name: str = "web", **more: Any) -> Pod:
    return a_pod(name, labels=WEB, **more)


@pytest.mark.parametrize(
    ("pod", "nodes"),
    [
        pytest.param(a_pod(spec=near(term(app="web"))), {"n1"}, id="on its node"),
        pytest.param(a_pod(spec=near(term("zone", app="web"))), {"n1", "n2"}, id="in its zone"),
        pytest.param(a_pod(spec=near(term("zone", app="db"))), set(), id="there is none"),
        pytest.param(a_pod(spec=near(term("rack", app="web"))), set(), id="the label that makes a place is missing"),
        pytest.param(a_pod(spec=near(term("zone", app="web"), term(app="web"))), {"n1"}, id="both terms hold"),
        pytest.param(a_pod(spec=near(term("zone", app="web"), term(app="db"))), set(), id="one term does not hold"),
        pytest.param(a_pod(spec=near(term("zone", app="web")), namespace="other"), set(), id="in another namespace"),
        pytest.param(
            a_pod(spec=near(term("zone", ["default"], app="web")), namespace="other"), {"n1", "n2"}, id="by namespace"
        ),
        pytest.param(a_pod(spec=apart(term(app="web"))), {"n2", "n3"}, id="away from its node"),
        pytest.param(a_pod(spec=apart(term("zone", app="web"))), {"n3"}, id="away from its zone"),
        pytest.param(a_pod(spec=apart(term("rack", app="web"))), {"n1", "n2", "n3"}, id="away, without such places"),
        pytest.param(a_pod(spec=apart(term("zone", app="db"))), {"n1", "n2", "n3"}, id="away from nobody"),
    ],
)
def test_where_a_pod_may_go_while_another_is_on_n1(pod: Pod, nodes: set[str]) -> None:
    cluster = a_cluster(ZONES, {"n1": [web()]})

    assert {name for name in cluster.node_infos if not cluster.filter_reasons(pod, pod_info_of(pod), name)} == nodes


@pytest.mark.parametrize(
    ("pod", "node", "there", "text"),
    [
        pytest.param(a_pod(spec=near(term(app="web"))), a_node(), [], AFFINITY_MISMATCH, id="nobody to be near"),
        pytest.param(
            a_pod(spec=apart(term(app="web"))), a_node(), [web()], ANTI_AFFINITY_MISMATCH, id="somebody to be away from"
        ),
        pytest.param(
            web(), a_node(), [a_pod("q", spec=apart(term(app="web")))], EXISTING_ANTI_AFFINITY_MISMATCH, id="unwelcome"
        ),
        pytest.param(
            web("p", spec=apart(term(app="web"))),
            a_node(),
            [web("q", spec=apart(term(app="web")))],
            ANTI_AFFINITY_MISMATCH,
            id="both",
        ),
        pytest.param(a_pod(), a_node(), [a_pod("q", spec=apart(term(app="web")))], "", id="others are unwelcome"),
    ],
)
def test_the_texts_are_those_of_kubernetes(pod: Pod, node: Node, there: list[Pod], text: str) -> None:
    assert why_on(pod, node, *there) == text


def test_the_first_of_those_that_are_near_each_other_may_go_anywhere_and_the_others_follow() -> None:
    pods = many(5, labels=WEB, spec=near(term("zone", app="web")), cpu="1")

    outcome = placed(pods, ZONES)

    assert set(counts(outcome)) == {"n1", "n2"}
    assert outcome.unbound == []


def test_the_first_may_not_go_where_there_are_no_such_places() -> None:
    outcome = placed([web(spec=near(term("zone", app="web")))], [a_node()])

    assert why(outcome) == [f"0/1 nodes are available: 1 {AFFINITY_MISMATCH}."]


def test_a_pod_that_comes_too_early_is_tried_again_when_the_other_has_its_place() -> None:
    outcome = placed([a_pod("p", spec=near(term("zone", app="web"))), web()], ZONES)

    assert set(where(outcome)) == {"p", "web"}


def test_one_to_a_node() -> None:
    outcome = placed(many(5, labels=WEB, spec=apart(term(app="web"))), ZONES)

    assert counts(outcome) == {"n1": 1, "n2": 1, "n3": 1}
    assert why(outcome) == [f"0/3 nodes are available: 3 {ANTI_AFFINITY_MISMATCH}."] * 2


def test_of_two_that_exclude_each_other_the_second_stays_out_whoever_says_so() -> None:
    for pods in ([web(), a_pod("p", spec=apart(term(app="web")))], [a_pod("p", spec=apart(term(app="web"))), web()]):
        outcome = placed(pods, [a_node()])

        assert list(where(outcome)) == [pods[0].metadata.name]


def test_a_pod_that_is_gone_keeps_nobody_out() -> None:
    cluster = a_cluster([a_node()], {"n1": [a_pod("q", spec=apart(term(app="web")))]})
    assert on(cluster, [web()]).bound == []

    cluster.unplace("uid-of-default-q")

    assert len(on(cluster, [web()]).bound) == 1


def test_one_that_is_being_deleted_still_does() -> None:
    leaving = web("q")
    leaving = replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp=NOW))

    assert why_on(a_pod(spec=apart(term(app="web"))), a_node(), leaving) == ANTI_AFFINITY_MISMATCH


def test_namespaces_may_be_chosen_by_their_labels() -> None:
    elsewhere = replace(term(app="web"), namespace_selector=LabelSelector(match_labels={"team": "x"}))
    pod = a_pod(spec=apart(elsewhere))
    cluster = a_cluster(
        [a_node("n1"), a_node("n2"), a_node("n3")],
        {"n1": [web(namespace="theirs")], "n2": [web(namespace="mine")], "n3": [web()]},
        namespaces={"theirs": {"team": "x"}, "mine": {}, "default": {}},
    )
    fitting = {name for name in cluster.node_infos if not cluster.filter_reasons(pod, pod_info_of(pod), name)}
    assert fitting == {"n2", "n3"}

    cluster.set_namespace("mine", {"team": "x"})

    assert {name for name in cluster.node_infos if not cluster.filter_reasons(pod, pod_info_of(pod), name)} == {"n3"}


@pytest.mark.parametrize(
    ("keys", "nodes"),
    [
        pytest.param({"match_label_keys": ("run",)}, {"n2"}, id="only those with the same value"),
        pytest.param({"mismatch_label_keys": ("run",)}, {"n1"}, id="only those with another"),
        pytest.param({"match_label_keys": ("absent",)}, set(), id="a label that the pod has not does not matter"),
    ],
)
def test_label_keys_narrow_whom_to_be_away_from(keys: dict[str, tuple[str, ...]], nodes: set[str]) -> None:
    pod = a_pod(labels={"run": "2"}, spec=apart(replace(term(app="web"), **keys)))
    there = {"n1": [a_pod("q", labels=WEB | {"run": "2"})], "n2": [a_pod("r", labels=WEB | {"run": "1"})]}
    cluster = a_cluster([a_node("n1"), a_node("n2")], there)

    assert {name for name in cluster.node_infos if not cluster.filter_reasons(pod, pod_info_of(pod), name)} == nodes


@pytest.mark.parametrize(
    ("pod", "there", "best"),
    [
        pytest.param(a_pod(spec=likes(term(app="web"))), web("q"), "n3", id="near whom it likes"),
        pytest.param(a_pod(spec=likes(term(app="web"), -100)), web("q"), "n1", id="away from whom it does not"),
        pytest.param(web(), a_pod("q", spec=likes(term(app="web"))), "n3", id="near who likes it"),
        pytest.param(web(), a_pod("q", spec=likes(term(app="web"), -100)), "n1", id="away from who does not"),
        pytest.param(web(), a_pod("q", spec=near(term(app="web"))), "n3", id="near who cannot do without"),
    ],
)
def test_of_nodes_that_do_a_pod_gets_one(pod: Pod, there: Pod, best: str) -> None:
    assert where(placed([pod], ZONES, {"n3": [there]})) == {pod.metadata.name: best}


def test_those_that_dislike_each_other_share_nodes_evenly_when_they_must() -> None:
    pods = many(6, labels=WEB, spec=likes(term(app="web"), -10))

    assert counts(placed(pods, ZONES)) == {"n1": 2, "n2": 2, "n3": 2}
