"""What the rules of its namespace let a Job create of the pods that it wants. Used by `app.plans.jobs.job`.

The pods of a Job are alike, so one stands for all: either none may be created, or as many as quotas have room for.
"""

from datetime import datetime

from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.errors import ApiError, unprocessable
from app.plans.admission import refusals, resource_quota
from app.plans.admission.pod_admission import Rules, check, completed, is_completed
from app.plans.plan import Move, Update, earliest


def admitted(job: Job, move: Move, rules: Rules, now: datetime) -> Move:
    """The move without the pods that are refused, and with what the others are charged to."""
    if not move.create:
        return move
    pods = move.create
    try:
        if not is_completed(pods[0], rules):
            completed(_unnamed(pods[0]), rules)
            pods = tuple(completed(pod, rules) for pod in pods)
            _validate(pods[0])
        check("pods", pods[0], rules)
        return _charged(job, replace(move, create=pods), rules, now) if rules.quotas else replace(move, create=pods)
    except ApiError as error:
        return _trimmed(job, move, 0, error, now)


def _validate(pod: Pod) -> None:
    """What was valid may not be so with what was given to it: a request may be over a limit that it got."""
    if causes := PODS.validate(PODS.prepare(pod)):
        raise unprocessable(PODS.name, PODS.group, pod.metadata.name, causes)


def _unnamed(pod: Pod) -> Pod:
    """As it is before it gets its name: that is how Kubernetes' refusals of this stage call it."""
    return replace(pod, metadata=replace(pod.metadata, name=""))


def _charged(job: Job, move: Move, rules: Rules, now: datetime) -> Move:
    first, wanted = move.create[0], len(move.create)
    each = resource_quota.cost_of_pod(first)
    concerns = resource_quota.concerned(rules.quotas, each)
    resource_quota.check_fit(concerns, each, "pods", first)
    fitting = resource_quota.room(concerns, each, wanted)
    pairs = resource_quota.raised(concerns, each, fitting)
    kept = replace(move, charged=tuple(Update(after, before) for before, after in pairs))
    if fitting == wanted:
        return kept
    after = {before.metadata.uid: after for before, after in pairs}
    full = [after.get(quota.metadata.uid, quota) for quota in concerns]
    error = resource_quota.exceeded(full, each, "pods", move.create[fitting].metadata.name)
    return _trimmed(job, kept, fitting, error, now)


def _trimmed(job: Job, move: Move, count: int, error: ApiError | None, now: datetime) -> Move:
    """Only so many pods, and when to try the others again."""
    refusal = refusals.refused(job, error.message if error else "", now)
    later = move.again_at if move.again_at and move.again_at > now else None
    again_at = earliest((later, refusal.again_at))
    return replace(move, create=move.create[:count], refusal=refusal, again_at=again_at)
