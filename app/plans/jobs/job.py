"""Job decision: what to do next about one Job. Pure: the same job, pods, time and names give the same plan.

Called by the Job controller whenever a Job or one of its pods changes, and at the time that the last plan named. A plan
is carried out whole or not at all; so every plan starts from a state in which each pod is either counted and without
the tracking finalizer, or not counted and with it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from app.kinds.batch.job import Job, is_finished
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.machinery.errors import ApiError, unprocessable
from app.machinery.owner_references import controller_of
from app.plans.admission import refusals, resource_quota
from app.plans.admission.pod_admission import NO_RULES, Rules, check, completed, is_completed
from app.plans.jobs import job_events, waiting_events, workloads
from app.plans.jobs.counting import Situation, settle, situation
from app.plans.jobs.finalizers import is_tracked, loosened
from app.plans.jobs.finish_conditions import completion, deadline_at, outcome
from app.plans.jobs.job_pods import Claim, claim
from app.plans.jobs.job_status import Step, written
from app.plans.jobs.scaling import adjust, stop_all
from app.plans.jobs.workloads import NO_GANG, Gang
from app.plans.plan import Action, Create, Delete, Emit, Move, Names, Plan, SetStatus, Update, earliest


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


def plan(
    job: Job, pods: Sequence[Pod], now: datetime, names: Names, rules: Rules = NO_RULES, gang: Gang = NO_GANG
) -> Plan:
    """The next step towards what the Job's spec says.

    `pods` must hold all pods that the Job controls and that carry the tracking finalizer, or are active or terminating;
    and the orphans that its selector matches. More of its pods do no harm: those that were counted need no look.
    `rules` are those of the Job's namespace. `gang` is what `app.plans.jobs.workloads` says of the same job and pods.
    """
    if not is_ours(job):
        return Plan()
    if is_finished(job):
        return Plan(tuple(let_go(job, pods)))
    if job.spec.completion_mode not in ("", "NonIndexed", "Indexed"):
        return Plan((job_events.unknown_completion_mode(job),))
    gang, rules = workloads.admitted(job, gang, rules)
    if gang.refused:
        return workloads.held(job, gang, now)
    claims = claim(job, pods)
    step = decide(situation(job, claims.pods, now), names, rules, gang)
    after = written(step)
    status = () if after is job else (SetStatus(after),)
    deadline = deadline_at(after) if step.outcome is None else None
    return Plan(
        (
            *workloads.first(gang),
            *_pods(step, claims),
            *status,
            *workloads.together(gang, step.move),
            *workloads.told(job, gang),
            *_events(step, after),
        ),
        again_at=earliest((step.move.again_at, deadline)),
    )


def decide(situation: Situation, names: Names, rules: Rules = NO_RULES, gang: Gang = NO_GANG) -> Step:
    """With an outcome every pod is stopped. Without, pods are adjusted, and that may show that the Job is complete."""
    found = outcome(situation)
    move = stop_all(situation) if found else _adjusted(situation, names, rules, gang)
    active = len(situation.seen.active) - len(move.delete) + len(move.create)
    found = found or completion(situation, active)
    return Step(situation, move, found, settle(situation, move, found), active)


def _adjusted(situation: Situation, names: Names, rules: Rules, gang: Gang) -> Move:
    job = situation.job
    if job.metadata.deletion_timestamp:
        return Move()
    return admitted(job, workloads.joined(adjust(situation, names), gang), rules, situation.now)


def is_ours(job: Job) -> bool:
    """Jobs that say another controller manages them are left alone entirely."""
    return job.spec.managed_by in (None, "kubernetes.io/job-controller")


def let_go(job: Job | None, pods: Iterable[Pod]) -> Iterable[Update]:
    """Free the pods of a Job that is finished, or of a Job that is gone, of the tracking finalizer."""
    for pod in pods:
        owner = controller_of(pod)
        if is_tracked(pod) and (owner is None or job is None or owner.uid == job.metadata.uid):
            yield Update(loosened(pod), pod)


def _pods(step: Step, claims: Claim) -> Iterable[Action]:
    """What happens to pods: one action for each, whatever the reasons."""
    before, touched = claims.before, set[str]()
    for pod in step.move.delete:
        touched.add(pod.metadata.uid)
        free = loosened(pod)
        yield Delete(free, before.get(pod.metadata.uid, None if free is pod else pod))
    for pod in step.ledger.loosened:
        touched.add(pod.metadata.uid)
        yield Update(loosened(pod), before.get(pod.metadata.uid, pod))
    for pod in claims.changed:
        if pod.metadata.uid not in touched:
            yield Update(pod, before[pod.metadata.uid])
    yield from map(Create, step.move.create)


def _events(step: Step, after: Job) -> Iterable[Emit]:
    job = step.situation.job
    yield from job_events.created(job, step.move.create)
    yield from job_events.deleted(job, step.move.delete)
    if step.move.refusal.message:
        yield job_events.refused(job, step.move.refusal.message)
    yield from waiting_events.told(step, after)
    new = [each for each in after.status.conditions if each not in job.status.conditions]
    for each in new:
        yield from _told(step, each)


def _told(step: Step, new: Condition) -> Iterable[Emit]:
    """The events that a new condition brings."""
    job, succeeded = step.situation.job, step.situation.tally.succeeded
    enough = succeeded if job.spec.completions is None else job.spec.completions
    if new.type == "Suspended":
        yield job_events.suspended(job) if new.status == "True" else job_events.resumed(job)
    elif new.type in ("Complete", "Failed"):
        yield job_events.finished(job, new)
    elif new.reason == "CompletionsReached" and succeeded > enough:
        yield job_events.too_many_succeeded(job)
