"""Job decision: what to do next about one Job. Pure: the same job, pods, time and names give the same plan.

Called by the Job controller whenever a Job or one of its pods changes, and at the time that the last plan named. In order:
take a snapshot (claim, sort and count the pods), decide, build status, actions and events. A plan is carried out whole or
not at all; so every plan starts from a state in which each pod is either counted and without the tracking finalizer, or not
counted and with it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from app.kinds.batch.completion_indexes import Indexes
from app.kinds.batch.job import Job, is_finished, is_indexed
from app.kinds.pod.pod import Pod
from app.machinery.meta.owner_references import controller_of
from app.machinery.selectors import from_label_selector
from app.plans.admission.pod_admission import NO_RULES, Rules
from app.plans.admission.refusals import NONE
from app.plans.jobs import backoff, heartbeat, job_events, oom_memory, workloads
from app.plans.jobs.dependencies import FindJob, check_dependencies, find_nothing
from app.plans.jobs.finalizers import account_pods, add_tracking, is_tracked, remove_tracking, untrack_all
from app.plans.jobs.index_failure import exhausted_indexes, has_limit_per_index, last_failed_pods
from app.plans.jobs.indexes import has_valid_index, indexes_of
from app.plans.jobs.job_snapshot import NO_DEPENDENCIES, JobDecision, JobSnapshot, only_replaces_failed_pods
from app.plans.jobs.job_status import build_job, deadline_at, find_completion, find_outcome
from app.plans.jobs.pod_failure_policy import count_failures
from app.plans.jobs.pod_template import owner_reference
from app.plans.jobs.scaling import delete_all, scale
from app.plans.jobs.workloads import NO_GANG, Gang
from app.plans.plan import Action, Create, Delete, Names, Plan, SetStatus, Update, earliest


def plan(
    job: Job,
    pods: Sequence[Pod],
    now: datetime,
    names: Names,
    rules: Rules = NO_RULES,
    gang: Gang = NO_GANG,
    find: FindJob = find_nothing,
) -> Plan:
    """The next step towards the Job's spec.

    `pods` must hold all pods that the Job controls and that carry the tracking finalizer, or are active or terminating;
    and the orphans that its selector matches. More of its pods do no harm: those that were counted are skipped.
    `rules` are those of the Job's namespace. `gang` is from `app.plans.jobs.workloads`, for the same job and pods.
    `find` returns another Job of the namespace by its name, for Jobs that wait for others.
    """
    if not is_managed(job):
        return Plan()
    if is_finished(job):
        return Plan(tuple(untrack_all(job, pods)))
    if job.spec.completion_mode not in ("", "NonIndexed", "Indexed"):
        return Plan((job_events.unknown_completion_mode(job),))
    dependencies = check_dependencies(job, find)
    gang, rules = workloads.charge_quotas(job, NO_GANG if dependencies.is_waiting else gang, rules)
    if gang.refused:
        return workloads.refuse_start(job, gang, now)
    snapshot = replace(take_snapshot(job, pods, now, rules, gang), dependencies=dependencies)
    decision = decide(snapshot, names)
    after = build_job(snapshot, decision)
    deadlines = (deadline_at(after), heartbeat.due_at(job)) if decision.outcome is None else ()
    actions = tuple(_build_actions(snapshot, decision, after))
    again_at = earliest((decision.again_at, *deadlines))
    return Plan(actions, again_at, is_settled=bool(actions) and settles(snapshot, decision))


def is_managed(job: Job) -> bool:
    """False for a Job that another controller manages (`spec.managedBy`): it is left alone entirely."""
    return job.spec.managed_by in (None, "kubernetes.io/job-controller")


def decide(snapshot: JobSnapshot, names: Names) -> JobDecision:
    """With an outcome all pods are deleted. Without one they are scaled, after which the Job may prove complete."""
    outcome = find_outcome(snapshot)
    decision = delete_all(snapshot) if outcome else scale(snapshot, names)
    active = len(snapshot.active_pods) - len(decision.delete) + len(decision.create)
    terminating = len(snapshot.terminating_pods) + len(decision.delete)
    outcome = outcome or find_completion(snapshot, active)
    return account_pods(snapshot, replace(decision, outcome=outcome, active=active, terminating=terminating))


def settles(snapshot: JobSnapshot, decision: JobDecision) -> bool:
    """Return whether the next plan, if nothing else happens, would do nothing. False also where that takes a closer look."""
    job = snapshot.job
    if snapshot.gang is not NO_GANG or snapshot.dependencies != NO_DEPENDENCIES or snapshot.ownership:
        return False
    if snapshot.failed_pods or snapshot.unindexed_pods or has_limit_per_index(job):
        return False
    if decision.delete or decision.again_at is not None or decision.refusal is not NONE:
        return False
    if decision.outcome is None:
        return job.metadata.deletion_timestamp is None
    return decision.is_final and job.spec.ttl_seconds_after_finished is None


# --- snapshot


def take_snapshot(job: Job, pods: Sequence[Pod], now: datetime, rules: Rules, gang: Gang) -> JobSnapshot:
    claimed, ownership = claim_pods(job, pods)
    snapshot = JobSnapshot(job=job, now=now, rules=rules, gang=gang, ownership=ownership)
    return count_pods(sort_pods(snapshot, claimed))


def claim_pods(job: Job, pods: Sequence[Pod]) -> tuple[list[Pod], dict[str, Update]]:
    """The Job's pods; and, by UID, the orphans that its selector matches and its pods that it no longer matches.

    The former are adopted and are among its pods, the latter are released.
    """
    claimed: list[Pod] = []
    ownership: dict[str, Update] = {}
    selector = from_label_selector(job.spec.selector)
    is_deleted = job.metadata.deletion_timestamp is not None
    for pod in pods:
        owner = controller_of(pod)
        if owner is not None and owner.uid != job.metadata.uid:
            continue
        if not selector.matches(pod.metadata.labels):
            if owner and not is_deleted:
                ownership[pod.metadata.uid] = Update(release_pod(job, pod), pod)
        elif owner:
            claimed.append(pod)
        elif not pod.metadata.deletion_timestamp and not is_deleted:
            adopted = adopt_pod(job, pod)
            claimed.append(adopted)
            ownership[pod.metadata.uid] = Update(adopted, pod)
    return claimed, ownership


def adopt_pod(job: Job, pod: Pod) -> Pod:
    meta = pod.metadata
    others = tuple(owner for owner in meta.owner_references if owner.uid != job.metadata.uid)
    owners = (*others, owner_reference(job))
    return replace(pod, metadata=replace(meta, owner_references=owners, finalizers=add_tracking(meta.finalizers)))


def release_pod(job: Job, pod: Pod) -> Pod:
    owners = tuple(owner for owner in pod.metadata.owner_references if owner.uid != job.metadata.uid)
    return remove_tracking(replace(pod, metadata=replace(pod.metadata, owner_references=owners)))


def sort_pods(snapshot: JobSnapshot, pods: Iterable[Pod]) -> JobSnapshot:
    """The snapshot with these pods by state. Pods that have ended and were counted are left out."""
    job = snapshot.job
    deleted_is_failed = not only_replaces_failed_pods(job)
    active: list[Pod] = []
    terminating: list[Pod] = []
    succeeded: list[Pod] = []
    failed: list[Pod] = []
    unindexed: list[Pod] = []
    for pod in pods:
        phase = _phase(pod)
        if phase not in ("Succeeded", "Failed"):
            if pod.metadata.deletion_timestamp is None:
                active.append(pod)
                continue
            terminating.append(pod)
            if not deleted_is_failed:
                continue
        if is_tracked(pod):
            ended = succeeded if phase == "Succeeded" else failed
            (ended if has_valid_index(job, pod) else unindexed).append(pod)
    return replace(
        snapshot,
        active_pods=active,
        terminating_pods=terminating,
        succeeded_pods=succeeded,
        failed_pods=failed,
        unindexed_pods=unindexed,
    )


def _phase(pod: Pod) -> str:
    """A pod that is deleted before it gets a node never runs, and no agent reports that it has failed."""
    never_ran = pod.status.phase == "Pending" and not pod.spec.node_name
    return "Failed" if never_ran and pod.metadata.deletion_timestamp is not None else pod.status.phase


def count_pods(snapshot: JobSnapshot) -> JobSnapshot:
    """The snapshot with the counts of the Job's status and of its sorted pods, and with the back-off that follows."""
    job, now, succeeded, failed = snapshot.job, snapshot.now, snapshot.succeeded_pods, snapshot.failed_pods
    completed_indexes, failed_indexes = count_indexes(snapshot)
    return replace(
        snapshot,
        succeeded=len(completed_indexes) if is_indexed(job) else job.status.succeeded + len(succeeded),
        failed=job.status.failed + count_failures(job, failed),
        completed_indexes=completed_indexes,
        failed_indexes=failed_indexes,
        last_failed=last_failed_pods(job, failed, now),
        backoff=backoff.update(backoff.read(job, now), succeeded, failed, now),
        memory=oom_memory.memory_of(job, failed),
    )


def count_indexes(snapshot: JobSnapshot) -> tuple[Indexes, Indexes]:
    """The indexes that have succeeded, and those that have failed for good. None, unless the Job is Indexed."""
    job, status = snapshot.job, snapshot.job.status
    if not is_indexed(job):
        return Indexes(), Indexes()
    end = job.spec.completions or 0
    failed = Indexes.parse(status.failed_indexes or "").clip(end)
    succeeded = [index for index in indexes_of(snapshot.succeeded_pods) if index not in failed]
    completed = Indexes.parse(status.completed_indexes).clip(end).add(succeeded)
    exhausted = [index for index in exhausted_indexes(job, snapshot.failed_pods) if index not in completed]
    return completed, failed.add(exhausted)


# --- actions


def _build_actions(snapshot: JobSnapshot, decision: JobDecision, after: Job) -> Iterable[Action]:
    job, gang = snapshot.job, snapshot.gang
    yield from workloads.write_objects(gang)
    yield from _write_pods(snapshot, decision)
    if after is not job:
        yield SetStatus(after)
    yield from workloads.merge_quota_updates(gang, decision.quota_updates)
    yield from workloads.created_events(job, gang)
    yield from job_events.build_events(snapshot, decision, after)


def _write_pods(snapshot: JobSnapshot, decision: JobDecision) -> Iterable[Action]:
    """One action for each pod that changes, against the version that is stored."""
    ownership = dict(snapshot.ownership)
    for pod in decision.delete:
        changed, untracked = ownership.pop(pod.metadata.uid, None), remove_tracking(pod)
        unchanged = None if untracked is pod else pod
        yield Delete(untracked, changed.old if changed else unchanged)
    for pod in decision.untrack:
        changed = ownership.pop(pod.metadata.uid, None)
        yield Update(remove_tracking(pod), changed.old if changed else pod)
    yield from ownership.values()
    yield from map(Create, decision.create)
