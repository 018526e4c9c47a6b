"""Trace of a Job that has ended: its spans, as OpenTelemetry has them: the Job, each pod as an attempt, and the parts of that.

`app.controllers.tracing.trace_export` sends them. Pure: IDs are made of UIDs, so a trace that is sent twice is the same one. The
annotation `jobplane.dev/traceparent` (W3C Trace Context) puts the Job into the trace of its submitter.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from app.kinds.batch.job import Job, condition, is_true
from app.kinds.pod.container import ContainerStatus
from app.kinds.pod.pod import Pod
from app.plans.jobs.job_record import Attempt, attempt_of

TRACEPARENT = "jobplane.dev/traceparent"
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED = 1
Attributes = dict[str, str | int]


class Parent(NamedTuple):
    """The trace that a Job belongs to, and the span of its submitter, if there is one."""

    trace_id: bytes
    span_id: bytes
    is_sampled: bool = True


class Span(NamedTuple):
    """A part of a trace, from `start` to `end`. `error` is empty unless it failed."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start: datetime
    end: datetime
    attributes: Attributes
    error: str = ""


def parent_of(job: Job) -> Parent:
    """Return the trace that the annotation of a Job names; else one of its own. An annotation that is malformed is ignored."""
    found = _TRACEPARENT.fullmatch(job.metadata.annotations.get(TRACEPARENT, "").strip())
    if found is None:
        return Parent(_id("trace", job.metadata.uid, 16), b"")
    trace, span, flags = found.groups()
    return Parent(bytes.fromhex(trace), bytes.fromhex(span), bool(int(flags, 16) & _SAMPLED))


def spans_of(job: Job, pods: Iterable[Pod]) -> list[Span]:
    """Return the spans of a Job that has ended, parents first; none if it has not, or if its submitter does not sample."""
    parent, ended, created = parent_of(job), _end_of(job), job.metadata.creation_timestamp
    if ended is None or created is None or not parent.is_sampled:
        return []
    end, result, error = ended
    meta = job.metadata
    attributes: Attributes = {
        "k8s.namespace.name": meta.namespace,
        "k8s.job.name": meta.name,
        "k8s.job.uid": meta.uid,
        "jobplane.job.result": result,
        "jobplane.job.succeeded": job.status.succeeded,
        "jobplane.job.failed": job.status.failed,
    }
    span = _span(parent, "job", meta.uid, created, end, attributes, error)
    below = Parent(span.trace_id, span.span_id)
    return [span, *(each for pod in pods for each in _attempt_spans(below, pod, end))]


def _end_of(job: Job) -> tuple[datetime, str, str] | None:
    """End of a Job: the time, the result, and the cause of a failure."""
    for result in ("Complete", "Failed"):
        found = condition(job, result) if is_true(job, result) else None
        if found is not None and found.last_transition_time is not None:
            return found.last_transition_time, result, found.message or found.reason if result == "Failed" else ""
    return None


def _attempt_spans(parent: Parent, pod: Pod, job_ended: datetime) -> Iterator[Span]:
    meta, attempt = pod.metadata, attempt_of(pod)
    if meta.creation_timestamp is None:
        return
    end = attempt.ended_at or job_ended
    failed = attempt.phase == "Failed"
    error = (attempt.message or attempt.reason or f"exit code {attempt.exit_code}") if failed else ""
    span = _span(parent, "attempt", meta.uid, meta.creation_timestamp, end, _attributes(meta.namespace, attempt), error)
    yield span
    below = Parent(span.trace_id, span.span_id)
    for name, start, until in _phases(pod, meta.creation_timestamp, end):
        yield _span(below, name, meta.uid, start, until, {"k8s.pod.name": meta.name})


def _attributes(namespace: str, attempt: Attempt) -> Attributes:
    named: dict[str, str | int | None] = {
        "k8s.namespace.name": namespace,
        "k8s.pod.name": attempt.pod,
        "k8s.pod.uid": attempt.pod_uid,
        "k8s.node.name": attempt.node or None,
        "jobplane.job.completion_index": attempt.index,
        "jobplane.pod.phase": attempt.phase,
        "jobplane.pod.reason": attempt.reason or None,
        "process.exit.code": attempt.exit_code,
        "jobplane.pod.peak_memory": attempt.peak_memory_bytes,
    }
    return {name: value for name, value in named.items() if value is not None}


def _phases(pod: Pod, created: datetime, end: datetime) -> Iterator[tuple[str, datetime, datetime]]:
    """Yield the parts of an attempt: until it has a node, until a container runs (its images are pulled), until it ends."""
    scheduled = next(
        (
            each.last_transition_time
            for each in pod.status.conditions
            if each.type == "PodScheduled" and each.status == "True"
        ),
        None,
    )
    yield "queued", created, scheduled or end
    if scheduled is None:
        return
    started = min(filter(None, map(_started_at, _containers(pod))), default=None)
    yield "pulling", scheduled, started or end
    if started is not None:
        yield "running", started, end


def _containers(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def _started_at(status: ContainerStatus) -> datetime | None:
    """Return when a container first started, as far as its status knows: the run before the last is not in it."""
    for state in (status.last_state, status.state):
        if state is not None and state.terminated is not None and state.terminated.started_at is not None:
            return state.terminated.started_at
        if state is not None and state.running is not None:
            return state.running.started_at
    return None


def _span(
    parent: Parent, name: str, uid: str, start: datetime, end: datetime, attributes: Attributes, error: str = ""
) -> Span:
    """Make a span. Clocks of machines differ: none ends before it begins."""
    span_id = _id(name, uid, 8)
    return Span(parent.trace_id, span_id, parent.span_id, name, start, max(start, end), attributes, error)


def _id(name: str, uid: str, size: int) -> bytes:
    return sha256(f"{name}/{uid}".encode()).digest()[:size]
