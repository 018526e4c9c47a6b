"""Workloads, PodGroups and a Job's `spec.scheduling`: what is refused, what cannot change, what `kubectl get` shows."""

import re
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import KIND as JOBS
from app.kinds.pod.pod import KIND as PODS
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.scheduling.podgroup_v1alpha3 import KIND as ALPHA_GROUPS
from app.kinds.scheduling.priorityclass import PriorityClass
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import Workload
from app.kinds.scheduling.workload_v1alpha3 import KIND as ALPHA_WORKLOADS
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError, Cause
from app.machinery.feature_gates import DEFAULTS, GENERIC_WORKLOAD, TOPOLOGY_AWARE, WORKLOAD_WITH_JOB, parse
from app.plans.admission.workload_admission import (
    drop_disabled_group_fields,
    drop_disabled_workload_fields,
    with_group_priority,
)
from tests.build import LONG_AGO, NOW
from tests.kinds.jobs import created, written

BASIC: dict[str, Any] = {"basic": {}}
NO_POLICY = 'Invalid value: "": must specify one of: `basic`, `gang`'
TWO_POLICIES = 'Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`'
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def a_gang(count: Any = 4) -> dict[str, Any]:
    return {"gang": {} if count is None else {"minCount": count}}


def a_group(policy: Any = None, **spec: Any) -> PodGroup:
    return _converted(PodGroup, {"schedulingPolicy": a_gang() if policy is None else policy, **spec})


def a_workload(*templates: dict[str, Any], **spec: Any) -> Workload:
    usual = ({"name": "workers", "schedulingPolicy": a_gang()},)
    return _converted(Workload, {"podGroupTemplates": templates or usual, **spec})


def _converted(type_: Any, spec: dict[str, Any]) -> Any:
    return msgspec.convert({"metadata": {"name": "w", "creationTimestamp": LONG_AGO}, "spec": spec}, type_)


def texts(causes: list[Cause]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in causes]


def scheduling(new: Any, old: Any = None, parallelism: int = 4, **changed: Any) -> list[str]:
    """What is wrong with a Job that says this of its scheduling, or, if `old` is given, with saying it from now on."""
    spec = {"parallelism": parallelism, "completions": 4}
    job = created({**spec, "scheduling": new} if new is not None else spec)
    if old is None and not changed:
        return texts(JOBS.validate(job))
    before = created({**spec, "scheduling": old} if old is not None else spec)
    return texts(JOBS.validate_update(job, before))


@pytest.mark.parametrize(
    ("group", "faults"),
    [
        pytest.param(a_group(), [], id="as it should be"),
        pytest.param(a_group(BASIC), [], id="pod by pod"),
        pytest.param(a_group({}), [f"spec.schedulingPolicy: {NO_POLICY}"], id="no policy"),
        pytest.param(a_group(BASIC | a_gang()), [f"spec.schedulingPolicy: {TWO_POLICIES}"], id="two policies"),
        pytest.param(a_group(a_gang(None)), ["spec.schedulingPolicy.gang.minCount: Required value"], id="no count"),
        pytest.param(
            a_group(a_gang(-1)),
            ["spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1"],
            id="fewer than one",
        ),
        pytest.param(
            a_group(workloadRef={"templateName": "No"}),
            [
                "spec.workloadRef.workloadName: Required value",
                f'spec.workloadRef.templateName: Invalid value: "No": {LABEL}',
            ],
            id="half a reference",
        ),
        pytest.param(
            a_group(disruptionMode={}),
            ['spec.disruptionMode: Invalid value: "": must specify one of: `single`, `all`'],
            id="no disruption mode",
        ),
        pytest.param(
            a_group(disruptionMode={"single": {}, "all": {}}),
            ['spec.disruptionMode: Invalid value: "{single, all}": must specify exactly one of: `single`, `all`'],
            id="two disruption modes",
        ),
        pytest.param(
            a_group(priority=2_000_000_000),
            ["spec.priority: Invalid value: 2000000000: must be less than or equal to 1000000000"],
            id="a priority above all users'",
        ),
        pytest.param(
            a_group(schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]}),
            ["spec.schedulingConstraints.topology: Too many: 2: must have at most 1 item"],
            id="two topologies",
        ),
        pytest.param(
            a_group(resourceClaims=[{"name": "a", "resourceClaimName": "x"}, {"name": "a"}]),
            [
                'spec.resourceClaims[1]: Duplicate value: {"name":"a"}',
                'spec.resourceClaims[1]: Invalid value: "": must specify one of: '
                "`resourceClaimName`, `resourceClaimTemplateName`",
            ],
            id="a claim twice, once of nothing",
        ),
    ],
)
def test_a_group_is_checked(group: PodGroup, faults: list[str]) -> None:
    assert texts(POD_GROUPS.validate(group)) == faults


@pytest.mark.parametrize(
    ("workload", "faults"),
    [
        pytest.param(a_workload(), [], id="as it should be"),
        pytest.param(
            _converted(Workload, {}),
            ['spec: Invalid value: "": must specify one of: `podGroupTemplates`'],
            id="no templates",
        ),
        pytest.param(
            a_workload(*({"name": f"t{n}", "schedulingPolicy": BASIC} for n in range(9))),
            ["spec.podGroupTemplates: Too many: 9: must have at most 8 items"],
            id="nine templates",
        ),
        pytest.param(
            a_workload(*({"name": "t", "schedulingPolicy": BASIC} for _ in range(2))),
            ['spec.podGroupTemplates[1]: Duplicate value: {"name":"t","schedulingPolicy":{"basic":{}}}'],
            id="a template twice",
        ),
        pytest.param(
            a_workload({}),
            [
                "spec.podGroupTemplates[0].name: Required value",
                f"spec.podGroupTemplates[0].schedulingPolicy: {NO_POLICY}",
            ],
            id="an empty template",
        ),
        pytest.param(
            a_workload(*({"name": f"t{n}", "schedulingPolicy": BASIC, "priority": n} for n in range(2))),
            ["spec: Invalid value: null: detected multiple priority configurations"],
            id="two priorities",
        ),
        pytest.param(
            a_workload(controllerRef={"kind": "a/b"}),
            [
                "spec.controllerRef.kind: Invalid value: \"a/b\": may not contain '/'",
                "spec.controllerRef.name: Required value",
            ],
            id="a reference to nothing",
        ),
    ],
)
def test_a_workload_is_checked(workload: Workload, faults: list[str]) -> None:
    assert texts(WORKLOADS.validate(workload)) == faults


def test_of_what_a_group_says_only_its_count_can_change() -> None:
    old = POD_GROUPS.prepare(a_group())

    assert POD_GROUPS.validate_update(POD_GROUPS.prepare(a_group(a_gang(5))), old) == []
    assert texts(POD_GROUPS.validate_update(a_group(BASIC, disruptionMode={"all": {}}, priority=1), old)) == [
        "spec.schedulingPolicy.basic: Invalid value: {}: field is immutable",
        "spec.schedulingPolicy.gang: Invalid value: null: field cannot be cleared once set",
        'spec.disruptionMode: Invalid value: {"all":{}}: field is immutable',
        "spec.priority: Invalid value: 1: field is immutable",
    ]


def test_of_what_a_workload_says_only_its_counts_can_change() -> None:
    other, bigger = ({"name": name, "schedulingPolicy": a_gang(5)} for name in ("other", "workers"))
    reference = {"apiGroup": "batch", "kind": "Job", "name": "pi"}

    assert WORKLOADS.validate_update(a_workload(bigger), a_workload()) == []
    assert texts(WORKLOADS.validate_update(a_workload(other, controllerRef=reference), a_workload())) == [
        'spec.controllerRef: Invalid value: {"apiGroup":"batch","kind":"Job","name":"pi"}: field is immutable',
        "spec.podGroupTemplates[0]: Forbidden: item may not be added",
        "spec.podGroupTemplates: Forbidden: item may not be removed",
    ]


def test_the_pods_of_a_group_are_disrupted_one_by_one_unless_it_says_otherwise() -> None:
    all_or_none = a_group(disruptionMode={"all": {}})

    assert msgspec.to_builtins(POD_GROUPS.prepare(a_group()).spec)["disruptionMode"] == {"single": {}}
    assert POD_GROUPS.prepare(all_or_none) is all_or_none


def test_the_status_of_a_group_is_the_schedulers() -> None:
    condition = {"type": "PodGroupInitiallyScheduled", "status": "Yes"}
    status = {"conditions": [condition], "resourceClaimStatuses": [{"name": "c"}]}
    sent = msgspec.convert({"spec": {}, "status": status}, PodGroup)
    made = POD_GROUPS.on_create(sent, NOW)

    assert (made.status.conditions, made.metadata.generation) == ((), 1)
    assert POD_GROUPS.on_update(sent, made).status == made.status
    assert texts(POD_GROUPS.validate_status(sent, made)) == [
        'status.conditions[0].status: Unsupported value: "Yes": supported values: "False", "True", "Unknown"',
        "status.conditions[0].lastTransitionTime: Required value: must be set",
        "status.conditions[0].reason: Required value: must be set",
        'status.resourceClaimStatuses[0].name: Invalid value: "c": must match the name of an entry in `spec.resourceClaims`',
    ]


def test_the_alpha_version_is_the_same_under_another_name() -> None:
    for kind, alpha, made in ((POD_GROUPS, ALPHA_GROUPS, a_group()), (WORKLOADS, ALPHA_WORKLOADS, a_workload())):
        seen = alpha.outward(made)
        assert (seen.api_version, seen.kind, seen.spec) == ("scheduling.k8s.io/v1alpha3", kind.name, made.spec)
        assert alpha.inward(seen).api_version == kind.api_version == "scheduling.k8s.io/v1beta1"


# --- admission


def test_fields_behind_a_gate_are_dropped_from_what_is_new() -> None:
    behind = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    claims = {"resourceClaims": [{"name": "a", "resourceClaimName": "x"}]}
    group, old = a_group(**behind, **claims), a_group(**behind)
    workload = a_workload({"name": "t", "schedulingPolicy": BASIC, **behind})

    assert drop_disabled_group_fields(group, None, DEFAULTS) == a_group()
    assert drop_disabled_group_fields(group, None, frozenset({TOPOLOGY_AWARE})) == old
    assert drop_disabled_group_fields(old, old, DEFAULTS) is old
    status = msgspec.convert({"resourceClaimStatuses": [{"name": "a"}]}, type(old.status))
    assert drop_disabled_group_fields(replace(old, status=status), old, DEFAULTS) == old
    assert drop_disabled_group_fields(replace(group, status=status), group, DEFAULTS).status == status
    assert (
        drop_disabled_workload_fields(workload, None, DEFAULTS).spec.pod_group_templates[0].scheduling_constraints
        is None
    )
    assert drop_disabled_workload_fields(workload, workload, DEFAULTS) == workload


def test_a_group_has_the_priority_of_its_class() -> None:
    high, usual = (
        PriorityClass(metadata=ObjectMeta(name=name), value=value, global_default=name == "usual")
        for name, value in (("high", 100), ("usual", 7))
    )

    def resolved(classes: tuple[PriorityClass, ...], **spec: Any) -> tuple[str, int | None]:
        made = with_group_priority(a_group(**spec), {each.metadata.name: each for each in classes}).spec
        return made.priority_class_name, made.priority

    assert resolved((high,), priorityClassName="high") == ("high", 100)
    assert resolved((high, usual)) == ("usual", 7)
    assert resolved(()) == ("", 0)
    for spec, why in (
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        (
            {"priorityClassName": "high", "priority": 1},
            "priority set in the pod group (1) must match the priority computed (100) "
            "based on the priority class set in the spec",
        ),
    ):
        with pytest.raises(ApiError) as refused:
            resolved((high,), **spec)
        assert (refused.value.code, refused.value.message) == (
            403,
            f'podgroups.scheduling.k8s.io "w" is forbidden: {why}',
        )


def test_the_rows_of_kubectl_get() -> None:
    reference = {"workloadName": "w", "templateName": "t"}
    condition = {"type": "PodGroupInitiallyScheduled", "status": "False", "reason": "Unschedulable"}
    group = replace(
        a_group(workloadRef=reference),
        status=msgspec.convert({"conditions": [condition]}, type(a_group().status)),
    )
    workload = a_workload(controllerRef={"apiGroup": "batch", "kind": "Job", "name": "pi"})

    assert POD_GROUPS.row(group, NOW) == ["w", "Gang(4)", "False", "120m", "w"]
    assert POD_GROUPS.row(a_group(BASIC), NOW) == ["w", "Basic", "", "120m", "<none>"]
    assert WORKLOADS.row(workload, NOW) == ["w", "Job/pi", "Gang(4)", "120m"]


# --- spec.scheduling of a Job

POLICY = "spec.scheduling.schedulingPolicy"


@pytest.mark.parametrize(
    ("said", "faults"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"schedulingPolicy": a_gang(None)}, [], id="all at once"),
        pytest.param({"schedulingPolicy": a_gang(4), "disruptionMode": {"all": {}}}, [], id="all at once, to the end"),
        pytest.param({"schedulingPolicy": {}}, [f"{POLICY}: {NO_POLICY}"], id="no policy"),
        pytest.param({"schedulingPolicy": BASIC | a_gang()}, [f"{POLICY}: {TWO_POLICIES}"], id="two policies"),
        pytest.param(
            {"schedulingPolicy": a_gang(0)},
            [f"{POLICY}.gang.minCount: Invalid value: 0: must be greater than or equal to 1"],
            id="none at once",
        ),
        pytest.param(
            {"schedulingPolicy": a_gang(5)},
            [f"{POLICY}.gang.minCount: Invalid value: 5: must not be greater than parallelism (4)"],
            id="more at once than may run",
        ),
        pytest.param(
            {"schedulingPolicy": BASIC, "disruptionMode": {"all": {}}},
            [
                'spec.scheduling.disruptionMode: Invalid value: "": '
                "the disruptionMode `all` is not supported with the Basic scheduling policy"
            ],
            id="one by one, but all or none disrupted",
        ),
        pytest.param(
            {"resourceClaims": [{"name": f"c{n}", "resourceClaimName": "x"} for n in range(5)]},
            ["spec.scheduling.resourceClaims: Too many: 5: must have at most 4 items"],
            id="five claims",
        ),
    ],
)
def test_what_a_job_says_of_its_scheduling_is_checked(said: dict[str, Any], faults: list[str]) -> None:
    assert scheduling(said) == faults


GANG_OF_2 = {"schedulingPolicy": a_gang(2)}


@pytest.mark.parametrize(
    ("new", "old", "faults"),
    [
        pytest.param({"schedulingPolicy": a_gang(3)}, GANG_OF_2, [], id="except how many must find a place"),
        pytest.param(
            GANG_OF_2, None, ["spec.scheduling: Invalid value: null: field cannot be set once created"], id="set"
        ),
        pytest.param(
            None, GANG_OF_2, ["spec.scheduling: Invalid value: null: field cannot be cleared once set"], id="cleared"
        ),
        pytest.param(
            {}, GANG_OF_2, [f"{POLICY}: Invalid value: null: field cannot be cleared once set"], id="without its policy"
        ),
        pytest.param(
            {"schedulingPolicy": BASIC},
            GANG_OF_2,
            [
                f"{POLICY}: Invalid value: null: the basic/gang policy variant is immutable after creation; "
                "only schedulingPolicy.gang.minCount may be updated"
            ],
            id="pod by pod instead",
        ),
        pytest.param(
            GANG_OF_2 | {"disruptionMode": {"all": {}}},
            GANG_OF_2,
            ["spec.scheduling.disruptionMode: Invalid value: null: field is immutable"],
            id="disrupted in another way",
        ),
    ],
)
def test_what_a_job_says_of_its_scheduling_stays(new: Any, old: Any, faults: list[str]) -> None:
    assert scheduling(new, old, changed=True) == faults


def test_a_cron_job_is_held_to_the_same() -> None:
    job = written({"parallelism": 2, "scheduling": {"schedulingPolicy": a_gang(3)}})
    spec = {"schedule": "@daily", "jobTemplate": {"spec": msgspec.to_builtins(job.spec)}}
    cron_job = CRON_JOBS.prepare(_converted(CronJob, spec))

    assert texts(CRON_JOBS.validate(cron_job)) == [
        "spec.jobTemplate.spec.scheduling.schedulingPolicy.gang.minCount: "
        "Invalid value: 3: must not be greater than parallelism (2)"
    ]


def test_the_group_of_a_pod_must_have_a_name() -> None:
    def faults(name: str) -> list[str]:
        pod = {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}],
            "schedulingGroup": {"podGroupName": name},
        }
        made = msgspec.convert({"metadata": {"name": "p", "namespace": "d"}, "spec": pod}, PODS.type)
        return [cause.field for cause in PODS.validate(PODS.prepare(made))]

    assert faults("g.1") == []
    assert faults("") == ["spec.schedulingGroup"]
    assert faults("No") == ["spec.schedulingGroup.podGroupName"]


# --- feature gates


@pytest.mark.parametrize(
    ("text", "on"),
    [
        pytest.param("", DEFAULTS, id="nothing is said"),
        pytest.param("GenericWorkload=true", {GENERIC_WORKLOAD}, id="on"),
        pytest.param(
            " WorkloadWithJob = True , GenericWorkload=1", {GENERIC_WORKLOAD, WORKLOAD_WITH_JOB}, id="two, with spaces"
        ),
        pytest.param("GenericWorkload=true,GenericWorkload=false", set(), id="the last word counts"),
    ],
)
def test_gates_are_read(text: str, on: set[str]) -> None:
    assert parse(text) == on


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(
            "Foo=true",
            "unrecognized feature gate: Foo (known are: GenericWorkload=false, "
            "TopologyAwareWorkloadScheduling=false, WorkloadWithJob=false)",
            id="unknown",
        ),
        pytest.param("WorkloadWithJob", "missing bool value for WorkloadWithJob", id="without a value"),
        pytest.param(
            "WorkloadWithJob=maybe", "invalid value of WorkloadWithJob=maybe, it must be true or false", id="undecided"
        ),
        pytest.param(
            "WorkloadWithJob=true",
            "WorkloadWithJob is enabled, but depends on features that are disabled: [GenericWorkload]",
            id="without another",
        ),
    ],
)
def test_other_gates_are_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(fault) + "$"):
        parse(text)
