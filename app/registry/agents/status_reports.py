"""Status reports of agents: many pods in one request, each stored as its own write set in one transaction."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import cast

import msgspec
from msgspec.structs import replace

from app.client.protocol import StatusOutcome, StatusReport
from app.kinds.pod.pod import Pod, PodStatus, is_terminal
from app.machinery.base import Kind
from app.plans.jobs.job_record import PEAK_MEMORY
from app.registry.agents import kubelet_events
from app.registry.codec import NAMESPACES, decode, key_of, write_of
from app.registry.registry import Registry
from app.registry.verbs import deletion
from app.store import Change, Conflict, Key, StoredObject, Write

_SERVER_CONDITIONS = frozenset({"PodScheduled"})
_TRIES = 5  # the first from memory


async def accept(
    registry: Registry, kind: Kind, reports: Sequence[StatusReport], owns: Callable[[str], bool]
) -> list[StatusOutcome]:
    """Store the reports; `owns(node)` tells whether the reporter speaks for a node."""
    waiting: dict[str, list[StatusReport]] = {}  # by pod, in order: told together they are one version
    for report in reports:
        waiting.setdefault(report.uid, []).append(report)
    outcomes: dict[str, StatusOutcome] = {}
    taking = _Taking(registry, kind, owns)
    for attempt in range(_TRIES):
        keys = [key_of(kind, each[0].namespace, each[0].name) for each in waiting.values()]
        known = {} if attempt else _remembered(registry, dict(zip(keys, waiting, strict=True)))
        missing = [key for key in keys if key not in known]
        missing += _events_of(waiting.values(), everything=attempt > 0)
        heads = {**known, **(await registry.store.get_many(missing))} if missing else known
        done = await asyncio.gather(
            *(taking.one(each, heads.get(key), heads) for each, key in zip(waiting.values(), keys, strict=True))
        )
        outcomes |= {outcome.uid: outcome for outcome in done}
        waiting = {uid: each for uid, each in waiting.items() if outcomes[uid].code == 409}
        if not waiting:
            break
    return [outcomes[each.uid] for each in reports]


def _remembered(registry: Registry, uids: Mapping[Key, str]) -> dict[Key, StoredObject | Change]:
    """Pods with these UIDs that this process knows. An older version than the stored one is refused to be written."""
    known = ((key, registry.store.remembered(key), uid) for key, uid in uids.items())
    return {key: change for key, change, uid in known if change is not None and change.uid == uid}


def _events_of(told: Iterable[Sequence[StatusReport]], *, everything: bool) -> list[Key]:
    """Of a pod that was told of twice, some may be stored by then: a set is refused for it, and then all are looked at."""
    return [
        key
        for reports in told
        for each in reports
        if each.events
        for key in kubelet_events.keys(each.namespace, each.name, each.uid, each.events, everything=everything)
    ]


@dataclass
class _Taking:
    """One request's reports being stored. `closed`: namespaces that take no more events."""

    registry: Registry
    kind: Kind
    owns: Callable[[str], bool]
    closed: set[str] = field(default_factory=set)

    async def one(
        self,
        reports: Sequence[StatusReport],
        head: StoredObject | Change | None,
        heads: Mapping[Key, StoredObject | Change],
    ) -> StatusOutcome:
        uid = reports[0].uid
        if head is None or head.uid != uid:
            return StatusOutcome(uid, 404, "no such pod")
        old = cast("Pod", decode(self.kind, head))
        if not self.owns(old.spec.node_name):
            return StatusOutcome(uid, 403, "the pod is not bound to a node of this agent")
        try:
            stored = await self._store(old, reduce(reported, reports, old), self._events(old, reports, heads))
        except Conflict as conflict:
            self.closed |= {key.name for key in conflict.keys if key.kind == NAMESPACES}
            return StatusOutcome(uid, 409, "changed meanwhile")
        if not stored and isinstance(head, Change):
            return StatusOutcome(uid, 409, "the report changes nothing in this version, which may be out of date")
        return StatusOutcome(uid, 200)

    async def _store(self, old: Pod, now: Pod, events: list[Write]) -> bool:
        """Return whether there was anything to store.

        An end that also removes the pod is two versions, as in Kubernetes: watchers see how it ended before it is gone."""
        over, commit = deletion.is_over(self.kind, now), self.registry.store.commit
        if over and now.status != old.status:
            annotations = now.metadata.annotations
            ended = replace(old, status=now.status, metadata=replace(old.metadata, annotations=annotations))
            revision, *_ = await commit([write_of(self.kind, ended, "M", old), *events])
            old, events = replace(ended, metadata=replace(old.metadata, resource_version=str(revision))), []
        writes = [write_of(self.kind, now, "D" if over else "M", old)] if now != old else []
        if writes or events:
            await commit([*writes, *events])
        return over or bool(writes or events)

    def _events(
        self, pod: Pod, reports: Sequence[StatusReport], heads: Mapping[Key, StoredObject | Change]
    ) -> list[Write]:
        told = [each for report in reports for each in report.events]
        namespace = pod.metadata.namespace
        if not told or namespace in self.closed:
            return []
        writes = list(kubelet_events.writes(pod, told, heads, self.registry.now()))
        return [*writes, kubelet_events.alive(namespace)] if writes else []


def reported(old: Pod, report: StatusReport) -> Pod:
    """The pod as it is after the report. What has ended stays ended, and the server's own conditions stay."""
    status = old.status if is_terminal(old) else merged(old.status, report.status)
    pod = replace(old, status=status)
    if is_terminal(pod) and not is_terminal(old):
        pod = _with_peaks(pod, report.peak_memory)
    if not report.gone or old.metadata.deletion_timestamp is None:
        return pod
    return replace(pod, metadata=replace(pod.metadata, deletion_grace_period_seconds=0))


def _with_peaks(pod: Pod, peaks: Mapping[str, int]) -> Pod:
    """The pod with the peaks of its own containers in an annotation, if the agent has seen any."""
    names = {each.name for each in (*pod.spec.init_containers, *pod.spec.containers)}
    known = {name: peak for name, peak in sorted(peaks.items()) if name in names and peak > 0}
    if not known:
        return pod
    annotations = pod.metadata.annotations | {PEAK_MEMORY: msgspec.json.encode(known).decode()}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def merged(old: PodStatus, new: PodStatus) -> PodStatus:
    """The agent's status, with what only the server says. A disruption may be either's: the first word stands."""
    kept = _SERVER_CONDITIONS | ({"DisruptionTarget"} & {each.type for each in old.conditions})
    mine = tuple(each for each in old.conditions if each.type in kept)
    theirs = tuple(each for each in new.conditions if each.type not in kept)
    return replace(
        new,
        conditions=(*mine, *theirs),
        qos_class=old.qos_class,
        nominated_node_name=old.nominated_node_name,
        phase=new.phase or old.phase,
    )
