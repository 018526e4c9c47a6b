"""Job snapshot and Job decision: the two records between which every function of this package stands.

`job.plan` takes one snapshot of a Job and its pods, makes one decision from it, and turns the decision into actions. Names
and words are those of the Job's status.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from app.kinds.batch.completion_indexes import Indexes
from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.plans.admission.pod_admission import Rules
from app.plans.admission.refusals import NONE, Refusal
from app.plans.jobs.backoff import Backoff
from app.plans.jobs.workloads import Gang
from app.plans.plan import Update

NO_INDEXES = Indexes()


class Dependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Other Jobs that a Job waits for, as `dependencies.py` finds them."""

    seen: dict[str, str] = {}  # by name: the UID of a Job that is awaited, or "met"
    waiting: tuple[str, ...] = ()  # what is awaited, in words
    impossible: str = ""  # why the Job can never start, in words
    is_cycle: bool = False  # that is why

    @property
    def is_waiting(self) -> bool:
        return bool(self.waiting)


NO_DEPENDENCIES = Dependencies()


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision is made from. A pod that has ended is not in the Job's status yet while it has the finalizer."""

    job: Job
    now: datetime
    rules: Rules  # of the namespace: quotas, limit ranges and whatever else new pods must pass
    gang: Gang  # the Workload and PodGroup that new pods join
    dependencies: Dependencies = NO_DEPENDENCIES  # while it waits, no pod is created

    # Pods by state, orphans that this plan adopts among them. Those of the last three have the tracking finalizer.
    active_pods: list[Pod] = []  # neither ended nor deleted
    terminating_pods: list[Pod] = []  # deleted, and not ended yet
    succeeded_pods: list[Pod] = []
    failed_pods: list[Pod] = []  # and terminating pods, unless podReplacementPolicy is Failed
    unindexed_pods: list[Pod] = []  # as these, without an index that the Job has: they count for nothing
    ownership: dict[str, Update] = {}  # by UID: pods that this plan adopts or releases

    # Counts of everything that has ended, also of what is not in the Job's status yet.
    succeeded: int = 0
    failed: int = 0
    completed_indexes: Indexes = NO_INDEXES
    failed_indexes: Indexes = NO_INDEXES
    last_failed: dict[int, Pod] = {}  # by index: the pod to replace; only with a back-off limit for each index
    backoff: Backoff = Backoff()
    memory: Mapping[str, int] = {}  # by container: bytes to which OOM kills have raised the limit of the next pods


class JobDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided about a Job: about its pods, then about its status."""

    create: tuple[Pod, ...] = ()  # pods to create, admitted by the rules of the namespace
    delete: tuple[Pod, ...] = ()  # active pods to delete; they lose the tracking finalizer, too
    untrack: tuple[Pod, ...] = ()  # pods to remove the tracking finalizer from, as this plan counts them
    quota_updates: tuple[Update, ...] = ()  # quotas with the created pods charged to them
    refusal: Refusal = NONE  # of pods that a quota or another rule does not admit
    backoff_ends_at: datetime | None = None  # if pods are wanted and the Job's back-off delays them
    index_backoffs: dict[int, datetime] = {}  # indexes whose own back-off delays their pods, and when each ends
    again_at: datetime | None = None  # when to decide again if nothing changes before

    outcome: Condition | None = None  # SuccessCriteriaMet or FailureTarget; None while the Job is to go on
    active: int = 0  # status.active, as this plan leaves it
    terminating: int = 0  # status.terminating, likewise
    failed: int = 0  # status.failed, likewise

    @property
    def is_final(self) -> bool:
        """True: the Job gets its terminal condition now, as its last pod has ended."""
        return self.outcome is not None and not self.active and not self.terminating


def may_run(snapshot: JobSnapshot) -> bool:
    """False for a Job that is suspended, or that waits for others: it has no pods, and its time does not run."""
    return not (snapshot.job.spec.suspend or snapshot.dependencies.is_waiting)


def only_replaces_failed_pods(job: Job) -> bool:
    """True: a deleted pod is replaced, and counted, when it has ended; else as soon as it is deleted."""
    return job.spec.pod_replacement_policy == "Failed"


def failure_target(snapshot: JobSnapshot, reason: str, message: str) -> Condition:
    return new_condition("FailureTarget", reason, message, snapshot.now)


def success_criteria_met(snapshot: JobSnapshot, reason: str, message: str) -> Condition:
    return new_condition("SuccessCriteriaMet", reason, message, snapshot.now)


def new_condition(type_: str, reason: str, message: str, now: datetime, status: str = "True") -> Condition:
    return Condition(
        type=type_,
        status=status,
        last_probe_time=now,
        last_transition_time=now,
        reason=reason,
        message=message,
    )
