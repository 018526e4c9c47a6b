"""Deployment decision: create and scale its ReplicaSets, one step at a time, and say in the status how far it is. Pure.

The Deployment controller calls `plan`. All of a plan is one write set, which also writes the Deployment: of two plans made from
the same state the second is refused, and so no step is taken twice.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from app.kinds.apps.deployment import RECREATE, Deployment, DeploymentStatus
from app.kinds.apps.replicaset import KIND as REPLICA_SETS
from app.kinds.apps.replicaset import ReplicaSet
from app.machinery.errors import ApiError
from app.plans.admission.pod_admission import NO_RULES, Rules, admit
from app.plans.deployments import revisions, rollout
from app.plans.deployments.deployment_status import build_status, is_complete, stuck_at
from app.plans.deployments.rollout import Amount, Limits
from app.plans.plan import Action, Create, Delete, Emit, Plan, SetStatus, Update, earliest

RETRY = timedelta(seconds=30)  # after a ReplicaSet was refused


class _Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan makes of the ReplicaSets.

    new:      the ReplicaSet of the newest template as the plan leaves it; None if there is none.
    old:      all others, likewise, the oldest first.
    """

    new: ReplicaSet | None
    old: list[ReplicaSet]
    created: ReplicaSet | None = None
    collisions: int = 0
    actions: tuple[Action, ...] = ()
    refusal: str = ""


def plan(
    deployment: Deployment,
    replica_sets: Sequence[ReplicaSet],
    is_taken: Callable[[str], bool],
    now: datetime,
    rules: Rules = NO_RULES,
) -> Plan:
    """`replica_sets`: those that the Deployment controls; `is_taken`: of a name of a ReplicaSet in its namespace."""
    if deployment.metadata.deletion_timestamp is not None:
        return Plan()
    made = _roll_out(deployment, _by_age(replica_sets, now), is_taken, rules)
    all_sets = [*made.old, *([made.new] if made.new else [])]
    status = build_status(deployment, made.new, all_sets, made.collisions, now, made.created, made.refusal)
    before = {each.metadata.uid: each for each in replica_sets}
    actions = (
        *_write(deployment, made, status),
        *made.actions,
        *_scale(deployment, all_sets, before),
        *_clean_up(deployment, made.old, status),
    )
    retry_at = now + RETRY if made.refusal else None
    return Plan(actions, earliest((stuck_at(deployment, status), retry_at)))


def _by_age(replica_sets: Sequence[ReplicaSet], now: datetime) -> list[ReplicaSet]:
    return sorted(replica_sets, key=lambda each: (each.metadata.creation_timestamp or now, each.metadata.name))


def _roll_out(
    deployment: Deployment, sets: Sequence[ReplicaSet], is_taken: Callable[[str], bool], rules: Rules
) -> _Rollout:
    new = revisions.find_new(deployment, sets)
    old = [each for each in sets if each is not new]
    limits = rollout.limits_of(deployment)
    count, left = _next_counts(deployment, limits, new, old)
    kept = [_with_replicas(each, number) for each, number in zip(old, left, strict=True)]
    collisions = deployment.status.collision_count or 0
    if count is None:
        return _Rollout(new=None, old=kept, collisions=collisions)
    revision = revisions.next_revision(new, old)
    if new is not None:
        return _Rollout(new=_update(deployment, new, count, revision, limits), old=kept, collisions=collisions)
    made, collisions = revisions.make_new(deployment, count, revision, limits, is_taken)
    try:
        quotas = admit(REPLICA_SETS.resource, made, rules)
    except ApiError as error:  # and nothing is taken from the others
        return _Rollout(new=None, old=old, collisions=deployment.status.collision_count or 0, refusal=error.message)
    event = _scaled(deployment, made, 0, count)
    return _Rollout(new=made, old=kept, created=made, collisions=collisions, actions=(Create(made), *quotas, *event))


def _next_counts(
    deployment: Deployment, limits: Limits, new: ReplicaSet | None, old: Sequence[ReplicaSet]
) -> tuple[int | None, list[int]]:
    """Wanted pods of the newest template, None if it gets no ReplicaSet yet, and of each older one."""
    wanted = [each.spec.replicas or 0 for each in old]
    if deployment.spec.paused:
        return rollout.pause(limits, (new.spec.replicas or 0) if new else None, wanted)
    if deployment.spec.strategy.type == RECREATE:
        is_over = not any(wanted) and not any(map(_has_pods, old))
        return (limits.replicas if is_over else _none_yet(new)), [0] * len(old)
    return rollout.roll(limits, _amount(new) if new else Amount(0, 0), [_amount(each) for each in old])


def _none_yet(new: ReplicaSet | None) -> int | None:
    return (new.spec.replicas or 0) if new else None


def _has_pods(old: ReplicaSet) -> bool:
    """Also if it has not reported yet what became of them."""
    status = old.status
    is_stale = status.observed_generation < old.metadata.generation
    return bool(status.replicas or status.terminating_replicas) or is_stale


def _amount(replica_set: ReplicaSet) -> Amount:
    wanted = replica_set.spec.replicas or 0
    return Amount(wanted, min(wanted, replica_set.status.available_replicas))


# --- changes of ReplicaSets


def _with_replicas(replica_set: ReplicaSet, count: int) -> ReplicaSet:
    return _with_spec(replica_set, replicas=count)


def _with_spec(replica_set: ReplicaSet, **changes: int) -> ReplicaSet:
    spec, meta = replace(replica_set.spec, **changes), replica_set.metadata
    if spec == replica_set.spec:
        return replica_set
    return replace(replica_set, spec=spec, metadata=replace(meta, generation=meta.generation + 1))


def _update(deployment: Deployment, new: ReplicaSet, count: int, revision: int, limits: Limits) -> ReplicaSet:
    made = _with_spec(new, replicas=count, min_ready_seconds=deployment.spec.min_ready_seconds)
    annotations = revisions.annotate(made.metadata.annotations, deployment, revision, limits)
    if annotations == made.metadata.annotations:
        return made
    return replace(made, metadata=replace(made.metadata, annotations=annotations))


def _scale(deployment: Deployment, all_sets: Sequence[ReplicaSet], before: dict[str, ReplicaSet]) -> Iterator[Action]:
    """What is written of those that exist, and the event that says so."""
    for each in all_sets:
        old = before.get(each.metadata.uid)
        if old is not None and each is not old:
            yield Update(each, old)
            yield from _scaled(deployment, each, old.spec.replicas or 0, each.spec.replicas or 0)


def _scaled(deployment: Deployment, replica_set: ReplicaSet, before: int, after: int) -> Iterator[Emit]:
    if before != after:
        way = "up" if after > before else "down"
        text = f"Scaled {way} replica set {replica_set.metadata.name} from {before} to {after}"
        yield Emit("Normal", "ScalingReplicaSet", text, deployment)


def _clean_up(deployment: Deployment, old: Sequence[ReplicaSet], status: DeploymentStatus) -> Iterator[Action]:
    """The lowest revisions go, once the rollout is complete."""
    limit = deployment.spec.revision_history_limit
    if limit is None or not is_complete(deployment, status):
        return
    alive = sorted((each for each in old if not each.metadata.deletion_timestamp), key=revisions.revision_of)
    for each in alive[: max(0, len(alive) - limit)]:
        if not each.spec.replicas and not _has_pods(each):
            yield Delete(each)


def _write(deployment: Deployment, made: _Rollout, status: DeploymentStatus) -> Iterator[Action]:
    """The status and the revision of the Deployment, if they differ. An event alone would wake the controller again."""
    meta, annotations = deployment.metadata, deployment.metadata.annotations
    if made.new is not None:
        revision = made.new.metadata.annotations.get(revisions.REVISION, "")
        annotations = annotations | {revisions.REVISION: revision}
    if status != deployment.status or annotations != meta.annotations:
        yield SetStatus(replace(deployment, status=status, metadata=replace(meta, annotations=annotations)))
        if made.refusal and all(each.message != made.refusal for each in deployment.status.conditions):
            text = f"Failed to create new replica set: {made.refusal}"
            yield Emit("Warning", "ReplicaSetCreateError", text, deployment)
