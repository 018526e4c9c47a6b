"""Dormancy: which finished Jobs and pods, and which custom objects, controllers need not hold in memory. Pure; by the kind and
the object alone.

A dormant object has ended, nothing holds it, and no controller has anything left to do about it. The registry stores the
summary beside each version that it writes (`heads.dormant`); the controllers' mirror leaves out what has one, and drops an
object when it becomes dormant. So the same object must always have the same answer: whoever changes what is dormant also
clears the column in a migration, and what is not marked is looked at anew (`app.controllers.retention.dormant_objects`).

Awake stay: Jobs that an object owns, such as a CronJob, which counts them; Jobs that are deleted within a minute of their end;
pods without a Job, which another Job might adopt; pods with ephemeral volumes, which own claims.

Of custom objects, controllers look at owners and finalizers only: one that has neither is dormant, unless something awake belongs
to it, which the garbage collector finds out.
"""

from datetime import datetime
from typing import NamedTuple

from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job, is_finished, is_true
from app.kinds.pod.pod import Pod, is_ready, is_terminal
from app.machinery.base import Object
from app.machinery.custom.custom_object import CustomObject
from app.machinery.meta.owner_references import controller_of
from app.plans.jobs.ttl_after_finished import expires_at

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
SHORTEST_TTL = 60  # seconds: a Job that is deleted sooner after its end stays awake
ALONE = "Alone"  # the result of what is no Job or pod
_SEPARATOR = ","


class Dormancy(NamedTuple):
    """summary: what metrics count of it. expires_at: when it is to be deleted, if it has a TTL."""

    summary: str
    expires_at: datetime | None = None


class Summary(NamedTuple):
    """What metrics count of a dormant object. result: `Complete` or `Failed` of a Job, the phase of a pod."""

    result: str
    succeeded: int = 0
    failed: int = 0


def find_dormancy(obj: Object) -> Dormancy | None:
    """Return None if a controller may still have something to do about the object."""
    if obj.metadata.deletion_timestamp is not None or obj.metadata.finalizers:
        return None
    if isinstance(obj, Job):
        return _of_job(obj)
    if isinstance(obj, CustomObject):
        return Dormancy(summarize(obj)) if is_alone(obj) else None
    return _of_pod(obj) if isinstance(obj, Pod) else None


def is_alone(obj: Object) -> bool:
    """Return whether an object belongs to nothing, nothing holds it, and it is not on its way out."""
    meta = obj.metadata
    return not meta.owner_references and not meta.finalizers and meta.deletion_timestamp is None


def is_dormant(obj: Object) -> bool:
    return find_dormancy(obj) is not None


def summarize(obj: Object) -> str:
    """The summary of an object that is dormant, or was until it was deleted."""
    if isinstance(obj, Job):
        result = "Complete" if is_true(obj, "Complete") else "Failed"
        return _write_summary(Summary(result, obj.status.succeeded, obj.status.failed))
    return _write_summary(Summary(obj.status.phase if isinstance(obj, Pod) else ALONE))


def read_summary(text: str) -> Summary:
    result, succeeded, failed = text.split(_SEPARATOR)
    return Summary(result, int(succeeded), int(failed))


def _write_summary(summary: Summary) -> str:
    return _SEPARATOR.join(map(str, summary))


def _of_job(job: Job) -> Dormancy | None:
    status, ttl = job.status, job.spec.ttl_seconds_after_finished
    if not is_finished(job) or job.metadata.owner_references:
        return None
    if status.active or status.ready or status.terminating or _has_uncounted(job):
        return None
    if ttl is not None and (ttl < SHORTEST_TTL or expires_at(job) is None):
        return None
    return Dormancy(summarize(job), expires_at(job))


def _has_uncounted(job: Job) -> bool:
    uncounted = job.status.uncounted_terminated_pods
    return uncounted is not None and bool(uncounted.succeeded or uncounted.failed)


def _of_pod(pod: Pod) -> Dormancy | None:
    """A pod is dormant when its Job has counted it: it bears no finalizer any more."""
    owner = controller_of(pod)
    if owner is None or owner.kind != JOBS.name or len(pod.metadata.owner_references) != 1:
        return None
    if not is_terminal(pod) or is_ready(pod) or pod.metadata.labels.get(CONTROLLER_UID) != owner.uid:
        return None
    if any(volume.ephemeral is not None for volume in pod.spec.volumes):
        return None
    return Dormancy(summarize(pod))
