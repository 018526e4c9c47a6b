"""Compares a plan with what the model says must happen. Called for every plan that was made from the newest state.

`check` returns the ledger as it is once the plan is carried out. Each assertion names the rule that was broken.
"""

from datetime import datetime

from app.kinds.batch.job import Job
from app.kinds.batch.job_status_validation import validate_status
from app.kinds.pod.pod import Pod
from app.plans.plan import Create, Delete, Plan, SetStatus, Update
from tests.plans.jobs.simulation import oracle
from tests.plans.jobs.simulation.ledger import Ledger, shown
from tests.plans.jobs.simulation.oracle import FAILURE, SUCCESS, Known, Verdict, says
from tests.plans.jobs.simulation.sight import (
    TRACKING,
    Sight,
    end_of,
    has_place,
    index_of,
    is_ready,
    look,
    tries_of,
    worth,
)
from tests.plans.jobs.simulation.world import View

TERMINAL = {SUCCESS: "Complete", FAILURE: "Failed"}
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


class Acts:
    """A plan's actions, sorted."""

    __slots__ = ("created", "deleted", "freed", "reasons", "status")

    def __init__(self, plan: Plan) -> None:
        self.created: list[Pod] = []
        self.deleted: dict[str, Pod] = {}
        self.freed: dict[str, Pod] = {}  # as they were
        self.status: Job | None = None
        self.reasons: list[str] = []
        touched: set[str] = set()
        for each in plan.actions:
            if isinstance(each, Create):
                assert isinstance(each.object, Pod)
                self.created.append(each.object)
            elif isinstance(each, Update | Delete):
                self._touch(each, touched)
            elif isinstance(each, SetStatus):
                assert isinstance(each.object, Job)
                assert self.status is None, "the status is written twice"
                self.status = each.object
            else:
                self.reasons += [each.reason] * each.count

    def _touch(self, action: Update | Delete, touched: set[str]) -> None:
        new, old = action.object, action.old or action.object
        assert isinstance(new, Pod)
        assert isinstance(old, Pod)
        uid = new.metadata.uid
        assert uid not in touched, "two actions for one pod"
        touched.add(uid)
        assert new.spec is old.spec, "a plan changes a pod's spec"
        assert new.status is old.status, "a plan changes a pod's status"
        if isinstance(action, Delete):
            self.deleted[uid] = old
        was = TRACKING in old.metadata.finalizers or (
            not old.metadata.owner_references and new.metadata.owner_references
        )
        if was and TRACKING not in new.metadata.finalizers:
            self.freed[uid] = old
        owner = (*old.metadata.owner_references, *new.metadata.owner_references)[0]
        assert owner.uid == "uid-of-pi", "a pod of somebody else is touched"


def check(view: View, plan: Plan, ledger: Ledger, now: datetime) -> Ledger:
    job = view.job
    acts = Acts(plan)
    if says(job, "Complete") or says(job, "Failed"):
        assert not any((acts.created, acts.deleted, acts.status, acts.reasons)), "something happens after the end"
        return ledger
    sight = look(job, view.pods)
    return _Audit(job, plan, acts, sight, ledger, now).done()


class _Audit:
    def __init__(self, job: Job, plan: Plan, acts: Acts, sight: Sight, ledger: Ledger, now: datetime) -> None:
        self.job, self.plan, self.acts, self.sight, self.ledger, self.now = job, plan, acts, sight, ledger, now
        self.after = acts.status or job
        self.known: Known = oracle.known(job, sight, ledger)
        self.going = job.metadata.deletion_timestamp is not None
        self.kept = len(sight.active) - len(acts.deleted) + len(acts.created)
        self.verdict = oracle.verdict(job, sight, self.known, now)

    def done(self) -> Ledger:
        after = self.ledger.copy() if self.plan.actions else self.ledger
        if self.plan.actions:
            after.note_ends(self.sight, self.now)
        self._check_moves(after)
        if self.verdict is None and self.kept == 0 and oracle.is_enough(self.job, self.known):
            self.verdict = Verdict(SUCCESS, "CompletionsReached")
        over = self.verdict is not None or self.going
        self._check_freed(over)
        self._count(after)
        self._check_new(after)
        self._check_status(after)
        self._check_conditions()
        self._check_times()
        self._check_events()
        return after

    # Pods that start and stop.

    def _check_moves(self, after: Ledger) -> None:
        acts, sight = self.acts, self.sight
        assert not (acts.created and acts.deleted), "a plan creates and deletes"
        active = {pod.metadata.uid for pod in sight.active}
        assert acts.deleted.keys() <= active, "a pod is deleted that was not active"
        if self.verdict is not None:
            assert not acts.created, "pods start after the outcome"
            assert len(acts.deleted) == len(active), "an outcome leaves pods at work"
        elif self.going:
            assert not any((acts.created, acts.deleted)), "a Job that is deleted starts or stops pods itself"
        elif self.job.spec.suspend:
            assert not acts.created, "a suspended Job starts pods"
            assert len(acts.deleted) == len(active), "a suspended Job has pods at work"
        else:
            self._check_scale(after)

    def _check_scale(self, after: Ledger) -> None:
        acts, sight, job = self.acts, self.sight, self.job
        wanted = oracle.wanted(job, sight, self.known)
        unplaced = self._unplaced()
        surplus = max(len(sight.active) - wanted, len(unplaced))
        if surplus > 0:
            assert len(acts.deleted) == surplus, f"{len(acts.deleted)} pods are deleted, {surplus} are too many"
            assert unplaced <= acts.deleted.keys(), "a pod stays whose index is none or taken"
            self._check_choice(unplaced)
            return
        assert not acts.deleted, "a pod is deleted that is wanted"
        waiting = len(sight.terminating) if job.spec.pod_replacement_policy == "Failed" else 0
        missing = wanted - len(sight.active) - waiting
        if job.spec.backoff_limit_per_index is None:
            self._check_start(after, missing)
        else:
            ready, until = oracle.startable(job, sight, self.known, missing, self.now)
            assert list(map(index_of, acts.created)) == ready, f"the indexes {ready} are to start"
            self._check_again(until)

    def _check_start(self, after: Ledger, missing: int) -> None:
        """Back-off holds up everything that a Job would start."""
        if missing <= 0:
            assert not self.acts.created, "more pods start than are wanted"
            return
        retry = _noted(after, self.sight, self.now) if after is self.ledger else after.retry_at
        if retry is not None and retry > self.now:
            assert not self.acts.created, f"pods start before {retry}"
            self._check_again(retry)
        elif self.job.spec.completion_mode == "Indexed":
            ready, _ = oracle.startable(self.job, self.sight, self.known, missing, self.now)
            assert list(map(index_of, self.acts.created)) == ready, f"the indexes {ready} are to start"
        else:
            assert len(self.acts.created) == missing, f"{missing} pods are to start"

    def _check_again(self, at: datetime | None) -> None:
        again = self.plan.again_at
        assert at is None or (again is not None and again <= at), f"nobody looks again at {at}"

    def _unplaced(self) -> set[str]:
        """Pods without a proper index, and all but one of those that share one."""
        if self.job.spec.completion_mode != "Indexed":
            return set()
        best: dict[int | None, Pod] = {}
        out: set[str] = set()
        for pod in self.sight.active:
            index = index_of(pod)
            if not has_place(self.job, pod):
                out.add(pod.metadata.uid)
            elif index not in best:
                best[index] = pod
            else:
                worse = min(pod, best[index], key=lambda each: (worth(each), each is pod))
                best[index] = best[index] if worse is pod else pod
                out.add(worse.metadata.uid)
        return out

    def _check_choice(self, unplaced: set[str]) -> None:
        chosen = [worth(pod) for uid, pod in self.acts.deleted.items() if uid not in unplaced]
        kept = [worth(pod) for pod in self.sight.active if pod.metadata.uid not in self.acts.deleted]
        assert not chosen or not kept or max(chosen) <= min(kept), (
            "a pod is stopped that is worth more than one that stays"
        )

    # Pods that are counted.

    def _check_freed(self, over: bool) -> None:
        """Which pods lose the finalizer: just those that are settled."""
        sight, acts = self.sight, self.acts
        held = set() if over else self._held()
        expected = {pod.metadata.uid for pod in (*sight.succeeded, *sight.failed, *sight.void)} - held
        expected |= {uid for uid in acts.deleted if uid in sight.tracked}
        expected |= {pod.metadata.uid for pod in sight.leaving if TRACKING in pod.metadata.finalizers}
        ending = (*(sight.terminating if over else ()), *(sight.active if self.going else ()))
        expected |= {pod.metadata.uid for pod in ending if pod.metadata.uid in sight.tracked}
        if acts.freed.keys() != expected:
            early, late = acts.freed.keys() - expected, expected - acts.freed.keys()
            raise AssertionError(f"finalizers go too early from {early}, stay on {late}")

    def _held(self) -> set[str]:
        """The last failed pod of an index stays until its replacement carries its failures on."""
        if self.job.spec.backoff_limit_per_index is None:
            return set()
        decided = self.known.completed | self.known.lost
        stays = [pod for pod in self.sight.active if pod.metadata.uid not in self.acts.deleted]
        present = {index_of(pod) for pod in (*stays, *self.acts.created)}
        last = oracle.last_failed(self.sight, self.now)
        return {pod.metadata.uid for index, pod in last.items() if index not in present and index not in decided}

    def _count(self, after: Ledger) -> None:
        if self.plan.actions:
            after.resize(self.job)
        # Successes first: an index that succeeded is not lost by a failure seen at the same time.
        # Of several failures of an index, the one that its replacement goes on from comes last.
        pods = sorted(self.acts.freed.values(), key=lambda pod: (*_rank(pod), end_of(pod, self.now)))
        for pod in pods:
            after.count(self.job, pod, self._fate(pod))

    def _fate(self, pod: Pod) -> str:
        uid = pod.metadata.uid
        if any(each.metadata.uid == uid for each in self.sight.leaving):
            return "released"
        if any(each.metadata.uid == uid for each in self.sight.succeeded):
            return "succeeded"
        if any(each.metadata.uid == uid for each in self.sight.failed):
            return "failed"
        return "killed" if self.verdict is not None and self.verdict.type == FAILURE else "dropped"

    def _check_new(self, after: Ledger) -> None:
        """What a new pod inherits from the pods of its index before it."""
        for pod in self.acts.created:
            assert TRACKING in pod.metadata.finalizers, "a pod is created that nobody will count"
            if self.job.spec.backoff_limit_per_index is not None:
                failures, ignored = after.tries.get(index_of(pod) or 0, (0, 0))
                notes = pod.metadata.annotations
                assert notes.get(FAILURES) == str(failures), f"{failures} failures of the index are forgotten"
                assert notes.get(IGNORED, "0") == str(ignored), f"{ignored} ignored failures are forgotten"

    # What the status says.

    def _check_status(self, after: Ledger) -> None:
        status, sight, deleted = self.after.status, self.sight, self.acts.deleted
        indexed, limited = self.job.spec.completion_mode == "Indexed", self.job.spec.backoff_limit_per_index is not None
        left = status.uncounted_terminated_pods
        uncounted = (len(left.succeeded), len(left.failed)) if left else (0, 0)
        assert status.failed + uncounted[1] == after.failed, f"{after.failed} pods have failed, not {status.failed}"
        succeeded = after.succeeded(self.job)
        assert status.succeeded + uncounted[0] == succeeded, f"{succeeded} have succeeded, not {status.succeeded}"
        assert status.active == self.kept, f"{self.kept} pods are active, not {status.active}"
        ready = sum(is_ready(pod) for pod in sight.active if pod.metadata.uid not in deleted)
        assert (status.ready or 0) == ready, f"{ready} pods are ready, not {status.ready}"
        terminating = len(sight.terminating) + len(deleted)
        assert (status.terminating or 0) == terminating, f"{terminating} pods are ending, not {status.terminating}"
        if indexed:
            assert status.completed_indexes == shown(after.completed), f"{after.completed} are complete"
        if limited:
            assert status.failed_indexes == shown(self.known.lost), f"{self.known.lost} are lost"
        if self.acts.status is not None and self.after.status != self.job.status:
            assert not (causes := validate_status(self.after, self.job)), f"the status is not valid: {causes}"

    def _check_conditions(self) -> None:
        before, after = self.job, self.after
        interim = oracle.stored(after)
        found = (interim.type, interim.reason) if interim else None
        assert found == (self.verdict and self.verdict[:2]), f"the outcome should be {self.verdict}, not {found}"
        if interim and self.verdict and self.verdict.rule is not None:
            assert interim.message == f"Matched rules at index {self.verdict.rule}", "the wrong rule"
        ended = next((each for each in after.status.conditions if each.type in TERMINAL.values()), None)
        ends = interim is not None and self.kept == 0 and not self.sight.terminating and not self.acts.deleted
        assert (ended is not None) == ends, "the terminal condition comes exactly when the last pod has ended"
        if ended and interim:
            assert ended.type == TERMINAL[interim.type], "ends otherwise than it was announced"
            assert (ended.reason, ended.message) == (interim.reason, interim.message), "ends for another reason"
            assert after.status.conditions.index(ended) > after.status.conditions.index(interim)
        if interim is None and not self.going:
            assert says(after, "Suspended") == bool(after.spec.suspend), "Suspended says what the spec says"
        if before.status.conditions is not after.status.conditions:
            kinds = [each.type for each in after.status.conditions]
            assert len(kinds) == len(set(kinds)), "a condition is there twice"

    def _check_times(self) -> None:
        before, after = self.job.status, self.after.status
        runs = self.verdict is None and not self.going
        if runs:
            assert (after.start_time is None) == bool(self.job.spec.suspend), "startTime: if and only if not suspended"
        resumed = says(self.job, "Suspended") and not says(self.after, "Suspended")
        if runs and after.start_time is not None and (before.start_time is None or resumed):
            assert after.start_time == self.now, "a Job starts when it starts"
        elif before.start_time is not None and after.start_time is not None:
            assert after.start_time == before.start_time, "startTime moves"
        complete = next((each for each in after.conditions if each.type == "Complete"), None)
        assert after.completion_time == (complete.last_transition_time if complete else None), "completionTime"

    def _check_events(self) -> None:
        reasons = self.acts.reasons
        assert reasons.count("SuccessfulCreate") == len(self.acts.created), "each creation is told"
        assert reasons.count("SuccessfulDelete") == len(self.acts.deleted), "each deletion is told"
        before = {(each.type, each.status) for each in self.job.status.conditions}
        new = {(each.type, each.status): each.reason for each in self.after.status.conditions}
        expected = {
            "Completed": ("Complete", "True"),
            "Suspended": ("Suspended", "True"),
            "Resumed": ("Suspended", "False"),
        }
        for reason, sign in expected.items():
            told = sign in new and sign not in before
            assert reasons.count(reason) == told, f"the event {reason} comes with the condition"
        failed = ("Failed", "True")
        if failed in new and failed not in before:
            assert reasons.count(new[failed]) == 1, "a failure is told"


def _rank(pod: Pod) -> tuple[bool, int]:
    return pod.status.phase != "Succeeded", sum(tries_of(pod))


def _noted(ledger: Ledger, sight: Sight, now: datetime) -> datetime | None:
    after = ledger.copy()
    after.note_ends(sight, now)
    return after.retry_at
