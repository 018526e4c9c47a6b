"""What agents report about their pods: many statuses in one request, each stored as its own write set in one transaction."""

import asyncio
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Annotated, cast

import msgspec

from app.kinds.base import Kind, Struct, at
from app.kinds.pod import Pod, PodStatus, is_terminal
from app.registry import deletion
from app.registry.codec import decode, key_of, write_of
from app.registry.objects import Registry
from app.store import Conflict, Head

_SERVER_CONDITIONS = frozenset({"PodScheduled"})
_TRIES = 4


class Report(Struct):
    """How one pod fares. `gone`: its deletion was asked for, and its containers have ended and been cleaned up."""

    namespace: Annotated[str, at(0)] = ""
    name: Annotated[str, at(0)] = ""
    uid: Annotated[str, at(0)] = ""
    status: Annotated[PodStatus, at(0)] = msgspec.field(default_factory=PodStatus)
    gone: Annotated[bool, at(0)] = False


class Outcome(msgspec.Struct, omit_defaults=True):
    """What became of a report: 200, 403 (not this agent's pod), 404 (no such pod any more) or 409 (say it again)."""

    uid: str
    code: int
    message: str = ""


async def accept(
    registry: Registry, kind: Kind, reports: Sequence[Report], owns: Callable[[str], bool]
) -> list[Outcome]:
    """Store the reports; `owns(node)` tells whether the reporter speaks for a node."""
    waiting: dict[str, list[Report]] = {}  # by pod, in order: told together they are one version
    for report in reports:
        waiting.setdefault(report.uid, []).append(report)
    outcomes: dict[str, Outcome] = {}
    for _ in range(_TRIES):
        keys = [key_of(kind, each[0].namespace, each[0].name) for each in waiting.values()]
        heads = await registry.store.get_many(keys)
        done = await asyncio.gather(
            *(
                _accept_one(registry, kind, each, heads.get(key), owns)
                for each, key in zip(waiting.values(), keys, strict=True)
            )
        )
        outcomes |= {outcome.uid: outcome for outcome in done}
        waiting = {uid: each for uid, each in waiting.items() if outcomes[uid].code == 409}
        if not waiting:
            break
    return [outcomes[each.uid] for each in reports]


async def _accept_one(
    registry: Registry, kind: Kind, reports: Sequence[Report], head: Head | None, owns: Callable[[str], bool]
) -> Outcome:
    uid = reports[0].uid
    if head is None or head.uid != uid:
        return Outcome(uid, 404, "no such pod")
    old = cast("Pod", decode(kind, head))
    if not owns(old.spec.node_name):
        return Outcome(uid, 403, "the pod is not bound to a node of this agent")
    now = reduce(reported, reports, old)
    if now == old:
        return Outcome(uid, 200)
    try:
        await registry.store.commit([write_of(kind, now, "D" if deletion.is_over(kind, now) else "M", old)])
    except Conflict:
        return Outcome(uid, 409, "changed meanwhile")
    return Outcome(uid, 200)


def reported(old: Pod, report: Report) -> Pod:
    """The pod as it is after the report. What has ended stays ended, and the server's own conditions stay."""
    status = old.status if is_terminal(old) else merged(old.status, report.status)
    pod = msgspec.structs.replace(old, status=status)
    if not report.gone or old.metadata.deletion_timestamp is None:
        return pod
    metadata = msgspec.structs.replace(old.metadata, deletion_grace_period_seconds=0)
    return msgspec.structs.replace(pod, metadata=metadata)


def merged(old: PodStatus, new: PodStatus) -> PodStatus:
    """The agent's status, with what only the server says. A disruption may be either's: the first word stands."""
    kept = _SERVER_CONDITIONS | ({"DisruptionTarget"} & {each.type for each in old.conditions})
    mine = tuple(each for each in old.conditions if each.type in kept)
    theirs = tuple(each for each in new.conditions if each.type not in kept)
    return msgspec.structs.replace(
        new,
        conditions=(*mine, *theirs),
        qos_class=old.qos_class,
        nominated_node_name=old.nominated_node_name,
        phase=new.phase or old.phase,
    )
