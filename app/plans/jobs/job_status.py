"""Job status: what a plan writes to it, and to annotations. Used by `job`."""

from datetime import datetime

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job, JobStatus, UncountedTerminatedPods, is_true
from app.kinds.pod.pod import Pod, is_ready
from app.machinery.base import Condition
from app.machinery.conditions import with_condition
from app.plans.admission import refusals
from app.plans.jobs import index_failure
from app.plans.jobs.backoff import Backoff, noted
from app.plans.jobs.counting import Ledger, Situation
from app.plans.jobs.finish_conditions import observed, started_at, terminal
from app.plans.jobs.index_failure import is_limited
from app.plans.plan import Move


class Step(msgspec.Struct, frozen=True):
    """Everything that is decided, before it is written down."""

    situation: Situation
    move: Move
    outcome: Condition | None
    ledger: Ledger
    active: int

    @property
    def terminating(self) -> int:
        return len(self.situation.seen.terminating) + len(self.move.delete)

    @property
    def finishes(self) -> bool:
        """The terminal condition waits for the last pod."""
        return self.outcome is not None and not self.active and not self.terminating

    @property
    def waiting(self) -> list[Pod]:
        """The failed pods whose index waits for its back-off to end."""
        return [self.situation.last_failed[index] for index in self.move.waits]

    @property
    def runs(self) -> bool:
        """The Job goes on: no outcome, and nobody deleted it."""
        return self.outcome is None and self.situation.job.metadata.deletion_timestamp is None


def written(step: Step) -> Job:
    """The Job with what the plan makes of it; the same object if nothing changes."""
    job = step.situation.job
    forgets = step.finishes or is_limited(job)  # an index's own back-off is in its pods
    annotations = noted(job.metadata.annotations, Backoff() if forgets else step.situation.backoff)
    annotations = refusals.noted(annotations, step.move.refusal)
    annotations = index_failure.noted(annotations, step.waiting)
    status = _status(step)
    if status == job.status and annotations is job.metadata.annotations:
        return job
    return replace(job, metadata=replace(job.metadata, annotations=annotations), status=status)


def _status(step: Step) -> JobStatus:
    job, tally, now = step.situation.job, step.situation.tally, step.situation.now
    return replace(
        job.status,
        conditions=conditions(step),
        start_time=_start_time(step),
        completion_time=now if step.finishes and succeeds(step) else job.status.completion_time,
        active=step.active,
        ready=_ready(step),
        terminating=step.terminating,
        succeeded=tally.succeeded,
        failed=step.ledger.failed,
        completed_indexes=str(tally.completed),
        failed_indexes=str(tally.failed_indexes) if is_limited(job) else None,
        uncounted_terminated_pods=UncountedTerminatedPods(),  # nothing ever waits there: pods are counted in one write
    )


def succeeds(step: Step) -> bool:
    return step.outcome is not None and step.outcome.type == "SuccessCriteriaMet"


def _ready(step: Step) -> int:
    return sum(map(is_ready, step.situation.seen.active)) - sum(map(is_ready, step.move.delete))


def _start_time(step: Step) -> datetime | None:
    """Suspending clears it, resuming sets it anew. A Job that ends without ever having run starts as it ends."""
    job, now = step.situation.job, step.situation.now
    if step.runs:
        return None if job.spec.suspend else started_at(job) or now
    return job.status.start_time or (now if step.finishes or not job.spec.suspend else None)


def conditions(step: Step) -> tuple[Condition, ...]:
    """Interim first, then terminal; or Suspended, on which a Job with an outcome has nothing more to say."""
    present, now = step.situation.job.status.conditions, step.situation.now
    if step.runs:
        return _suspension(step.situation.job, now)
    if step.outcome and step.outcome not in present:
        present = with_condition(present, step.outcome)
    return with_condition(present, terminal(step.outcome, now)) if step.outcome and step.finishes else present


def _suspension(job: Job, now: datetime) -> tuple[Condition, ...]:
    """A Job that never was suspended does not say so."""
    present = job.status.conditions
    if bool(job.spec.suspend) == is_true(job, "Suspended"):
        return present
    if job.spec.suspend:
        return with_condition(present, observed("Suspended", "JobSuspended", "Job suspended", now))
    return with_condition(present, observed("Suspended", "JobResumed", "Job resumed", now, status="False"))
