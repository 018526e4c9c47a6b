"""Filters of a node by itself and by what is free on it, with kube-scheduler's messages."""

import pytest
from msgspec.structs import replace

from app.kinds.core.node import Node, Taint
from app.kinds.pod.affinity import Toleration
from app.kinds.pod.container import ContainerPort
from app.kinds.pod.pod import Pod
from app.plans.nodes.tolerations import tolerates
from app.scheduler.filters import AFFINITY_TERMS_CONFLICT, NODE_AFFINITY_MISMATCH, NODE_NAME_MISMATCH, PORTS_TAKEN
from tests.scheduler.cluster import a_cluster, a_node, a_pod, hints, on, placed, wanting, why, why_on

GPU = Taint(key="gpu", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("pod", "node", "expected"),
    [
        pytest.param(a_pod(), a_node(), "", id="asks for nothing"),
        pytest.param(a_pod(cpu="4"), a_node(), "", id="asks for all there is"),
        pytest.param(a_pod(cpu="4001m"), a_node(), "1 Insufficient cpu", id="too much cpu"),
        pytest.param(a_pod(memory="9Gi"), a_node(), "1 Insufficient memory", id="too much memory"),
        pytest.param(a_pod(gpu="1"), a_node(), "1 Insufficient gpu", id="a resource that the node has not"),
        pytest.param(a_pod(gpu="1"), a_node(gpu="1"), "", id="a resource that it has"),
        pytest.param(a_pod(gpu="0"), a_node(), "", id="none of a resource that it has not"),
        pytest.param(a_pod(), a_node(pods="0"), "1 Too many pods", id="no place for a pod"),
        pytest.param(
            a_pod(cpu="9", memory="9Gi"), a_node(), "1 Insufficient cpu, 1 Insufficient memory", id="both too much"
        ),
        pytest.param(a_pod(), a_node(spec={"unschedulable": True}), "1 node(s) were unschedulable", id="cordoned"),
        pytest.param(
            a_pod(), a_node(spec={"taints": (GPU,)}), "1 node(s) had untolerated taint {gpu: yes}", id="tainted"
        ),
        pytest.param(
            a_pod(),
            a_node(spec={"taints": (replace(GPU, effect="PreferNoSchedule"),)}),
            "",
            id="tainted with a mere preference",
        ),
        pytest.param(
            a_pod(spec={"tolerations": (Toleration(key="gpu", value="yes"),)}),
            a_node(spec={"taints": (GPU,)}),
            "",
            id="tainted and tolerated",
        ),
        pytest.param(
            a_pod(spec={"node_selector": {"disk": "ssd"}}),
            a_node(labels={"disk": "hdd"}),
            "1 node(s) didn't match Pod's node affinity/selector",
            id="another label",
        ),
        pytest.param(
            a_pod(spec={"node_selector": {"disk": "ssd"}}), a_node(labels={"disk": "ssd"}), "", id="the label it wants"
        ),
    ],
)
def test_one_pod_and_one_node(pod: Pod, node: Node, expected: str) -> None:
    outcome = placed([pod], [node])

    assert why(outcome) == ([f"0/1 nodes are available: {expected}."] if expected else [])
    assert len(outcome.bound) == (0 if expected else 1)


@pytest.mark.parametrize(
    ("pod", "fits"),
    [
        pytest.param(wanting(("zone", "In", ("a", "b"))), True, id="in"),
        pytest.param(wanting(("zone", "In", ("c",))), False, id="not among"),
        pytest.param(wanting(("zone", "NotIn", ("c",))), True, id="not in"),
        pytest.param(wanting(("absent", "NotIn", ("c",))), True, id="not in, for want of the label"),
        pytest.param(wanting(("zone", "Exists", ())), True, id="exists"),
        pytest.param(wanting(("zone", "DoesNotExist", ())), False, id="does not exist"),
        pytest.param(wanting(("cores", "Gt", ("7",))), True, id="greater"),
        pytest.param(wanting(("cores", "Gt", ("8",))), False, id="not greater"),
        pytest.param(wanting(("cores", "Lt", ("9",))), True, id="less"),
        pytest.param(wanting(("zone", "Gt", ("1",))), False, id="no number"),
        pytest.param(wanting(("cores", "Gt", ("0_1",))), False, id="a number to Python only"),
        pytest.param(wanting(("cores", "Lt", ("9" * 20,))), False, id="a number too large for 64 bits"),
        pytest.param(wanting(("zone", "In", ("a",)), ("cores", "Gt", ("9",))), False, id="only one of two"),
        pytest.param(wanting(("metadata.name", "In", ("n1",)), field=True), True, id="the node itself"),
        pytest.param(wanting(("metadata.name", "In", ("n2",)), field=True), False, id="another node"),
        pytest.param(wanting(), False, id="an empty term, which selects nothing"),
    ],
)
def test_node_affinity(pod: Pod, fits: bool) -> None:
    node = a_node(labels={"zone": "a", "cores": "8"})

    affinity = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    by_name = any(term.match_fields for term in affinity.node_selector_terms)
    refused = NODE_NAME_MISMATCH if by_name else NODE_AFFINITY_MISMATCH
    assert why_on(pod, node) == ("" if fits else refused)


def test_two_names_at_once_are_a_fault_of_the_pod() -> None:
    both = wanting(("metadata.name", "In", ("n1",)), ("metadata.name", "In", ("n2",)), field=True)

    assert why_on(both, a_node()) == AFFINITY_TERMS_CONFLICT


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param(Toleration(key="gpu", value="yes", effect="NoSchedule"), True, id="all equal"),
        pytest.param(Toleration(key="gpu", operator="Equal", value="yes"), True, id="any effect"),
        pytest.param(Toleration(key="gpu", operator="Exists"), True, id="any value"),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(Toleration(key="gpu", value="no"), False, id="another value"),
        pytest.param(Toleration(key="tpu", operator="Exists"), False, id="another key"),
        pytest.param(Toleration(key="gpu", operator="Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration(), False, id="nothing at all"),
    ],
)
def test_tolerations(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(toleration, GPU) is tolerated


def listening(name: str = "p", port: int = 80, ip: str = "", protocol: str = "TCP") -> Pod:
    return a_pod(name, ports=[ContainerPort(container_port=80, host_port=port, host_ip=ip, protocol=protocol)])


@pytest.mark.parametrize(
    ("there", "newcomer", "free"),
    [
        pytest.param(listening("q"), listening(), False, id="the same port"),
        pytest.param(listening("q", 81), listening(), True, id="another port"),
        pytest.param(listening("q", protocol="UDP"), listening(), True, id="the same number of another protocol"),
        pytest.param(listening("q", ip="10.0.0.1"), listening(ip="10.0.0.1"), False, id="at the same address"),
        pytest.param(listening("q", ip="10.0.0.1"), listening(ip="10.0.0.2"), True, id="at another address"),
        pytest.param(listening("q"), listening(ip="10.0.0.1"), False, id="taken at every address"),
        pytest.param(listening("q", ip="10.0.0.1"), listening(), False, id="wanted at every address"),
        pytest.param(listening("q"), listening(ip="0.0.0.0"), False, id="at 0.0.0.0, which is every address"),
        pytest.param(listening("q"), a_pod(), True, id="wanted by nobody else"),
    ],
)
def test_host_ports(there: Pod, newcomer: Pod, free: bool) -> None:
    assert why_on(newcomer, a_node(), there) == ("" if free else PORTS_TAKEN)


def test_a_port_that_is_given_back_is_free() -> None:
    cluster = a_cluster([a_node()], {"n1": [listening("q")]})
    assert on(cluster, [listening()]).bound == []

    cluster.unplace("uid-of-default-q")

    assert len(on(cluster, [listening()]).bound) == 1


# --- what would have to change


BUSY = {"n1": [a_pod("a", cpu="3", memory="2Gi")], "n2": [a_pod("b", cpu="2", memory="7Gi")]}
CORDONED = {"unschedulable": True}


@pytest.mark.parametrize(
    ("pod", "nodes", "expected"),
    [
        pytest.param(
            a_pod(cpu="4"),
            [a_node(), a_node("n2")],
            "Fits if a node has 4 free CPUs: the most free is 2 on n2.",
            id="too full",
        ),
        pytest.param(
            a_pod(cpu="1500m", memory="7Gi"),
            [a_node(), a_node("n2")],
            "Fits if a node has 1500m free CPUs and 7Gi of free memory: the nearest is 1 and 6Gi on n1.",
            id="too full of two",
        ),
        pytest.param(
            a_pod(cpu="9"),
            [a_node(), a_node("n2", cpu="8")],
            "Fits if a node with 9 CPUs joins, or the pod requests less: the largest is n2 with 8.",
            id="too small",
        ),
        pytest.param(
            a_pod(**{"nvidia.com/gpu": "1"}),
            [a_node()],
            "Fits if a node with 1 of nvidia.com/gpu joins, or the pod requests less: the largest is n1 with 0.",
            id="no such device",
        ),
        pytest.param(
            a_pod(), [a_node(pods="1")], "Fits if a pod ends on n1, which has as many as it may.", id="pods enough"
        ),
        pytest.param(
            a_pod(cpu="3"),
            [a_node(), a_node("n3", spec=CORDONED)],
            "Fits if a node has 3 free CPUs: the most free is 1 on n1; or if n3 is uncordoned.",
            id="full and cordoned",
        ),
        pytest.param(
            a_pod(),
            [a_node("n3", spec={"taints": (GPU,)})],
            "Fits if the taint {gpu: yes} of n3 goes, or the pod tolerates it.",
            id="tainted",
        ),
        pytest.param(
            a_pod(spec={"node_selector": {"disk": "ssd"}}),
            [a_node("n3", cpu="1"), a_node("n4", labels={"disk": "hdd"})],
            "Fits if n3, which has room, has the label disk=ssd.",
            id="another label",
        ),
        pytest.param(
            a_pod(spec={"node_selector": {"disk": "ssd"}}), [a_node("n3", spec=CORDONED)], "", id="two things at once"
        ),
        pytest.param(
            wanting(("zone", "In", ("a",))),
            [a_node("n3")],
            "Fits if the pod's node affinity allows n3, which has room.",
            id="affinity",
        ),
        pytest.param(a_pod(cpu="3"), [a_node("n3", spec=CORDONED, cpu="2")], "", id="cordoned, and too small anyway"),
        pytest.param(
            a_pod(ports=(ContainerPort(container_port=80, host_port=80),)),
            [a_node("n5")],
            "Fits if host port 80 is free on n5.",
            id="a port that is taken",
        ),
    ],
)
def test_what_would_have_to_change(pod: Pod, nodes: list[Node], expected: str) -> None:
    taken = a_pod("c", ports=(ContainerPort(container_port=80, host_port=80),))
    there = {name: pods for name, pods in (BUSY | {"n5": [taken]}).items() if name in {n.metadata.name for n in nodes}}

    outcome = placed([pod], nodes, there)

    assert hints(outcome) == [expected]
    (text,) = [diagnosis.text() for _, diagnosis in outcome.unbound]
    assert text.startswith(f"0/{len(nodes)} nodes are available: ")
    assert text.endswith(expected)


def test_the_change_that_a_hint_names_is_enough() -> None:
    """For each kind of hint: the pod fits once it is done."""
    tainted, cordoned = a_node("n3", spec={"taints": (GPU,)}), a_node("n3", spec=CORDONED)
    for pod, before, after in (
        (a_pod(), tainted, a_node("n3")),
        (a_pod(), cordoned, a_node("n3")),
        (a_pod(spec={"node_selector": {"disk": "ssd"}}), a_node("n3"), a_node("n3", labels={"disk": "ssd"})),
        (a_pod(cpu="9"), a_node("n3"), a_node("n3", cpu="9")),
    ):
        assert hints(placed([pod], [before])) != [""]
        assert placed([pod], [after]).bound
