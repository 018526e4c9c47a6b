"""What objects cost, and whether that fits: tables, and sums that never exceed a limit."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.core.configmap import ConfigMap
from app.kinds.core.resourcequota import ResourceQuota, ResourceQuotaStatus
from app.kinds.core.service import Service
from app.kinds.pod.pod import Pod, PodStatus
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.machinery.quantity import add, compare
from app.plans.admission import resource_quota
from tests.build import NOW


def a_quota(hard: dict[str, Any], used: dict[str, Any] | None = None, name: str = "q", **spec: Any) -> ResourceQuota:
    """In force; nothing is used unless it is said."""
    made = msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": {"hard": hard, **spec}}, ResourceQuota)
    return replace(made, status=ResourceQuotaStatus(hard=hard, used={**dict.fromkeys(hard, "0"), **(used or {})}))


def a_pod(*containers: dict[str, Any], phase: str = "Pending", **spec: Any) -> Pod:
    listed = [{"name": name, "resources": each} for name, each in zip("abc", containers or ({},), strict=False)]
    doc = {"metadata": {"name": "p"}, "spec": {"containers": listed, **spec}, "status": {"phase": phase}}
    return msgspec.convert(doc, Pod)


def cost(pod: Pod) -> dict[str, Any]:
    return dict(resource_quota.cost_of_pod(pod).usage)


def selecting(operator: str, *values: str) -> dict[str, Any]:
    demand = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    return {"scopeSelector": {"matchExpressions": [demand]}}


ONE = {"requests": {"cpu": "500m", "nvidia.com/gpu": 1}, "limits": {"memory": "1Gi", "nvidia.com/gpu": 1}}


def test_what_a_pod_costs() -> None:
    assert cost(a_pod(ONE, ONE)) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "1",
        "requests.cpu": "1",
        "memory": "2Gi",
        "requests.memory": "2Gi",
        "limits.memory": "2Gi",
        "requests.nvidia.com/gpu": "2",
    }


def test_huge_pages_and_scratch_space_cost_something_too() -> None:
    asked = {"requests": {"hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"}}

    assert cost(a_pod(asked)).items() >= {
        ("hugepages-2Mi", "4Mi"),
        ("requests.hugepages-2Mi", "4Mi"),
        ("requests.ephemeral-storage", "1Gi"),
    }


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_has_ended_only_counts_as_an_object(phase: str) -> None:
    assert cost(a_pod(ONE, phase=phase)) == {"count/pods": "1"}


def test_what_is_going_costs_until_it_should_be_gone() -> None:
    deleted = ObjectMeta(name="p", deletion_timestamp=NOW, deletion_grace_period_seconds=30)
    each = resource_quota.cost_of_pod(replace(a_pod(ONE), metadata=deleted))

    assert each.at(NOW + timedelta(seconds=30))["pods"] == "1"
    assert each.at(NOW + timedelta(seconds=31)) == {"count/pods": "1"}


@pytest.mark.parametrize(
    ("resource", "names"),
    [
        ("configmaps", ("count/configmaps", "configmaps")),
        ("jobs.batch", ("count/jobs.batch",)),
        ("events", ()),
    ],
)
def test_other_objects_are_counted(resource: str, names: tuple[str, ...]) -> None:
    assert resource_quota.count_names(resource) == names


ABROAD = {
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "namespaces": ["other"]}]
        }
    }
}


@pytest.mark.parametrize(
    ("scopes", "spec", "covered"),
    [
        pytest.param({}, {}, True, id="no scope covers everything"),
        pytest.param({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, True, id="with a deadline"),
        pytest.param({"scopes": ["Terminating"]}, {}, False, id="without a deadline"),
        pytest.param({"scopes": ["NotTerminating"]}, {}, True, id="for ever"),
        pytest.param({"scopes": ["BestEffort"]}, {}, True, id="that asks for nothing"),
        pytest.param({"scopes": ["NotBestEffort"]}, {}, False, id="that does not ask for something"),
        pytest.param({"scopes": ["BestEffort", "Terminating"]}, {}, False, id="in one of two scopes"),
        pytest.param({"scopes": ["PriorityClass"]}, {"priorityClassName": "high"}, True, id="of any class"),
        pytest.param(selecting("In", "high"), {"priorityClassName": "high"}, True, id="of the class"),
        pytest.param(selecting("In", "high"), {}, False, id="of no class, among some"),
        pytest.param(selecting("NotIn", "high"), {"priorityClassName": "low"}, True, id="of another class"),
        pytest.param(selecting("NotIn", "high"), {}, True, id="of no class, not among some"),
        pytest.param(selecting("DoesNotExist"), {}, True, id="of no class"),
        pytest.param({"scopes": ["CrossNamespacePodAffinity"]}, ABROAD, True, id="that looks abroad"),
        pytest.param({"scopes": ["CrossNamespacePodAffinity"]}, {}, False, id="that stays at home"),
    ],
)
def test_a_quota_is_about_a_pod(scopes: dict, spec: dict, covered: bool) -> None:
    assert resource_quota.covers(a_quota({"pods": "1"}, **scopes), resource_quota.cost_of_pod(a_pod(**spec))) is covered


def test_a_quota_with_scopes_is_about_pods_only() -> None:
    quota = a_quota({"configmaps": "0"}, scopes=["NotTerminating"])

    assert resource_quota.charge([quota], "configmaps", ConfigMap()) == []


def test_what_fits_is_charged() -> None:
    quota = a_quota({"pods": "2", "cpu": "1", "secrets": "1"}, {"pods": "1", "cpu": "250m"})

    ((before, after),) = resource_quota.charge(
        [quota, a_quota({"secrets": "0"})], "pods", a_pod({"requests": {"cpu": "0.75"}})
    )

    assert before is quota
    assert after.status.used == {"pods": "2", "cpu": "1", "secrets": "0"}


@pytest.mark.parametrize(
    ("given_quotas", "pod", "why"),
    [
        pytest.param(
            [a_quota({"pods": "2"}, {"pods": "2"})],
            a_pod(),
            "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
            id="one too many",
        ),
        pytest.param(
            [a_quota({"pods": "9", "requests.memory": "1Gi", "cpu": "1"}, {"cpu": "900m"})],
            a_pod({"requests": {"cpu": "200m", "memory": "2Gi"}}),
            "exceeded quota: q, requested: cpu=200m,requests.memory=2Gi, used: cpu=900m,requests.memory=0, "
            "limited: cpu=1,requests.memory=1Gi",
            id="two resources too much",
        ),
        pytest.param(
            [a_quota({"limits.cpu": "9", "memory": "9"})],
            a_pod({}, {"requests": {"memory": "1"}}),
            "failed quota: q: must specify limits.cpu for: a,b; memory for: a",
            id="nothing said",
        ),
        pytest.param(
            [a_quota({"pods": "9"}), a_quota({"pods": "0"}, name="r")],
            a_pod(),
            "exceeded quota: r, requested: pods=1, used: pods=0, limited: pods=0",
            id="too many for the second",
        ),
    ],
)
def test_what_does_not_fit_is_refused(given_quotas: list, pod: Pod, why: str) -> None:
    with pytest.raises(ApiError) as refusal:
        resource_quota.charge(given_quotas, "pods", pod)

    assert (refusal.value.code, refusal.value.message) == (403, f'pods "p" is forbidden: {why}')


def test_a_quota_whose_use_is_unknown_refuses() -> None:
    quota = a_quota({"pods": "1"})
    unknown = replace(quota, status=replace(quota.status, used={}))

    with pytest.raises(ApiError, match="status unknown for quota: q, resources: pods"):
        resource_quota.charge([unknown], "pods", a_pod())


def test_a_quota_that_is_not_in_force_yet_charges_nothing() -> None:
    fresh = replace(a_quota({"pods": "0"}), status=ResourceQuotaStatus())

    assert resource_quota.charge([fresh], "pods", a_pod()) == []


def test_overcharged_for_one_resource_others_are_free() -> None:
    """A limit may be lowered below what is used."""
    quota = a_quota({"pods": "5", "secrets": "1"}, {"secrets": "3"})

    assert resource_quota.charge([quota], "pods", a_pod())


@given(
    limits=some.lists(some.integers(0, 9), min_size=2, max_size=2),
    used=some.lists(some.integers(0, 9), min_size=2, max_size=2),
    cpu=some.integers(0, 3),
    wanted=some.integers(0, 12),
)
def test_as_many_fit_as_could_be_charged_one_by_one(limits: list[int], used: list[int], cpu: int, wanted: int) -> None:
    names = ("pods", "cpu")
    quota = a_quota(dict(zip(names, map(str, limits), strict=True)), dict(zip(names, map(str, used), strict=True)))
    pod = a_pod({"requests": {"cpu": cpu}})

    count, now = 0, quota
    while count < wanted:
        try:
            ((_, now),) = resource_quota.charge([now], "pods", pod)
        except ApiError:
            break
        count += 1

    each = resource_quota.cost_of_pod(pod)
    assert resource_quota.count_fitting([quota], each, wanted) == count
    assert [after for _, after in resource_quota.add_usage([quota], each, count)] == ([now] if count else [])


@given(some.lists(some.sampled_from([{}, ONE, {"requests": {"cpu": "1"}}]), max_size=8))
def test_counted_anew_it_is_what_charging_each_comes_to(resources: list[dict]) -> None:
    hard = {"pods": "99", "requests.cpu": "99", "memory": "99Gi"}
    quota = a_quota(hard)
    sums: dict[resource_quota.Cost, int] = {}
    charged = quota
    for each in resources:
        found = resource_quota.cost_of_pod(a_pod(each))
        sums[found] = sums.get(found, 0) + 1
        ((_, charged),) = resource_quota.add_usage([charged], found)

    counted = resource_quota.recount(quota, sums, {}, NOW).status.used
    assert all(compare(counted[name], charged.status.used[name]) == 0 for name in hard)


def test_counted_anew_limits_that_are_wanted_come_into_force() -> None:
    fresh = replace(
        a_quota({"pods": "2", "configmaps": "3", "count/jobs.batch": "4", "count/cats.example.com": "1"}),
        status=ResourceQuotaStatus(hard={"secrets": "1"}, used={"secrets": "1"}),
    )

    made = resource_quota.recount(
        fresh, {resource_quota.cost_of_pod(a_pod()): 3}, {"configmaps": 2, "jobs.batch": 1}, NOW
    )

    assert made.status.hard == fresh.spec.hard
    assert made.status.used == {"pods": "3", "configmaps": "2", "count/jobs.batch": "1", "count/cats.example.com": "0"}


@pytest.mark.parametrize(
    ("spec", "node_ports", "load_balancers"),
    [
        pytest.param({"type": "ClusterIP"}, None, None, id="within the cluster"),
        pytest.param({"type": "NodePort"}, "2", None, id="node ports"),
        pytest.param({"type": "LoadBalancer"}, "2", "1", id="a load balancer"),
        pytest.param(
            {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False},
            "1",
            "1",
            id="without ports that are not named",
        ),
    ],
)
def test_what_a_service_costs(spec: dict[str, Any], node_ports: str | None, load_balancers: str | None) -> None:
    ports = [{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81}]
    service = msgspec.convert({"metadata": {"name": "s"}, "spec": {**spec, "ports": ports}}, Service)
    found = dict(resource_quota.cost("services", service).usage)

    assert found["services"] == "1"
    assert (found.get("services.nodeports"), found.get("services.loadbalancers")) == (node_ports, load_balancers)


def test_counted_anew_and_right_it_stays_the_same() -> None:
    quota = a_quota({"pods": "2", "example.com/cats": "1"}, {"pods": "1"})

    assert resource_quota.recount(quota, {resource_quota.cost_of_pod(a_pod()): 1}, {}, NOW) is quota


def test_the_use_of_what_nobody_can_count_stays_unknown() -> None:
    fresh = replace(a_quota({"example.com/cats": "1"}), status=ResourceQuotaStatus())

    assert resource_quota.recount(fresh, {}, {}, NOW).status.used == {}


@pytest.mark.parametrize(
    ("before", "now", "helps"),
    [
        pytest.param(a_quota({"pods": "1"}, {"pods": "1"}), a_quota({"pods": "1"}), True, id="less is used"),
        pytest.param(a_quota({"pods": "1"}), a_quota({"pods": "1"}, {"pods": "1"}), False, id="more is used"),
        pytest.param(a_quota({"pods": "1"}), a_quota({"pods": "2"}), True, id="more is allowed"),
        pytest.param(a_quota({"pods": "1"}), None, True, id="it is gone"),
        pytest.param(None, a_quota({"pods": "1"}), False, id="it is new"),
        pytest.param(None, ConfigMap(), True, id="it is another rule"),
    ],
)
def test_a_change_may_help(before: Any, now: Any, helps: bool) -> None:
    assert resource_quota.may_admit_more(before, now) is helps


def test_amounts_are_written_as_the_first_of_them() -> None:
    assert add("0", "64Mi", 3) == "192Mi"
    assert add("1500m", "500m") == "2"
    assert add("64Mi", "1") == "67108865"


def test_the_status_of_a_pod_is_not_looked_at_for_its_scopes() -> None:
    pod = replace(a_pod(), status=PodStatus(phase="Running", qos_class="Guaranteed"))

    assert "BestEffort" in (resource_quota.cost_of_pod(pod).scopes or ())
