"""Job record: what stays of a Job when it is gone: its spec and status, its attempts with their outcomes, its events.

`app.controllers.retention.job_recorder` stores a summary of each Job that has ended and one attempt for each of its pods; the
endpoints of `app.api.routers.history` build whole records from these. Pure: the same Job and pods always give the same record.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.kinds.batch.job import Job, condition, is_true
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.pod.pod_annotations import main_container
from app.machinery.base import ObjectMeta, OwnerReference, wire_name
from app.machinery.meta.owner_references import controller_of
from app.plans.jobs.indexes import index_of

API_VERSION = "history.jobplane.dev/v1"
MOST_ATTEMPTS = 1_000  # of one Job: the newest
MOST_RESTARTS = 20  # of one container, and 1,000 of one record: the newest
PEAK_MEMORY = "jobplane.dev/peak-memory"
RERUN_OF = "jobplane.dev/rerun-of"
_CONTROLLER_UID, _JOB_NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_NEVER = datetime.min.replace(tzinfo=UTC)
_peaks = msgspec.json.Decoder(dict[str, int])


class Restart(msgspec.Struct, kw_only=True, rename=wire_name):
    """A run of a container that ended before the last one: the container was restarted in its pod. `run` counts from 0."""

    container: str
    run: int
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class Attempt(msgspec.Struct, kw_only=True, rename=wire_name):
    """One pod of a Job, and how it ended. `output` is the termination message, if that is JSON.

    `restart_count` is that of all containers; `restarts` are the newest of them, newest first, in the record of one Job.
    """

    pod: str
    pod_uid: str = msgspec.field(name="podUID")
    index: int | None = None
    node: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    phase: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    peak_memory_bytes: int | None = None
    output: Any = None
    restart_count: int = 0
    restarts: list[Restart] = []


class JobSummary(msgspec.Struct, kw_only=True, frozen=True):
    """Fields that lists of records are filtered and sorted by. `ended_at` is None while the Job runs."""

    uid: str
    namespace: str
    name: str
    labels: dict[str, str]
    result: str
    created_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    deleted_at: datetime | None
    rerun_of: str | None


class RecordMeta(msgspec.Struct, kw_only=True, rename=wire_name):
    """The metadata of a Job that its record keeps."""

    name: str
    namespace: str
    uid: str
    creation_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class _StoredJob(msgspec.Struct):
    """A stored Job whose spec and status are passed on as they are."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


_stored = msgspec.json.Decoder(_StoredJob)


class JobRecord(msgspec.Struct, tag_field="kind", tag="JobRecord", kw_only=True, rename=wire_name):
    """A Job that may be gone. `spec` and `status` are those of batch/v1, `events` are core/v1 Events, oldest first."""

    api_version: str = API_VERSION
    metadata: RecordMeta
    spec: Any
    status: Any
    result: str
    start_time: datetime | None = None
    end_time: datetime | None = None
    deletion_time: datetime | None = None
    rerun_of: str | None = None
    attempts: list[Attempt] = []
    attempts_omitted: int = 0
    events: list[Any] | msgspec.UnsetType = msgspec.UNSET


def summarize(job: Job, deleted_at: datetime | None = None) -> JobSummary:
    """Say what has become of a Job. A Job that was deleted before it finished ended when it was deleted."""
    meta = job.metadata
    finished_at = _finished_at(job)
    return JobSummary(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        labels=meta.labels,
        result=_result(job, deleted_at),
        created_at=meta.creation_timestamp,
        started_at=job.status.start_time,
        ended_at=finished_at or deleted_at,
        deleted_at=deleted_at,
        rerun_of=meta.annotations.get(RERUN_OF) or None,
    )


def _result(job: Job, deleted_at: datetime | None) -> str:
    for each in ("Complete", "Failed"):
        if is_true(job, each):
            return each
    return "Deleted" if deleted_at else "Running"


def _finished_at(job: Job) -> datetime | None:
    for each in ("Complete", "Failed"):
        if is_true(job, each) and (found := condition(job, each)):
            return job.status.completion_time or found.last_transition_time
    return None


def job_uid_of(pod: Pod) -> str:
    """The UID of the Job that the pod belongs, or belonged, to; empty if it is no Job's."""
    owner = controller_of(pod)
    if owner is not None:
        return owner.uid if owner.kind == "Job" else ""
    return pod.metadata.labels.get(_CONTROLLER_UID, "")


def job_name_of(pod: Pod) -> str:
    """The name of that Job."""
    owner = controller_of(pod)
    return owner.name if owner is not None else pod.metadata.labels.get(_JOB_NAME, "")


def attempt_of(pod: Pod, deleted_at: datetime | None = None) -> Attempt:
    """Say how a pod ended, or fares. The exit code is that of the container that decides."""
    decisive = _decisive_container(pod)
    state = decisive.state.terminated if decisive and decisive.state else None
    ends = [each.state.terminated.finished_at for each in _statuses(pod) if each.state and each.state.terminated]
    ended_at = max((end for end in ends if end), default=None) if is_terminal(pod) or deleted_at else None
    return Attempt(
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        index=_bounded(index_of(pod), 31),
        node=pod.spec.node_name,
        created_at=pod.metadata.creation_timestamp,
        started_at=(state.started_at if state else None) or pod.status.start_time,
        ended_at=ended_at or deleted_at,
        phase=pod.status.phase,
        exit_code=state.exit_code if state else None,
        reason=pod.status.reason or (state.reason if state else ""),
        message=(state.message if state else "") or pod.status.message,
        peak_memory_bytes=_peak_memory(pod),
        restart_count=min(sum(max(each.restart_count, 0) for each in _statuses(pod)), 2**31 - 1),
    )


def restarts_of(pod: Pod) -> Iterator[Restart]:
    """Yield for each container that was restarted the run before its last one; of one that waits for a restart, its last."""
    for status in _statuses(pod):
        ended = status.last_state.terminated if status.last_state else None
        # While it waits to be restarted, the count still is that of the run that ended.
        waits = status.state is not None and status.state.waiting is not None
        run = status.restart_count if waits else status.restart_count - 1
        if ended is not None and 0 <= run < 2**31 - 1:
            yield Restart(
                container=status.name,
                run=run,
                started_at=ended.started_at,
                ended_at=ended.finished_at,
                exit_code=ended.exit_code,
                reason=ended.reason,
                message=ended.message,
            )


def _statuses(pod: Pod) -> Sequence[Any]:
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def _decisive_container(pod: Pod) -> Any:
    """The status of the container that the annotation names; else of the first that failed; else of the first container."""
    statuses = _statuses(pod)
    main = main_container(pod.metadata)
    named = next((each for each in statuses if each.name == main), None)
    failed = next((each for each in statuses if _has_failed(each)), None)
    first = next((each for each in pod.status.container_statuses), None)
    return named or failed or first


def _has_failed(status: Any) -> bool:
    return bool(status.state and status.state.terminated and status.state.terminated.exit_code)


def _peak_memory(pod: Pod) -> int | None:
    """The peaks of all containers together, as far as the node has reported them."""
    try:
        peaks = _peaks.decode(pod.metadata.annotations.get(PEAK_MEMORY, "{}"))
    except msgspec.MsgspecError:
        return None
    return _bounded(sum(peaks.values()), 63) if peaks else None


def _bounded(number: int | None, bits: int) -> int | None:
    """A number that any client may have written: None if it is not one that the column takes."""
    return number if number is not None and 0 <= number < 2**bits else None


def parse_output(message: str) -> Any:
    """The termination message as JSON; None if it is none."""
    try:
        return msgspec.json.decode(message) if message else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def build_record(
    body: bytes, summary: JobSummary, attempts: Iterable[Attempt], omitted: int, events: Iterable[Any] | None = None
) -> JobRecord:
    """Build the record of a Job. `body` is the Job's JSON; `omitted` is how many attempts it had beside these."""
    stored = _stored.decode(body)
    return JobRecord(
        metadata=_meta(stored.metadata),
        spec=stored.spec,
        status=stored.status,
        result=summary.result,
        start_time=summary.started_at,
        end_time=summary.ended_at,
        deletion_time=summary.deleted_at,
        rerun_of=summary.rerun_of,
        attempts=list(attempts),
        attempts_omitted=omitted,
        events=msgspec.UNSET if events is None else list(events),
    )


def newest_first(attempts: Iterable[Attempt]) -> list[Attempt]:
    """By the creation of their pods."""
    return sorted(attempts, key=lambda each: (each.created_at or _NEVER, each.pod_uid), reverse=True)


def _meta(meta: ObjectMeta) -> RecordMeta:
    return RecordMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        creation_timestamp=meta.creation_timestamp,
        labels=meta.labels,
        annotations=meta.annotations,
        owner_references=meta.owner_references,
    )
