"""The Job controller, at its best and at its worst: it may look at an old mirror, think for long, forget, or be two.

When to look is as for the real one: when something has changed, or at the time that a plan named.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from app.kinds.batch.job import Job, is_finished
from app.kinds.pod.pod import Pod
from app.plans.jobs import job as job_plan
from app.plans.jobs import ttl_after_finished
from app.plans.plan import Create, Names, Plan
from tests.plans.jobs.simulation.audit import check
from tests.plans.jobs.simulation.ledger import Ledger
from tests.plans.jobs.simulation.sight import OWNER_LABEL, index_of
from tests.plans.jobs.simulation.world import View, World, is_mine

PlanJob = Callable[[Job, Sequence[Pod], datetime, Names], Plan]


class Controller:
    def __init__(self, world: World, plan_job: PlanJob = job_plan.plan) -> None:
        self.world = world
        self.plan_job = plan_job
        self.ledger = Ledger()
        self.mirror: View | None = None
        self.thought: tuple[View, Plan, datetime] | None = None  # planned, not committed
        self.due: datetime | None = None
        self.quiet = 0  # plans in a row that did nothing

    @property
    def awake(self) -> bool:
        return self.world.changed or (self.due is not None and self.due <= self.world.now)

    def sync(self) -> None:
        """Look, plan, commit."""
        self.mirror = self.world.view()
        awake = self.awake
        self.world.changed = False
        if self.due is not None and self.due <= self.world.now:
            self.due = None
        if self.mirror is None:
            return
        plan = self._plan(self.mirror)
        assert awake or not plan.actions, "something was to be done, and nobody was woken for it"
        self._look_again(plan)
        self.carry_out(self.mirror, plan, self.world.now)

    def sync_late(self) -> None:
        """From a mirror that has not heard of the newest changes."""
        if self.mirror is not None:
            self.carry_out(self.mirror, self._plan(self.mirror), self.world.now)

    def think(self) -> None:
        """Plan now, commit later: others may be faster."""
        self.mirror = self.world.view()
        if self.mirror is not None:
            self.thought = (self.mirror, self._plan(self.mirror), self.world.now)

    def act(self) -> None:
        if self.thought is not None:
            self.carry_out(*self.thought)
            self.thought = None

    def crash(self) -> None:
        """Whatever was in memory is gone; who takes over looks at everything."""
        self.thought = self.due = None
        self.world.changed = True

    def _plan(self, view: View) -> Plan:
        plan = self.plan_job(view.job, view.pods, self.world.now, self.world.name)
        if plan.actions or not is_finished(view.job):
            return plan
        return ttl_after_finished.plan(view.job, self.world.now)

    def _look_again(self, plan: Plan) -> None:
        if plan.again_at is not None:
            assert plan.actions or plan.again_at > self.world.now, "looks again at once, although nothing changes"
            self.due = plan.again_at if self.due is None else min(self.due, plan.again_at)

    def carry_out(self, view: View, plan: Plan, now: datetime) -> None:
        world = self.world
        if not world.accepts(plan, view):
            world.changed = True  # a plan that is refused is made again
            return
        if is_finished(view.job) and plan.actions and plan == ttl_after_finished.plan(view.job, now):
            assert now >= _expiry(view.job), "a Job is deleted before its time"
            world.commit(plan)
            return
        self.ledger = check(view, plan, self.ledger, now)
        if plan.actions:
            was_changed = world.changed
            world.commit(plan)
            world.changed = was_changed or not plan.is_settled  # a settled plan's own writes need no sync
            self._check_world(view.job, plan)

    def _check_world(self, before: Job, plan: Plan) -> None:
        """What must be true of the pods themselves, whatever the controller had seen of them."""
        job, world = self.world.job, self.world
        if job is None:
            return
        mine = [
            pod
            for pod in map(world.pods.__getitem__, world.living)
            if is_mine(pod) and OWNER_LABEL in pod.metadata.labels
        ]
        active = [pod for pod in mine if pod.metadata.deletion_timestamp is None]
        ending = [pod for pod in mine if pod.metadata.deletion_timestamp is not None and pod.spec.node_name]
        if any(isinstance(each, Create) for each in plan.actions):
            _check_numbers(job, active, ending)
        if is_finished(job) and not is_finished(before):
            assert not [*active, *ending], "a Job has ended, and its pods have not"


def _check_numbers(job: Job, active: Sequence[Pod], ending: Sequence[Pod]) -> None:
    waited_for = len(ending) if job.spec.pod_replacement_policy == "Failed" else 0
    assert len(active) + waited_for <= (job.spec.parallelism or 0), "more pods run than parallelism allows"
    if job.spec.completion_mode == "Indexed":
        indexes = [index_of(pod) for pod in active]
        assert len(indexes) == len(set(indexes)), "an index runs twice at once"


def _expiry(job: Job) -> datetime:
    ends = [each.last_transition_time for each in job.status.conditions if each.type in ("Complete", "Failed")]
    assert ends
    assert ends[0]
    assert job.spec.ttl_seconds_after_finished is not None
    return ends[0] + timedelta(seconds=job.spec.ttl_seconds_after_finished)
