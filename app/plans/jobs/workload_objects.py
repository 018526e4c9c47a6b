"""The Workload and the PodGroup of a Job: what is in them, and their names. `workloads` decides when they are created."""

from app.kinds.batch.job import Job
from app.kinds.batch.job_scheduling import JobSchedulingConfiguration
from app.kinds.scheduling.pod_group_schema import (
    BasicSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupTemplate,
    WorkloadReference,
)
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup, prepare
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import TypedLocalObjectReference, Workload, WorkloadSpec
from app.machinery.base import ObjectMeta, OwnerReference
from app.machinery.meta.owner_references import controller_reference

LONGEST_NAME = 253
LONGEST_LABEL = 63
_SUFFIX = "-pgt-0"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def scheduling_policy(job: Job, *, is_gang: bool = False) -> PodGroupSchedulingPolicy:
    """What `spec.scheduling` says, else `is_gang`. A gang without a count is as large as what runs at once."""
    most = max(1 if job.spec.parallelism is None else job.spec.parallelism, 1)
    wanted = job.spec.scheduling.scheduling_policy if job.spec.scheduling is not None else None
    if wanted is not None and wanted.gang is not None:
        return PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=wanted.gang.min_count or most))
    if is_gang and job.spec.scheduling is None:
        return PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=most))
    return PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())


def build_workload(job: Job, policy: PodGroupSchedulingPolicy, uid: str) -> Workload:
    meta = job.metadata
    owners = (controller_reference("batch/v1", "Job", job.metadata),)
    return Workload(
        api_version=WORKLOADS.api_version,
        kind=WORKLOADS.name,
        metadata=ObjectMeta(name=workload_name(job), namespace=meta.namespace, uid=uid, owner_references=owners),
        spec=WorkloadSpec(
            controller_ref=TypedLocalObjectReference(api_group="batch", kind="Job", name=meta.name),
            pod_group_templates=(_build_template(job, policy),),
        ),
    )


def _build_template(job: Job, policy: PodGroupSchedulingPolicy) -> PodGroupTemplate:
    wanted = job.spec.scheduling or JobSchedulingConfiguration()
    return PodGroupTemplate(
        name=template_name(job),
        scheduling_policy=policy,
        scheduling_constraints=wanted.scheduling_constraints,
        resource_claims=wanted.resource_claims,
        disruption_mode=wanted.disruption_mode,
        priority_class_name=job.spec.template.spec.priority_class_name,
    )


def build_group(job: Job, workload: Workload, template: PodGroupTemplate, uid: str) -> PodGroup:
    """A group of the Job. The Workload owns it, too, if it is the Job's own, and not that of the Job's owner."""
    job_owner, meta = controller_reference("batch/v1", "Job", job.metadata), workload.metadata
    owner = OwnerReference(api_version=WORKLOADS.api_version, kind=WORKLOADS.name, name=meta.name, uid=meta.uid)
    is_own = any(each.uid == job.metadata.uid for each in meta.owner_references)
    name = group_name(meta.name, template.name)
    owners = (job_owner, owner) if is_own else (job_owner,)
    group = PodGroup(
        api_version=POD_GROUPS.api_version,
        kind=POD_GROUPS.name,
        metadata=ObjectMeta(name=name, namespace=meta.namespace, uid=uid, owner_references=owners),
        spec=PodGroupSpec(
            workload_ref=WorkloadReference(workload_name=meta.name, template_name=template.name),
            scheduling_policy=template.scheduling_policy,
            scheduling_constraints=template.scheduling_constraints,
            resource_claims=template.resource_claims,
            disruption_mode=template.disruption_mode,
            priority_class_name=template.priority_class_name,
            priority=template.priority,
        ),
    )
    return prepare(group)


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
