"""Status of a Deployment: its ReplicaSets' numbers added up, and the conditions Available, Progressing and ReplicaFailure.

`deployment` calls it. Reasons and messages are Kubernetes', as `kubectl rollout status` and Helm read them.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.kinds.apps.deployment import Deployment, DeploymentCondition, DeploymentStatus
from app.kinds.apps.replicaset import ReplicaSet
from app.plans.deployments.replica_set import FAILURE
from app.plans.deployments.rollout import limits_of

AVAILABLE, PROGRESSING = "Available", "Progressing"
DONE, STUCK, PAUSED = "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"
NO_DEADLINE = 2**31 - 1
_OURS = (AVAILABLE, PROGRESSING, "ReplicaFailure")


def build_status(
    deployment: Deployment,
    new: ReplicaSet | None,
    all_sets: Sequence[ReplicaSet],
    collisions: int,
    now: datetime,
    created: ReplicaSet | None = None,
    refusal: str = "",
) -> DeploymentStatus:
    """`all_sets` as the plan leaves them, `new` among them; `created`: if it is created by this plan; `refusal`: why not."""
    counts = _count(deployment, new, all_sets, collisions)
    conditions = [_with_times(deployment, _available(deployment, counts), now)]
    progress = _progress(deployment, counts, new, created, refusal, now)
    conditions += [] if progress is None else [progress]
    if failure := _failure(deployment, new, all_sets, now):
        conditions.append(failure)
    return replace(counts, conditions=_in_order(deployment, conditions))


def _count(
    deployment: Deployment, new: ReplicaSet | None, all_sets: Sequence[ReplicaSet], collisions: int
) -> DeploymentStatus:
    available = sum(each.status.available_replicas for each in all_sets)
    return DeploymentStatus(
        observed_generation=deployment.metadata.generation,
        replicas=sum(each.status.replicas for each in all_sets),
        updated_replicas=new.status.replicas if new else 0,
        ready_replicas=sum(each.status.ready_replicas for each in all_sets),
        available_replicas=available,
        unavailable_replicas=max(0, sum(each.spec.replicas or 0 for each in all_sets) - available),
        terminating_replicas=sum(each.status.terminating_replicas or 0 for each in all_sets),
        collision_count=collisions or None,
    )


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    wanted = deployment.spec.replicas or 0
    counts = (status.updated_replicas, status.replicas, status.available_replicas)
    return all(count == wanted for count in counts) and status.observed_generation >= deployment.metadata.generation


def stuck_at(deployment: Deployment, status: DeploymentStatus) -> datetime | None:
    """When the rollout is stuck unless it makes progress; None if that is not to be looked at."""
    progress = _find(status.conditions, PROGRESSING)
    deadline = deployment.spec.progress_deadline_seconds
    if progress is None or progress.last_update_time is None or progress.reason in (DONE, PAUSED):
        return None
    return None if progress.status == "False" else progress.last_update_time + timedelta(seconds=deadline or 0)


# --- conditions


def _available(deployment: Deployment, status: DeploymentStatus) -> DeploymentCondition:
    limits = limits_of(deployment)
    if status.available_replicas >= limits.replicas - limits.unavailable:
        return _condition(AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    text = "Deployment does not have minimum availability."
    return _condition(AVAILABLE, "False", "MinimumReplicasUnavailable", text)


def _progress(
    deployment: Deployment,
    status: DeploymentStatus,
    new: ReplicaSet | None,
    created: ReplicaSet | None,
    refusal: str,
    now: datetime,
) -> DeploymentCondition | None:
    before = _find(deployment.status.conditions, PROGRESSING)
    if deployment.spec.progress_deadline_seconds in (None, NO_DEADLINE):
        return None
    if refusal:
        return _with_times(deployment, _condition(PROGRESSING, "False", "ReplicaSetCreateError", refusal), now)
    if deployment.spec.paused:
        return _with_times(deployment, _condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused"), now)
    if created is not None:
        text = f'Created new replica set "{created.metadata.name}"'
        return _with_times(deployment, _condition(PROGRESSING, "True", "NewReplicaSetCreated", text), now, afresh=True)
    if before is not None and before.reason == PAUSED:
        resumed = _condition(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed")
        return _with_times(deployment, resumed, now)
    return _judge(deployment, status, new, before, now)


def _judge(
    deployment: Deployment,
    status: DeploymentStatus,
    new: ReplicaSet | None,
    before: DeploymentCondition | None,
    now: datetime,
) -> DeploymentCondition | None:
    """A rollout that is over stays so until pods of another template are there; one that makes no progress is stuck."""
    if before is not None and before.reason == DONE and status.replicas == status.updated_replicas:
        return before
    name = f'ReplicaSet "{new.metadata.name}"' if new else f'Deployment "{deployment.metadata.name}"'
    if is_complete(deployment, status):
        return _with_times(
            deployment, _condition(PROGRESSING, "True", DONE, f"{name} has successfully progressed."), now
        )
    if _has_progressed(deployment.status, status) or before is None or before.reason == DONE:
        found = _condition(PROGRESSING, "True", "ReplicaSetUpdated", f"{name} is progressing.")
        return _with_times(deployment, found, now, afresh=True)
    since = before.last_update_time or now
    if before.reason != STUCK and now >= since + timedelta(seconds=deployment.spec.progress_deadline_seconds or 0):
        stuck = _condition(PROGRESSING, "False", STUCK, f"{name} has timed out progressing.")
        return _with_times(deployment, stuck, now)
    return before


def _has_progressed(before: DeploymentStatus, now: DeploymentStatus) -> bool:
    return (
        now.updated_replicas > before.updated_replicas
        or now.replicas - now.updated_replicas < before.replicas - before.updated_replicas
        or now.ready_replicas > before.ready_replicas
        or now.available_replicas > before.available_replicas
    )


def _failure(
    deployment: Deployment, new: ReplicaSet | None, all_sets: Sequence[ReplicaSet], now: datetime
) -> DeploymentCondition | None:
    """That pods are refused to a ReplicaSet, the newest before all others."""
    for each in ([new] if new else []) + [*all_sets]:
        for found in each.status.conditions:
            if found.type == FAILURE:
                return _with_times(deployment, _condition(FAILURE, found.status, found.reason, found.message), now)
    return None


def _condition(type_: str, status: str, reason: str, message: str) -> DeploymentCondition:
    return DeploymentCondition(type=type_, status=status, reason=reason, message=message)


def _with_times(
    deployment: Deployment, new: DeploymentCondition, now: datetime, *, afresh: bool = False
) -> DeploymentCondition:
    """The condition with its times. Without news it stays as it was; `afresh`: that it is so once more is news."""
    old = _find(deployment.status.conditions, new.type)
    if old is None:
        return replace(new, last_update_time=now, last_transition_time=now)
    if not afresh and (old.status, old.reason, old.message) == (new.status, new.reason, new.message):
        return old
    changed_at = old.last_transition_time if old.status == new.status else now
    return replace(new, last_update_time=now, last_transition_time=changed_at)


def _find(conditions: Sequence[DeploymentCondition], type_: str) -> DeploymentCondition | None:
    return next((each for each in conditions if each.type == type_), None)


def _in_order(deployment: Deployment, new: Sequence[DeploymentCondition]) -> tuple[DeploymentCondition, ...]:
    """As they were, and those that are new at the end. Conditions of other types are not the controller's, and stay."""
    made, before = {each.type: each for each in new}, deployment.status.conditions
    kept = [made.get(each.type, each) for each in before if each.type in made or each.type not in _OURS]
    return (*kept, *(each for each in new if _find(before, each.type) is None))
