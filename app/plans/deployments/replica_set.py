"""ReplicaSet decision: create or delete pods until as many are active as are wanted, and report how many there are. Pure.

The ReplicaSet controller calls `plan`. A pod that has ended, or is being deleted, is replaced at once. Pods that have ended stay
for whoever asks why, but only a few; and pods that end as soon as they are created are not created without end.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from app.kinds.apps.replicaset import ReplicaSet, ReplicaSetCondition, ReplicaSetStatus
from app.kinds.pod.pod import Pod, condition, is_active, is_ready, is_terminal
from app.kinds.pod.pod_validation import DELETION_COST
from app.machinery.base import ObjectMeta
from app.machinery.meta.owner_references import controller_reference
from app.plans.admission import refusals
from app.plans.admission.created_pods import AdmittedPods, admit_pods
from app.plans.admission.pod_admission import NO_RULES, Rules
from app.plans.jobs.pod_template import LONGEST_PREFIX
from app.plans.jobs.scaling import rank_for_deletion
from app.plans.plan import Action, Create, Delete, Emit, Names, Plan, SetStatus, earliest

MOST_PODS = 500  # created or deleted by one plan
KEPT = 10  # pods that have ended
YOUNG = timedelta(seconds=60)  # pods that end at this age count as a loop, once there are `KEPT` of them
SINGLE_EVENTS = 10  # of one sort in a plan
FAILURE = "ReplicaFailure"


class _Pods(msgspec.Struct, frozen=True):
    """The pods of a ReplicaSet by what there is to do about them."""

    active: tuple[Pod, ...]
    ended: tuple[Pod, ...]  # oldest first
    terminating: int


def plan(replica_set: ReplicaSet, pods: Sequence[Pod], names: Names, now: datetime, rules: Rules = NO_RULES) -> Plan:
    """`pods`: those that the ReplicaSet controls."""
    found = _sort(pods, now)
    if replica_set.metadata.deletion_timestamp is not None:  # the garbage collector deletes its pods
        return _write(replica_set, found.active, found.terminating, AdmittedPods(()), now, None)
    missing = (replica_set.spec.replicas or 0) - len(found.active)
    waits_until = _end_of_loop(found.ended, now)
    wanted = 0 if waits_until else max(0, min(missing, MOST_PODS))
    common = _common_pod(replica_set)
    admitted = admit_pods(tuple(_pod_of(common, names) for _ in range(wanted)), replica_set, rules, now)
    deleted = _rank(found.active)[: min(-missing, MOST_PODS)] if missing < 0 else []
    gone = {pod.metadata.uid for pod in deleted}
    left = tuple(pod for pod in found.active if pod.metadata.uid not in gone)
    terminating = found.terminating + sum(bool(pod.spec.node_name) for pod in deleted)
    more = now if abs(missing) > MOST_PODS else None
    again_at = earliest((waits_until if missing > 0 else None, admitted.refusal.again_at, more))
    written = _write(replica_set, (*left, *admitted.pods), terminating, admitted, now, again_at)
    actions = (
        *(Create(pod) for pod in admitted.pods),
        *admitted.quota_updates,
        *(Delete(pod) for pod in deleted),
        *(Delete(pod, grace_period_seconds=0) for pod in found.ended[:-KEPT]),
        *_events(replica_set, admitted, deleted),
    )
    return replace(written, actions=(*written.actions, *actions))


def _sort(pods: Sequence[Pod], now: datetime) -> _Pods:
    ended = (pod for pod in pods if is_terminal(pod) and pod.metadata.deletion_timestamp is None)
    return _Pods(
        active=tuple(pod for pod in pods if is_active(pod)),
        ended=tuple(sorted(ended, key=lambda pod: (pod.metadata.creation_timestamp or now, pod.metadata.name))),
        terminating=sum(pod.metadata.deletion_timestamp is not None and not is_terminal(pod) for pod in pods),
    )


def _end_of_loop(ended: Sequence[Pod], now: datetime) -> datetime | None:
    """Until when nothing is created, because the last pods have all ended as soon as they were created."""
    last = ended[-KEPT:]
    since = last[0].metadata.creation_timestamp if len(last) == KEPT else None
    return since + YOUNG if since is not None and since + YOUNG > now else None


# --- pods


def _common_pod(replica_set: ReplicaSet) -> Pod:
    template, meta = replica_set.spec.template, replica_set.metadata
    owner = controller_reference("apps/v1", "ReplicaSet", meta)
    metadata = ObjectMeta(
        namespace=meta.namespace,
        generate_name=f"{meta.name}-",
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        finalizers=template.metadata.finalizers,
        owner_references=(owner,),
    )
    return Pod(api_version="v1", kind="Pod", metadata=metadata, spec=template.spec)


def _pod_of(common: Pod, names: Names) -> Pod:
    name = names(common.metadata.generate_name[:LONGEST_PREFIX])
    return replace(common, metadata=replace(common.metadata, name=name))


def _rank(pods: Sequence[Pod]) -> list[Pod]:
    """First pods whose loss costs least: what does not run yet, then by the annotation of their cost, then the youngest."""
    order = {pod.metadata.uid: place for place, pod in enumerate(rank_for_deletion(pods))}
    return sorted(
        pods,
        key=lambda pod: (
            bool(pod.spec.node_name),
            pod.status.phase == "Running",
            is_ready(pod),
            int(pod.metadata.annotations.get(DELETION_COST, "0")),
            order[pod.metadata.uid],
        ),
    )


def _events(replica_set: ReplicaSet, admitted: AdmittedPods, deleted: Sequence[Pod]) -> Iterator[Action]:
    for reason, verb, pods in (
        ("SuccessfulCreate", "Created", admitted.pods),
        ("SuccessfulDelete", "Deleted", deleted),
    ):
        for pod in pods[:SINGLE_EVENTS]:
            yield Emit("Normal", reason, f"{verb} pod: {pod.metadata.name}", replica_set)
        if others := pods[SINGLE_EVENTS:]:
            last = f"(combined from similar events): {verb} pod: {others[-1].metadata.name}"
            yield Emit("Normal", reason, last, replica_set, len(others))
    if admitted.refusal.message:
        yield Emit("Warning", "FailedCreate", f"Error creating: {admitted.refusal.message}", replica_set)


# --- status


def _write(
    replica_set: ReplicaSet,
    pods: Sequence[Pod],
    terminating: int,
    admitted: AdmittedPods,
    now: datetime,
    again_at: datetime | None,
) -> Plan:
    """The plan that writes the status, if it differs. `pods`: those that are active, as the plan leaves them."""
    spec, meta = replica_set.spec, replica_set.metadata
    labels = spec.template.metadata.labels.items()
    available_at = [_available_at(pod, spec.min_ready_seconds, now) for pod in pods]
    status = ReplicaSetStatus(
        replicas=len(pods),
        fully_labeled_replicas=sum(labels <= pod.metadata.labels.items() for pod in pods),
        ready_replicas=sum(is_ready(pod) for pod in pods),
        available_replicas=sum(at is not None and at <= now for at in available_at),
        terminating_replicas=terminating,
        observed_generation=meta.generation,
        conditions=_conditions(replica_set, admitted, now),
    )
    annotations = refusals.annotate(meta.annotations, admitted.refusal)
    again_at = earliest((again_at, *(at for at in available_at if at is not None and at > now)))
    if status == replica_set.status and annotations == meta.annotations:
        return Plan(again_at=again_at)
    after = replace(replica_set, status=status, metadata=replace(meta, annotations=annotations))
    return Plan((SetStatus(after),), again_at)


def _available_at(pod: Pod, min_ready_seconds: int, now: datetime) -> datetime | None:
    """When a pod counts as available; None if it is not ready."""
    ready = condition(pod.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return None
    since = ready.last_transition_time or pod.metadata.creation_timestamp
    return now if since is None or min_ready_seconds == 0 else since + timedelta(seconds=min_ready_seconds)


def _conditions(replica_set: ReplicaSet, admitted: AdmittedPods, now: datetime) -> tuple[ReplicaSetCondition, ...]:
    """The message changes only when the refusal is reported: it names a pod, another one with each try."""
    before = next((each for each in replica_set.status.conditions if each.type == FAILURE), None)
    others = tuple(each for each in replica_set.status.conditions if each.type != FAILURE)
    if not admitted.why:
        return others
    if before is None:
        before = ReplicaSetCondition(type=FAILURE, status="True", last_transition_time=now, reason="FailedCreate")
    is_news = not before.message or admitted.refusal.message
    return (*others, replace(before, message=admitted.why) if is_news else before)
