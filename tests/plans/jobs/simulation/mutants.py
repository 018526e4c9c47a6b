"""Plans with a mistake in them, each of which the simulation must find: proof that it can fail."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, cast

from msgspec.structs import replace

from app.kinds.batch.job import Job, is_finished
from app.kinds.pod.pod import Pod, is_active, is_terminal
from app.plans.jobs.finalizers import is_tracked, remove_tracking
from app.plans.jobs.job import plan
from app.plans.plan import Action, Create, Delete, Names, Plan, SetStatus, Update
from tests.plans.jobs.simulation.controller import PlanJob


def _as_if(**spec: Callable[[Any], Any]) -> PlanJob:
    """Plans as if the spec said something else; a field that is not set stays so."""

    def mutant(job: Job, pods: Sequence[Pod], now: datetime, names: Names) -> Plan:
        values = {key: getattr(job.spec, key) for key in spec}
        changed = {key: change(values[key]) for key, change in spec.items() if values[key] is not None}
        made = plan(replace(job, spec=replace(job.spec, **changed)), pods, now, names)
        return _with_status(made, lambda after: replace(after, spec=job.spec))

    return mutant


def _blind_to(hidden: Callable[[Pod], bool]) -> PlanJob:
    return lambda job, pods, now, names: plan(job, [pod for pod in pods if not hidden(pod)], now, names)


def _with_status(made: Plan, change: Callable[[Job], Job]) -> Plan:
    return replace(made, actions=tuple(_changed(each, change) for each in made.actions))


def _changed(action: Action, change: Callable[[Job], Job]) -> Action:
    return SetStatus(change(cast("Job", action.object))) if isinstance(action, SetStatus) else action


def _writing(change: Callable[[Job, Job, datetime], dict[str, Any]]) -> PlanJob:
    """Writes something else into the status: (before, after, now) -> fields of it."""

    def mutant(job: Job, pods: Sequence[Pod], now: datetime, names: Names) -> Plan:
        made = plan(job, pods, now, names)
        return _with_status(made, lambda after: replace(after, status=replace(after.status, **change(job, after, now))))

    return mutant


def _acting(change: Callable[[Plan, Job, Sequence[Pod]], Plan]) -> PlanJob:
    return lambda job, pods, now, names: change(plan(job, pods, now, names), job, pods)


def _drops_a_finalizer_early(made: Plan, job: Job, pods: Sequence[Pod]) -> Plan:
    mine = [
        pod
        for pod in pods
        if is_tracked(pod) and is_active(pod) and pod.metadata.owner_references[0].uid == job.metadata.uid
    ]
    touched = {each.object.metadata.uid for each in made.actions if isinstance(each, Update | Delete)}
    early = [Update(remove_tracking(pod), pod) for pod in mine if pod.metadata.uid not in touched]
    return replace(made, actions=(*made.actions, *early[:1])) if made.actions else made


def _keeps_finalizers(made: Plan, job: Job, pods: Sequence[Pod]) -> Plan:
    return replace(made, actions=tuple(each for each in made.actions if not isinstance(each, Update)))


def _forgets_failures(made: Plan, job: Job, pods: Sequence[Pod]) -> Plan:
    return replace(made, actions=tuple(_anew(each) if isinstance(each, Create) else each for each in made.actions))


def _anew(create: Create) -> Create:
    meta = create.object.metadata
    notes = {key: "0" if key.endswith("failure-count") else value for key, value in meta.annotations.items()}
    return Create(replace(create.object, metadata=replace(meta, annotations=notes)))


def _never_rests(made: Plan, job: Job, pods: Sequence[Pod]) -> Plan:
    return made if made.actions or is_finished(job) else replace(made, actions=(SetStatus(job),))


def _forgets_back_off(job: Job, pods: Sequence[Pod], now: datetime, names: Names) -> Plan:
    return plan(replace(job, metadata=replace(job.metadata, annotations={})), pods, now, names)


def _is_ending(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None and not is_terminal(pod)


def _counted_twice(before: Job, after: Job, _: datetime) -> dict[str, Any]:
    return {"failed": after.status.failed + (after.status.failed > before.status.failed)}


def _counts_the_suspended(before: Job, after: Job, _: datetime) -> dict[str, Any]:
    stopped = before.status.active if after.spec.suspend else 0
    return {"failed": after.status.failed + stopped}


def _only_the_end(_: Job, after: Job, __: datetime) -> dict[str, Any]:
    kept = [each for each in after.status.conditions if each.type not in ("SuccessCriteriaMet", "FailureTarget")]
    return {"conditions": tuple(kept)}


MUTANTS: dict[str, tuple[str, PlanJob]] = {
    "counts a failed pod twice": ("plain", _writing(_counted_twice)),
    "counts pods that it suspends": ("plain", _writing(_counts_the_suspended)),
    "drops a finalizer early": ("plain", _acting(_drops_a_finalizer_early)),
    "keeps finalizers": ("plain", _acting(_keeps_finalizers)),
    "does not suspend": ("plain", _as_if(suspend=lambda _: False)),
    "allows one failure too many": ("plain", _as_if(backoff_limit=lambda limit: limit + 1)),
    "allows one failure too few": ("plain", _as_if(backoff_limit=lambda limit: limit - 1)),
    "runs one pod too many": ("plain", _as_if(parallelism=lambda most: most + 1)),
    "wants one success too few": ("plain", _as_if(completions=lambda all_: max(0, all_ - 1))),
    "forgets pods that are ending": ("failure_policy", _blind_to(_is_ending)),
    "replaces deleted pods at once": ("failure_policy", _as_if(pod_replacement_policy=lambda _: "TerminatingOrFailed")),
    "runs an index again while it runs": ("indexed", _blind_to(lambda pod: pod.status.phase == "Running")),
    "runs a failed index again": ("per_index", _as_if(backoff_limit_per_index=lambda limit: limit + 1)),
    "forgets the failures of an index": ("per_index", _acting(_forgets_failures)),
    "forgets back-off": ("plain", _forgets_back_off),
    "forgets to look again": ("plain", _acting(lambda made, *_: replace(made, again_at=None))),
    "never rests": ("plain", _acting(_never_rests)),
    "ignores the failure policy": ("failure_policy", _as_if(pod_failure_policy=lambda _: None)),
    "ignores the success policy": ("success_policy", _as_if(success_policy=lambda _: None)),
    "ends a second late": ("hurried", _as_if(active_deadline_seconds=lambda seconds: seconds + 1)),
    "ends without notice": ("plain", _writing(_only_the_end)),
    "moves the start": ("plain", _writing(lambda _, after, now: {"start_time": after.status.start_time and now})),
    "reports more ready than active": ("plain", _writing(lambda _, after, __: {"ready": after.status.active + 1})),
    "forgets what has succeeded": ("indexed", _writing(lambda *_: {"completed_indexes": "", "succeeded": 0})),
}
