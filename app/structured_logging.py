"""Structured logging: a line is a constant sentence and fields. Every layer that logs calls it.

`app.main.log_output` writes the lines, as text or JSON, and leaves out what repeats within a minute; docs/logs.md describes the
fields. It builds on the standard `logging`, so lines of libraries go the same way.
"""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Literal, TypedDict, Unpack

LogFormat = Literal["text", "json"]


class ObjectFields(TypedDict, total=False):
    """Fields that name an object: namespace/name, for `object` with the resource before it."""

    job: str
    pod: str
    node: str
    object: str


class PodFields(ObjectFields, total=False):
    """Fields that name a pod, its node and its Job."""

    pod_uid: str


class ContainerFields(PodFields, total=False):
    """Fields that name a run of a container."""

    container: str
    attempt: int


class Fields(ContainerFields, total=False):
    """The fields that a line may have."""

    controller: str
    resource: str
    image: str
    path: str
    address: str
    command: str
    call: str
    task: str
    process: str
    handler: str
    runtime: str
    names: str
    error_id: str

    revision: int
    reason: str
    error: BaseException | str
    count: int
    limit: int
    bytes: int
    seconds: float
    exit_code: int


MEASURES = frozenset({"error", "count", "limit", "bytes", "seconds", "exit_code"})  # they tell no cause from another
EVENTS = frozenset({"attempt", "revision", "reason"})  # at level info they do: another attempt is another event


_fields_of_pod: ContextVar[Callable[[str], PodFields]] = ContextVar("fields_of_pod")


def name_pods_by(fields_of: Callable[[str], PodFields]) -> None:
    """In this task and those that it starts, let lines with a `pod_uid` also name the pod, its node and its Job."""
    _fields_of_pod.set(fields_of)


class Logger:
    """A module's logger. Messages are constant: what varies is a field."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, /, **fields: Unpack[Fields]) -> None:
        self._log(logging.DEBUG, message, None, fields)

    def info(self, message: str, /, **fields: Unpack[Fields]) -> None:
        self._log(logging.INFO, message, None, fields)

    def warning(self, message: str, *, traceback_of: BaseException | None = None, **fields: Unpack[Fields]) -> None:
        self._log(logging.WARNING, message, traceback_of, fields)

    def error(self, message: str, *, traceback_of: BaseException | None = None, **fields: Unpack[Fields]) -> None:
        self._log(logging.ERROR, message, traceback_of, fields)

    def at(self, level: int, message: str, /, **fields: Unpack[Fields]) -> None:
        """Log at one of logging's levels."""
        self._log(level, message, None, fields)

    def _log(self, level: int, message: str, failure: BaseException | None, fields: Fields) -> None:
        if not self._logger.isEnabledFor(level):
            return
        if failure is not None:
            fields.setdefault("error", failure)
        if "pod_uid" in fields and "pod" not in fields and (fields_of := _fields_of_pod.get(None)):
            fields = {**fields_of(fields["pod_uid"]), **fields}
        self._logger.log(level, message, exc_info=failure, extra={"fields": fields}, stacklevel=3)


def object_fields(resource: str, namespace: str, name: str) -> ObjectFields:
    """The field for an object: `job`, `pod` or `node` for these, `object` for all others."""
    named = f"{namespace}/{name}" if namespace else name
    match resource:
        case "jobs.batch":
            return {"job": named}
        case "pods":
            return {"pod": named}
        case "nodes":
            return {"node": named}
    return {"object": f"{resource}/{named}"}
