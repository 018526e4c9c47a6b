"""`#SBATCH` lines of a script, as users of Slurm write them, and what they ask of a Job. Pure; called by `manifests`.

As with sbatch, they stand before the first command. Those that have no counterpart here are refused by name: a script that asks
for what it would not get is not submitted.
"""

import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from app.main.cli_errors import CommandError
from app.main.commands.jobs.job_template import RunOptions

PREFIX = "#SBATCH"
# What the index of a task is called in scripts for Slurm.
TASK_ID = {
    "name": "SLURM_ARRAY_TASK_ID",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}},
}
_SHORT = {
    "-a": "--array",
    "-c": "--cpus-per-task",
    "-d": "--dependency",
    "-J": "--job-name",
    "-t": "--time",
}
_KNOWN = ("--array", "--cpus-per-task", "--dependency", "--job-name", "--mem", "--time")
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
# Minutes, minutes:seconds, hours:minutes:seconds; or days-hours, with minutes and seconds if they are given.
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
_AFTER = {"afterok": "ok", "afternotok": "failed", "afterany": "any"}


class Directives(NamedTuple):
    """What the lines of a script ask for: options of `jobplane run`, and the seconds that each task may take; 0 is for ever."""

    options: dict[str, Any]
    seconds: int


def read_directives(text: str, source: str) -> Directives:
    """Read the `#SBATCH` lines of a script. CommandError names the line that cannot be followed."""
    options: dict[str, Any] = {}
    seconds = 0
    for where, flag, value in _flags(text, source):
        try:
            if flag == "--array":
                options["array"] = value
            elif flag == "--cpus-per-task":
                options["cpus"] = value
            elif flag == "--dependency":
                options["after"] = _dependencies(value)
            elif flag == "--job-name":
                options["name"] = value
            elif flag == "--mem":
                options["memory"] = _memory(value)
            elif flag == "--time":
                seconds = _seconds(value)
        except ValueError as error:
            raise CommandError(f"{where}: {flag}={value} {error}") from None
    return Directives(options, seconds)


def apply_directives(job: dict[str, Any], directives: Directives) -> dict[str, Any]:
    """Add to the Job of a script what options of `jobplane run` do not say: the time of each task, and its index."""
    pod = job["spec"]["template"]["spec"]
    if directives.seconds:
        pod["activeDeadlineSeconds"] = directives.seconds
    if "array" in directives.options:
        pod["containers"][0]["env"] = [TASK_ID]
    return job


def run_options(directives: Directives, command: str) -> RunOptions:
    return RunOptions(command=(command,), **directives.options)


def _flags(text: str, source: str) -> Iterator[tuple[str, str, str]]:
    """Yield where an option stands, its long name and its value."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            return
        if not line.startswith(f"{PREFIX} "):
            continue
        where = f"{source} line {number}"
        try:
            words = shlex.split(line.removeprefix(PREFIX), comments=True)
        except ValueError as error:
            raise CommandError(f"{where}: {error}") from None
        while words:
            given = words.pop(0)
            flag, has_value, value = given.partition("=")
            flag = _SHORT.get(flag, flag)
            if flag not in _KNOWN:
                raise CommandError(
                    f"{where}: {PREFIX} {given} has no counterpart here: remove it. Known: {', '.join(_KNOWN)}"
                )
            if not has_value:
                value = words.pop(0) if words else ""
            if not value:
                raise CommandError(f"{where}: {flag} has no value")
            yield where, flag, value


def _memory(text: str) -> str:
    """Slurm's memory as a quantity: a number is in MiB, its letters are powers of 1024."""
    found = _MEMORY.fullmatch(text)
    if not found or not int(found[1]):
        raise ValueError("is no memory: pass one such as 4000 (MiB) or 4G")
    return f"{int(found[1])}{(found[2] or 'M').upper()}i"


def _seconds(text: str) -> int:
    """Slurm's time limit; 0 is none."""
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError("is no time: pass minutes, MM:SS, HH:MM:SS, D-HH or D-HH:MM:SS")
    days, *parts = (int(found[name] or 0) for name in ("days", "first", "second", "third"))
    if found["days"] or found["third"]:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, parts[:2]
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _dependencies(text: str) -> list[str]:
    """`afterok:a:b,afterany:c`, with names of Jobs, as `jobplane run --after` takes them."""
    found = []
    for each in text.split(","):
        kind, *names = each.split(":")
        if kind not in _AFTER or not all(names) or not names:
            raise ValueError(
                f"is not understood: pass {', '.join(f'{name}:JOB' for name in _AFTER)}, with names of Jobs"
            )
        found += [f"{name}:{_AFTER[kind]}" for name in names]
    return found
