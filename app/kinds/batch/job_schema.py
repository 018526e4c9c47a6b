"""Structs of a Job, and questions about one. Everyone imports them from `app.kinds.batch.job`.

Apart from that module so that validation can know the structs, and the Kind record the validation.
"""

from typing import Annotated

import msgspec

from app.kinds.batch.job_scheduling import JobSchedulingConfiguration
from app.kinds.pod.pod_schema import PodTemplateSpec
from app.machinery import conditions
from app.machinery.base import Condition, Int32, Int64, LabelSelector, Object, Struct, Time, at


class PodFailurePolicyOnExitCodesRequirement(Struct):
    """Matches a failed pod by the exit codes of its containers; containers that ended with 0 are not looked at."""

    container_name: Annotated[str, at(1, "Look at this container or init container only; at all of them if unset.")] = (
        ""
    )
    operator: Annotated[
        str,
        at(
            2,
            "In: some exit code is among the values. NotIn: some exit code is not.",
            required=True,
            enum=("In", "NotIn"),
        ),
    ] = ""
    values: Annotated[
        tuple[Int32, ...],
        at(3, "1 to 255 exit codes, ascending, each once. 0 cannot be given with In.", required=True, list_type="set"),
    ] = ()


class PodFailurePolicyOnPodConditionsPattern(Struct):
    """Matches a failed pod by one of its conditions."""

    type: Annotated[str, at(1, "Type of the condition, such as DisruptionTarget.", required=True)] = ""
    status: Annotated[str, at(2, "Status of the condition: True, False or Unknown. True if unset.", required=True)] = ""


class PodFailurePolicyRule(Struct):
    """What to do about failed pods of one sort. Has either onExitCodes or onPodConditions."""

    action: Annotated[
        str,
        at(
            1,
            "FailJob ends the Job. FailIndex ends the pod's index (with backoffLimitPerIndex). Ignore replaces the pod "
            "without counting the failure. Count is what happens without a rule. Other actions skip the rule.",
            required=True,
            enum=("Count", "FailIndex", "FailJob", "Ignore"),
        ),
    ] = ""
    on_exit_codes: Annotated[
        PodFailurePolicyOnExitCodesRequirement | None, at(2, "Matches by the exit codes of containers.")
    ] = None
    on_pod_conditions: Annotated[
        tuple[PodFailurePolicyOnPodConditionsPattern, ...],
        at(3, "Matches if one of these conditions is found on the pod; at most 20.", list_type="atomic"),
    ] = ()


class PodFailurePolicy(Struct):
    """How failed pods are dealt with, beyond counting them."""

    rules: Annotated[
        tuple[PodFailurePolicyRule, ...],
        at(
            1,
            "Tried in order; the first that matches decides. A failure that none matches is counted. At most 20.",
            required=True,
            list_type="atomic",
        ),
    ] = ()


class SuccessPolicyRule(Struct):
    """When an Indexed Job has succeeded: by which indexes, by how many, or by how many of which."""

    succeeded_indexes: Annotated[
        str | None, at(1, "Indexes that must have succeeded, such as 0,2-5. At most 65536 bytes.")
    ] = None
    succeeded_count: Annotated[
        Int32 | None, at(2, "How many must have succeeded: of succeededIndexes if given, otherwise of all.")
    ] = None


class SuccessPolicy(Struct):
    """When an Indexed Job has succeeded although not all of its indexes have."""

    rules: Annotated[
        tuple[SuccessPolicyRule, ...],
        at(
            1,
            "Tried in order; the first that is met ends the Job as succeeded. 1 to 20.",
            required=True,
            list_type="atomic",
        ),
    ] = ()


class UncountedTerminatedPods(Struct):
    """Pods that have ended and are about to be counted."""

    succeeded: Annotated[tuple[str, ...], at(1, "UIDs of succeeded pods.", list_type="set")] = ()
    failed: Annotated[tuple[str, ...], at(2, "UIDs of failed pods.", list_type="set")] = ()


class JobSpec(Struct):
    """What a Job should do."""

    parallelism: Annotated[Int32 | None, at(1, "How many pods may run at once. 1 if unset.")] = None
    completions: Annotated[
        Int32 | None,
        at(
            2,
            "How many pods must succeed. Unset with parallelism set means a work queue: once a pod has succeeded no "
            "more are started, and the Job is complete when the others have ended.",
        ),
    ] = None
    active_deadline_seconds: Annotated[
        Int64 | None,
        at(3, "Seconds from the start until the Job fails if it has not ended. Stops and resets while suspended."),
    ] = None
    selector: Annotated[
        LabelSelector | None, at(4, "Selects the Job's pods. Made by the server unless manualSelector is true.")
    ] = None
    manual_selector: Annotated[
        bool | None, at(5, "True if the client gives selector and labels, and sees to it that they are unique.")
    ] = None
    template: Annotated[
        PodTemplateSpec, at(6, "The pods to run. Its restartPolicy must be Never or OnFailure.", required=True)
    ] = msgspec.field(default_factory=PodTemplateSpec)
    backoff_limit: Annotated[
        Int32 | None, at(7, "How many failures are retried. 6 if unset; no limit if backoffLimitPerIndex is set.")
    ] = None
    ttl_seconds_after_finished: Annotated[
        Int32 | None, at(8, "Seconds after its end until the Job is deleted. Unset keeps it.")
    ] = None
    completion_mode: Annotated[
        str,
        at(
            9,
            "NonIndexed counts successes. Indexed gives each pod an index; each index must succeed once.",
            enum=("Indexed", "NonIndexed"),
        ),
    ] = ""
    suspend: Annotated[bool | None, at(10, "True runs no pods, and deletes those that run. False goes on.")] = None
    pod_failure_policy: Annotated[
        PodFailurePolicy | None, at(11, "What to do about certain failures. Needs restartPolicy Never.")
    ] = None
    backoff_limit_per_index: Annotated[
        Int32 | None, at(12, "How many failures of each index are retried. Indexed Jobs only; cannot change.")
    ] = None
    max_failed_indexes: Annotated[
        Int32 | None,
        at(13, "The Job fails at once when more indexes than this have failed. Needs backoffLimitPerIndex."),
    ] = None
    pod_replacement_policy: Annotated[
        str,
        at(
            14,
            "When a pod is replaced: TerminatingOrFailed as soon as it is being deleted, Failed only when it has "
            "ended. Failed is the only choice with podFailurePolicy.",
            enum=("Failed", "TerminatingOrFailed"),
        ),
    ] = ""
    managed_by: Annotated[
        str | None,
        at(15, "Who runs the Job. Anything but kubernetes.io/job-controller keeps the server from doing so."),
    ] = None
    success_policy: Annotated[
        SuccessPolicy | None, at(16, "When the Job has succeeded before all indexes have. Indexed Jobs only.")
    ] = None
    scheduling: Annotated[
        JobSchedulingConfiguration | None,
        at(17, "How the pods are to be scheduled with regard to each other. Dropped where WorkloadWithJob is off."),
    ] = None


class JobStatus(Struct):
    """How a Job fares; written by its controller."""

    conditions: Annotated[
        tuple[Condition, ...],
        at(
            1,
            "SuccessCriteriaMet then Complete, FailureTarget then Failed, or Suspended.",
            patch_key="type",
            patch="merge",
            list_type="atomic",
        ),
    ] = ()
    start_time: Annotated[Time | None, at(2, "When the Job was first looked at, or resumed. Unset if suspended.")] = (
        None
    )
    completion_time: Annotated[Time | None, at(3, "When the Job became Complete; never set if it failed.")] = None
    active: Annotated[Int32, at(4, "Pods that are pending or running and not being deleted.")] = 0
    succeeded: Annotated[Int32, at(5, "Pods that succeeded.")] = 0
    failed: Annotated[Int32, at(6, "Pods that failed.")] = 0
    completed_indexes: Annotated[str, at(7, "Indexes that succeeded, such as 1,3-5,7.")] = ""
    uncounted_terminated_pods: Annotated[
        UncountedTerminatedPods | None, at(8, "Pods that have ended and are not yet in succeeded or failed.")
    ] = None
    ready: Annotated[Int32 | None, at(9, "Active pods that are ready.")] = None
    failed_indexes: Annotated[
        str | None, at(10, "Indexes that failed, such as 2,4-6. Set if backoffLimitPerIndex is.")
    ] = None
    terminating: Annotated[Int32 | None, at(11, "Pods that are being deleted and have not ended.")] = None


class Job(Object):
    """Runs pods until a given number of them have succeeded."""

    spec: Annotated[JobSpec, at(2, "What the Job should do.")] = msgspec.field(default_factory=JobSpec)
    status: Annotated[JobStatus, at(3, "How it fares.")] = msgspec.field(default_factory=JobStatus)


def is_indexed(job: Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def condition(job: Job, kind: str) -> Condition | None:
    """The condition of that type, whatever its status."""
    return conditions.condition(job.status.conditions, kind)


def is_true(job: Job, kind: str) -> bool:
    return conditions.is_true(job.status.conditions, kind)


def is_finished(job: Job) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed")
