"""Plan writer: from a plan's actions to one write set. Called by the runner; a plan is carried out whole or not at all."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from secrets import token_hex

import msgspec

from app.kinds import KINDS
from app.kinds.core.event import Event, EventSource
from app.machinery.base import Kind, Object, ObjectMeta, ObjectReference
from app.machinery.custom.custom_object import CustomObject
from app.plans.plan import Action, Create, Delete, Emit, Plan, Require, SetStatus, Update
from app.registry.codec import NAMESPACES, write_of
from app.registry.uids import new_uid
from app.registry.verbs import deletion
from app.store import Key, Write, precondition


def kind_of(type_: type[Object]) -> Kind:
    """The kind whose objects are of this type."""
    return type_.kind_record if issubclass(type_, CustomObject) else _built_in(type_)


@cache
def _built_in(type_: type[Object]) -> Kind:
    return next(kind for kind in KINDS if kind.type is type_)


def write_set(plan: Plan, seen: Iterable[Object], component: str, now: datetime) -> list[Write]:
    """The writes of a plan. `seen` are the versions that it was made from of the objects whose status it sets.

    A plan that acts at all writes every object in `seen`, changed or not: so of two plans made from the same state, the
    second is refused. That, not caution in the plans, is what keeps counts exact.
    """
    if not plan.actions:
        return []
    olds = {old.metadata.uid: old for old in seen}
    acting = (action for action in plan.actions if not isinstance(action, Require))
    writes = [_write(action, olds, component, now) for action in acting]
    named = {write.uid for write in writes if write.change != "G"}
    writes += [write_of(kind_of(type(old)), old, "M", old) for uid, old in olds.items() if uid not in named]
    return writes + list(_preconditions(plan.actions))


def without_refused_events(plan: Plan, refused: Iterable[Key]) -> Plan:
    """The plan without its events in those of the refused that are namespaces; the same plan if it has none."""
    spaces = {key.name for key in refused if key.kind == NAMESPACES}
    kept = tuple(each for each in plan.actions if not (isinstance(each, Emit) and _space_of(each) in spaces))
    return plan if len(kept) == len(plan.actions) else Plan(kept, plan.again_at)


def _preconditions(actions: Iterable[Action]) -> Iterator[Write]:
    """What the plan requires. Nothing is created in a namespace that is absent or going: one that was found empty stays so."""
    actions = tuple(actions)
    spaces = {_space_of(action) for action in actions if isinstance(action, Create | Emit)} - {""}
    required = {Key(each.resource, each.namespace, each.name) for each in actions if isinstance(each, Require)}
    for key in (*(Key(NAMESPACES, "", namespace) for namespace in sorted(spaces)), *sorted(required)):
        yield precondition(key)


def _space_of(action: Create | Emit) -> str:
    """The namespace in which this creates something. Events about what is in none go to the default one."""
    if isinstance(action, Create):
        return action.object.metadata.namespace
    return action.about.metadata.namespace or "default"


def _write(
    action: Create | Update | Delete | SetStatus | Emit, olds: dict[str, Object], component: str, now: datetime
) -> Write:
    if isinstance(action, Create):
        return write_of(kind_of(type(action.object)), new_object(action.object, now), "A")
    if isinstance(action, Emit):
        return write_of(kind_of(Event), event(action, component, now), "A")
    kind = kind_of(type(action.object))
    if isinstance(action, SetStatus):
        return write_of(kind, action.object, "M", olds[action.object.metadata.uid])
    if isinstance(action, Update):
        gone = deletion.is_over(kind, action.object)
        return write_of(kind, action.object, "D" if gone else "M", action.old)
    return _deletion_write(kind, action, now)


def _deletion_write(kind: Kind, action: Delete, now: datetime) -> Write:
    demand = deletion.Demand(grace_seconds=action.grace_period_seconds, propagation=action.propagation)
    begun = deletion.begin(kind, action.object, now, demand)
    return write_of(kind, begun.object, "D" if begun.is_over else "M", action.old or action.object)


def new_object(obj: Object, now: datetime) -> Object:
    """Build an object that a controller creates: identity and defaults are added, its parts were validated with its owner."""
    kind = kind_of(type(obj))
    metadata = msgspec.structs.replace(obj.metadata, uid=obj.metadata.uid or new_uid(), creation_timestamp=now)
    made: Object = kind.on_create(kind.prepare(msgspec.structs.replace(obj, metadata=metadata)), now)
    return made


def event(emit: Emit, component: str, now: datetime) -> Event:
    """The Event object, named after what it is about like Kubernetes' own."""
    about = emit.about
    kind = kind_of(type(about))
    meta = about.metadata
    reference = ObjectReference(
        kind=kind.name,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        api_version=kind.api_version,
        resource_version=meta.resource_version,
    )
    name = f"{meta.name[:230]}.{token_hex(8)}"
    return Event(
        metadata=ObjectMeta(name=name, namespace=_space_of(emit), uid=new_uid(), creation_timestamp=now),
        involved_object=reference,
        reason=emit.reason,
        message=emit.message[:1024],
        type=emit.type,
        source=EventSource(component=component),
        reporting_component=component,
        first_timestamp=now,
        last_timestamp=now,
        count=emit.count,
    )
