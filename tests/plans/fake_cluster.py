"""A cluster of one Job in memory: it carries plans out, lets pods live and die, and keeps its own account of every pod.

Strict where the store is strict: a plan is carried out whole, against the versions that it was made from.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.kinds.batch.completion_indexes import Indexes
from app.kinds.batch.job import Job, is_finished, is_indexed, is_true
from app.kinds.batch.job_status_validation import validate_status
from app.kinds.pod.container import ContainerState, ContainerStateTerminated, ContainerStatus
from app.kinds.pod.pod import Pod, is_active, is_terminal
from app.machinery.base import Condition
from app.plans.jobs import job as job_plan
from app.plans.jobs.finalizers import TRACKING
from app.plans.jobs.indexes import index_of
from app.plans.plan import Action, Create, Delete, Emit, Plan, SetStatus, Update
from tests.build import NOW, created, deleted, names, stored

GRACE = timedelta(seconds=30)
ROUNDS = 30  # more than a plan can need in a row, unless it goes in circles


class Cluster:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.pods: dict[str, Pod] = {}
        self.now: datetime = NOW
        self.again_at: datetime | None = NOW
        self.names = names()
        self.account: dict[str, str] = {}  # uid -> how the pod was counted, when it lost the finalizer
        self.proved: set[int | None] = set()  # the indexes of pods that succeeded
        self.events: Counter[str] = Counter()

    # What the controller does.

    def plan(self) -> Plan:
        mine = [pod for pod in self.pods.values() if _is_of_interest(pod)]
        return job_plan.plan(self.job, mine, self.now, self.names)

    def sync(self) -> None:
        """Plan and carry out until there is nothing to do."""
        is_settled = False
        for _ in range(ROUNDS):
            plan = self.plan()
            assert not is_settled or (not plan.actions and plan.again_at == self.again_at), "settled is not settled"
            self.carry_out(plan)
            self.again_at, is_settled = plan.again_at, plan.is_settled
            if not plan.actions:
                assert plan.again_at is None or plan.again_at > self.now
                return
        raise AssertionError("the plan goes in circles")

    def carry_out(self, plan: Plan) -> None:
        self._check(plan)
        job = stored(plan, self.job)
        failing = any(each.type == "FailureTarget" for each in job.status.conditions)
        for action in plan.actions:
            self._apply(action, failing)
        self.pods = {uid: pod for uid, pod in self.pods.items() if not _is_gone(pod)}
        self.job = job

    def _check(self, plan: Plan) -> None:
        waits = self.job.spec.pod_replacement_policy == "Failed"
        ending = [pod for pod in self.pods.values() if is_terminating(pod) and pod.metadata.owner_references]
        present = [*filter(is_active, self.pods.values()), *(ending if waits else ())]
        if created(plan):
            assert not deleted(plan)
            assert len(present) + len(created(plan)) <= (self.job.spec.parallelism or 0), "over parallelism"
            assert not self.job.spec.suspend
        before, after = self.job.status, stored(plan, self.job).status
        assert after.failed >= before.failed
        elastic = is_indexed(self.job)
        assert elastic or after.succeeded >= before.succeeded
        assert validate_status(stored(plan, self.job), self.job) == []
        touched = [each.object.metadata.name for each in plan.actions if isinstance(each, Create | Update | Delete)]
        assert len(touched) == len(set(touched)), "two actions for one pod"

    def _apply(self, action: Action, failing: bool) -> None:
        match action:
            case Create(pod):
                assert isinstance(pod, Pod)
                uid = f"uid-of-{pod.metadata.name}"
                assert uid not in self.pods
                meta = replace(pod.metadata, uid=uid, creation_timestamp=self.now)
                self.pods[uid] = replace(pod, metadata=meta, status=replace(pod.status, phase="Pending"))
            case Update(pod, old):
                assert isinstance(pod, Pod)
                assert self.pods[pod.metadata.uid] == old
                self._note(old, pod, self._fate(pod, failing))
                self.pods[pod.metadata.uid] = pod
            case Delete(pod, old):
                assert isinstance(pod, Pod)
                assert self.pods[pod.metadata.uid] == (old or pod)
                self._note(old or pod, pod, self._fate(pod, failing))
                self.pods[pod.metadata.uid] = pod
                self.delete(pod.metadata.uid)
            case Emit(_, reason, _, _, count):
                self.events[reason] += count
            case SetStatus():
                pass

    def _note(self, old: Pod, new: Pod, fate: str) -> None:
        adopted = not old.metadata.owner_references and new.metadata.owner_references
        if (adopted or TRACKING in old.metadata.finalizers) and TRACKING not in new.metadata.finalizers:
            assert old.metadata.uid not in self.account, "counted twice"
            self.account[old.metadata.uid] = fate
            self.proved |= {index_of(old)} if fate == "succeeded" else set()

    def _fate(self, pod: Pod, failing: bool) -> str:
        if is_indexed(self.job) and index_of(pod) not in range(self.job.spec.completions or 0):
            return "dropped"  # adopted, or the Job was made smaller
        if is_terminal(pod):
            return pod.status.phase.lower()
        at_once = _never_runs(pod) or self.job.spec.pod_replacement_policy != "Failed"
        return "failed" if failing or (at_once and pod.metadata.deletion_timestamp) else "dropped"

    # What happens to pods.

    def living(self) -> list[str]:
        return [uid for uid, pod in self.pods.items() if pod.status.phase in ("Pending", "Running")]

    def run(self, uid: str) -> None:
        self._change(uid, lambda pod: pod if pod.metadata.deletion_timestamp else _running(pod, self.now))

    def end(self, uid: str, phase: str) -> None:
        self._change(uid, lambda pod: _ended(pod, phase, self.now))

    def delete(self, uid: str) -> None:
        """As the API: a pod on no node goes at once, any other when it has ended; none before its finalizers."""
        pod = self.pods[uid]
        if pod.metadata.deletion_timestamp:
            return
        meta = replace(pod.metadata, deletion_timestamp=self.now + GRACE, deletion_grace_period_seconds=30)
        self._change(uid, lambda pod: replace(pod, metadata=meta))

    def _change(self, uid: str, change: Callable[[Pod], Pod]) -> None:
        pod = change(self.pods.pop(uid))
        if not _is_gone(pod):
            self.pods[uid] = pod

    # What must be true.

    def check(self) -> None:
        """The status says what is the case. To be asked after a sync."""
        status, fates = self.job.status, Counter(self.account.values())
        pods = [pod for pod in self.pods.values() if pod.metadata.owner_references]
        assert status.active == sum(map(is_active, pods))
        assert status.terminating == sum(map(is_terminating, pods))
        assert (status.ready or 0) <= status.active
        assert status.failed == fates["failed"]
        if not is_indexed(self.job):
            assert status.succeeded == fates["succeeded"]
        else:
            assert set(Indexes.parse(status.completed_indexes)) <= self.proved
        if is_true(self.job, "SuccessCriteriaMet") or is_true(self.job, "FailureTarget"):
            assert not any(TRACKING in pod.metadata.finalizers for pod in pods)
            assert not status.active
        if is_finished(self.job):
            assert not status.terminating
            assert status.start_time


def _is_of_interest(pod: Pod) -> bool:
    return TRACKING in pod.metadata.finalizers or is_active(pod) or is_terminating(pod)


def is_terminating(pod: Pod) -> bool:
    return not is_terminal(pod) and not is_active(pod) and not _never_runs(pod)


def _is_gone(pod: Pod) -> bool:
    over = is_terminal(pod) or not pod.spec.node_name
    return bool(pod.metadata.deletion_timestamp) and over and not pod.metadata.finalizers


def _never_runs(pod: Pod) -> bool:
    """Deleted before it got a node: it counts as failed, for nobody is there to say so."""
    return pod.status.phase == "Pending" and not pod.spec.node_name


def _running(pod: Pod, now: datetime) -> Pod:
    ready = Condition(type="Ready", status="True", last_transition_time=now)
    status = replace(pod.status, phase="Running", conditions=(ready,))
    return replace(pod, spec=replace(pod.spec, node_name="node-1"), status=status)


def _ended(pod: Pod, phase: str, now: datetime) -> Pod:
    end = ContainerStateTerminated(exit_code=int(phase == "Failed"), finished_at=now)
    status = ContainerStatus(name="main", state=ContainerState(terminated=end))
    return replace(pod, status=replace(pod.status, phase=phase, conditions=(), container_statuses=(status,)))
