"""Creation review: admission policies and webhooks for what the controllers of Jobs, CronJobs, Deployments and
ReplicaSets create.

A plan is made as if nothing was refused. If policies or webhooks are about what it creates, they are asked, many objects at the
same time; what webhooks change is put into the plan. If they refuse, the plan is made anew with their refusal as one of its
rules: then it has the event FailedCreate and the time of the next try, as with a quota.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.apps.replicaset import KIND as REPLICA_SETS
from app.kinds.batch.job import KIND as JOBS
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError
from app.plans.admission.pod_admission import apply_defaults, check
from app.plans.admission.policies.matching import Bound, could_match
from app.plans.admission.policies.sharing import distinct_pods, looks_at_one_pod
from app.plans.admission.webhooks.created_objects import Name, charge_created, name_of, replace_created, with_identity
from app.plans.plan import Create
from app.registry.admission.admission import Admission, RuleCache
from app.registry.admission.attributes import Attributes
from app.registry.admission.requester import of_controller
from app.registry.plan_writer import kind_of, new_object
from app.registry.uids import new_uid
from app.registry.verbs.versions import check_valid

Planned = Sequence[PlannedWrite]


class PlanWith(Protocol):
    """Makes the plan: with a refusal, or without; with quotas, or, if these are charged later, without them."""

    def __call__(self, refusal: ApiError | None, *, with_quotas: bool = True) -> Planned: ...


AT_ONCE = 32  # objects that webhooks are asked about
_REVIEWED = (PODS, JOBS, REPLICA_SETS)


class CreationReview:
    """Reviews what one controller creates. Without the admission of its process, no policy and no webhook applies."""

    def __init__(self, rules: RuleCache, admission: Admission | None, component: str) -> None:
        self._rules = rules
        self._admission = admission
        self._requester = of_controller(component)

    def plan(self, make: PlanWith, now: datetime) -> Planned | Awaitable[Planned]:
        """Return the plan, or wait for policies and webhooks and return what is planned then. `make` takes their refusal."""
        planned = make(None, with_quotas=not self._changes_pods())
        if self._admission is None or not (self._rules.policies or self._rules.webhooks):
            return planned
        about = [kind for kind in _REVIEWED if self._is_reviewed(kind)]
        created = [each for each in _created(planned) if kind_of(type(each)) in about]
        return self._reviewed(self._admission, planned, created, make, now) if created else planned

    def _changes_pods(self) -> bool:
        """Return whether webhooks may change what pods cost: then quotas are charged when they have answered."""
        return self._admission is not None and bool(self._rules.webhooks.relevant(PODS, "CREATE").mutating)

    def _is_reviewed(self, kind: Kind) -> bool:
        return any(self._rules.webhooks.relevant(kind, "CREATE")) or could_match(self._rules.policies, kind, "CREATE")

    async def _reviewed(
        self, admission: Admission, planned: Planned, created: Sequence[Object], make: PlanWith, now: datetime
    ) -> Planned:
        try:
            changed = await self._mutate(admission, created, now)
            changed |= self._with_uids([changed.get(name_of(each), each) for each in created])
            made = [changed.get(name_of(each), each) for each in created]
            await self._review_by_policies(admission, made, now)
            await self._validate(admission, made, now)
            return [self._with_changes(each, changed, now) for each in planned]
        except ApiError as refusal:
            return make(refusal)

    # --- policies

    async def _review_by_policies(self, admission: Admission, created: Sequence[Object], now: datetime) -> None:
        bound = self._rules.policies
        for obj in _distinct(bound, created):
            kind, meta = kind_of(type(obj)), obj.metadata
            write = Attributes(kind, meta.namespace, meta.name, new=new_object(obj, now))
            await admission.reviewer.review(bound, self._rules.mirror, write, self._requester)

    # --- webhooks

    async def _mutate(self, admission: Admission, created: Sequence[Object], now: datetime) -> dict[Name, Object]:
        """The objects that webhooks have changed."""
        changed: dict[Name, Object] = {}

        async def mutate(obj: Object) -> None:
            kind, meta = kind_of(type(obj)), obj.metadata
            found = self._rules.webhooks.relevant(kind, "CREATE").mutating
            if not found:
                return
            shown = kind.prepare(obj)
            write = Attributes(kind, meta.namespace, meta.name, new=shown)
            mutated = await admission.webhooks.mutate(found, self._rules.mirror, write, self._requester)
            if mutated.object is not None and mutated.object is not shown:
                changed[name_of(obj)] = self._complete(kind, with_identity(mutated.object, shown), now)

        await _for_each(created, mutate)
        return changed

    def _with_uids(self, created: Sequence[Object]) -> dict[Name, Object]:
        """Return the objects that validating webhooks review, with the UIDs that they will be stored with."""
        objects = (each for each in created if self._rules.webhooks.relevant(kind_of(type(each)), "CREATE").validating)
        return {
            name_of(each): replace(each, metadata=replace(each.metadata, uid=new_uid()))
            for each in objects
            if not each.metadata.uid
        }

    def _complete(self, kind: Kind, made: Object, now: datetime) -> Object:
        """Return an object that webhooks changed, with the defaults of its namespace. Raises 403 or 422 if it is not valid."""
        rules = self._rules.rules(made.metadata.namespace)
        if isinstance(made, Pod):
            made = apply_defaults(made, rules)
        prepared: Object = kind.prepare(made)
        check_valid(kind, new_object(prepared, now))
        check(kind.resource, prepared, rules)
        return prepared

    async def _validate(self, admission: Admission, created: Sequence[Object], now: datetime) -> None:
        async def validate(obj: Object) -> None:
            kind, meta = kind_of(type(obj)), obj.metadata
            found = self._rules.webhooks.relevant(kind, "CREATE").validating
            if found:
                write = Attributes(kind, meta.namespace, meta.name, new=new_object(obj, now))
                await admission.webhooks.validate(found, self._rules.mirror, write, self._requester)

        await _for_each(created, validate)

    def _with_changes(self, planned: PlannedWrite, changed: dict[Name, Object], now: datetime) -> PlannedWrite:
        plan = replace_created(planned.plan, changed)
        pods = (each.object for each in plan.actions if isinstance(each, Create) and isinstance(each.object, Pod))
        first = next(pods, None)
        if first is not None and self._changes_pods():
            quotas = self._rules.rules(first.metadata.namespace).quotas
            plan = charge_created(plan, quotas, now) if quotas else plan
        return PlannedWrite(plan, planned.seen)


async def _for_each(created: Sequence[Object], call: Callable[[Object], Coroutine[Any, Any, None]]) -> None:
    """Make a call for each object, `AT_ONCE` at a time. The first refusal ends the others."""
    left = iter(created)

    async def work() -> None:
        for obj in left:
            await call(obj)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(created))):
                group.create_task(work())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


def _created(planned: Planned) -> Iterable[Object]:
    return (action.object for each in planned for action in each.plan.actions if isinstance(action, Create))


def _distinct(bound: Sequence[Bound], created: Sequence[Object]) -> Sequence[Object]:
    """Return those that the policies might judge differently."""
    about = [kind for kind in _REVIEWED if could_match(bound, kind, "CREATE")]
    concerned = [each for each in created if kind_of(type(each)) in about]
    pods = [each for each in concerned if isinstance(each, Pod)]
    if len(pods) < 2 or any(
        looks_at_one_pod(each.policy.spec) for each in bound if could_match([each], PODS, "CREATE")
    ):
        return concerned
    return [*(each for each in concerned if not isinstance(each, Pod)), *distinct_pods(pods)]
