"""The pods of a Job: whose they are, and which of them run, end or have ended.

Used by `app.plans.jobs.job`. A pod that has ended waits to be counted for as long as it has the tracking finalizer; a plan
that counts it drops the finalizer in the same write, so that no pod is counted twice or never.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job, is_indexed
from app.kinds.pod.pod import Pod
from app.machinery.base import OwnerReference
from app.machinery.owner_references import controller_of
from app.machinery.selectors import from_label_selector
from app.plans.jobs.finalizers import is_tracked, loosened, tracked
from app.plans.jobs.indexes import index_of
from app.plans.jobs.pod_template import owner_reference


class Claim(msgspec.Struct, frozen=True):
    """The Job's pods after adoption and release, and the earlier versions of those that this changed."""

    pods: list[Pod]
    changed: list[Pod]  # adopted or released
    before: dict[str, Pod]  # those by uid, as they are stored


class Seen(msgspec.Struct, frozen=True):
    """The Job's pods by what is to be done about them. The last three have the finalizer: they are not counted yet."""

    active: list[Pod]
    terminating: list[Pod]
    succeeded: list[Pod]
    failed: list[Pod]  # and deleted pods that still run, unless the Job replaces failed pods only
    void: list[Pod]  # ended, but of no index: they lose the finalizer and count for nothing


def claim(job: Job, pods: Sequence[Pod]) -> Claim:
    """Take the Job's own pods, adopt orphans that its selector matches, let go of its pods that it matches no more."""
    result = Claim([], [], {})
    selector = from_label_selector(job.spec.selector)
    for pod in pods:
        owner = controller_of(pod)
        if owner is not None and owner.uid != job.metadata.uid:
            continue
        if selector.matches(pod.metadata.labels):
            _accept(job, pod, owner, result)
        elif owner and not job.metadata.deletion_timestamp:
            _change(pod, released(job, pod), result)
    return result


def _accept(job: Job, pod: Pod, owner: OwnerReference | None, result: Claim) -> None:
    if owner:
        result.pods.append(pod)
    elif not pod.metadata.deletion_timestamp and not job.metadata.deletion_timestamp:
        result.pods.append(_change(pod, adopted(job, pod), result))


def _change(pod: Pod, changed: Pod, result: Claim) -> Pod:
    result.before[pod.metadata.uid] = pod
    result.changed.append(changed)
    return changed


def adopted(job: Job, pod: Pod) -> Pod:
    meta = pod.metadata
    others = tuple(owner for owner in meta.owner_references if owner.uid != job.metadata.uid)
    owners = (*others, owner_reference(job))
    return replace(pod, metadata=replace(meta, owner_references=owners, finalizers=tracked(meta.finalizers)))


def released(job: Job, pod: Pod) -> Pod:
    owners = tuple(owner for owner in pod.metadata.owner_references if owner.uid != job.metadata.uid)
    return loosened(replace(pod, metadata=replace(pod.metadata, owner_references=owners)))


def sort_out(job: Job, pods: Sequence[Pod]) -> Seen:
    seen = Seen([], [], [], [], [])
    deleted_is_failed = not replaces_failed_only(job)
    for pod in pods:
        phase = _phase(pod)
        if phase in ("Succeeded", "Failed"):
            if is_tracked(pod):
                _ended(job, pod, seen.succeeded if phase == "Succeeded" else seen.failed, seen.void)
        elif pod.metadata.deletion_timestamp is None:
            seen.active.append(pod)
        else:
            seen.terminating.append(pod)
            if deleted_is_failed and is_tracked(pod):
                _ended(job, pod, seen.failed, seen.void)
    return seen


def _phase(pod: Pod) -> str:
    """A pod that is deleted before it gets a node will never run, and nobody is there to say that it has failed."""
    never_ran = pod.status.phase == "Pending" and not pod.spec.node_name
    return "Failed" if never_ran and pod.metadata.deletion_timestamp is not None else pod.status.phase


def replaces_failed_only(job: Job) -> bool:
    """True: a deleted pod is replaced, and counted, when it has ended; else as soon as it is deleted."""
    return job.spec.pod_replacement_policy == "Failed"


def _ended(job: Job, pod: Pod, kept: list[Pod], void: list[Pod]) -> None:
    (kept if is_of_use(job, pod) else void).append(pod)


def is_of_use(job: Job, pod: Pod) -> bool:
    """A pod of an Indexed Job must have an index that the Job has, too."""
    if not is_indexed(job):
        return True
    index = index_of(pod)
    return index is not None and index < (job.spec.completions or 0)
