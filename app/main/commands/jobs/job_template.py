"""The batch/v1 Job that `jobplane run` makes of its options. Pure; called by `run`.

It is a plain Job: kubectl, client libraries and any Kubernetes read it. Raises CommandError with one line for a wrong option.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.kinds.batch.job_annotations import AFTER
from app.machinery.durations import parse_span
from app.machinery.quantity import parse
from app.main.cli_errors import CommandError
from app.plans.kubelet.image_pulls import NO_IMAGE

CONTAINER = "main"
GPU = "nvidia.com/gpu"
QUEUE = "kueue.x-k8s.io/queue-name"
LONGEST_NAME = 52  # of a Job: its pods' names end with an index and five letters
_ARRAY = re.compile(r"(\d{1,6})-(\d{1,6})(?:%(\d{1,6}))?|(\d{1,6})(?:%(\d{1,6}))?")
_AFTER = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?)(:(ok|failed|any))?")


class RunOptions(NamedTuple):
    """Options of `jobplane run`; empty or None where none is given."""

    image: str = ""
    command: Sequence[str] = ()
    name: str = ""
    array: str = ""
    cpus: str = ""
    memory: str = ""
    gpus: int = 0
    env: Sequence[str] = ()
    after: Sequence[str] = ()
    retries: int = 0
    timeout: str = ""
    labels: Sequence[str] = ()
    queue: str = ""
    priority: str = ""
    workdir: str = ""
    ttl: str = ""


class Array(NamedTuple):
    """Indexes from 0: `size` of them, at most `at_once` at a time."""

    size: int
    at_once: int


def make_job(options: RunOptions, environment: Mapping[str, str]) -> dict[str, Any]:
    """Make the Job. `environment`: the user's own, for `--env NAME` without a value."""
    spec: dict[str, Any] = {"template": {"spec": _make_pod(options, environment)}, "backoffLimit": options.retries}
    if options.array:
        array = parse_array(options.array)
        spec |= {"completionMode": "Indexed", "completions": array.size, "parallelism": array.at_once}
        del spec["backoffLimit"]
        spec["backoffLimitPerIndex"] = options.retries
    if options.timeout:
        spec["activeDeadlineSeconds"] = _seconds(options.timeout, "--timeout")
    if options.ttl:
        spec["ttlSecondsAfterFinished"] = _seconds(options.ttl, "--ttl")
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _make_metadata(options), "spec": spec}


def _make_metadata(options: RunOptions) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": options.name or make_name(options.image, options.command)}
    labels = parse_pairs(options.labels, "--label") | ({QUEUE: options.queue} if options.queue else {})
    if labels:
        metadata["labels"] = labels
    if options.after:
        metadata["annotations"] = {AFTER: ",".join(_check_after(each) for each in options.after)}
    return metadata


def _make_pod(options: RunOptions, environment: Mapping[str, str]) -> dict[str, Any]:
    container: dict[str, Any] = {"name": CONTAINER, "image": options.image or NO_IMAGE}
    if options.command:
        container["command"] = list(options.command)
    if options.env:
        container["env"] = [_variable(each, environment) for each in options.env]
    if resources := _make_resources(options):
        container["resources"] = resources
    if options.workdir:
        container["workingDir"] = options.workdir
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    return pod | ({"priorityClassName": options.priority} if options.priority else {})


def _make_resources(options: RunOptions) -> dict[str, Any]:
    """CPU is a request, so that idle CPUs may be used; memory and GPUs are limits, too."""
    requests = {"cpu": _quantity(options.cpus, "--cpus")} if options.cpus else {}
    limits = {"memory": _quantity(options.memory, "--memory")} if options.memory else {}
    if options.gpus:
        limits[GPU] = str(options.gpus)
    made = {"requests": requests | limits, "limits": limits}
    return {name: values for name, values in made.items() if values}


def _quantity(text: str, flag: str) -> str:
    try:
        if parse(text) > 0:
            return text
    except ValueError:
        pass
    raise CommandError(f"{flag} {text} is no quantity: pass one such as 2, 500m or 1.5 (CPUs), 512Mi or 4Gi (memory)")


def parse_array(text: str) -> Array:
    """Parse `0-99%10` (indexes 0 to 99, ten at a time), `0-99`, `100` (as many indexes) or `100%10`."""
    found = _ARRAY.fullmatch(text)
    if not found:
        raise CommandError(f"--array {text} is no array: pass one such as 0-99, 0-99%10 (ten at a time) or 100")
    first, last, of_range, count, of_count = found.groups()
    if first is not None and int(first):
        rest = f"0-{max(int(last) - int(first), 0)}"
        raise CommandError(
            f"--array {text}: indexes begin with 0: pass {rest}, and add {first} to the index in the command"
        )
    size = int(last) + 1 if first is not None else int(count)
    at_once = of_range or of_count
    if not size or at_once == "0":
        raise CommandError(f"--array {text} runs nothing: pass at least one index, and at least one at a time")
    return Array(size, min(int(at_once), size) if at_once else size)


def parse_pairs(pairs: Sequence[str], flag: str) -> dict[str, str]:
    """Parse NAME=VALUE options."""
    for each in pairs:
        if "=" not in each:
            raise CommandError(f"{flag} {each} has no value: pass NAME=VALUE")
    return {name: value for name, _, value in (each.partition("=") for each in pairs)}


def _variable(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    name, found, value = text.partition("=")
    if not found and name not in environment:
        raise CommandError(f"--env {name} is not set here: pass {name}=VALUE")
    return {"name": name, "value": value if found else environment[name]}


def _check_after(text: str) -> str:
    if not _AFTER.fullmatch(text):
        raise CommandError(f"--after {text}: pass the name of a Job, or NAME:ok, NAME:failed or NAME:any")
    return text


def _seconds(text: str, flag: str) -> int:
    if text.isdecimal():
        return int(text)
    span = parse_span(text)
    if span is None:
        raise CommandError(f"{flag} {text} is not a duration: pass one such as 90s, 15m or 8h")
    return int(span.total_seconds())


def make_name(image: str, command: Sequence[str]) -> str:
    """Make a name such as `train-x7k2p`, of the program or the image, and five random letters."""
    word = command[0] if command else image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    base = re.sub(r"[^a-z0-9]+", "-", word.rpartition("/")[2].lower()).strip("-")[: LONGEST_NAME - 6].strip("-")
    letters = "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
    return f"{base or 'job'}-{letters}"
