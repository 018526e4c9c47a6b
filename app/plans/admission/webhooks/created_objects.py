"""Created objects: a controller's plan with the objects that mutating webhooks have changed in it. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from app.kinds.core.resourcequota import ResourceQuota
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.errors import ApiError
from app.plans.admission.resource_quota import charge
from app.plans.plan import Action, Create, Plan, Update

Name = tuple[type[Object], str, str]


def name_of(obj: Object) -> Name:
    """What tells the objects that a plan creates apart."""
    return type(obj), obj.metadata.namespace, obj.metadata.name


def with_identity(made: Object, planned: Object) -> Object:
    """What a webhook made, under the name that was planned."""
    meta = planned.metadata
    return replace(
        made,
        metadata=replace(
            made.metadata, name=meta.name, generate_name=meta.generate_name, namespace=meta.namespace, uid=meta.uid
        ),
    )


def replace_created(plan: Plan, changed: Mapping[Name, Object]) -> Plan:
    """Return the plan with the objects that were changed."""
    return Plan(tuple(_replace(each, changed) for each in plan.actions), plan.again_at) if changed else plan


def _replace(action: Action, changed: Mapping[Name, Object]) -> Action:
    if not isinstance(action, Create):
        return action
    made = changed.get(name_of(action.object))
    return action if made is None else Create(made)


def charge_created(plan: Plan, quotas: Sequence[ResourceQuota], now: datetime) -> Plan:
    """Return the plan with its pods charged to quotas, and without those for which there is no room: they come next time.

    Raises the 403 if there is room for none.
    """
    kept: list[Action] = []
    first = {quota.metadata.uid: quota for quota in quotas}
    current = dict(first)
    is_full, count = False, 0
    for action in plan.actions:
        if not isinstance(action, Create) or not isinstance(action.object, Pod):
            kept.append(action)
            continue
        try:
            charged = [] if is_full else charge(list(current.values()), PODS.resource, action.object)
        except ApiError:
            if count == 0:
                raise
            is_full = True
        if not is_full:
            current |= {after.metadata.uid: after for _, after in charged}
            kept.append(action)
            count += 1
    updates = (Update(quota, first[uid]) for uid, quota in current.items() if quota is not first[uid])
    return Plan((*kept, *updates), now if is_full else plan.again_at)
