"""Which Jobs get a Workload and a PodGroup, what is in them, and when anything else is left alone."""

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.batch.job import Job, JobStatus
from app.kinds.batch.job_annotations import AFTER
from app.kinds.batch.job_scheduling import (
    JobSchedulingConfiguration,
    WorkloadPodGroupAllDisruptionMode,
    WorkloadPodGroupDisruptionMode,
    WorkloadPodGroupGangSchedulingPolicy,
    WorkloadPodGroupSchedulingPolicy,
)
from app.kinds.core.resourcequota import ResourceQuota
from app.kinds.pod.pod import Pod, PodSchedulingGroup
from app.kinds.scheduling.pod_group_schema import BasicSchedulingPolicy
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import Workload
from app.machinery.base import Condition, ObjectMeta, OwnerReference
from app.machinery.feature_gates import DEFAULTS, WORKLOAD_WITH_JOB
from app.machinery.name_validation import dns_label, dns_subdomain
from app.plans.admission.pod_admission import NO_RULES, Rules
from app.plans.admission.refusals import ANNOTATION
from app.plans.jobs import workloads
from app.plans.jobs.job import plan
from app.plans.jobs.workloads import NO_GANG, Gang, StoredObjects, is_on, plan_gang, qualifies
from app.plans.plan import Create, Emit, Plan
from tests.build import LONG_AGO, NOW, a_job, a_template, names, pods, stored, told, updated
from tests.plans.admission.test_resource_quota import a_quota

SHAPE = {"parallelism": 4, "completions": 4, "completion_mode": "Indexed"}
BASIC = JobSchedulingConfiguration()
LABEL = "jobplane.dev/gang"
NOTHING = StoredObjects()


def explicit(min_count: int | None = None, **more: Any) -> JobSchedulingConfiguration:
    policy = WorkloadPodGroupSchedulingPolicy(gang=WorkloadPodGroupGangSchedulingPolicy(min_count=min_count))
    return JobSchedulingConfiguration(scheduling_policy=policy, **more)


def a_gang_job(status: JobStatus | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> Job:
    return a_job(status, metadata, **(SHAPE | spec))


def asked(job: Job, phases: str = "", found: StoredObjects = NOTHING) -> Gang:
    numbers = count()
    return plan_gang(job, pods(phases), found, lambda: f"uid-{next(numbers)}")


def made(job: Job) -> tuple[Workload, PodGroup]:
    workload, group = asked(job).create
    assert isinstance(workload, Workload)
    assert isinstance(group, PodGroup)
    return workload, group


def there(job: Job) -> StoredObjects:
    workload, group = made(job)
    return StoredObjects([workload], [group])


def planned(job: Job, rules: Rules = NO_RULES, found: StoredObjects = NOTHING, phases: str = "") -> Plan:
    return plan(job, pods(phases), NOW, names(), rules, asked(job, phases, found))


def kinds_made(result: Plan) -> list[str]:
    return [each.object.kind for each in result.actions if isinstance(each, Create)]


def pods_made(result: Plan) -> list[Pod]:
    return [each.object for each in result.actions if isinstance(each, Create) and isinstance(each.object, Pod)]


# --- which Jobs


@pytest.mark.parametrize(
    ("spec", "does"),
    [
        pytest.param({}, True, id="all of whose indexes run at once"),
        pytest.param({"completions": 5}, False, id="of which one index waits"),
        pytest.param({"completion_mode": "NonIndexed"}, False, id="without indexes"),
        pytest.param({"parallelism": 1, "completions": 1}, False, id="of one pod"),
        pytest.param({"parallelism": None, "completions": None}, False, id="that says nothing"),
        pytest.param(
            {"template": a_template(scheduling_group=PodSchedulingGroup(pod_group_name="g"))},
            False,
            id="whose pods are in a group already",
        ),
        pytest.param(
            {"scheduling": BASIC, "template": a_template(scheduling_group=PodSchedulingGroup(pod_group_name="g"))},
            False,
            id="whose pods are in a group already, whatever else it says",
        ),
        pytest.param({"completion_mode": "NonIndexed", "scheduling": BASIC}, True, id="that says so"),
    ],
)
def test_jobs_qualify(spec: dict[str, Any], does: bool) -> None:
    assert qualifies(a_gang_job(**spec)) is does


@pytest.mark.parametrize(
    ("features", "namespace", "job", "on"),
    [
        pytest.param(DEFAULTS, "", "", False, id="off by default"),
        pytest.param({WORKLOAD_WITH_JOB}, "", "", True, id="on by the gate"),
        pytest.param(DEFAULTS, "true", "", True, id="on in a namespace"),
        pytest.param(DEFAULTS, "", "true", True, id="on for a Job"),
        pytest.param(DEFAULTS, "true", "false", False, id="off for a Job in a namespace where it is on"),
        pytest.param({WORKLOAD_WITH_JOB}, "false", "", False, id="off in a namespace"),
        pytest.param({WORKLOAD_WITH_JOB}, "maybe", "", True, id="another word says nothing"),
    ],
)
def test_the_nearest_word_counts(features: frozenset[str], namespace: str, job: str, on: bool) -> None:
    around, own = ({LABEL: word} if word else {} for word in (namespace, job))

    assert is_on(frozenset(features), around, own) is on


# --- the objects


def test_a_job_gets_a_workload_and_a_group() -> None:
    workload, group = made(a_gang_job())

    assert (workload.metadata.uid, group.metadata.uid) == ("uid-0", "uid-1")
    reference = workload.spec.controller_ref
    assert reference is not None
    assert (reference.api_group, reference.kind, reference.name) == ("batch", "Job", "pi")
    (template,) = workload.spec.pod_group_templates
    assert (template.name, template.scheduling_policy.gang.min_count) == ("pi-pgt-0", 4)
    assert group.spec.scheduling_policy == template.scheduling_policy
    source = group.spec.pod_group_template_ref.workload
    assert (source.workload_name, source.pod_group_template_name) == (workload.metadata.name, "pi-pgt-0")
    own = [
        (each.kind, each.uid, each.controller, each.block_owner_deletion) for each in group.metadata.owner_references
    ]
    assert own == [("Job", "uid-of-pi", True, True), ("Workload", "uid-0", None, None)]
    assert [each.uid for each in workload.metadata.owner_references] == ["uid-of-pi"]


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        pytest.param({}, 4, id="as many as run"),
        pytest.param({"scheduling": explicit()}, 4, id="as many as run, if it gives no number"),
        pytest.param({"scheduling": explicit(2)}, 2, id="as it says"),
        pytest.param({"scheduling": explicit(), "parallelism": 0}, 1, id="at least one"),
        pytest.param({"scheduling": BASIC}, None, id="pod by pod, if it says nothing of a gang"),
    ],
)
def test_how_many_must_find_a_place(spec: dict[str, Any], count: int | None) -> None:
    _, group = made(a_gang_job(**spec))
    policy = group.spec.scheduling_policy

    assert (policy.gang.min_count if policy.gang else None) == count
    assert policy.basic == (BasicSchedulingPolicy() if count is None else None)


def test_a_group_has_what_the_job_says_beside_its_policy() -> None:
    mode = WorkloadPodGroupDisruptionMode(all=WorkloadPodGroupAllDisruptionMode())
    _, group = made(a_gang_job(scheduling=explicit(disruption_mode=mode)))

    assert group.spec.disruption_mode == "PodGroup"


job_names = some.from_regex(
    r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?){0,6}", fullmatch=True
)


@given(name=job_names, uid=some.uuids())
def test_what_is_made_is_valid_whatever_the_job_is_called(name: str, uid: Any) -> None:
    workload, group = made(a_gang_job(metadata={"name": name, "uid": str(uid)}))

    assert WORKLOADS.validate(workload) == POD_GROUPS.validate(group) == []
    assert dns_subdomain(workload.metadata.name) == dns_subdomain(group.metadata.name) == []
    assert dns_label(workload.spec.pod_group_templates[0].name) == []


def test_names_differ_by_the_uid() -> None:
    one, other = (made(a_gang_job(metadata={"uid": uid})) for uid in ("a", "b"))

    assert {each.metadata.name for each in one} & {each.metadata.name for each in other} == set()


# --- when


@pytest.mark.parametrize(
    ("status", "phases"),
    [
        pytest.param(JobStatus(start_time=LONG_AGO), "", id="has started"),
        pytest.param(JobStatus(succeeded=1), "", id="has counted"),
        pytest.param(JobStatus(conditions=(Condition(type="Suspended", status="False"),)), "", id="was suspended"),
        pytest.param(JobStatus(), "r0", id="has pods"),
    ],
)
def test_a_job_gets_none_once_it(status: JobStatus, phases: str) -> None:
    assert asked(a_gang_job(status), phases) is NO_GANG


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(a_gang_job(metadata={"deletion_timestamp": LONG_AGO}), id="is going"),
        pytest.param(a_gang_job(JobStatus(conditions=(Condition(type="Failed", status="True"),))), id="has failed"),
    ],
)
def test_nothing_is_done_for_a_job_that(job: Job) -> None:
    assert asked(job, found=there(a_gang_job())) is NO_GANG


def test_what_it_has_is_found_again() -> None:
    job = a_gang_job(JobStatus(start_time=LONG_AGO))
    found = there(a_gang_job())

    assert asked(job, "r0r1", found) == Gang(group=found.groups[0])


def test_a_group_that_somebody_deleted_is_made_again() -> None:
    job, found = a_gang_job(JobStatus(start_time=LONG_AGO)), there(a_gang_job())
    (again,) = asked(job, "r0", replace(found, groups=[])).create

    assert again.spec == found.groups[0].spec
    assert again.metadata.name == found.groups[0].metadata.name


def foreign(obj: Any) -> Any:
    owner = OwnerReference(api_version="x/v1", kind="JobSet", name="s", uid="uid-of-s", controller=True)
    return replace(obj, metadata=replace(obj.metadata, owner_references=(owner,)))


def test_what_somebody_else_made_is_left_alone() -> None:
    job, found = a_gang_job(), there(a_gang_job())
    workload, group = found.workloads[0], found.groups[0]
    two = replace(workload, spec=replace(workload.spec, pod_group_templates=workload.spec.pod_group_templates * 2))

    for other in (
        StoredObjects([foreign(workload)], [group]),
        StoredObjects([workload], [foreign(group)]),
        StoredObjects([workload, foreign(workload)], [group]),
        StoredObjects([workload], [group, foreign(group)]),
        StoredObjects([two], [group]),
    ):
        assert asked(job, found=other) is NO_GANG


def test_an_explicit_gang_is_resized_with_the_job() -> None:
    found = there(a_gang_job(scheduling=explicit()))
    result = planned(a_gang_job(JobStatus(start_time=LONG_AGO), scheduling=explicit(), parallelism=3), found=found)
    workload, group = updated(result)

    assert workload.spec.pod_group_templates[0].scheduling_policy.gang.min_count == 3
    assert group.spec.scheduling_policy.gang.min_count == 3
    assert group.metadata.generation == found.groups[0].metadata.generation + 1


def test_a_gang_by_shape_stays_as_it_is() -> None:
    assert asked(a_gang_job(parallelism=3, completions=3), found=there(a_gang_job())).resize == ()


# --- what that does to the plan


def test_the_objects_come_before_the_pods_and_these_join_the_group() -> None:
    job = a_gang_job()
    result = planned(job)
    workload, group = made(job)

    assert kinds_made(result) == ["Workload", "PodGroup", *["Pod"] * 4]
    assert told(result) == ["WorkloadCreated", "PodGroupCreated", *["SuccessfulCreate"] * 4]
    assert [each.message for each in result.actions if isinstance(each, Emit)][:2] == [
        f"Created Workload {workload.metadata.name} for Job pi",
        f"Created PodGroup {group.metadata.name} for Job pi",
    ]
    for pod in pods_made(result):
        assert pod.spec.scheduling_group == PodSchedulingGroup(pod_group_name=group.metadata.name)
        own = [
            (each.kind, each.uid, each.controller, each.block_owner_deletion) for each in pod.metadata.owner_references
        ]
        assert own == [("Job", "uid-of-pi", True, True), ("PodGroup", group.metadata.uid, None, None)]


def test_a_suspended_job_gets_its_objects_when_it_is_first_looked_at_and_its_pods_join_later() -> None:
    suspended = planned(a_gang_job(suspend=True))
    assert kinds_made(suspended) == ["Workload", "PodGroup"]

    after = stored(suspended, a_gang_job(suspend=True))
    result = planned(replace(after, spec=replace(after.spec, suspend=False)), found=there(a_gang_job()))
    assert kinds_made(result) == ["Pod"] * 4
    assert all(pod.spec.scheduling_group for pod in pods_made(result))


def test_without_a_gang_the_plan_is_what_it_was() -> None:
    job = a_gang_job()

    assert plan(job, [], NOW, names(), NO_RULES, NO_GANG) == plan(job, [], NOW, names())


@given(hard=some.integers(0, 3), used=some.integers(0, 3), total=some.integers(0, 8))
def test_quotas_are_charged_once_and_exactly(hard: int, used: int, total: int) -> None:
    limits = {"count/workloads.scheduling.k8s.io": f"{hard}", "pods": f"{total}"}
    quota = a_quota(limits, {"count/workloads.scheduling.k8s.io": f"{used}", "pods": "0"})
    result = planned(a_gang_job(), Rules(quotas=[quota]))
    charged = [each for each in updated(result) if isinstance(each, ResourceQuota)]

    if used + 1 > hard:
        assert kinds_made(result) == charged == []
        return
    assert kinds_made(result) == ["Workload", "PodGroup", *["Pod"] * min(total, 4)]
    (after,) = charged
    assert after.status.used == {
        "count/workloads.scheduling.k8s.io": str(used + 1),
        "pods": str(min(total, 4)),
    }


def test_a_job_whose_objects_are_refused_does_not_start_but_says_why() -> None:
    quota = a_quota({"count/podgroups.scheduling.k8s.io": "0"}, {"count/podgroups.scheduling.k8s.io": "0"})
    job = a_gang_job()
    result = planned(job, Rules(quotas=[quota]))
    after = stored(result, job)

    (event,) = (each for each in result.actions if isinstance(each, Emit))
    assert (event.type, event.reason) == ("Warning", "FailedWorkloadCreate")
    assert event.message == (
        f'Failed to create Workload for Job pi: podgroups.scheduling.k8s.io "{made(job)[1].metadata.name}" is forbidden: '
        "exceeded quota: q, requested: count/podgroups.scheduling.k8s.io=1, "
        "used: count/podgroups.scheduling.k8s.io=0, limited: count/podgroups.scheduling.k8s.io=0"
        "; tried again as soon as the quota has room"
    )
    assert (after.status, list(after.metadata.annotations)) == (job.status, [ANNOTATION])
    assert result.again_at is not None
    again = planned(after, Rules(quotas=[quota]))
    assert (again.actions, again.again_at) == ((), result.again_at)
    assert ANNOTATION not in stored(planned(after), after).metadata.annotations


def test_a_name_that_is_taken_is_told() -> None:
    job = a_gang_job()
    name = made(job)[0].metadata.name
    result = planned(job, found=StoredObjects(exists=lambda resource, _: resource == WORKLOADS.resource))

    assert kinds_made(result) == []
    assert [each.message for each in result.actions if isinstance(each, Emit)] == [
        f'Failed to create Workload for Job pi: workloads.scheduling.k8s.io "{name}" already exists'
        "; tried again in 1s, or as soon as the rules change"
    ]


def test_a_job_that_runs_is_not_held_up_by_a_full_quota() -> None:
    quota = a_quota({"count/podgroups.scheduling.k8s.io": "0"}, {"count/podgroups.scheduling.k8s.io": "0"})
    job = a_gang_job(JobStatus(start_time=LONG_AGO))
    result = planned(job, Rules(quotas=[quota]), replace(there(a_gang_job()), groups=[]), "s0")

    assert stored(result, job).status.succeeded == 1
    assert {pod.spec.scheduling_group for pod in pods_made(result)} == {None}


def test_the_hash_is_the_one_that_is_known() -> None:
    # FNV-1a of "a" is 0xe40c292c, which is 3826002220.
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    assert workloads._hash("a") == "".join(alphabet[ord(each) % 27] for each in "3826002220")


def test_an_object_without_a_reference_is_of_no_workload() -> None:
    assert workloads.workload_of(PodGroup(metadata=ObjectMeta(name="g"))) == ""


def test_a_job_that_waits_for_another_gets_its_gang_when_it_starts() -> None:
    job = a_gang_job(metadata={"annotations": {AFTER: "other"}})
    done = replace(a_job(), status=JobStatus(conditions=(Condition(type="Complete", status="True"),)))

    waiting = planned(job)
    waits = stored(waiting, job)
    started = plan(waits, [], NOW, names(), NO_RULES, asked(waits), lambda _: done)

    assert kinds_made(waiting) == []
    assert kinds_made(started) == ["Workload", "PodGroup", *4 * ["Pod"]]
