"""The Job kind."""

from typing import Annotated

import msgspec

from app.kinds.base import (
    Condition,
    Int32,
    Int64,
    LabelSelector,
    Object,
    Struct,
    Time,
    at,
)
from app.kinds.pod import PodTemplateSpec


class PodFailurePolicyOnExitCodesRequirement(Struct):
    """TODO-DOC"""

    container_name: Annotated[str, at(1)] = ""
    operator: Annotated[str, at(2)] = ""
    values: Annotated[tuple[Int32, ...], at(3)] = ()


class PodFailurePolicyOnPodConditionsPattern(Struct):
    """TODO-DOC"""

    type: Annotated[str, at(1)] = ""
    status: Annotated[str, at(2)] = ""


class PodFailurePolicyRule(Struct):
    """TODO-DOC"""

    action: Annotated[str, at(1)] = ""
    on_exit_codes: Annotated[PodFailurePolicyOnExitCodesRequirement | None, at(2)] = None
    on_pod_conditions: Annotated[tuple[PodFailurePolicyOnPodConditionsPattern, ...], at(3)] = ()


class PodFailurePolicy(Struct):
    """TODO-DOC"""

    rules: Annotated[tuple[PodFailurePolicyRule, ...], at(1)] = ()


class SuccessPolicyRule(Struct):
    """TODO-DOC"""

    succeeded_indexes: Annotated[str, at(1)] = ""
    succeeded_count: Annotated[Int32 | None, at(2)] = None


class SuccessPolicy(Struct):
    """TODO-DOC"""

    rules: Annotated[tuple[SuccessPolicyRule, ...], at(1)] = ()


class UncountedTerminatedPods(Struct):
    """TODO-DOC"""

    succeeded: Annotated[tuple[str, ...], at(1)] = ()
    failed: Annotated[tuple[str, ...], at(2)] = ()


class JobSpec(Struct):
    """TODO-DOC"""

    parallelism: Annotated[Int32 | None, at(1)] = None
    completions: Annotated[Int32 | None, at(2)] = None
    active_deadline_seconds: Annotated[Int64 | None, at(3)] = None
    selector: Annotated[LabelSelector | None, at(4)] = None
    manual_selector: Annotated[bool | None, at(5)] = None
    template: Annotated[PodTemplateSpec, at(6)] = msgspec.field(default_factory=PodTemplateSpec)
    backoff_limit: Annotated[Int32 | None, at(7)] = None
    ttl_seconds_after_finished: Annotated[Int32 | None, at(8)] = None
    completion_mode: Annotated[str, at(9)] = ""
    suspend: Annotated[bool | None, at(10)] = None
    pod_failure_policy: Annotated[PodFailurePolicy | None, at(11)] = None
    backoff_limit_per_index: Annotated[Int32 | None, at(12)] = None
    max_failed_indexes: Annotated[Int32 | None, at(13)] = None
    pod_replacement_policy: Annotated[str, at(14)] = ""
    managed_by: Annotated[str | None, at(15)] = None
    success_policy: Annotated[SuccessPolicy | None, at(16)] = None


class JobStatus(Struct):
    """TODO-DOC"""

    conditions: Annotated[tuple[Condition, ...], at(1)] = ()
    start_time: Annotated[Time | None, at(2)] = None
    completion_time: Annotated[Time | None, at(3)] = None
    active: Annotated[Int32, at(4)] = 0
    succeeded: Annotated[Int32, at(5)] = 0
    failed: Annotated[Int32, at(6)] = 0
    completed_indexes: Annotated[str, at(7)] = ""
    uncounted_terminated_pods: Annotated[UncountedTerminatedPods | None, at(8)] = None
    ready: Annotated[Int32 | None, at(9)] = None
    failed_indexes: Annotated[str | None, at(10)] = None
    terminating: Annotated[Int32 | None, at(11)] = None


class Job(Object):
    """TODO-DOC"""

    spec: Annotated[JobSpec, at(2)] = msgspec.field(default_factory=JobSpec)
    status: Annotated[JobStatus, at(3)] = msgspec.field(default_factory=JobStatus)
