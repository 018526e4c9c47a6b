"""Workloads: which Jobs get a Workload and a PodGroup, when these are created and resized, and which group new pods join.

The Job controller calls `plan_gang` before each plan and passes the result to `app.plans.jobs.job`, which writes the objects
before the first pods, in the same write set. `workload_objects` builds them. What the scheduler reads of them is agreed in
docs/decisions/0009.

A Job gets its objects with its first plan, suspended or not, or never. The rules are those of Kubernetes 1.37: where it is on,
every Job that no other controller owns has them, and is a gang if `spec.scheduling` says so. Objects that another client created
are left alone. Decision: docs/decisions/0040.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job, condition, is_finished, is_indexed
from app.kinds.pod.pod import Pod, PodSchedulingGroup
from app.kinds.scheduling.pod_group_schema import GangSchedulingPolicy, PodGroupSchedulingPolicy, PodGroupTemplate
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import Workload
from app.machinery.base import Object, OwnerReference
from app.machinery.errors import ApiError, already_exists
from app.machinery.feature_gates import GENERIC_WORKLOAD, WORKLOAD_WITH_JOB, Features
from app.machinery.meta.owner_references import controller_uid
from app.plans.admission import refusals
from app.plans.admission.pod_admission import Rules, admit
from app.plans.admission.workload_admission import drop_disabled_workload_fields, with_group_priority
from app.plans.jobs.workload_objects import build_group, build_workload, scheduling_policy
from app.plans.plan import Action, Create, Emit, Plan, SetStatus, Update

LABEL = "jobplane.dev/gang"  # of a Job or a namespace: "true" or "false"
TEMPLATE_NAME = "scheduling.k8s.io/group-template-name"  # annotation: the template of the owner's Workload


class Gang(msgspec.Struct, frozen=True):
    """What to do about a Job's Workload and PodGroup, and the group that its new pods join.

    refused: why they may not be created; until they may, the Job does not start.
    """

    create: tuple[Workload | PodGroup, ...] = ()
    resize: tuple[Update, ...] = ()
    group: PodGroup | None = None
    quota_updates: tuple[Update, ...] = ()
    refused: str = ""


NO_GANG = Gang()


class StoredObjects(msgspec.Struct, frozen=True):
    """What exists in the Job's namespace already.

    workloads: those that name the Job as their controller; of a Job that is `DELEGATED`, those that name its owner.
    groups:    those made from a template of one of these.
    exists:    whether there is an object of this resource and name, whoever created it.
    """

    workloads: Sequence[Workload] = ()
    groups: Sequence[PodGroup] = ()
    exists: Callable[[str, str], bool] = lambda _resource, _name: False


class Management(Enum):
    """Which objects the Job controller creates for a Job."""

    NONE = "none"
    BOTH = "a Workload and a PodGroup"
    DELEGATED = "a PodGroup, from a template of its owner's Workload"


# --- which Jobs get them


def is_on(features: Features, namespace_labels: Mapping[str, str], job_labels: Mapping[str, str]) -> bool:
    """By the Job's label, else the namespace's, else WorkloadWithJob. Never where the API of these objects is off."""
    if GENERIC_WORKLOAD not in features:
        return False
    label = _label_of(namespace_labels, job_labels)
    return label == "true" if label else WORKLOAD_WITH_JOB in features


def _label_of(namespace_labels: Mapping[str, str], job_labels: Mapping[str, str]) -> str:
    words = (labels.get(LABEL, "") for labels in (job_labels, namespace_labels))
    return next((word for word in words if word in ("true", "false")), "")


def management_of(job: Job) -> Management:
    """What a Job gets where this is on.

    A Job of a CronJob that has `spec.scheduling` counts as one without an owner: nobody else would make a group for its pods.
    """
    if job.spec.template.spec.scheduling_group is not None:
        return Management.NONE  # another client has made a group for its pods
    owner = next((each for each in job.metadata.owner_references if each.controller), None)
    if owner is None or (owner.kind == "CronJob" and job.spec.scheduling is not None):
        return Management.BOTH
    return Management.DELEGATED if TEMPLATE_NAME in job.metadata.annotations else Management.NONE


def is_labelled_gang(job: Job, namespace_labels: Mapping[str, str]) -> bool:
    """The label makes a gang of a Job whose indexes all run at once. `spec.scheduling` goes first."""
    spec = job.spec
    all_at_once = spec.parallelism is not None and 1 < spec.parallelism == spec.completions
    is_labelled = _label_of(namespace_labels, job.metadata.labels) == "true"
    return is_labelled and spec.scheduling is None and is_indexed(job) and all_at_once


# --- decision


def plan_gang(
    job: Job,
    pods: Sequence[Pod],
    stored: StoredObjects,
    uids: Callable[[], str],
    features: Features,
    *,
    is_gang: bool = False,
) -> Gang:
    """Where this is on. Without a group, if the objects are ambiguous. `is_gang`: so if `spec.scheduling` says nothing."""
    management = management_of(job)
    if management is Management.NONE or job.metadata.deletion_timestamp is not None or is_finished(job):
        return NO_GANG
    if management is Management.DELEGATED:
        return _plan_delegated(job, pods, stored, uids)
    wanted = scheduling_policy(job, is_gang=is_gang)
    workloads = [each for each in stored.workloads if _is_controlled_by(each, job)]
    if not workloads:
        return _create_objects(job, wanted, stored, uids, features) if is_new(job, pods) else NO_GANG
    if len(workloads) > 1:
        return NO_GANG
    count, (workload, *_) = len(workloads[0].spec.pod_group_templates), workloads
    if count != 1:
        names = (
            f"{job.metadata.namespace}/{workload.metadata.name} for job {job.metadata.namespace}/{job.metadata.name}"
        )
        return Gang(refused=f"workload {names} has {count} PodGroupTemplates, want exactly 1")
    groups = [each for each in stored.groups if workload_of(each) == workload.metadata.name]
    own = [each for each in groups if _is_controlled_by(each, job)]
    if not own:
        return _create_group(job, workload, workload.spec.pod_group_templates[0], stored, uids)
    return _resize(workload, own[0], wanted) if len(own) == 1 else NO_GANG


def _plan_delegated(job: Job, pods: Sequence[Pod], stored: StoredObjects, uids: Callable[[], str]) -> Gang:
    """The owner's Workload is the source; without it, or without the template, the pods have no group."""
    wanted = job.metadata.annotations[TEMPLATE_NAME]
    workload = stored.workloads[0] if stored.workloads else None
    templates = workload.spec.pod_group_templates if workload is not None else ()
    template = next((each for each in templates if wanted in ("", each.name)), None)
    if workload is None or template is None:
        return NO_GANG
    own = [each for each in stored.groups if _is_controlled_by(each, job)]
    if own:
        return _resize_group(own[0], template.scheduling_policy)
    return _create_group(job, workload, template, stored, uids) if is_new(job, pods) else NO_GANG


def is_new(job: Job, pods: Sequence[Pod]) -> bool:
    """It never started: no pod of it runs that was scheduled alone."""
    status = job.status
    has_started = pods or status.start_time is not None or status.succeeded or status.failed
    return not has_started and condition(job, "Suspended") is None


def _is_controlled_by(obj: Object, job: Job) -> bool:
    return controller_uid(obj) == job.metadata.uid


def workload_of(group: PodGroup) -> str:
    """The name of the Workload that a group was made from."""
    return group.spec.workload_ref.workload_name if group.spec.workload_ref is not None else ""


def _create_objects(
    job: Job, policy: PodGroupSchedulingPolicy, stored: StoredObjects, uids: Callable[[], str], features: Features
) -> Gang:
    workload = drop_disabled_workload_fields(build_workload(job, policy, uids()), None, features)
    group = build_group(job, workload, workload.spec.pod_group_templates[0], uids())
    for kind, obj in ((WORKLOADS, workload), (POD_GROUPS, group)):
        if stored.exists(kind.resource, obj.metadata.name):
            return Gang(refused=already_exists(kind.resource, obj.metadata.name).message)
    return Gang(create=(workload, group), group=group)


def _create_group(
    job: Job, workload: Workload, template: PodGroupTemplate, stored: StoredObjects, uids: Callable[[], str]
) -> Gang:
    """There is no group yet, or it was deleted while pods that name it may still be pending."""
    group = build_group(job, workload, template, uids())
    return NO_GANG if stored.exists(POD_GROUPS.resource, group.metadata.name) else Gang(create=(group,), group=group)


def _resize(workload: Workload, group: PodGroup, wanted: PodGroupSchedulingPolicy) -> Gang:
    """A gang may change in one respect: how many pods must fit at once."""
    (template,) = workload.spec.pod_group_templates
    policy, resized = _with_count(template.scheduling_policy, wanted), _resize_group(group, wanted)
    if policy is template.scheduling_policy:
        return resized
    spec = replace(workload.spec, pod_group_templates=(replace(template, scheduling_policy=policy),))
    return replace(resized, resize=(Update(replace(workload, spec=spec), workload), *resized.resize))


def _resize_group(group: PodGroup, wanted: PodGroupSchedulingPolicy) -> Gang:
    policy = _with_count(group.spec.scheduling_policy, wanted)
    if policy is group.spec.scheduling_policy:
        return Gang(group=group)
    metadata = replace(group.metadata, generation=group.metadata.generation + 1)
    resized = replace(group, metadata=metadata, spec=replace(group.spec, scheduling_policy=policy))
    return Gang(resize=(Update(resized, group),), group=group)


def _with_count(policy: PodGroupSchedulingPolicy, wanted: PodGroupSchedulingPolicy) -> PodGroupSchedulingPolicy:
    """The policy itself, if it needs no other count."""
    if policy.gang is None or wanted.gang is None or policy.gang.min_count == wanted.gang.min_count:
        return policy
    return replace(policy, gang=GangSchedulingPolicy(min_count=wanted.gang.min_count))


# --- parts of a Job's plan


def charge_quotas(job: Job, gang: Gang, rules: Rules) -> tuple[Gang, Rules]:
    """The gang with its priority and its quotas, or refused; and the rules, less what its new objects take."""
    if not gang.create:
        return gang, rules
    charged: dict[str, Update] = {}
    try:
        gang = _with_priority(gang, rules)
        for obj in gang.create:
            kind = WORKLOADS if isinstance(obj, Workload) else POD_GROUPS
            charged |= {each.object.metadata.uid: each for each in admit(kind.resource, obj, rules)}
            rules = replace(rules, quotas=[_replace_quota(quota, charged) for quota in rules.quotas])
    except ApiError as error:
        # Without its group a Job that runs goes on pod by pod: what has ended must be counted.
        return (Gang(refused=error.message) if is_new(job, ()) else NO_GANG), rules
    return replace(gang, quota_updates=tuple(charged.values())), rules


def _with_priority(gang: Gang, rules: Rules) -> Gang:
    """The new group with the priority of its class, as if a client had created it."""
    if gang.group is None:
        return gang
    group = with_group_priority(gang.group, rules.classes)
    create = tuple(group if each is gang.group else each for each in gang.create)
    return replace(gang, create=create, group=group)


def _replace_quota(quota: Object, charged: Mapping[str, Update]) -> Object:
    update = charged.get(quota.metadata.uid)
    return update.object if update else quota


def refuse_start(job: Job, gang: Gang, now: datetime) -> Plan:
    """No pods for a Job whose Workload or PodGroup is refused: only an event, if it is time to report that again."""
    refusal = refusals.record(job, gang.refused, now)
    annotations = refusals.annotate(job.metadata.annotations, refusal)
    if not refusal.message:
        return Plan(again_at=refusal.again_at)
    text = f"Failed to create Workload for Job {job.metadata.name}: {refusal.message}"
    after = replace(job, metadata=replace(job.metadata, annotations=annotations))
    event = Emit("Warning", "FailedWorkloadCreate", text, job)
    return Plan((SetStatus(after), event), again_at=refusal.again_at)


def join_group(pods: tuple[Pod, ...], gang: Gang) -> tuple[Pod, ...]:
    """New pods as members of the PodGroup, if there is one."""
    if gang.group is None or not pods:
        return pods
    meta = gang.group.metadata
    owner = OwnerReference(api_version=POD_GROUPS.api_version, kind=POD_GROUPS.name, name=meta.name, uid=meta.uid)
    membership = PodSchedulingGroup(pod_group_name=meta.name)
    return tuple(_join(pod, owner, membership) for pod in pods)


def _join(pod: Pod, owner: OwnerReference, membership: PodSchedulingGroup) -> Pod:
    metadata = replace(pod.metadata, owner_references=(*pod.metadata.owner_references, owner))
    return replace(pod, metadata=metadata, spec=replace(pod.spec, scheduling_group=membership))


def write_objects(gang: Gang) -> Iterable[Action]:
    """The Workload and the PodGroup. They precede the pods in a write set."""
    yield from map(Create, gang.create)
    yield from gang.resize


def merge_quota_updates(gang: Gang, of_pods: Iterable[Update]) -> Iterable[Update]:
    """Each quota once, though both the objects and the pods are charged to it: later updates include earlier ones."""
    return {each.object.metadata.uid: each for each in (*gang.quota_updates, *of_pods)}.values()


def created_events(job: Job, gang: Gang) -> Iterable[Emit]:
    for obj in gang.create:
        text = f"Created {obj.kind} {obj.metadata.name} for Job {job.metadata.name}"
        yield Emit("Normal", f"{obj.kind}Created", text, job)
