"""Workloads, PodGroups and a Job's `spec.scheduling`: what is refused, what cannot change, what `kubectl get` shows."""

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
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import Workload
from app.machinery.errors import Cause
from app.machinery.feature_gates import DEFAULTS, WORKLOAD_WITH_JOB, parse
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
            a_group(podGroupTemplateRef={}),
            ['spec.podGroupTemplateRef: Invalid value: "": must specify one of: `workload`'],
            id="a reference to nothing",
        ),
        pytest.param(
            a_group(podGroupTemplateRef={"workload": {"podGroupTemplateName": "No"}}),
            [
                "spec.podGroupTemplateRef.workload.workloadName: Required value",
                f'spec.podGroupTemplateRef.workload.podGroupTemplateName: Invalid value: "No": {LABEL}',
            ],
            id="half a reference",
        ),
        pytest.param(
            a_group(disruptionMode="Some"),
            ['spec.disruptionMode: Unsupported value: "Some": supported values: "Pod", "PodGroup"'],
            id="an unknown disruption mode",
        ),
        pytest.param(
            a_group(priority=2_000_000_000),
            ["spec.priority: Invalid value: 2000000000: must be less than or equal to 1000000000"],
            id="a priority above all users'",
        ),
        pytest.param(
            a_group(schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]}),
            ["spec.schedulingConstraints.topology: Too many: 2: must have at most 1 items"],
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
        pytest.param(_converted(Workload, {}), ["spec.podGroupTemplates: Required value"], id="no templates"),
        pytest.param(
            a_workload(*({"name": f"t{n}", "schedulingPolicy": BASIC} for n in range(9))),
            ["spec.podGroupTemplates: Too many: 9: must have at most 8 items"],
            id="nine templates",
        ),
        pytest.param(
            a_workload(*({"name": "t", "schedulingPolicy": BASIC} for _ in range(2))),
            ['spec.podGroupTemplates[1]: Duplicate value: {"schedulingPolicy":{"basic":{}},"name":"t"}'],
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


def test_what_a_group_says_cannot_change() -> None:
    old = a_group()
    new = a_group(a_gang(5), disruptionMode="Pod")

    assert texts(POD_GROUPS.validate_update(new, old)) == [
        'spec.schedulingPolicy: Invalid value: {"gang":{"minCount":5}}: field is immutable',
        'spec.disruptionMode: Invalid value: "Pod": field is immutable',
    ]


def test_what_a_workload_says_cannot_change() -> None:
    new = a_workload(controllerRef={"apiGroup": "batch", "kind": "Job", "name": "pi"})

    assert texts(WORKLOADS.validate_update(new, a_workload())) == [
        'spec.controllerRef: Invalid value: {"apiGroup":"batch","kind":"Job","name":"pi"}: field is immutable'
    ]


def test_the_status_of_a_group_is_the_schedulers() -> None:
    sent = msgspec.convert(
        {"spec": {}, "status": {"conditions": [{"type": "PodGroupScheduled", "status": "Yes"}]}}, PodGroup
    )
    made = POD_GROUPS.on_create(sent, NOW)

    assert (made.status.conditions, made.metadata.generation) == ((), 1)
    assert POD_GROUPS.on_update(sent, made).status == made.status
    assert texts(POD_GROUPS.validate_status(sent, made)) == [
        'status.conditions[0].status: Unsupported value: "Yes": supported values: "False", "True", "Unknown"',
        "status.conditions[0].lastTransitionTime: Required value: must be set",
        "status.conditions[0].reason: Required value: must be set",
    ]


def test_fields_that_nothing_acts_on_are_named() -> None:
    kept = "accepted and kept, but this version of Jobplane does not act on it yet"
    group = a_group(disruptionMode="PodGroup", priorityClassName="high")

    assert POD_GROUPS.warnings(group, None) == [f"spec.priorityClassName: {kept}"]
    assert POD_GROUPS.warnings(group, group) == WORKLOADS.warnings(a_workload(), None) == []


def test_the_rows_of_kubectl_get() -> None:
    reference = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    condition = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable"}
    group = replace(
        a_group(podGroupTemplateRef=reference),
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
            [f"{POLICY}.gang.minCount: Invalid value: 5: must be less than or equal to `spec.parallelism` (4)"],
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
            [f'{POLICY}: Invalid value: {{"basic":{{}}}}: field is immutable'],
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
        "Invalid value: 3: must be less than or equal to `spec.parallelism` (2)"
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
        pytest.param("WorkloadWithJob=true", {WORKLOAD_WITH_JOB}, id="on"),
        pytest.param(" WorkloadWithJob = True ,", {WORKLOAD_WITH_JOB}, id="on, with spaces"),
        pytest.param("WorkloadWithJob=true,WorkloadWithJob=false", set(), id="the last word counts"),
    ],
)
def test_gates_are_read(text: str, on: set[str]) -> None:
    assert parse(text) == on


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("Foo=true", "unrecognized feature gate: Foo (known are: WorkloadWithJob=false)", id="unknown"),
        pytest.param("WorkloadWithJob", "missing bool value for WorkloadWithJob", id="without a value"),
        pytest.param(
            "WorkloadWithJob=maybe", "invalid value of WorkloadWithJob=maybe, it must be true or false", id="undecided"
        ),
    ],
)
def test_other_gates_are_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match="^" + fault.replace("(", r"\(").replace(")", r"\)") + "$"):
        parse(text)
