"""podFailurePolicy: what it says about a failed pod. The first rule that matches decides.

Used by `counting` and `finish_conditions`. Without a policy, or a rule that matches, a failure counts.
"""

from collections.abc import Iterable

import msgspec

from app.kinds.batch.job import Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule
from app.kinds.pod.container import ContainerStatus
from app.kinds.pod.pod import Pod


class Match(msgspec.Struct, frozen=True):
    """A rule that fits, and what about the pod made it fit."""

    action: str
    message: str


def counts(job: Job, pod: Pod) -> bool:
    """False if the policy excuses the failure."""
    match = match_of(job, pod)
    return match is None or match.action != "Ignore"


def fails_index(job: Job, pod: Pod) -> bool:
    match = match_of(job, pod)
    return match is not None and match.action == "FailIndex"


def fails_job(job: Job, pods: Iterable[Pod]) -> str | None:
    """Why the Job is to fail at once, if one of these failed pods says so."""
    if job.spec.pod_failure_policy is None:
        return None
    matches = (match_of(job, pod) for pod in pods)
    return next((match.message for match in matches if match and match.action == "FailJob"), None)


def match_of(job: Job, pod: Pod) -> Match | None:
    if job.spec.pod_failure_policy is None:
        return None
    for number, rule in enumerate(job.spec.pod_failure_policy.rules):
        if _is_usable(job, rule) and (found := _why(rule, pod)):
            return Match(rule.action, f"{found} matching {rule.action} rule at index {number}")
    return None


def _is_usable(job: Job, rule: PodFailurePolicyRule) -> bool:
    if rule.action == "FailIndex":
        return job.spec.backoff_limit_per_index is not None
    return rule.action in ("FailJob", "Ignore", "Count")


def _why(rule: PodFailurePolicyRule, pod: Pod) -> str | None:
    if rule.on_exit_codes is not None:
        return _exit_code(rule.on_exit_codes, pod)
    for condition in pod.status.conditions:
        if any(each.type == condition.type and each.status == condition.status for each in rule.on_pod_conditions):
            return f"Pod {pod.metadata.namespace}/{pod.metadata.name} has condition {condition.type}"
    return None


def _exit_code(demand: PodFailurePolicyOnExitCodesRequirement, pod: Pod) -> str | None:
    """Present failures only: code 0 and a container's earlier runs tell nothing."""
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        code = _failure(status)
        if not code or demand.container_name not in ("", status.name):
            continue
        if (code in demand.values) == (demand.operator == "In"):
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            return f"Container {status.name} for pod {where} failed with exit code {code}"
    return None


def _failure(status: ContainerStatus) -> int:
    return status.state.terminated.exit_code if status.state and status.state.terminated else 0
