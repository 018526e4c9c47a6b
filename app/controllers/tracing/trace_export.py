"""Trace export: when a Job ends, its trace goes to an OpenTelemetry collector, if one is configured. The leader runs it.

Best effort: nothing waits for a collector. Jobs that end wait in a queue with a bound; if a collector is away for long, or the
leader dies, traces are lost, and counted. What is decided, and recorded, of Jobs does not depend on this.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from app.controllers.tracing.otlp import ExportError, OtlpClient, encode
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job, is_finished
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.decoding.decode import decode_stored
from app.metrics.registry import MetricsRegistry
from app.plans.jobs.traces import Span, spans_of
from app.store import Key, Mirror, Store, Unavailable
from app.structured_logging import Logger, object_fields

logger = Logger(__name__)
MOST_WAITING = 1_000  # Jobs
MOST_PODS = 1_000  # of one Job: the newest
MOST_SPANS = 2_000  # in one request
MOST_TRIES = 10
AT_ONCE = 20  # Jobs in one run


class _Waiting(NamedTuple):
    job: Job
    tries: int = 0


class TraceExport:
    """Exports the traces of Jobs that are seen to end in the mirror."""

    name = "trace export"
    interval = timedelta(seconds=1)

    def __init__(self, store: Store, mirror: Mirror, client: OtlpClient, metrics: MetricsRegistry) -> None:
        self._store, self._client = store, client
        self._waiting: deque[_Waiting] = deque()
        self._spans = metrics.counter("jobplane_trace_spans_exported_total", "Spans that a collector has taken.")
        self._dropped = metrics.counter("jobplane_trace_jobs_dropped_total", "Jobs whose trace was not exported.")
        mirror.listen(self._on_change, {JOBS.resource})

    def _on_change(self, _: Key, before: Object | None, now: Object | None) -> None:
        if not isinstance(before, Job) or not isinstance(now, Job):
            return
        if is_finished(now) and not is_finished(before):
            self._add(_Waiting(now))

    def _add(self, waiting: _Waiting) -> None:
        """Add a Job at the end; the one that has waited longest gives way if there are too many."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._dropped.inc()
        self._waiting.append(waiting)

    async def run_once(self, _: datetime) -> dict[str, int]:
        """Export what waits, a few Jobs at most. ExportError if the collector is away: then they are tried again."""
        for _turn in range(min(AT_ONCE, len(self._waiting))):
            waiting = self._waiting.popleft()
            try:
                await self._export(waiting.job)
            except (ExportError, Unavailable) as error:
                if self._gives_up(waiting, error):
                    continue
                self._add(_Waiting(waiting.job, waiting.tries + 1))
                raise
        return {}

    async def _export(self, job: Job) -> None:
        meta = job.metadata
        bodies = await self._store.owned_by(PODS.resource, meta.uid, MOST_PODS)
        spans, requests = await asyncio.to_thread(_encode, job, bodies)
        for body in requests:
            await self._client.send(body)
        self._spans.add(spans)

    def _gives_up(self, waiting: _Waiting, error: ExportError | Unavailable) -> bool:
        """Return whether the Job is given up: the collector refuses it, or was away for too long."""
        if waiting.tries + 1 < MOST_TRIES and not (isinstance(error, ExportError) and error.is_final):
            return False
        self._dropped.inc()
        meta = waiting.job.metadata
        logger.warning(
            "trace of a Job was not exported", **object_fields(JOBS.resource, meta.namespace, meta.name), error=error
        )
        return True


def _encode(job: Job, bodies: Sequence[bytes]) -> tuple[int, list[bytes]]:
    """Return the number of a Job's spans, and the requests with them. Runs in a thread: a large Job takes a tenth of a second."""
    spans = spans_of(job, (decode_stored(body, Pod) for body in bodies))
    return len(spans), [encode(part) for part in _parts(spans)]


def _parts(spans: list[Span]) -> Iterator[list[Span]]:
    return (spans[at : at + MOST_SPANS] for at in range(0, len(spans), MOST_SPANS))
