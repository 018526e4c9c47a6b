"""The LocalQueue kind (jobplane.dev/v1): a namespace's share of the cluster, and what its pods may use together.

What follows from it is decided in `app.scheduler.fair_sharing`; the scheduler keeps its status. Words are Kueue's where they fit.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from app.machinery import name_validation
from app.machinery.base import Column, Int32, Kind, Object, Quantity, Struct, at
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid, one_of, required
from app.machinery.meta.meta_condition import Condition, condition, validate_conditions
from app.machinery.meta.metadata_validation import NEGATIVE
from app.machinery.quantity import canonical, compare, fault, parse
from app.machinery.resource_names import is_integer_resource, validate_container_name

ACTIVE = "Active"  # a condition: whether the queue is the one of its namespace
NEVER, ANY = "Never", "Any"
COHORT = "default"  # of queues that name none
HEAVIEST = 1_000_000

Quota = dict[str, Quantity]


class LocalQueuePreemption(Struct):
    """Whether running pods are evicted for the queue's."""

    reclaim_within_cohort: Annotated[
        str,
        at(
            1,
            "Never (the default): quota that others have borrowed comes back when their pods end. "
            "Any: pods of theirs are evicted as soon as it is needed here.",
            enum=(ANY, NEVER),
        ),
    ] = ""


class LocalQueueSpec(Struct):
    """The share and the quota."""

    weight: Annotated[
        Int32 | None, at(1, "The namespace's share of the cluster is in proportion to it. 1 if nothing is said.")
    ] = None
    nominal_quota: Annotated[
        Quota, at(2, "What the namespace's pods may request together, by resource. What is not named is not limited.")
    ] = msgspec.field(default_factory=dict)
    borrowing_limit: Annotated[
        Quota,
        at(3, "How much more they may use of what others of the cohort leave idle. What is not named is not limited."),
    ] = msgspec.field(default_factory=dict)
    cohort: Annotated[str, at(4, "Queues of one cohort lend each other idle quota. `default` if nothing is said.")] = ""
    preemption: Annotated[LocalQueuePreemption | None, at(5, "Whether lent quota is taken back.")] = None


class LocalQueueStatus(Struct):
    """How the queue fares; written by the scheduler."""

    conditions: Annotated[
        tuple[Condition, ...],
        at(1, "Active: whether this is the queue of its namespace.", patch="merge", patch_key="type"),
    ] = ()
    pending_pods: Annotated[Int32, at(2, "Pods of the namespace that wait for a place.")] = 0
    running_pods: Annotated[Int32, at(3, "Pods of the namespace that have one, and have not ended.")] = 0
    usage: Annotated[Quota, at(4, "What these request, of the resources that the quota names.")] = msgspec.field(
        default_factory=dict
    )


class LocalQueue(Object):
    """A namespace's share of the cluster, and its quota of what its pods may use at a time. Of several, the oldest counts."""

    spec: Annotated[LocalQueueSpec, at(2, "The share and the quota.")] = msgspec.field(default_factory=LocalQueueSpec)
    status: Annotated[LocalQueueStatus, at(3, "How it fares.")] = msgspec.field(default_factory=LocalQueueStatus)


def prepare(queue: LocalQueue) -> LocalQueue:
    spec, status = queue.spec, queue.status
    word = spec.preemption.reclaim_within_cohort if spec.preemption is not None else ""
    spec = replace(
        spec,
        weight=1 if spec.weight is None else spec.weight,
        nominal_quota=_canonical(spec.nominal_quota),
        borrowing_limit=_canonical(spec.borrowing_limit),
        cohort=spec.cohort or COHORT,
        preemption=LocalQueuePreemption(reclaim_within_cohort=word or NEVER),
    )
    return replace(queue, spec=spec, status=replace(status, usage=_canonical(status.usage)))


def _canonical(amounts: Quota) -> Quota:
    return {name: each if fault(each) else canonical(each) for name, each in amounts.items()}


def on_create(queue: LocalQueue, _: datetime) -> LocalQueue:
    return replace(queue, metadata=replace(queue.metadata, generation=1), status=LocalQueueStatus())


def on_update(new: LocalQueue, old: LocalQueue) -> LocalQueue:
    generation = old.metadata.generation + (new.spec != old.spec)
    return replace(new, metadata=replace(new.metadata, generation=generation), status=old.status)


def validate(queue: LocalQueue) -> list[Cause]:
    return [*_spec(queue.spec)]


def _spec(spec: LocalQueueSpec) -> Iterator[Cause]:
    if spec.weight is not None and not 1 <= spec.weight <= HEAVIEST:
        yield invalid("spec.weight", spec.weight, f"must be between 1 and {HEAVIEST}, inclusive")
    yield from _amounts(spec.nominal_quota, "spec.nominalQuota")
    yield from _amounts(spec.borrowing_limit, "spec.borrowingLimit")
    for name in spec.borrowing_limit.keys() - spec.nominal_quota.keys():
        yield required(f"spec.nominalQuota[{name}]", "what has a borrowing limit must have a quota, which may be 0")
    for text in name_validation.dns_label(spec.cohort) if spec.cohort else ():
        yield invalid("spec.cohort", spec.cohort, text)
    if spec.preemption is not None and (word := spec.preemption.reclaim_within_cohort):
        yield from one_of("spec.preemption.reclaimWithinCohort", word, (ANY, NEVER))


def _amounts(amounts: Quota, path: str) -> Iterator[Cause]:
    for name, amount in amounts.items():
        here = f"{path}[{name}]"
        if name != "pods":
            yield from validate_container_name(name, here)
        if text := fault(amount):
            yield invalid(here, amount, text)
        elif compare(amount, 0) < 0:
            yield invalid(here, canonical(amount), NEGATIVE)
        elif is_integer_resource(name) and parse(amount).denominator != 1:
            yield invalid(here, canonical(amount), "must be an integer")


def validate_status(new: LocalQueue, _: LocalQueue) -> list[Cause]:
    status = new.status
    counts = {"pendingPods": status.pending_pods, "runningPods": status.running_pods}
    below = [invalid(f"status.{name}", count, NEGATIVE) for name, count in counts.items() if count < 0]
    return [
        *validate_conditions(status.conditions, "status.conditions"),
        *below,
        *_amounts(status.usage, "status.usage"),
    ]


def row(queue: LocalQueue, now: datetime) -> list[Any]:
    meta, spec, status = queue.metadata, queue.spec, queue.status
    active = condition(status.conditions, ACTIVE)
    used = (f"{name}: {status.usage.get(name, '0')}/{most}" for name, most in sorted(spec.nominal_quota.items()))
    return [
        meta.name,
        spec.weight,
        ", ".join(used),
        status.pending_pods,
        status.running_pods,
        active.status if active else "",
        age(meta.creation_timestamp, now),
        spec.cohort,
    ]


KIND = Kind(
    type=LocalQueue,
    group="jobplane.dev",
    version="v1",
    plural="localqueues",
    short_names=("lq",),
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_status=validate_status,
    columns=(
        Column(name="Name", format="name", description="Name of the queue."),
        Column(name="Weight", type="integer", description="The namespace's share is in proportion to it."),
        Column(name="Quota", description="Use and nominal quota, by resource."),
        Column(name="Pending", type="integer", description="Pods that wait for a place."),
        Column(name="Running", type="integer", description="Pods that have one."),
        Column(name="Active", description="Whether it is the queue of its namespace."),
        Column(name="Age", description="Time since the queue was created."),
        Column(name="Cohort", description="With whom it shares idle quota.", priority=1),
    ),
    row=row,
    example="""\
apiVersion: jobplane.dev/v1
kind: LocalQueue
metadata:
  name: default
spec:
  weight: 2
  nominalQuota:
    cpu: "10"
    memory: 64Gi
    nvidia.com/gpu: 2
  borrowingLimit:
    nvidia.com/gpu: 0
  preemption:
    reclaimWithinCohort: Any
""",
)
