"""Lines and rows about one Job: what it is, its attempts, its events. Pure; used by `get` and `history`."""

import json
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

from app.kinds.batch.job import Job
from app.machinery.durations import human_duration
from app.main.commands.view.attempts import FAILED, PENDING, SUCCEEDED, Attempt, in_order
from app.main.commands.view.job_words import (
    Reader,
    describe,
    describe_after,
    describe_done,
    describe_exit,
    describe_wait,
    ended_at,
    has_many,
)
from app.main.commands.view.usage import format_bytes

NONE = "-"


def job_lines(job: Job, attempts: Sequence[Attempt], reader: Reader) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line about a Job."""
    yield "Job", f"{job.metadata.name} (namespace {job.metadata.namespace})"
    yield "State", describe(job, attempts, reader)
    for container in job.spec.template.spec.containers:
        yield "Command", shlex.join((*container.command, *container.args)) or "(that of the image)"
        yield "Image", container.image
        if container.resources and container.resources.requests:
            yield (
                "Needs",
                ", ".join(f"{name} {amount}" for name, amount in sorted(container.resources.requests.items())),
            )
    if has_many(job):
        yield "Done", describe_done(job)
    if after := describe_after(job):
        yield "After", after
    for label, moment in (
        ("Created", job.metadata.creation_timestamp),
        ("Started", job.status.start_time),
        ("Ended", ended_at(job)),
    ):
        if moment:
            yield label, f"{reader.time_of(moment)} ({human_duration(reader.now - moment)} ago)"


def attempt_rows(attempts: Sequence[Attempt], reader: Reader, most: int) -> list[list[str]]:
    """Return a header and a row for each of the newest attempts, without columns that are empty for all."""
    rows = [["POD", "INDEX", "STATE", "NODE", "STARTED", "TOOK", "PEAK MEMORY", "RESTARTS"]]
    rows += [_attempt_row(each, reader) for each in in_order(attempts)[-most:]]
    used = [place for place, column in enumerate(zip(*rows, strict=True)) if set(column[1:]) != {NONE}]
    return [[row[place] for place in used] for row in rows]


def _attempt_row(attempt: Attempt, reader: Reader) -> list[str]:
    peak = attempt.peak_memory_bytes
    return [
        attempt.pod,
        NONE if attempt.index is None else str(attempt.index),
        _describe_attempt(attempt),
        attempt.node or NONE,
        _time(attempt.started_at, reader),
        _took(attempt, reader),
        NONE if peak is None else format_bytes(Fraction(peak)),
        str(attempt.restart_count) if attempt.restart_count else NONE,
    ]


def restart_rows(attempts: Sequence[Attempt], reader: Reader, most: int) -> list[list[str]]:
    """Return a header and a row for each of the newest runs of containers that ended in a restart; `#N` is run N, from 0."""
    rows = [["RESTARTED", "BECAUSE", "STARTED", "ENDED"]]
    runs = [(attempt, each) for attempt in in_order(attempts) for each in reversed(attempt.restarts)]
    for attempt, each in runs[-most:]:
        because = f"exit code {each.exit_code}" + ("" if each.reason in ("", "Error") else f" ({each.reason})")
        times = (_time(each.started_at, reader), _time(each.ended_at, reader))
        rows.append([f"{attempt.pod}/{each.container}#{each.run}", because, *times])
    return rows


def _describe_attempt(attempt: Attempt) -> str:
    if attempt.phase == FAILED:
        return f"failed: {describe_exit(attempt)}"
    if attempt.phase == PENDING:
        return f"pending: {describe_wait(Job(), attempt)}"
    return "succeeded" if attempt.phase == SUCCEEDED else attempt.phase.lower()


def _time(moment: datetime | None, reader: Reader) -> str:
    return reader.time_of(moment) if moment else NONE


def _took(attempt: Attempt, reader: Reader) -> str:
    if not attempt.started_at:
        return NONE
    return human_duration((attempt.ended_at or reader.now) - attempt.started_at)


def event_rows(events: Sequence[dict[str, Any]], reader: Reader) -> list[list[str]]:
    """Return a header and a row for each event."""
    rows = [["EVENT", "AT", "MESSAGE"]]
    for event in events:
        moment = datetime.fromisoformat(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"])
        rows.append([event.get("reason", ""), reader.time_of(moment), event.get("message", "")])
    return rows


def output_lines(attempts: Sequence[Attempt]) -> Iterator[tuple[str, str]]:
    """Yield a line for each result that an attempt left: JSON in its termination message."""
    for each in in_order(attempts):
        if each.output is not None:
            label = "Result" if each.index is None else f"Result {each.index}"
            yield label, json.dumps(each.output, ensure_ascii=False)
