"""Validation of a Job's podFailurePolicy and successPolicy. Job validation calls it.

Checked in full on every Job, whether or not its controller will ever act on them.
"""

from collections.abc import Iterator, Sequence

from app.kinds.batch.completion_indexes import Indexes, IndexListError
from app.kinds.batch.job_schema import (
    JobSpec,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
    SuccessPolicyRule,
)
from app.machinery.errors import Cause, duplicate, invalid, not_supported, required, too_long, too_many
from app.machinery.meta.metadata_validation import NEGATIVE
from app.machinery.name_validation import qualified_name

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_MAX_RULES = 20
_MAX_PATTERNS = 20
_MAX_EXIT_CODES = 255
_MAX_INDEX_LIST_BYTES = 65536


def unshown(field: str, detail: str) -> Cause:
    """Invalid as a whole: the value is left out of the message."""
    return Cause("FieldValueInvalid", f"Invalid value: {detail}", field)


def _choice(field: str, value: str, values: tuple[str, ...]) -> Iterator[Cause]:
    if not value:
        listed = " ".join(f'"{each}"' for each in values)
        yield required(field, f"valid values: [{listed}]")
    elif value not in values:
        yield not_supported(field, value, values)


def validate_failure_policy(spec: JobSpec, path: str) -> Iterator[Cause]:
    if spec.pod_failure_policy is None:
        return
    rules = spec.pod_failure_policy.rules
    if len(rules) > _MAX_RULES:
        yield too_many(f"{path}.rules", len(rules), _MAX_RULES)
    for place, rule in enumerate(rules):
        yield from _failure_rule(rule, spec, f"{path}.rules[{place}]")


def _failure_rule(rule: PodFailurePolicyRule, spec: JobSpec, path: str) -> Iterator[Cause]:
    if rule.action == "FailIndex" and spec.backoff_limit_per_index is None:
        yield invalid(f"{path}.action", rule.action, "requires the backoffLimitPerIndex to be set")
    yield from _choice(f"{path}.action", rule.action, _ACTIONS)
    if rule.on_exit_codes is not None:
        yield from _exit_codes(rule.on_exit_codes, spec, f"{path}.onExitCodes")
    yield from _pod_conditions(rule.on_pod_conditions, f"{path}.onPodConditions")
    if rule.on_exit_codes is not None and rule.on_pod_conditions:
        yield unshown(path, "specifying both OnExitCodes and OnPodConditions is not supported")
    if rule.on_exit_codes is None and not rule.on_pod_conditions:
        yield unshown(path, "specifying one of OnExitCodes and OnPodConditions is required")


def _exit_codes(demand: PodFailurePolicyOnExitCodesRequirement, spec: JobSpec, path: str) -> Iterator[Cause]:
    yield from _choice(f"{path}.operator", demand.operator, _OPERATORS)
    pod = spec.template.spec
    if demand.container_name and all(
        demand.container_name != each.name for each in (*pod.containers, *pod.init_containers)
    ):
        detail = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", demand.container_name, detail)
    if not demand.values:
        yield invalid(f"{path}.values", None, "at least one value is required")
    elif len(demand.values) > _MAX_EXIT_CODES:
        yield too_many(f"{path}.values", len(demand.values), _MAX_EXIT_CODES)
    yield from _each_exit_code(demand, f"{path}.values")
    if list(demand.values) != sorted(demand.values):
        yield invalid(f"{path}.values", demand.values, "must be ordered")


def _each_exit_code(demand: PodFailurePolicyOnExitCodesRequirement, path: str) -> Iterator[Cause]:
    seen = set()
    for place, code in enumerate(demand.values):
        if code == 0 and demand.operator == "In":
            yield invalid(f"{path}[{place}]", code, "must not be 0 for the In operator")
        if code in seen:
            yield duplicate(f"{path}[{place}]", code)
        seen.add(code)


def _pod_conditions(patterns: Sequence[PodFailurePolicyOnPodConditionsPattern], path: str) -> Iterator[Cause]:
    if len(patterns) > _MAX_PATTERNS:
        yield too_many(path, len(patterns), _MAX_PATTERNS)
    for place, pattern in enumerate(patterns):
        for fault in qualified_name(pattern.type):
            yield invalid(f"{path}[{place}].type", pattern.type, fault)
        yield from _choice(f"{path}[{place}].status", pattern.status, _STATUSES)


def validate_success_policy(spec: JobSpec, path: str) -> Iterator[Cause]:
    if spec.success_policy is None:
        return
    if spec.completion_mode != "Indexed":
        yield invalid(path, spec.success_policy, "requires indexed completion mode")
        return
    rules = spec.success_policy.rules
    if not rules:
        yield required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")
    if len(rules) > _MAX_RULES:
        yield too_many(f"{path}.rules", len(rules), _MAX_RULES)
    if spec.completions is not None:  # without, that is the cause to report: there is nothing to compare with
        for place, rule in enumerate(rules):
            yield from _success_rule(rule, spec.completions, f"{path}.rules[{place}]")


def _success_rule(rule: SuccessPolicyRule, completions: int, path: str) -> Iterator[Cause]:
    text, count, listed = rule.succeeded_indexes, rule.succeeded_count, None
    if count is None and text is None:
        yield required(path, "at least one of succeededCount or succeededIndexes must be specified")
    if text is not None:
        listed = 0
        if len(text.encode()) > _MAX_INDEX_LIST_BYTES:
            yield too_long(f"{path}.succeededIndexes", _MAX_INDEX_LIST_BYTES)
        try:
            listed = len(Indexes.parse(text, completions))
        except IndexListError as why:
            yield invalid(f"{path}.succeededIndexes", text, f"error parsing succeededIndexes: {why}")
    if count is not None:
        yield from _success_count(count, completions, listed, f"{path}.succeededCount")


def _success_count(count: int, completions: int, listed: int | None, path: str) -> Iterator[Cause]:
    if count < 0:
        yield invalid(path, count, NEGATIVE)
    if count > completions:
        detail = f"must be less than or equal to {completions} (the number of specified completions)"
        yield invalid(path, count, detail)
    if listed is not None and count > listed:
        which = "the number of indexes in the specified succeededIndexes field"
        yield invalid(path, count, f"must be less than or equal to {listed} ({which})")
