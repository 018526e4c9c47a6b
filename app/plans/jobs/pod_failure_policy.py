"""podFailurePolicy: whether a failed pod counts, fails its index or fails the Job. The first rule that matches decides.

Used wherever failures count: by `job_status`, `finalizers`, `index_failure`. Without a policy, or a rule that matches, a
failure counts.
"""

from collections.abc import Iterable

import msgspec

from app.kinds.batch.job import Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule
from app.kinds.pod.container import ContainerStatus
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.plans.jobs.job_snapshot import JobSnapshot, failure_target


class Match(msgspec.Struct, frozen=True):
    """The action of the rule that matches a pod, and why it matches."""

    action: str
    message: str


def counts_as_failure(job: Job, pod: Pod) -> bool:
    """False if the policy ignores the failure."""
    match = match_rule(job, pod)
    return match is None or match.action != "Ignore"


def count_failures(job: Job, failed: Iterable[Pod]) -> int:
    return sum(counts_as_failure(job, pod) for pod in failed)


def fails_index(job: Job, pod: Pod) -> bool:
    match = match_rule(job, pod)
    return match is not None and match.action == "FailIndex"


def find_failure(snapshot: JobSnapshot) -> Condition | None:
    """The condition FailureTarget, if a failed pod matches a FailJob rule."""
    if snapshot.job.spec.pod_failure_policy is None:
        return None
    matches = (match_rule(snapshot.job, pod) for pod in snapshot.failed_pods)
    message = next((match.message for match in matches if match and match.action == "FailJob"), None)
    return failure_target(snapshot, "PodFailurePolicy", message) if message else None


def match_rule(job: Job, pod: Pod) -> Match | None:
    if job.spec.pod_failure_policy is None:
        return None
    for number, rule in enumerate(job.spec.pod_failure_policy.rules):
        if _applies(rule, job) and (reason := _match(rule, pod)):
            return Match(rule.action, f"{reason} matching {rule.action} rule at index {number}")
    return None


def _applies(rule: PodFailurePolicyRule, job: Job) -> bool:
    if rule.action == "FailIndex":
        return job.spec.backoff_limit_per_index is not None
    return rule.action in ("FailJob", "Ignore", "Count")


def _match(rule: PodFailurePolicyRule, pod: Pod) -> str | None:
    """Return what about the pod matches the rule, if anything does."""
    if rule.on_exit_codes is not None:
        return _match_exit_codes(rule.on_exit_codes, pod)
    for condition in pod.status.conditions:
        if any(each.type == condition.type and each.status == condition.status for each in rule.on_pod_conditions):
            return f"Pod {pod.metadata.namespace}/{pod.metadata.name} has condition {condition.type}"
    return None


def _match_exit_codes(requirement: PodFailurePolicyOnExitCodesRequirement, pod: Pod) -> str | None:
    """Only exit codes other than 0 match, and only those of each container's last run."""
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        code = _exit_code(status)
        if not code or requirement.container_name not in ("", status.name):
            continue
        if (code in requirement.values) == (requirement.operator == "In"):
            where = f"{pod.metadata.namespace}/{pod.metadata.name}"
            return f"Container {status.name} for pod {where} failed with exit code {code}"
    return None


def _exit_code(status: ContainerStatus) -> int:
    """0 also while the container runs."""
    return status.state.terminated.exit_code if status.state and status.state.terminated else 0
