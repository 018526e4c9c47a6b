"""Workloads: gang scheduling of a Job's pods, by a Workload and a PodGroup that the Job controller creates for it.

The Job controller calls `plan_gang` before each plan and passes the result to `app.plans.jobs.job`, which writes the objects
before the first pods, in the same write set. What the scheduler reads of them is agreed in docs/decisions/0009.

A Job gets its objects with its first plan, suspended or not, or never. Which Jobs do is Kubernetes 1.36's rule, or
`spec.scheduling`, as in 1.37. Objects that another client created are left alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job, condition, is_finished, is_indexed
from app.kinds.batch.job_scheduling import JobSchedulingConfiguration
from app.kinds.pod.pod import Pod, PodSchedulingGroup
from app.kinds.scheduling.pod_group_schema import (
    BasicSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupTemplate,
    PodGroupTemplateReference,
    WorkloadPodGroupTemplateReference,
)
from app.kinds.scheduling.pod_group_validation import POD, POD_GROUP
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import TypedLocalObjectReference, Workload, WorkloadSpec
from app.machinery.base import Object, ObjectMeta, OwnerReference
from app.machinery.errors import ApiError, already_exists
from app.machinery.feature_gates import WORKLOAD_WITH_JOB, Features
from app.machinery.meta.owner_references import controller_reference, controller_uid
from app.plans.admission import refusals
from app.plans.admission.pod_admission import Rules, admit
from app.plans.plan import Action, Create, Emit, Plan, SetStatus, Update

LABEL = "jobplane.dev/gang"  # of a Job or a namespace: "true" or "false"
LONGEST_NAME = 253
LONGEST_LABEL = 63
_SUFFIX = "-pgt-0"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


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

    workloads: those that name the Job as their controller. groups: those made from a template of one of these.
    exists:    whether there is an object of this resource and name, whoever created it.
    """

    workloads: Sequence[Workload] = ()
    groups: Sequence[PodGroup] = ()
    exists: Callable[[str, str], bool] = lambda _resource, _name: False


# --- which Jobs get them


def is_on(features: Features, namespace_labels: Mapping[str, str], job_labels: Mapping[str, str]) -> bool:
    """By the Job's label, else the namespace's, else the feature gate."""
    for labels in (job_labels, namespace_labels):
        if labels.get(LABEL) in ("true", "false"):
            return labels[LABEL] == "true"
    return WORKLOAD_WITH_JOB in features


def qualifies(job: Job) -> bool:
    """Return whether the Job gets a Workload and a PodGroup, where this is on."""
    if job.spec.template.spec.scheduling_group is not None:
        return False  # another client has made a group for its pods
    return job.spec.scheduling is not None or is_gang_by_shape(job)


def is_gang_by_shape(job: Job) -> bool:
    """All of its indexes run at once, so all are scheduled at once. `spec.scheduling` goes first."""
    spec = job.spec
    all_at_once = spec.parallelism is not None and 1 < spec.parallelism == spec.completions
    is_default = spec.scheduling is None and spec.template.spec.scheduling_group is None
    return is_indexed(job) and all_at_once and is_default


# --- decision


def plan_gang(job: Job, pods: Sequence[Pod], stored: StoredObjects, uids: Callable[[], str]) -> Gang:
    """For a Job that qualifies, where this is on. Without a group, if the objects are ambiguous or another client's."""
    if job.metadata.deletion_timestamp is not None or is_finished(job):
        return NO_GANG
    if not stored.workloads:
        return _create_objects(job, stored, uids) if is_new(job, pods) else NO_GANG
    workload = stored.workloads[0]
    if len(stored.workloads) > 1 or not _is_controlled_by(workload, job) or len(workload.spec.pod_group_templates) != 1:
        return NO_GANG
    groups = [group for group in stored.groups if workload_of(group) == workload.metadata.name]
    if not groups:
        return _recreate_group(job, workload, stored, uids)
    if len(groups) > 1 or not _is_controlled_by(groups[0], job):
        return NO_GANG
    return _resize(job, workload, groups[0])


def is_new(job: Job, pods: Sequence[Pod]) -> bool:
    """It never started: no pod of it runs that was scheduled alone."""
    status = job.status
    has_started = pods or status.start_time is not None or status.succeeded or status.failed
    return not has_started and condition(job, "Suspended") is None


def _is_controlled_by(obj: Object, job: Job) -> bool:
    return controller_uid(obj) == job.metadata.uid


def workload_of(group: PodGroup) -> str:
    """The name of the Workload that a group was made from."""
    reference = group.spec.pod_group_template_ref
    return reference.workload.workload_name if reference and reference.workload else ""


def _create_objects(job: Job, stored: StoredObjects, uids: Callable[[], str]) -> Gang:
    workload = build_workload(job, uids())
    group = build_group(job, workload, uids())
    for kind, obj in ((WORKLOADS, workload), (POD_GROUPS, group)):
        if stored.exists(kind.resource, obj.metadata.name):
            return Gang(refused=already_exists(kind.resource, obj.metadata.name).message)
    return Gang(create=(workload, group), group=group)


def _recreate_group(job: Job, workload: Workload, stored: StoredObjects, uids: Callable[[], str]) -> Gang:
    """The group was deleted, while pods that name it may still be pending."""
    group = build_group(job, workload, uids())
    return NO_GANG if stored.exists(POD_GROUPS.resource, group.metadata.name) else Gang(create=(group,), group=group)


def _resize(job: Job, workload: Workload, group: PodGroup) -> Gang:
    """`spec.scheduling` may change in one respect: how many pods must fit at once."""
    if job.spec.scheduling is None:
        return Gang(group=group)
    wanted, (template,) = scheduling_policy(job), workload.spec.pod_group_templates
    resize = []
    if template.scheduling_policy != wanted:
        templates = (replace(template, scheduling_policy=wanted),)
        resize.append(Update(replace(workload, spec=replace(workload.spec, pod_group_templates=templates)), workload))
    if group.spec.scheduling_policy != wanted:
        generation = group.metadata.generation + 1
        metadata, spec = replace(group.metadata, generation=generation), replace(group.spec, scheduling_policy=wanted)
        resize.append(Update(replace(group, metadata=metadata, spec=spec), group))
    return Gang(resize=tuple(resize), group=group)


# --- the objects


def build_workload(job: Job, uid: str) -> Workload:
    meta = job.metadata
    owners = (controller_reference("batch/v1", "Job", job.metadata),)
    return Workload(
        api_version=WORKLOADS.api_version,
        kind=WORKLOADS.name,
        metadata=ObjectMeta(name=workload_name(job), namespace=meta.namespace, uid=uid, owner_references=owners),
        spec=WorkloadSpec(
            controller_ref=TypedLocalObjectReference(api_group="batch", kind="Job", name=meta.name),
            pod_group_templates=(_build_template(job),),
        ),
    )


def _build_template(job: Job) -> PodGroupTemplate:
    wanted = job.spec.scheduling or JobSchedulingConfiguration()
    mode = wanted.disruption_mode
    return PodGroupTemplate(
        name=template_name(job),
        scheduling_policy=scheduling_policy(job),
        scheduling_constraints=wanted.scheduling_constraints,
        resource_claims=wanted.resource_claims,
        disruption_mode=(POD_GROUP if mode.all is not None else POD) if mode is not None else None,
    )


def scheduling_policy(job: Job) -> PodGroupSchedulingPolicy:
    """All of the Job's pods at once, unless `spec.scheduling` says otherwise."""
    most = max(job.spec.parallelism or 0, 1)
    if job.spec.scheduling is None:
        return PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=most))
    policy = job.spec.scheduling.scheduling_policy
    if policy is None or policy.gang is None:
        return PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())
    return PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=policy.gang.min_count or most))


def build_group(job: Job, workload: Workload, uid: str) -> PodGroup:
    (template,) = workload.spec.pod_group_templates
    meta = workload.metadata
    owner = OwnerReference(api_version=WORKLOADS.api_version, kind=WORKLOADS.name, name=meta.name, uid=meta.uid)
    source = WorkloadPodGroupTemplateReference(workload_name=meta.name, pod_group_template_name=template.name)
    name = group_name(meta.name, template.name)
    owners = (controller_reference("batch/v1", "Job", job.metadata), owner)
    return PodGroup(
        api_version=POD_GROUPS.api_version,
        kind=POD_GROUPS.name,
        metadata=ObjectMeta(name=name, namespace=meta.namespace, uid=uid, owner_references=owners),
        spec=PodGroupSpec(
            pod_group_template_ref=PodGroupTemplateReference(workload=source),
            scheduling_policy=template.scheduling_policy,
            scheduling_constraints=template.scheduling_constraints,
            resource_claims=template.resource_claims,
            disruption_mode=template.disruption_mode,
            priority_class_name=template.priority_class_name,
            priority=template.priority,
        ),
    )


def workload_name(job: Job) -> str:
    """`<job>-<hash of its UID>`. For people: no code looks it up."""
    digest = _hash(job.metadata.uid)
    return f"{_truncate(job.metadata.name, LONGEST_NAME - len(digest) - 1)}-{digest}"


def template_name(job: Job) -> str:
    """`<job>-pgt-0`, as a DNS label, which the name of a Job need not be."""
    return job.metadata.name[: LONGEST_LABEL - len(_SUFFIX)].replace(".", "-") + _SUFFIX


def group_name(workload: str, template: str) -> str:
    """`<workload>-<template>-<hash of both>`; if that is too long, the Workload's name gives way."""
    digest = _hash(workload + template)
    room = LONGEST_NAME - len(digest) - 2
    return f"{_truncate(workload, room - len(template))}-{template}-{digest}"


def _truncate(name: str, length: int) -> str:
    """A label of a DNS name must not begin or end with a dash."""
    return name[:length].rstrip(".-")


def _hash(text: str) -> str:
    """FNV-1a, 32 bits, in characters that make no words."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


# --- parts of a Job's plan


def charge_quotas(job: Job, gang: Gang, rules: Rules) -> tuple[Gang, Rules]:
    """The gang with the quotas that its new objects are charged to, or refused; and the rules, less what they take."""
    if not gang.create or not rules.quotas:
        return gang, rules
    charged: dict[str, Update] = {}
    try:
        for obj in gang.create:
            kind = WORKLOADS if isinstance(obj, Workload) else POD_GROUPS
            charged |= {each.object.metadata.uid: each for each in admit(kind.resource, obj, rules)}
            rules = replace(rules, quotas=[_replace_quota(quota, charged) for quota in rules.quotas])
    except ApiError as error:
        # Without its group a Job that runs goes on pod by pod: what has ended must be counted.
        return (Gang(refused=error.message) if is_new(job, ()) else NO_GANG), rules
    return replace(gang, quota_updates=tuple(charged.values())), rules


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
