"""successPolicy: a Job may succeed before every index has succeeded. The first rule that matches decides.

Called by `job_status`, in which it is the last of the reasons to end a Job. Pods that still run are then deleted.
"""

from app.kinds.batch.completion_indexes import Indexes
from app.kinds.batch.job import Job, SuccessPolicyRule
from app.machinery.base import Condition
from app.plans.jobs.job_snapshot import JobSnapshot, success_criteria_met


def find_success(snapshot: JobSnapshot) -> Condition | None:
    """The condition SuccessCriteriaMet, if a rule matches the indexes that have succeeded so far."""
    number = match_rule(snapshot.job, snapshot.completed_indexes)
    if number is None:
        return None
    return success_criteria_met(snapshot, "SuccessPolicy", f"Matched rules at index {number}")


def match_rule(job: Job, completed: Indexes) -> int | None:
    """The number of the first rule that matches. None does before one index has succeeded."""
    if job.spec.success_policy is None or not len(completed):
        return None
    rules = enumerate(job.spec.success_policy.rules)
    return next((number for number, rule in rules if _is_met(rule, completed)), None)


def _is_met(rule: SuccessPolicyRule, completed: Indexes) -> bool:
    """Of the listed indexes, or of all if none are listed, so many must have succeeded, or every listed one."""
    if not rule.succeeded_indexes:
        return rule.succeeded_count is not None and len(completed) >= rule.succeeded_count
    try:
        listed = Indexes.parse(rule.succeeded_indexes)
    except ValueError:
        return False  # validation lets none of these in
    succeeded = len(listed.intersection(completed))
    return succeeded >= (len(listed) if rule.succeeded_count is None else rule.succeeded_count)
