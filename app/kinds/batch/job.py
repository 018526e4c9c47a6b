"""The Job kind: run pods until enough of them have succeeded."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.batch.job_schema import (
    Job,
    JobSpec,
    JobStatus,
    PodFailurePolicy,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
    SuccessPolicy,
    SuccessPolicyRule,
    UncountedTerminatedPods,
)
from app.kinds.batch.job_state import condition, is_finished, is_indexed, is_true
from app.kinds.batch.job_status_validation import validate_status
from app.kinds.batch.job_validation import own_labels, own_selector, validate, validate_update
from app.kinds.pod.pod import warnings_of_spec
from app.kinds.pod.shared_specs import TEMPLATE_SPECS
from app.machinery.base import Column, Kind, LabelSelector
from app.machinery.durations import age
from app.machinery.name_validation import dns_label, label_value
from app.machinery.selectors import format_selector

__all__ = [
    "KIND",
    "MAX_INT32",
    "Job",
    "JobSpec",
    "JobStatus",
    "PodFailurePolicy",
    "PodFailurePolicyOnExitCodesRequirement",
    "PodFailurePolicyOnPodConditionsPattern",
    "PodFailurePolicyRule",
    "SuccessPolicy",
    "SuccessPolicyRule",
    "UncountedTerminatedPods",
    "condition",
    "default_failure_policy",
    "is_finished",
    "is_indexed",
    "is_true",
    "own_labels",
    "own_selector",
    "prepare",
]


MAX_INT32 = 2**31 - 1


def prepare(job: Job) -> Job:
    """The defaults. Returns the job itself if nothing was unset."""
    spec = _with_defaults(job.spec)
    labels = _labels(job)
    if labels != job.metadata.labels:
        return replace(job, spec=spec, metadata=replace(job.metadata, labels=labels))
    return job if spec is job.spec else replace(job, spec=spec)


def _labels(job: Job) -> dict[str, str]:
    """Its own, or those of its pods: with what the server made for these, too, as Kubernetes' clients see it.

    But not what it made of a name that is too long for a label: that is told of the pods' labels, and once is enough.
    """
    return job.metadata.labels or ({} if label_value(job.metadata.name) else job.spec.template.metadata.labels)


def _with_defaults(spec: JobSpec) -> JobSpec:
    unset = {name: value for name, value in _defaults(spec).items() if getattr(spec, name) in (None, "")}
    policy = spec.pod_failure_policy and default_failure_policy(spec.pod_failure_policy)
    if policy is not spec.pod_failure_policy:
        unset["pod_failure_policy"] = policy
    pod = TEMPLATE_SPECS.share(spec.template.spec)
    if pod is not spec.template.spec:
        unset["template"] = replace(spec.template, spec=pod)
    return replace(spec, **unset) if unset else spec


def _defaults(spec: JobSpec) -> dict[str, Any]:
    # With parallelism given and completions not, the Job is a work queue and stays one.
    counts = {"parallelism": 1, "completions": 1} if spec.parallelism is None else {}
    return {
        **counts,
        "backoff_limit": 6 if spec.backoff_limit_per_index is None else MAX_INT32,
        "completion_mode": "NonIndexed",
        "suspend": False,
        "manual_selector": False,
        "pod_replacement_policy": "TerminatingOrFailed" if spec.pod_failure_policy is None else "Failed",
    }


def default_failure_policy(policy: PodFailurePolicy) -> PodFailurePolicy:
    """A condition without a status is meant to be true."""
    if all(each.status for rule in policy.rules for each in rule.on_pod_conditions):
        return policy
    return replace(policy, rules=tuple(map(_with_statuses, policy.rules)))


def _with_statuses(rule: PodFailurePolicyRule) -> PodFailurePolicyRule:
    patterns = (each if each.status else replace(each, status="True") for each in rule.on_pod_conditions)
    return replace(rule, on_pod_conditions=tuple(patterns))


def on_create(job: Job, _: datetime) -> Job:
    if not job.spec.manual_selector:
        job = _with_own_selector(job)
    return replace(job, metadata=replace(job.metadata, generation=1, labels=_labels(job)), status=JobStatus())


def _with_own_selector(job: Job) -> Job:
    """Labels and selector that only this Job's pods have. What the client gave stays, for validation to judge."""
    template, selector = job.spec.template, job.spec.selector or LabelSelector()
    metadata = replace(template.metadata, labels=own_labels(job.metadata) | template.metadata.labels)
    selector = replace(selector, match_labels=own_selector(job.metadata) | selector.match_labels)
    return replace(job, spec=replace(job.spec, selector=selector, template=replace(template, metadata=metadata)))


def on_update(new: Job, old: Job) -> Job:
    generation = old.metadata.generation + (new.spec != old.spec)
    return replace(new, metadata=replace(new.metadata, generation=generation), status=old.status)


def warnings(new: Job, old: Job | None) -> list[str]:
    texts = []
    if old is None and (reasons := dns_label(new.metadata.name)):
        texts.append(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(reasons)}]"
        )
    if old is not None and old.spec == new.spec:
        return texts
    if is_indexed(new) and (new.spec.completions or 0) > 100_000 and (new.spec.parallelism or 0) > 10_000:
        texts.append(
            "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
            "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    return texts + warnings_of_spec(new.spec.template.spec, "spec.template.spec")


def status_word(job: Job) -> str:
    """Return how a Job fares, in the word that `kubectl get` shows."""
    if is_true(job, "Complete"):
        return "Complete"
    if is_true(job, "Failed"):
        return "Failed"
    if job.metadata.deletion_timestamp is not None:
        return "Terminating"
    interim = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    waits = condition(job, "DependenciesMet")
    otherwise = "Waiting" if waits and waits.status == "False" else "Running"
    return next((each for each in interim if is_true(job, each)), otherwise)


def row(job: Job, now: datetime) -> list[Any]:
    containers = job.spec.template.spec.containers
    started = job.status.start_time
    return [
        job.metadata.name,
        status_word(job),
        _completions(job),
        age(started, job.status.completion_time or now) if started else "",
        age(job.metadata.creation_timestamp, now),
        ",".join(each.name for each in containers),
        ",".join(each.image for each in containers),
        format_selector(job.spec.selector) or "<none>",
    ]


def _completions(job: Job) -> str:
    spec, done = job.spec, job.status.succeeded
    if spec.completions is not None:
        return f"{done}/{spec.completions}"
    return f"{done}/1 of {spec.parallelism}" if (spec.parallelism or 0) > 1 else f"{done}/1"


COLUMNS = (
    Column(name="Name", format="name", description="Name of the Job."),
    Column(name="Status", description="How the Job fares."),
    Column(name="Completions", description="Pods that succeeded, and how many must."),
    Column(name="Duration", description="From the start of the Job to its completion, or until now."),
    Column(name="Age", description="Time since the Job was created."),
    Column(name="Containers", description="Names of the template's containers.", priority=1),
    Column(name="Images", description="Images of the template's containers.", priority=1),
    Column(name="Selector", description="Labels that the Job's pods have.", priority=1),
)

EXAMPLE = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: pi
spec:
  completions: 3
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: pi
        image: perl:5.34.0
        command: [perl, -Mbignum=bpi, -wle, print bpi(2000)]
"""

KIND = Kind(
    type=Job,
    group="batch",
    version="v1",
    plural="jobs",
    categories=("all",),
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_update=validate_update,
    validate_status=validate_status,
    warnings=warnings,
    columns=COLUMNS,
    row=row,
    fields={"status.successful": lambda job: str(job.status.succeeded)},
    garbage_collection="OrphanDependents",
    example=EXAMPLE,
)
