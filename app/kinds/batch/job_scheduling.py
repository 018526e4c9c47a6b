"""`spec.scheduling` of a Job: how its pods are to be scheduled, if not one by one. Alpha, behind WorkloadWithJob.

`job_schema` has it in the spec, `job_validation` checks it by this module, and `app.plans.jobs.workloads` makes a Workload of
it.
"""

from collections.abc import Iterator

from app.kinds.batch.job_schema import (
    JobSchedulingConfiguration,
    WorkloadPodGroupGangSchedulingPolicy,
    WorkloadPodGroupSchedulingPolicy,
)
from app.kinds.scheduling.pod_group_validation import (
    CLEARED,
    POSITIVE,
    SET,
    exactly_one,
    validate_claims,
    validate_constraints,
    validate_disruption_mode,
)
from app.machinery.base import Struct
from app.machinery.errors import Cause, invalid
from app.machinery.meta.metadata_validation import IMMUTABLE

__all__ = [
    "JobSchedulingConfiguration",
    "WorkloadPodGroupGangSchedulingPolicy",
    "WorkloadPodGroupSchedulingPolicy",
    "validate_scheduling",
    "validate_scheduling_update",
]


_VARIANT = (
    "the basic/gang policy variant is immutable after creation; only schedulingPolicy.gang.minCount may be updated"
)


def validate_scheduling(wanted: JobSchedulingConfiguration | None, parallelism: int, path: str) -> Iterator[Cause]:
    if wanted is None:
        return
    policy, mode = wanted.scheduling_policy, wanted.disruption_mode
    if policy is not None:
        yield from _policy(policy, parallelism, f"{path}.schedulingPolicy")
    yield from validate_constraints(wanted.scheduling_constraints, f"{path}.schedulingConstraints")
    yield from validate_disruption_mode(mode, f"{path}.disruptionMode")
    if mode is not None and mode.all is not None and (policy is None or policy.gang is None):
        detail = "the disruptionMode `all` is not supported with the Basic scheduling policy"
        yield invalid(f"{path}.disruptionMode", "", detail)
    yield from validate_claims(wanted.resource_claims, f"{path}.resourceClaims")


def _policy(policy: WorkloadPodGroupSchedulingPolicy, parallelism: int, path: str) -> Iterator[Cause]:
    yield from exactly_one({"basic": policy.basic, "gang": policy.gang}, path)
    count = policy.gang.min_count if policy.gang is not None else None
    if count is None:
        return
    if count < 1:
        yield invalid(f"{path}.gang.minCount", count, POSITIVE)
    elif count > parallelism:
        yield invalid(f"{path}.gang.minCount", count, f"must not be greater than parallelism ({parallelism})")


def validate_scheduling_update(
    new: JobSchedulingConfiguration | None, old: JobSchedulingConfiguration | None, path: str
) -> Iterator[Cause]:
    """Yield the changes of the scheduling configuration other than that of gang.minCount, which alone may change."""
    if new is None or old is None:
        yield from _presence(new, old, path)
        return
    yield from _policy_update(new.scheduling_policy, old.scheduling_policy, f"{path}.schedulingPolicy")
    kept = {
        "schedulingConstraints": (new.scheduling_constraints, old.scheduling_constraints),
        "disruptionMode": (new.disruption_mode, old.disruption_mode),
        "resourceClaims": (new.resource_claims, old.resource_claims),
    }
    for wire, (now, was) in kept.items():
        if now != was:
            yield invalid(f"{path}.{wire}", None, IMMUTABLE)


def _policy_update(
    new: WorkloadPodGroupSchedulingPolicy | None, old: WorkloadPodGroupSchedulingPolicy | None, path: str
) -> Iterator[Cause]:
    if new is None or old is None:
        yield from _presence(new, old, path)
    elif (new.basic is None, new.gang is None) != (old.basic is None, old.gang is None):
        yield invalid(path, None, _VARIANT)


def _presence(new: Struct | None, old: Struct | None, path: str) -> Iterator[Cause]:
    if (new is None) != (old is None):
        yield invalid(path, None, SET if old is None else CLEARED)
