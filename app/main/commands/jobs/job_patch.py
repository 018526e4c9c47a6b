"""The patch that `jobplane rerun --set` makes of its options. Pure; called by `rerun`."""

import json
from collections.abc import Sequence
from typing import Any

from app.machinery.durations import parse_span
from app.main.cli_errors import CommandError
from app.main.commands.jobs.job_template import GPU

_OF_JOB = {"retries": "backoffLimit", "parallelism": "parallelism"}
_RESOURCES = {
    "cpus": ("cpu", ("requests",)),
    "memory": ("memory", ("requests", "limits")),
    "gpus": (GPU, ("requests", "limits")),
}
_SHORT = "image, command, cpus, memory, gpus, retries, timeout, parallelism, env.NAME"


def make_patch(edits: Sequence[str], container: str) -> dict[str, Any]:
    """Make a strategic merge patch of a Job from FIELD=VALUE edits; container fields are those of `container`."""
    patch: dict[str, Any] = {}
    for edit in edits:
        field, found, value = edit.partition("=")
        if not found:
            raise CommandError(f"--set {edit} has no value: pass FIELD=VALUE")
        _apply(patch, field, value, container)
    return patch


def _apply(patch: dict[str, Any], field: str, value: str, container: str) -> None:
    """Add one edit to the patch."""
    if field.startswith(("spec.", "metadata.")):
        _set(patch, tuple(field.split(".")), _parse(value))
    elif field in _OF_JOB:
        _set(patch, ("spec", _OF_JOB[field]), _number(field, value))
    elif field == "timeout":
        _set(patch, ("spec", "activeDeadlineSeconds"), _seconds(value))
    else:
        _apply_to_container(_container(patch, container), field, value)


def _apply_to_container(target: dict[str, Any], field: str, value: str) -> None:
    if field == "image":
        target["image"] = value
    elif field == "command":
        target["command"] = ["sh", "-c", value]
    elif field in _RESOURCES:
        name, kinds = _RESOURCES[field]
        for kind in kinds:
            _set(target, ("resources", kind, name), value)
    elif field.startswith("env."):
        target.setdefault("env", []).append({"name": field.removeprefix("env."), "value": value})
    else:
        raise CommandError(f"--set {field}: pass one of {_SHORT}, or a path such as spec.backoffLimit")


def _container(patch: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the container of the patch, made if it is not there. Containers merge by name."""
    containers: list[dict[str, Any]] = (
        patch.setdefault("spec", {}).setdefault("template", {}).setdefault("spec", {}).setdefault("containers", [])
    )
    if not containers:
        containers.append({"name": name})
    return containers[0]


def _set(target: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = value


def _number(field: str, value: str) -> int:
    if not value.isdecimal():
        raise CommandError(f"--set {field}={value} is no number")
    return int(value)


def _seconds(value: str) -> int:
    span = parse_span(value)
    if span is None:
        raise CommandError(f"--set timeout={value} is not a duration: pass one such as 90s, 15m or 8h")
    return int(span.total_seconds())


def _parse(value: str) -> Any:
    """Read JSON where it is some, else the text."""
    try:
        return json.loads(value)
    except ValueError:
        return value
