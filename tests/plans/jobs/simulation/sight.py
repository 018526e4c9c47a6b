"""What Kubernetes sees in a Job's pods: active, terminating, succeeded, failed. Part of the model, not of the plans."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
OWNER_LABEL = "batch.kubernetes.io/controller-uid"


class Sight:
    """One look at the pods, with those adopted that are to be."""

    __slots__ = ("active", "failed", "leaving", "succeeded", "terminating", "tracked", "void")

    def __init__(self) -> None:
        self.active: list[Pod] = []
        self.terminating: list[Pod] = []
        self.succeeded: list[Pod] = []  # not counted yet, as are the next two
        self.failed: list[Pod] = []
        self.void: list[Pod] = []  # ended, of no index
        self.leaving: list[Pod] = []  # their labels match no longer
        self.tracked: set[str] = set()


def look(job: Job, pods: Iterable[Pod]) -> Sight:
    sight = Sight()
    uid, going = job.metadata.uid, job.metadata.deletion_timestamp is not None
    at_once = job.spec.pod_replacement_policy != "Failed"
    for pod in pods:
        meta = pod.metadata
        owners = meta.owner_references
        if owners and owners[0].uid != uid:
            continue
        matching = meta.labels.get(OWNER_LABEL) == uid
        if owners and not matching:
            if not going:
                sight.leaving.append(pod)
            continue
        if not owners and (not matching or going or meta.deletion_timestamp is not None):
            continue
        if not owners or TRACKING in meta.finalizers:
            sight.tracked.add(meta.uid)
        _sort(job, pod, at_once, sight)
    return sight


def _sort(job: Job, pod: Pod, at_once: bool, sight: Sight) -> None:
    phase, deleted = pod.status.phase, pod.metadata.deletion_timestamp is not None
    if deleted and not pod.spec.node_name and phase == "Pending":
        phase = "Failed"  # nobody will ever run it; Kubernetes' pod collector says so
    if phase in ("Succeeded", "Failed"):
        kept = sight.succeeded if phase == "Succeeded" else sight.failed
    elif deleted:
        sight.terminating.append(pod)
        if not at_once:
            return
        kept = sight.failed
    else:
        sight.active.append(pod)
        return
    if pod.metadata.uid in sight.tracked:
        (kept if has_place(job, pod) else sight.void).append(pod)


def index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdigit() else None


def has_place(job: Job, pod: Pod) -> bool:
    """In a Job with indexes, a pod must have one of them."""
    if job.spec.completion_mode != "Indexed":
        return True
    index = index_of(pod)
    return index is not None and index < (job.spec.completions or 0)


def tries_of(pod: Pod) -> tuple[int, int]:
    """How often its index had failed before it: failures that counted, and failures that were ignored."""
    notes = pod.metadata.annotations
    failures = int(notes.get("batch.kubernetes.io/job-index-failure-count", "0"))
    return failures, int(notes.get("batch.kubernetes.io/job-index-ignored-failure-count", "0"))


def is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


def end_of(pod: Pod, now: datetime) -> datetime:
    """When it ended: by its containers, else since it is unready, else when it was deleted, else when it was created."""
    states = [each.state.terminated if each.state else None for each in pod.status.container_statuses]
    if states and all(each and each.finished_at for each in states):
        return min(now, max(each.finished_at for each in states if each and each.finished_at))
    for each in pod.status.conditions:
        if each.type == "Ready" and each.status == "False" and each.last_transition_time:
            return min(now, each.last_transition_time)
    meta = pod.metadata
    if meta.deletion_timestamp is not None:
        return min(now, meta.deletion_timestamp - timedelta(seconds=meta.deletion_grace_period_seconds or 0))
    return min(now, meta.creation_timestamp or now)


def worth(pod: Pod) -> tuple[object, ...]:
    """Pods that are worth less are stopped first."""
    ready = next((each for each in pod.status.conditions if each.type == "Ready" and each.status == "True"), None)
    since = ready.last_transition_time if ready else None
    return (
        pod.spec.node_name != "",
        {"Pending": 0, "Unknown": 1, "Running": 2}[pod.status.phase],
        ready is not None,
        -since.timestamp() if since else 0.0,
        -max((each.restart_count for each in pod.status.container_statuses), default=0),
        -pod.metadata.creation_timestamp.timestamp() if pod.metadata.creation_timestamp else 0.0,
    )


def policy_action(job: Job, pod: Pod) -> str:
    """What the podFailurePolicy says about a failed pod; Count if it says nothing."""
    policy = job.spec.pod_failure_policy
    for rule in policy.rules if policy else ():
        if rule.action == "FailIndex" and job.spec.backoff_limit_per_index is None:
            continue
        if rule.on_exit_codes is not None:
            demand = rule.on_exit_codes
            ends = [each for each in pod.status.container_statuses if demand.container_name in ("", each.name)]
            codes = [each.state.terminated.exit_code for each in ends if each.state and each.state.terminated]
            if any(code != 0 and (code in demand.values) == (demand.operator == "In") for code in codes):
                return rule.action
        elif any(
            each.type == wanted.type and each.status == wanted.status
            for each in pod.status.conditions
            for wanted in rule.on_pod_conditions
        ):
            return rule.action
    return "Count"
