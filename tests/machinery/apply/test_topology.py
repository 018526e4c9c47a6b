"""How parts of objects are owned and merged: what Kubernetes' schemas say of each."""

import pytest

from app.kinds.batch.job import KIND as JOBS
from app.kinds.core.node import KIND as NODES
from app.kinds.pod.pod import KIND as PODS
from app.machinery.apply.topology import Topology, topology_of


def at(type_: type, path: str) -> Topology:
    found = topology_of(type_)
    for name in path.split("."):
        found = found.members[name].topology if name in found.members else found.item or found
    return found


CONTAINER = "spec.containers.*"


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        pytest.param("spec.containers", {"name": ""}, id="containers by name"),
        pytest.param(f"{CONTAINER}.ports", {"containerPort": 0, "protocol": "TCP"}, id="ports by number and protocol"),
        pytest.param(f"{CONTAINER}.env", {"name": ""}, id="variables by name"),
        pytest.param(f"{CONTAINER}.volumeMounts", {"mountPath": ""}, id="mounts by path"),
        pytest.param(f"{CONTAINER}.resources.claims", {"name": ""}, id="claims by name"),
        pytest.param("spec.volumes", {"name": ""}, id="volumes by name"),
        pytest.param(
            "spec.topologySpreadConstraints",
            {"topologyKey": "", "whenUnsatisfiable": ""},
            id="spread constraints by key and what they do",
        ),
        pytest.param("spec.hostAliases", {"ip": ""}, id="aliases by address"),
        pytest.param("metadata.ownerReferences", {"uid": ""}, id="owners by uid"),
        pytest.param("status.conditions", {"type": ""}, id="conditions by type"),
    ],
)
def test_lists_of_a_pod_are_merged_by_their_keys(path: str, keys: dict[str, object]) -> None:
    topology = at(PODS.type, path)

    assert topology.sort == "list"
    assert dict(topology.keys) == keys


@pytest.mark.parametrize(
    "path",
    [
        "spec.tolerations",
        "spec.nodeSelector",
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        "spec.dnsConfig.nameservers",
        f"{CONTAINER}.command",
        f"{CONTAINER}.envFrom",
        f"{CONTAINER}.env.*.valueFrom.secretKeyRef",
        f"{CONTAINER}.securityContext.capabilities.add",
        "spec.imagePullSecrets.*",
        "status.hostIPs",
    ],
)
def test_parts_of_a_pod_are_one_thing(path: str) -> None:
    assert at(PODS.type, path).sort == "leaf"


def test_other_kinds_have_atoms_and_sets_too() -> None:
    assert at(JOBS.type, "spec.selector").sort == "leaf"
    assert at(JOBS.type, "spec.podFailurePolicy.rules").sort == "leaf"
    assert at(JOBS.type, "status.uncountedTerminatedPods.succeeded").sort == "set"
    assert at(NODES.type, "spec.taints").sort == "leaf"
    assert at(NODES.type, "spec.podCIDRs").sort == "set"
    assert at(NODES.type, "metadata.finalizers").sort == "set"
    assert at(NODES.type, "metadata.labels").sort == "map"
