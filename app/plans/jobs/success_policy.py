"""successPolicy: whether a Job is successful before every index has succeeded. Used by `finish_conditions`."""

from app.kinds.batch.completion_indexes import Indexes
from app.kinds.batch.job import Job, SuccessPolicyRule


def matched(job: Job, completed: Indexes) -> str | None:
    """A message that names the first rule that matches. No rule does before one index has succeeded."""
    if job.spec.success_policy is None or not len(completed):
        return None
    for number, rule in enumerate(job.spec.success_policy.rules):
        if _fits(rule, completed):
            return f"Matched rules at index {number}"
    return None


def _fits(rule: SuccessPolicyRule, completed: Indexes) -> bool:
    if not rule.succeeded_indexes:
        return rule.succeeded_count is not None and len(completed) >= rule.succeeded_count
    try:
        listed = Indexes.parse(rule.succeeded_indexes)
    except ValueError:
        return False  # validation lets none of these in
    met = len(listed.intersection(completed))
    return met >= (len(listed) if rule.succeeded_count is None else rule.succeeded_count)
