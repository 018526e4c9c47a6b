"""Creation review: admission policies for what the Job and CronJob controllers create.

A plan is made as if nothing was refused. If policies are about what it creates, they are asked; if they refuse, the plan is made
anew with their refusal as one of its rules: then it has the event FailedCreate and the time of the next try, as with a quota.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime

from app.controllers.planned_write import PlannedWrite
from app.kinds.batch.job import KIND as JOBS
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.errors import ApiError
from app.plans.admission.policies.matching import Bound, could_match
from app.plans.admission.policies.sharing import distinct_pods, looks_at_one_pod
from app.plans.plan import Create
from app.registry.admission.admission import RuleCache
from app.registry.admission.policy_review import PolicyReviewer, PolicyWrite
from app.registry.admission.requester import of_controller
from app.registry.plan_writer import kind_of, new_object

Planned = Sequence[PlannedWrite]
PlanWith = Callable[[ApiError | None], Planned]
_REVIEWED = (PODS, JOBS)


class CreationReview:
    """Reviews what one controller creates. Without a reviewer, no policy applies."""

    def __init__(self, rules: RuleCache, reviewer: PolicyReviewer | None, component: str) -> None:
        self._rules = rules
        self._reviewer = reviewer
        self._requester = of_controller(component)

    def plan(self, make: PlanWith, now: datetime) -> Planned | Awaitable[Planned]:
        """Return the plan, or wait for the policies and return what is planned then. `make` takes their refusal."""
        planned = make(None)
        bound = self._rules.policies
        if not bound or self._reviewer is None:
            return planned
        about = [kind for kind in _REVIEWED if could_match(bound, kind, "CREATE")]
        created = [each for each in _created(planned) if kind_of(type(each)) in about]
        return self._reviewed(self._reviewer, planned, created, make, now) if created else planned

    async def _reviewed(
        self, reviewer: PolicyReviewer, planned: Planned, created: Sequence[Object], make: PlanWith, now: datetime
    ) -> Planned:
        bound = self._rules.policies
        try:
            for obj in _distinct(bound, created):
                kind, meta = kind_of(type(obj)), obj.metadata
                write = PolicyWrite(kind, meta.namespace, meta.name, new=new_object(obj, now))
                await reviewer.review(bound, self._rules.mirror, write, self._requester)
        except ApiError as refusal:
            return make(refusal)
        return planned


def _created(planned: Planned) -> Iterable[Object]:
    return (action.object for each in planned for action in each.plan.actions if isinstance(action, Create))


def _distinct(bound: Sequence[Bound], created: Sequence[Object]) -> Sequence[Object]:
    """Return those that the policies might judge differently."""
    pods = [each for each in created if isinstance(each, Pod)]
    if len(pods) < 2 or any(
        looks_at_one_pod(each.policy.spec) for each in bound if could_match([each], PODS, "CREATE")
    ):
        return created
    return [*(each for each in created if not isinstance(each, Pod)), *distinct_pods(pods)]
