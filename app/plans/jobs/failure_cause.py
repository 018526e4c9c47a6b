"""Cause of a pod's failure in words: what a Job's events say of why it tries again. Pure; used by `job_events`."""

from collections.abc import Iterator
from itertools import chain

from app.kinds.pod.pod import Pod

MOST_CHARACTERS = 200  # of a pod's own message


def describe_failure(pod: Pod) -> str:
    """Such as `container main exited with code 137 (OOMKilled) in pod pi-x`."""
    name, status = pod.metadata.name, pod.status
    exits = ", ".join(_describe_exits(pod))
    if status.reason:
        message = f" ({status.message[:MOST_CHARACTERS]})" if status.message else ""
        return f"pod {name} failed: {status.reason}{message}"
    if exits:
        return f"{exits} in pod {name}"
    return f"pod {name} {'was deleted' if pod.metadata.deletion_timestamp else 'failed'}"


def _describe_exits(pod: Pod) -> Iterator[str]:
    for each in chain(pod.status.init_container_statuses, pod.status.container_statuses):
        ended = each.state.terminated if each.state else None
        if ended and (ended.exit_code or ended.reason == "OOMKilled"):
            reason = f" ({ended.reason})" if ended.reason not in ("", "Error") else ""
            yield f"container {each.name} exited with code {ended.exit_code}{reason}"
