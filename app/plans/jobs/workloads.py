"""Jobs whose pods are to be scheduled with regard to each other: their Workload, their PodGroup, and pods that join it.

The Job controller asks `gang` before each plan and hands the answer to `app.plans.jobs.job`, which writes the objects before the
first pods, in the same write set. What the scheduler reads of them is agreed in docs/decisions/0009.

A Job gets its objects when it is first looked at, suspended or not, or never. Which Jobs do is Kubernetes 1.36's rule, or
what `spec.scheduling` says, as in 1.37. Everything that somebody else made is left alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job, condition, is_finished, is_indexed
from app.kinds.batch.job_scheduling import JobSchedulingConfiguration
from app.kinds.pod.pod import Pod, PodSchedulingGroup
from app.kinds.scheduling.pod_group_schema import (
    POD,
    POD_GROUP,
    BasicSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupTemplate,
    PodGroupTemplateReference,
    WorkloadPodGroupTemplateReference,
)
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import TypedLocalObjectReference, Workload, WorkloadSpec
from app.machinery.base import Object, ObjectMeta, OwnerReference
from app.machinery.errors import ApiError, already_exists
from app.machinery.feature_gates import WORKLOAD_WITH_JOB, Features
from app.machinery.owner_references import controller_uid
from app.plans.admission import refusals
from app.plans.admission.pod_admission import Rules, judged
from app.plans.jobs.pod_template import owner_reference
from app.plans.plan import Action, Create, Emit, Move, Plan, SetStatus, Update

LABEL = "jobplane.dev/gang"  # of a Job or a namespace: "true" or "false"
LONGEST_NAME = 253
LONGEST_LABEL = 63
_SUFFIX = "-pgt-0"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Gang(msgspec.Struct, frozen=True):
    """What to do about a Job's scheduling objects, and the group that its new pods join.

    refused: why they may not be made; until they may, the Job does not start.
    """

    create: tuple[Workload | PodGroup, ...] = ()
    resize: tuple[Update, ...] = ()
    group: PodGroup | None = None
    charged: tuple[Update, ...] = ()
    refused: str = ""


NO_GANG = Gang()


class Found(msgspec.Struct, frozen=True):
    """What there is in the Job's namespace already.

    workloads: those that name the Job as their controller. groups: those made from a template of one of these.
    taken:     whether there is an object of this resource and name, whosever it is.
    """

    workloads: Sequence[Workload] = ()
    groups: Sequence[PodGroup] = ()
    taken: Callable[[str, str], bool] = lambda _resource, _name: False


# --- which Jobs


def is_on(features: Features, namespace_labels: Mapping[str, str], job_labels: Mapping[str, str]) -> bool:
    """What the nearest says: the Job's label, the namespace's, the feature gate."""
    for labels in (job_labels, namespace_labels):
        if labels.get(LABEL) in ("true", "false"):
            return labels[LABEL] == "true"
    return WORKLOAD_WITH_JOB in features


def qualifies(job: Job) -> bool:
    """Where it is on: whether the Job gets scheduling objects."""
    if job.spec.template.spec.scheduling_group is not None:
        return False  # somebody else sees to it
    return job.spec.scheduling is not None or is_gang_by_shape(job)


def is_gang_by_shape(job: Job) -> bool:
    """All of its indexes run at once, so that is how they are to be scheduled. What a Job says of itself goes first."""
    spec = job.spec
    all_at_once = spec.parallelism is not None and 1 < spec.parallelism == spec.completions
    unsaid = spec.scheduling is None and spec.template.spec.scheduling_group is None
    return is_indexed(job) and all_at_once and unsaid


# --- what is to be done


def gang(job: Job, pods: Sequence[Pod], found: Found, uids: Callable[[], str]) -> Gang:
    """For a Job that qualifies, where it is on. Anything ambiguous or foreign means: pod by pod, without a group."""
    if job.metadata.deletion_timestamp is not None or is_finished(job):
        return NO_GANG
    if not found.workloads:
        return _new(job, found, uids) if is_new(job, pods) else NO_GANG
    workload = found.workloads[0]
    if len(found.workloads) > 1 or not _is_of(workload, job) or len(workload.spec.pod_group_templates) != 1:
        return NO_GANG
    groups = [group for group in found.groups if workload_of(group) == workload.metadata.name]
    if not groups:
        return _regrouped(job, workload, found, uids)
    if len(groups) > 1 or not _is_of(groups[0], job):
        return NO_GANG
    return _sized(job, workload, groups[0])


def is_new(job: Job, pods: Sequence[Pod]) -> bool:
    """It never started: so nothing runs already that was not scheduled together."""
    status = job.status
    began = pods or status.start_time is not None or status.succeeded or status.failed
    return not began and condition(job, "Suspended") is None


def _is_of(obj: Object, job: Job) -> bool:
    return controller_uid(obj) == job.metadata.uid


def workload_of(group: PodGroup) -> str:
    """The name of the Workload that a group was made from."""
    reference = group.spec.pod_group_template_ref
    return reference.workload.workload_name if reference and reference.workload else ""


def _new(job: Job, found: Found, uids: Callable[[], str]) -> Gang:
    workload = workload_for(job, uids())
    group = group_for(job, workload, uids())
    for kind, obj in ((WORKLOADS, workload), (POD_GROUPS, group)):
        if found.taken(kind.resource, obj.metadata.name):
            return Gang(refused=already_exists(kind.resource, obj.metadata.name).message)
    return Gang(create=(workload, group), group=group)


def _regrouped(job: Job, workload: Workload, found: Found, uids: Callable[[], str]) -> Gang:
    """Somebody deleted the group, which pods name that may still have to be scheduled."""
    group = group_for(job, workload, uids())
    return NO_GANG if found.taken(POD_GROUPS.resource, group.metadata.name) else Gang(create=(group,), group=group)


def _sized(job: Job, workload: Workload, group: PodGroup) -> Gang:
    """What a Job says of itself may change in one respect: how many pods must find a place."""
    if job.spec.scheduling is None:
        return Gang(group=group)
    wanted, (template,) = policy_for(job), workload.spec.pod_group_templates
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


def workload_for(job: Job, uid: str) -> Workload:
    meta = job.metadata
    owners = (owner_reference(job),)
    return Workload(
        api_version=WORKLOADS.api_version,
        kind=WORKLOADS.name,
        metadata=ObjectMeta(name=workload_name(job), namespace=meta.namespace, uid=uid, owner_references=owners),
        spec=WorkloadSpec(
            controller_ref=TypedLocalObjectReference(api_group="batch", kind="Job", name=meta.name),
            pod_group_templates=(_template(job),),
        ),
    )


def _template(job: Job) -> PodGroupTemplate:
    wanted = job.spec.scheduling or JobSchedulingConfiguration()
    mode = wanted.disruption_mode
    return PodGroupTemplate(
        name=template_name(job),
        scheduling_policy=policy_for(job),
        scheduling_constraints=wanted.scheduling_constraints,
        resource_claims=wanted.resource_claims,
        disruption_mode=(POD_GROUP if mode.all is not None else POD) if mode is not None else None,
    )


def policy_for(job: Job) -> PodGroupSchedulingPolicy:
    """All of the Job's pods at once, unless the Job says otherwise of itself."""
    most = max(job.spec.parallelism or 0, 1)
    if job.spec.scheduling is None:
        return PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=most))
    policy = job.spec.scheduling.scheduling_policy
    if policy is None or policy.gang is None:
        return PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())
    return PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=policy.gang.min_count or most))


def group_for(job: Job, workload: Workload, uid: str) -> PodGroup:
    (template,) = workload.spec.pod_group_templates
    meta = workload.metadata
    owner = OwnerReference(api_version=WORKLOADS.api_version, kind=WORKLOADS.name, name=meta.name, uid=meta.uid)
    source = WorkloadPodGroupTemplateReference(workload_name=meta.name, pod_group_template_name=template.name)
    name = group_name(meta.name, template.name)
    owners = (owner_reference(job), owner)
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
    """`<job>-<hash of its UID>`. For people: nothing is found by it."""
    digest = _hash(job.metadata.uid)
    return f"{_cut(job.metadata.name, LONGEST_NAME - len(digest) - 1)}-{digest}"


def template_name(job: Job) -> str:
    """`<job>-pgt-0`, as a DNS label, which the name of a Job need not be."""
    return job.metadata.name[: LONGEST_LABEL - len(_SUFFIX)].replace(".", "-") + _SUFFIX


def group_name(workload: str, template: str) -> str:
    """`<workload>-<template>-<hash of both>`; if that is too long, the Workload's name gives way."""
    digest = _hash(workload + template)
    room = LONGEST_NAME - len(digest) - 2
    return f"{_cut(workload, room - len(template))}-{template}-{digest}"


def _cut(name: str, length: int) -> str:
    """A label of a name must not end in a dash, nor begin with one."""
    return name[:length].rstrip(".-")


def _hash(text: str) -> str:
    """FNV-1a, 32 bits, in characters that make no words."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


# --- what that does to a plan


def admitted(job: Job, made: Gang, rules: Rules) -> tuple[Gang, Rules]:
    """The gang, charged to the quotas of its namespace or refused by them; and the rules with what is left for pods."""
    if not made.create or not rules.quotas:
        return made, rules
    charged: dict[str, Update] = {}
    try:
        for obj in made.create:
            kind = WORKLOADS if isinstance(obj, Workload) else POD_GROUPS
            charged |= {each.object.metadata.uid: each for each in judged(kind.resource, obj, rules)}
            rules = replace(rules, quotas=[_used(quota, charged) for quota in rules.quotas])
    except ApiError as error:
        # Without its group a Job that runs goes on pod by pod: what has ended must be counted.
        return (Gang(refused=error.message) if is_new(job, ()) else NO_GANG), rules
    return replace(made, charged=tuple(charged.values())), rules


def _used(quota: Object, charged: Mapping[str, Update]) -> Object:
    update = charged.get(quota.metadata.uid)
    return update.object if update else quota


def together(made: Gang, move: Move) -> tuple[Update, ...]:
    """Each quota once, though both the objects and the pods are charged to it."""
    return tuple({each.object.metadata.uid: each for each in (*made.charged, *move.charged)}.values())


def joined(move: Move, made: Gang) -> Move:
    """The move, its new pods in the group."""
    if made.group is None or not move.create:
        return move
    meta = made.group.metadata
    owner = OwnerReference(api_version=POD_GROUPS.api_version, kind=POD_GROUPS.name, name=meta.name, uid=meta.uid)
    place = PodSchedulingGroup(pod_group_name=meta.name)
    return replace(move, create=tuple(_joined(pod, owner, place) for pod in move.create))


def _joined(pod: Pod, owner: OwnerReference, place: PodSchedulingGroup) -> Pod:
    metadata = replace(pod.metadata, owner_references=(*pod.metadata.owner_references, owner))
    return replace(pod, metadata=metadata, spec=replace(pod.spec, scheduling_group=place))


def first(made: Gang) -> Iterable[Action]:
    """What comes before pods in a write set."""
    yield from map(Create, made.create)
    yield from made.resize


def told(job: Job, made: Gang) -> Iterable[Emit]:
    for obj in made.create:
        text = f"Created {obj.kind} {obj.metadata.name} for Job {job.metadata.name}"
        yield Emit("Normal", f"{obj.kind}Created", text, job)


def held(job: Job, made: Gang, now: datetime) -> Plan:
    """Nothing but to say why the Job does not start, if it is time to say so again."""
    refusal = refusals.refused(job, made.refused, now)
    annotations = refusals.noted(job.metadata.annotations, refusal)
    if not refusal.message:
        return Plan(again_at=refusal.again_at)
    text = f"Failed to create Workload for Job {job.metadata.name}: {refusal.message}"
    after = replace(job, metadata=replace(job.metadata, annotations=annotations))
    event = Emit("Warning", "FailedWorkloadCreate", text, job)
    return Plan((SetStatus(after), event), again_at=refusal.again_at)
