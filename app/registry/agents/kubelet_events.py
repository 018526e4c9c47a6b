"""Events that agents report about their pods, as objects. Called by `status_reports`, which stores them with the statuses.

An event's name follows from what it says, so that whoever tells it again, after a lost answer or a restart, tells the
same event: it is counted, or taken for what it is, a repetition of the telling.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import cast

import msgspec

from app.client.protocol import EventReport
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event import LONGEST, LONGEST_MESSAGE, Event, EventSource
from app.kinds.pod.pod import Pod
from app.machinery.base import ObjectMeta, ObjectReference
from app.machinery.meta.owner_references import controller_uid
from app.registry.codec import NAMESPACES, decode, key_of, write_of
from app.registry.uids import uid_of
from app.store import Change, Key, StoredObject, Write, precondition

COMPONENT = "kubelet"
COMBINED = "(combined from similar events): "
TYPES = ("Normal", "Warning")


def keys(namespace: str, pod: str, uid: str, told: Sequence[EventReport], *, everything: bool) -> list[Key]:
    """Of those that may be stored already: the known ones, or all of them."""
    return [_key(namespace, pod, uid, each) for each in told if everything or each.known or each.owner]


def writes(
    pod: Pod, told: Sequence[EventReport], heads: Mapping[Key, StoredObject | Change], now: datetime
) -> Iterator[Write]:
    """`heads`: the events that are stored already, of those that were asked for."""
    meta = pod.metadata
    own = (
        each if each.owner in ("", controller_uid(pod)) else msgspec.structs.replace(each, owner="") for each in told
    )
    last = {_key(meta.namespace, meta.name, meta.uid, each): each for each in own}  # a set holds no object twice
    for key, each in last.items():
        head = heads.get(key)
        if head is None:
            yield write_of(EVENTS, _event(pod, key.name, each, now), "A")
            continue
        if each.owner:
            continue
        old = cast("Event", decode(EVENTS, head))
        moment = each.when or now
        if old.last_timestamp is None or old.last_timestamp < moment:
            count = old.count + max(each.count, 1)
            new = msgspec.structs.replace(
                old, count=count, last_timestamp=moment, message=each.message[:LONGEST_MESSAGE]
            )
            yield write_of(EVENTS, new, "M", old)


def alive(namespace: str) -> Write:
    """Nothing is created in a namespace that is absent or going."""
    return precondition(Key(NAMESPACES, "", namespace))


def _key(namespace: str, pod: str, uid: str, told: EventReport) -> Key:
    about = "pod-template" if told.owner else pod[:230]  # an owner's UID need not be fit for a name
    return key_of(EVENTS, namespace, f"{about}.{_mark(uid, told).hex()}")


def _mark(uid: str, told: EventReport, size: int = 8) -> bytes:
    message = COMBINED if told.message.startswith(COMBINED) else told.message
    parts = (told.owner or uid, told.type, told.reason, told.path, message)
    return blake2b("\0".join(parts).encode(), digest_size=size).digest()


def _event(pod: Pod, name: str, told: EventReport, now: datetime) -> Event:
    meta = pod.metadata
    moment = told.when or now
    return Event(
        metadata=ObjectMeta(
            name=name,
            namespace=meta.namespace,
            uid=uid_of(_mark(meta.uid, told, 16)),
            creation_timestamp=now,
        ),
        involved_object=ObjectReference(
            kind="Pod",
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            api_version="v1",
            resource_version=meta.resource_version,
            field_path=told.path[:LONGEST_MESSAGE],
        ),
        reason=told.reason[:LONGEST],
        message=told.message[:LONGEST_MESSAGE],
        type=told.type if told.type in TYPES else TYPES[0],
        source=EventSource(component=COMPONENT, host=pod.spec.node_name),
        reporting_component=COMPONENT,
        reporting_instance=pod.spec.node_name,
        first_timestamp=moment,
        last_timestamp=moment,
        count=max(told.count, 1),
    )
