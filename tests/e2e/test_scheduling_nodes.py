"""Which nodes a pod may be on for what they are: names, labels, taints, cordons. As kubectl shows it."""

from typing import Any

import pytest

from tests.e2e.cluster import until
from tests.e2e.kubectl import SECONDS, words
from tests.e2e.scheduling import Site, a_node, a_pod, taint

UNSELECTED = "node(s) didn't match Pod's node affinity/selector"
UNHELPFUL = "Preemption is not helpful for scheduling"


def demand(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": [*values]} if values else {})}


def requiring(*demands: dict[str, Any], fields: bool = False, alternatives: tuple[dict[str, Any], ...] = ()) -> Any:
    """An affinity to nodes that meet all of these, or one of the alternatives."""
    terms = [{"matchFields" if fields else "matchExpressions": [*demands]}, *alternatives]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def preferring(*wishes: tuple[int, dict[str, Any]]) -> Any:
    some = [{"weight": weight, "preference": {"matchExpressions": [each]}} for weight, each in wishes]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": some}}


def test_a_pod_that_names_its_node_is_not_scheduled(site: Site) -> None:
    site.nodes(a_node("a"), a_node("b", taint("a=b:NoSchedule"), cpu="1"))
    site.pods(a_pod("named", requests={"cpu": "8"}, nodeName="b"))

    shown = words(site.kubectl("describe", "pod", "named"))
    assert "Node: b/\n" in shown
    assert "Scheduled" not in shown.partition("Events:")[2]
    # But it takes its room.
    site.kubectl("taint", "node", "b", "a-")
    chosen = site.try_(a_pod("next", requests={"cpu": "500m"}, nodeSelector={"kubernetes.io/hostname": "b"}))
    assert chosen == {"next": f"0/2 nodes are available: 1 Insufficient cpu, 1 {UNSELECTED}."}


def test_a_node_selector_wants_every_label(site: Site) -> None:
    labels = {"a": {"disk": "ssd"}, "b": {"disk": "ssd", "zone": "z"}, "c": {"zone": "z"}}
    site.nodes(*(a_node(name, labels=some) for name, some in labels.items()))

    assert site.try_(
        a_pod("both", nodeSelector={"disk": "ssd", "zone": "z"}),
        a_pod("neither", nodeSelector={"disk": "ssd", "zone": "y"}),
    ) == {"both": "b", "neither": f"0/3 nodes are available: 3 {UNSELECTED}."}


def test_required_affinity_knows_every_operator(site: Site) -> None:
    some: list[dict[str, str]] = [{"disk": "ssd", "cores": "4"}, {"disk": "hdd", "cores": "16"}, {"cores": "many"}]
    site.nodes(*(a_node(name, labels=labels) for name, labels in zip("abc", some, strict=True)))
    two = {"matchExpressions": [demand("disk", "In", "hdd")]}
    asked = {
        "in": (requiring(demand("disk", "In", "tape", "hdd")), "b"),
        "not-in": (requiring(demand("disk", "NotIn", "ssd", "hdd")), "c"),  # also without the label
        "exists": (requiring(demand("disk", "Exists"), demand("cores", "Lt", "16")), "a"),
        "does-not-exist": (requiring(demand("disk", "DoesNotExist")), "c"),
        "gt": (requiring(demand("cores", "Gt", "4")), "b"),
        "lt": (requiring(demand("cores", "Lt", "16")), "a"),  # what is no number is neither
        "field": (requiring(demand("metadata.name", "In", "c"), fields=True), "c"),
        "not-field": (
            requiring(demand("metadata.name", "NotIn", "a"), demand("metadata.name", "NotIn", "b"), fields=True),
            "c",
        ),
        "either": (requiring(demand("disk", "In", "tape"), alternatives=(two,)), "b"),
    }

    assert site.try_(*(a_pod(name, affinity=affinity) for name, (affinity, _) in asked.items())) == {
        name: node for name, (_, node) in asked.items()
    }


@pytest.mark.parametrize(
    ("affinity", "why"),
    [
        pytest.param(requiring(demand("disk", "Gt", "3")), f"1 Insufficient cpu, 1 {UNSELECTED}.", id="by-label"),
        pytest.param(
            requiring(demand("metadata.name", "In", "a"), fields=True),
            "1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity].",
            id="by-name",
        ),
        pytest.param(
            requiring(demand("metadata.name", "In", "nowhere"), fields=True),
            "2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
            id="by-the-name-of-no-node",
        ),
        pytest.param(
            requiring(demand("metadata.name", "In", "a"), demand("metadata.name", "In", "b"), fields=True),
            "pod affinity terms conflict.",
            id="by-two-names",
        ),
    ],
)
def test_whom_affinity_leaves_no_node_hears_it_as_in_kubernetes(site: Site, affinity: Any, why: str) -> None:
    site.nodes(a_node("a", labels={"disk": "4"}), a_node("b"))

    site.pods(a_pod("large", affinity=affinity, requests={"cpu": "8"}))

    whole = f"0/2 nodes are available: {why} preemption: 0/2 nodes are available: 2 {UNHELPFUL}."
    assert site.why("large") == whole


def test_of_preferred_labels_the_weight_decides(site: Site) -> None:
    some = {"a": {}, "b": {"light": "", "small": ""}, "c": {"heavy": ""}}
    site.nodes(*(a_node(name, labels=labels) for name, labels in some.items()))
    small, light, heavy = (
        (weight, demand(key, "Exists")) for weight, key in ((30, "small"), (30, "light"), (50, "heavy"))
    )

    assert site.try_(
        a_pod("one", affinity=preferring(light, heavy)),
        a_pod("two", affinity=preferring(light, heavy, small)),
        a_pod("none", affinity=preferring((100, demand("nobody", "Exists"))), requests={"cpu": "3"}),
    ) == {"one": "c", "two": "b", "none": "a"}


def test_taints_keep_out_who_does_not_tolerate_them(site: Site) -> None:
    site.nodes(
        a_node("a", taint("team=red:NoSchedule"), taint("old=yes:NoSchedule")),
        a_node("b", taint("team=red:NoExecute")),
        a_node("c", taint("gpu:NoSchedule")),
    )

    def bearing(name: str, *tolerations: dict[str, str]) -> dict[str, Any]:
        return a_pod(name, tolerations=[*tolerations])

    said = "0/3 nodes are available: {}."
    red, gpu = "node(s) had untolerated taint {team: red}", "node(s) had untolerated taint {gpu: }"
    assert site.try_(
        bearing("none"),
        bearing("gpu", {"key": "gpu", "operator": "Exists"}),
        bearing("effect", {"key": "team", "value": "red", "effect": "NoSchedule"}),
        bearing("value", {"key": "team", "value": "blue"}),
        bearing("red", {"key": "team", "value": "red"}),
    ) == {
        "none": said.format(f"1 {gpu}, 2 {red}"),
        "gpu": "c",
        "effect": said.format(f"1 {gpu}, 1 node(s) had untolerated taint {{old: yes}}, 1 {red}"),
        "value": said.format(f"1 {gpu}, 2 {red}"),
        "red": "b",
    }
    site.kubectl("taint", "node", "a", "old-", "team-")
    site.comes("none", "a")


def test_a_taint_that_only_asks_to_stay_away_is_heeded_as_long_as_there_is_room_elsewhere(site: Site) -> None:
    site.nodes(a_node("a", taint("slow=yes:PreferNoSchedule")), a_node("b", cpu="1"))
    half = {"cpu": "500m"}
    patient = {"key": "slow", "operator": "Exists"}

    assert site.try_(*(a_pod(name, requests=half) for name in ("p", "q"))) == {"p": "b", "q": "b"}
    assert site.try_(a_pod("r", requests=half), a_pod("s", tolerations=[patient])) == {"r": "a", "s": "a"}


def test_a_taint_that_executes_also_drives_out_who_is_there(site: Site) -> None:
    site.nodes(a_node("a"))
    maintenance = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute"}
    assert site.try_(a_pod("stays", tolerations=[maintenance]), a_pod("goes")) == {"stays": "a", "goes": "a"}

    site.kubectl("taint", "node", "a", "maintenance=now:NoExecute")

    until(lambda: "deletionTimestamp" in site.pod("goes")["metadata"], SECONDS, "one goes")
    shown = words(site.kubectl("describe", "pod", "goes"))
    assert "Status: Terminating" in shown
    assert "DisruptionTarget True" in shown
    assert "TaintManagerEviction" in shown
    assert "deletionTimestamp" not in site.pod("stays")["metadata"]
    why = "0/1 nodes are available: 1 node(s) had untolerated taint {maintenance: now}."
    assert site.try_(a_pod("comes")) == {"comes": why}


def test_a_cordoned_node_gets_nobody_until_it_is_uncordoned(site: Site) -> None:
    site.nodes(a_node("a"), a_node("b", taint("a=b:NoSchedule")))
    assert "node/a cordoned" in site.kubectl("cordon", "a")
    cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}

    why = "0/2 nodes are available: 1 node(s) had untolerated taint {a: b}, 1 node(s) were unschedulable."
    assert site.try_(a_pod("waits"), a_pod("bears", tolerations=[cordon])) == {"waits": why, "bears": "a"}
    assert "Ready,SchedulingDisabled" in site.kubectl("get", "node", "a")

    site.kubectl("uncordon", "a")
    site.comes("waits", "a")
