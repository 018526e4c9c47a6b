"""Job annotations: what users ask of a Job beyond Kubernetes' fields, parsed and validated.

Validation of Jobs and CronJobs calls `validate_annotations`; plans call the functions that read a Job's metadata. A stored
value that is invalid, from an older version, counts as none.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar, cast

from app.kinds.pod.pod_annotations import MAIN_CONTAINER, START_TIMEOUT
from app.kinds.pod.pod_schema import PodSpec
from app.machinery import quantity
from app.machinery.base import ObjectMeta
from app.machinery.durations import parse_seconds
from app.machinery.errors import Cause, invalid
from app.machinery.meta.metadata_validation import IMMUTABLE
from app.machinery.name_validation import dns_subdomain

AFTER = "jobplane.dev/after"
OOM_MEMORY = "jobplane.dev/oom-memory"
HEARTBEAT = "jobplane.dev/heartbeat"
HEARTBEAT_TIMEOUT = "jobplane.dev/heartbeat-timeout"
MOST_DEPENDENCIES = 20
_LONGEST_DEPENDENCY = 262  # a name, `:failed`, a comma and a space

_ZONE = re.compile(r"(?:[zZ]|[+-][0-9]{2}:[0-9]{2})$")

_MEMORY_RAISE = re.compile(r"x([0-9]{1,3}(?:\.[0-9]{1,3})?),max=(.{1,40})")

T = TypeVar("T")
Result = Literal["ok", "failed", "any"]
RESULTS = ("ok", "failed", "any")


class Dependency(NamedTuple):
    """A Job of the same namespace that must end first, and how."""

    name: str
    result: Result


@lru_cache(4096)
def parse_after(text: str) -> tuple[Dependency, ...]:
    """Parse `NAME[:ok|failed|any][,NAME…]`; ValueError says what is wrong."""
    if len(text) > MOST_DEPENDENCIES * _LONGEST_DEPENDENCY:
        raise ValueError(f"must be no more than {MOST_DEPENDENCIES * _LONGEST_DEPENDENCY} characters")
    found = tuple(map(_parse_dependency, text.split(",", MOST_DEPENDENCIES)))
    if len(found) > MOST_DEPENDENCIES:
        raise ValueError(f"must have at most {MOST_DEPENDENCIES} names")
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"must name each Job once: {name}")
    return found


def _parse_dependency(text: str) -> Dependency:
    name, colon, result = text.strip().partition(":")
    if colon and result not in RESULTS:
        raise ValueError("must be NAME, NAME:ok, NAME:failed or NAME:any, several separated by commas")
    if faults := dns_subdomain(name):
        raise ValueError(f"must name Jobs: {faults[0]}")
    return Dependency(name, cast("Result", result or "ok"))


def dependencies(metadata: ObjectMeta) -> tuple[Dependency, ...]:
    return _read(metadata.annotations, AFTER, parse_after) or ()


@lru_cache(4096)
def parse_time(text: str) -> datetime:
    """Parse a time with its zone, as RFC 3339 has it; ValueError says what is wrong."""
    try:
        return datetime.fromisoformat(text if "T" in text.upper() and _ZONE.search(text) else "").astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a time as RFC 3339 has it, such as 2026-01-31T12:00:00Z") from None


def heartbeat_timeout(metadata: ObjectMeta) -> int | None:
    """Return the seconds within which the submitter must renew the heartbeat; None without such a demand."""
    return _read(metadata.annotations, HEARTBEAT_TIMEOUT, parse_seconds)


def last_heartbeat(metadata: ObjectMeta) -> datetime | None:
    return _read(metadata.annotations, HEARTBEAT, parse_time)


class MemoryRaise(NamedTuple):
    """Growth of a container's memory limit after an OOM kill: the factor, and the largest limit in bytes."""

    factor: Fraction
    most: int


def parse_memory_raise(text: str) -> MemoryRaise:
    """Parse `x1.5,max=8Gi`; ValueError says what is wrong."""
    match = _MEMORY_RAISE.fullmatch(text)
    factor = Fraction(match[1]) if match else Fraction(0)
    if match is None or factor <= 1 or quantity.fault(match[2]) or quantity.value(match[2]) < 1:
        raise ValueError("must be xFACTOR,max=MEMORY with a factor above 1, such as x1.5,max=8Gi")
    return MemoryRaise(factor, quantity.value(match[2]))


def memory_raise(metadata: ObjectMeta) -> MemoryRaise | None:
    return _read(metadata.annotations, OOM_MEMORY, parse_memory_raise)


def _read(annotations: Mapping[str, str], key: str, parse: Callable[[str], T]) -> T | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError:
        return None


# --- validation

_PARSERS: dict[str, Callable[[str], object]] = {
    AFTER: parse_after,
    HEARTBEAT: parse_time,
    HEARTBEAT_TIMEOUT: parse_seconds,
    OOM_MEMORY: parse_memory_raise,
    START_TIMEOUT: parse_seconds,
}


def validate_annotations(metadata: ObjectMeta, spec: PodSpec, path: str = "metadata.annotations") -> Iterator[Cause]:
    """Validate the annotations of a Job, or of a template of Jobs, whose pods have this spec."""
    annotations = metadata.annotations
    for key, parse in _PARSERS.items():
        if key in annotations and (fault := _fault(parse, annotations[key])):
            yield invalid(f"{path}[{key}]", annotations[key], fault)
    if metadata.name in (each.name for each in dependencies(metadata)):
        yield invalid(f"{path}[{AFTER}]", annotations[AFTER], "must not name the Job itself")
    if OOM_MEMORY in annotations and spec.restart_policy != "Never":
        yield invalid(f"{path}[{OOM_MEMORY}]", annotations[OOM_MEMORY], 'requires pods with restartPolicy: "Never"')
    main, names = annotations.get(MAIN_CONTAINER), [each.name for each in spec.containers]
    if main is not None and main not in names:
        yield invalid(f"{path}[{MAIN_CONTAINER}]", main, f"must name a container of the pods: {', '.join(names)}")


def _fault(parse: Callable[[str], object], text: str) -> str:
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return ""


def validate_annotations_update(new: ObjectMeta, old: ObjectMeta) -> Iterator[Cause]:
    """Validate an update: `after` can be removed, but not changed, as the Jobs that it names may have been decided on."""
    text = new.annotations.get(AFTER)
    if text is not None and text != old.annotations.get(AFTER):
        yield invalid(f"metadata.annotations[{AFTER}]", text, IMMUTABLE)
