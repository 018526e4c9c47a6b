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
    WorkloadPodGroupGangSchedulingPolicy,
    WorkloadPodGroupSchedulingPolicy,
)
from app.kinds.core.resourcequota import ResourceQuota
from app.kinds.pod.pod import Pod, PodSchedulingGroup
from app.kinds.scheduling.pod_group_schema import (
    AllDisruptionMode,
    BasicSchedulingPolicy,
    DisruptionMode,
    GangSchedulingPolicy,
    PodGroupSchedulingConstraints,
    PodGroupSchedulingPolicy,
    PodGroupTemplate,
    TopologyConstraint,
    WorkloadReference,
)
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.scheduling.priorityclass import PriorityClass
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import Workload, WorkloadSpec
from app.machinery.base import Condition, ObjectMeta, OwnerReference
from app.machinery.feature_gates import DEFAULTS, GENERIC_WORKLOAD, TOPOLOGY_AWARE, WORKLOAD_WITH_JOB
from app.machinery.name_validation import dns_label, dns_subdomain
from app.plans.admission.pod_admission import NO_RULES, Rules
from app.plans.admission.refusals import ANNOTATION
from app.plans.jobs import workload_objects, workloads
from app.plans.jobs.job import plan
from app.plans.jobs.workloads import (
    NO_GANG,
    TEMPLATE_NAME,
    Gang,
    Management,
    StoredObjects,
    is_labelled_gang,
    is_on,
    management_of,
    plan_gang,
)
from app.plans.plan import Create, Emit, Plan
from tests.build import LONG_AGO, NOW, a_job, a_template, names, pods, stored, told, updated
from tests.plans.admission.test_resource_quota import a_quota

SHAPE = {"parallelism": 4, "completions": 4, "completion_mode": "Indexed"}
BASIC = JobSchedulingConfiguration()
LABEL = "jobplane.dev/gang"
GENERIC, BOTH_GATES = {GENERIC_WORKLOAD}, {GENERIC_WORKLOAD, WORKLOAD_WITH_JOB}
NOTHING = StoredObjects()


def explicit(min_count: int | None = None, **more: Any) -> JobSchedulingConfiguration:
    policy = WorkloadPodGroupSchedulingPolicy(gang=WorkloadPodGroupGangSchedulingPolicy(min_count=min_count))
    return JobSchedulingConfiguration(scheduling_policy=policy, **more)


def a_gang_job(status: JobStatus | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> Job:
    return a_job(status, metadata, **(SHAPE | {"scheduling": explicit()} | spec))


def asked(job: Job, phases: str = "", found: StoredObjects = NOTHING, *, is_gang: bool = False) -> Gang:
    numbers = count()
    features = frozenset({GENERIC_WORKLOAD, TOPOLOGY_AWARE})
    return plan_gang(job, pods(phases), found, lambda: f"uid-{next(numbers)}", features, is_gang=is_gang)


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


def owned(kind: str = "JobSet", **metadata: Any) -> dict[str, Any]:
    """The metadata of a Job that a controller owns."""
    owner = OwnerReference(api_version="x/v1", kind=kind, name="s", uid="uid-of-s", controller=True)
    return {"owner_references": (owner,), **metadata}


@pytest.mark.parametrize(
    ("spec", "metadata", "management"),
    [
        pytest.param({}, {}, Management.BOTH, id="a gang"),
        pytest.param({"scheduling": None, "completion_mode": "NonIndexed"}, {}, Management.BOTH, id="any other Job"),
        pytest.param(
            {"template": a_template(scheduling_group=PodSchedulingGroup(pod_group_name="g"))},
            {},
            Management.NONE,
            id="whose pods are in a group already",
        ),
        pytest.param({}, owned(), Management.NONE, id="of another controller"),
        pytest.param(
            {}, owned(annotations={TEMPLATE_NAME: "t"}), Management.DELEGATED, id="of a controller that leaves it to us"
        ),
        pytest.param({"scheduling": None}, owned("CronJob"), Management.NONE, id="of a CronJob"),
        pytest.param({}, owned("CronJob"), Management.BOTH, id="of a CronJob that says how to schedule them"),
    ],
)
def test_which_objects_a_job_gets(spec: dict[str, Any], metadata: dict[str, Any], management: Management) -> None:
    assert management_of(a_gang_job(metadata=metadata, **spec)) is management


@pytest.mark.parametrize(
    ("features", "namespace", "job", "on"),
    [
        pytest.param(DEFAULTS, "", "", False, id="off by default"),
        pytest.param(DEFAULTS, "true", "true", False, id="off where the API is"),
        pytest.param(GENERIC, "", "", False, id="off with the API alone"),
        pytest.param(BOTH_GATES, "", "", True, id="on by the gate"),
        pytest.param(GENERIC, "true", "", True, id="on in a namespace"),
        pytest.param(GENERIC, "", "true", True, id="on for a Job"),
        pytest.param(GENERIC, "true", "false", False, id="off for a Job in a namespace where it is on"),
        pytest.param(BOTH_GATES, "false", "", False, id="off in a namespace"),
        pytest.param(BOTH_GATES, "maybe", "", True, id="another word says nothing"),
    ],
)
def test_the_nearest_word_counts(features: set[str], namespace: str, job: str, on: bool) -> None:
    around, own = ({LABEL: word} if word else {} for word in (namespace, job))

    assert is_on(frozenset(features), around, own) is on


@pytest.mark.parametrize(
    ("spec", "does"),
    [
        pytest.param({}, True, id="all of whose indexes run at once"),
        pytest.param({"completions": 5}, False, id="of which one index waits"),
        pytest.param({"completion_mode": "NonIndexed"}, False, id="without indexes"),
        pytest.param({"parallelism": 1, "completions": 1}, False, id="of one pod"),
        pytest.param({"parallelism": None, "completions": None}, False, id="that says nothing"),
        pytest.param({"scheduling": BASIC}, False, id="that says how it is scheduled"),
    ],
)
def test_the_label_makes_a_gang_of_a_job(spec: dict[str, Any], does: bool) -> None:
    job = a_gang_job(**({"scheduling": None} | spec))

    assert is_labelled_gang(job, {LABEL: "true"}) is does
    assert not is_labelled_gang(job, {})


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
    source = group.spec.workload_ref
    assert (source.workload_name, source.template_name) == (workload.metadata.name, "pi-pgt-0")
    own = [
        (each.kind, each.uid, each.controller, each.block_owner_deletion) for each in group.metadata.owner_references
    ]
    assert own == [("Job", "uid-of-pi", True, True), ("Workload", "uid-0", None, None)]
    assert [each.uid for each in workload.metadata.owner_references] == ["uid-of-pi"]


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        pytest.param({"scheduling": None}, None, id="pod by pod, if it says nothing"),
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
    mode = DisruptionMode(all=AllDisruptionMode())
    near = PodGroupSchedulingConstraints(topology=(TopologyConstraint(key="rack"),))
    scheduling = explicit(disruption_mode=mode, scheduling_constraints=near)
    job = a_gang_job(scheduling=scheduling, template=a_template(priority_class_name="high"))
    workload, group = made(job)
    (template,) = workload.spec.pod_group_templates

    for terms in (template, group.spec):
        assert (terms.disruption_mode, terms.scheduling_constraints) == (mode, near)
        assert terms.priority_class_name == "high"
    off = plan_gang(job, [], NOTHING, lambda: "uid", frozenset({GENERIC_WORKLOAD}))
    assert off.group is not None
    assert off.group.spec.scheduling_constraints is None


def test_a_job_with_the_label_is_a_gang_without_a_word_of_its_own() -> None:
    job = a_gang_job(scheduling=None)
    group = asked(job, is_gang=True).group

    assert group is not None
    assert group.spec.scheduling_policy.gang.min_count == 4


def test_a_new_group_has_the_priority_of_its_class_or_the_job_waits() -> None:
    job = a_gang_job(template=a_template(priority_class_name="high"))
    classes = {"high": PriorityClass(metadata=ObjectMeta(name="high"), value=100)}
    (group,) = (each.object for each in planned(job, Rules(classes=classes)).actions if kind_of(each) == "PodGroup")

    assert group.spec.priority == 100
    refused = planned(job)
    assert kinds_made(refused) == []
    assert "no PriorityClass with name high was found" in next(
        each.message for each in refused.actions if isinstance(each, Emit)
    )


def kind_of(action: Any) -> str:
    return action.object.kind if isinstance(action, Create) else ""


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


def test_what_somebody_else_made_is_ignored() -> None:
    job, found = a_gang_job(), there(a_gang_job())
    workload, group = found.workloads[0], found.groups[0]

    assert [each.kind for each in asked(job, found=StoredObjects([foreign(workload)], [group])).create] == [
        "Workload",
        "PodGroup",
    ]
    assert [each.kind for each in asked(job, found=StoredObjects([workload], [foreign(group)])).create] == ["PodGroup"]
    more = StoredObjects([workload, foreign(workload)], [group, foreign(group)])
    assert asked(job, found=more) == Gang(group=group)


def test_what_is_ambiguous_is_left_alone() -> None:
    job, found = a_gang_job(), there(a_gang_job())
    workload, group = found.workloads[0], found.groups[0]

    for twice in (StoredObjects([workload] * 2, [group]), StoredObjects([workload], [group] * 2)):
        assert asked(job, found=twice) is NO_GANG


def test_a_workload_of_another_form_is_refused() -> None:
    job, found = a_gang_job(), there(a_gang_job())
    workload = found.workloads[0]
    two = replace(workload, spec=replace(workload.spec, pod_group_templates=workload.spec.pod_group_templates * 2))

    assert asked(job, found=StoredObjects([two])).refused == (
        f"workload default/{workload.metadata.name} for job default/pi has 2 PodGroupTemplates, want exactly 1"
    )


def test_a_gang_is_resized_with_the_job() -> None:
    found = there(a_gang_job())
    result = planned(a_gang_job(JobStatus(start_time=LONG_AGO), parallelism=3), found=found)
    workload, group = updated(result)

    assert workload.spec.pod_group_templates[0].scheduling_policy.gang.min_count == 3
    assert group.spec.scheduling_policy.gang.min_count == 3
    assert group.metadata.generation == found.groups[0].metadata.generation + 1


def test_a_gang_stays_one_when_the_label_goes() -> None:
    labelled = asked(a_gang_job(scheduling=None), is_gang=True)
    found = StoredObjects([labelled.create[0]], [labelled.create[1]])  # type: ignore[list-item]

    assert asked(a_gang_job(scheduling=None), found=found) == Gang(group=labelled.group)


# --- a Job whose owner has a Workload for it


def delegated(template: str = "t", **spec: Any) -> Job:
    return a_gang_job(metadata=owned(annotations={TEMPLATE_NAME: template}), **spec)


def of_the_owner(count: int = 3) -> Workload:
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=count))
    templates = (PodGroupTemplate(name="t", scheduling_policy=policy),)
    return Workload(
        metadata=ObjectMeta(name="w", namespace="default"), spec=WorkloadSpec(pod_group_templates=templates)
    )


def test_a_delegated_job_gets_a_group_from_its_owners_template() -> None:
    (group,) = asked(delegated(), found=StoredObjects([of_the_owner()])).create

    assert isinstance(group, PodGroup)
    assert group.spec.workload_ref == WorkloadReference(workload_name="w", template_name="t")
    assert group.spec.scheduling_policy.gang.min_count == 3
    assert [(each.kind, each.controller) for each in group.metadata.owner_references] == [("Job", True)]


def test_a_delegated_group_follows_its_template() -> None:
    (group,) = asked(delegated(), found=StoredObjects([of_the_owner()])).create
    assert isinstance(group, PodGroup)
    (resized,) = asked(delegated(), "r0", StoredObjects([of_the_owner(2)], [group])).resize

    assert resized.object.spec.scheduling_policy.gang.min_count == 2


@pytest.mark.parametrize(
    ("template", "found", "phases"),
    [
        pytest.param("t", NOTHING, "", id="without the Workload"),
        pytest.param("other", StoredObjects([of_the_owner()]), "", id="without the template"),
        pytest.param("t", StoredObjects([of_the_owner()]), "r0", id="that has pods"),
    ],
)
def test_a_delegated_job_gets_none(template: str, found: StoredObjects, phases: str) -> None:
    assert asked(delegated(template), phases, found) is NO_GANG


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
    assert workload_objects._hash("a") == "".join(alphabet[ord(each) % 27] for each in "3826002220")


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
