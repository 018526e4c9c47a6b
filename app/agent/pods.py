"""Runs the pods of this agent's nodes: for each one look, plan, act, again whenever something may have changed.

Level-triggered: the API, the runtime, alarms and the lease only say "look at this pod". Each pod has at most one task
at a time, and that task alone starts containers and decides; stops take as long as they take, beside it.

Nothing has to be remembered across a restart: attempts, exit codes and times are in the runtime's list and in the
pod's status. A pod's last log bytes are with the API before its end is reported, and its sandbox goes only after the
API has taken note. What the runtime runs for pods that the API does not know is stopped and removed, once every node's
pods have been listed.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.agent.checks import Checks
from app.agent.clearing import Clearing
from app.agent.ends import Ends
from app.agent.fences import Fences
from app.agent.hooks import Hooks
from app.agent.images import Images
from app.agent.last_words import last_words, wants_them
from app.agent.logs import Logs
from app.agent.pace import Pace
from app.agent.probes import Probes
from app.agent.reports import Report, Reports
from app.agent.setup import Host, named, run_of
from app.agent.starts import Starts
from app.agent.stops import Stops
from app.agent.tasks import Tasks
from app.agent.work import Work
from app.kinds.pod import Pod, is_terminal
from app.kinds.pod_state import has_ended
from app.plans import node_garbage, pod_events
from app.plans import pod as pod_plan
from app.plans.pod import Key, PodPlan
from app.plans.pod_events import Note
from app.plans.pod_status import Ousted, is_only_starting
from app.plans.restarts import Run
from app.runtimes.base import ContainerKey, ContainerStatus

RELIST = 10.0
STARTING_TOLD_AFTER = timedelta(seconds=1)  # most pods have started by then, and nobody needs to be told twice
CONFLICT_RETRY = 1.0
TROUBLE_RETRY = 5.0
AWAY_RETRY = 1.0  # of a runtime that does not answer
PLANS = 8  # in one round of the event loop; a plan takes about a millisecond

log = logging.getLogger(__name__)


class Pods:
    """All pods of the agent. `starts`: how many may be starting at once.

    images:    of the node, unless they mean nothing to the runtime.
    _found:    what the runtime listed at the start, by pod, until the API tells whose it is. `_ips`: of the sandboxes.
    _unlisted: nodes whose pods the API has not listed yet.
    _of:       the works of each node: an agent may have a thousand nodes, and twenty thousand pods.
    _over:     pods of each node that have ended for the API, while its watch may still tell what they were before.
    """

    def __init__(
        self, host: Host, nodes: Iterable[str], reports: Reports, logs: Logs, fences: Fences, starts: int
    ) -> None:
        self._host, self._runtime, self._clock = host, host.runtime, host.clock
        self._reports, self._logs, self._fences = reports, logs, fences
        self._works: dict[str, Work] = {}
        self._of: defaultdict[str, dict[str, Work]] = defaultdict(dict)
        self._unlisted = set(nodes)
        self._found: dict[str, list[ContainerStatus]] = {}
        self._ips: dict[str, str] = {}
        self._tasks = Tasks()
        self._pace = Pace(PLANS)
        self._over: defaultdict[str, set[str]] = defaultdict(set)
        self._ends = Ends()
        self._clearing = Clearing(host, self._tasks.spawn)
        self._checks = checks = Checks(self._runtime, self._clock)
        self._probes = Probes(checks, self._clock, host.ip, self._tell_at_once, self._wake_changed)
        self._hooks = hooks = Hooks(checks, self._clock, host.ip, self._note, self._wake_changed)
        self.images = (
            Images(self._runtime, host.lookup, self._clock, self._note, self._wake_changed)
            if host.info.images
            else None
        )
        self.starts = Starts(host, self.images, hooks, starts, self._note)
        self._stops = Stops(self._runtime, self._clock, hooks, self._note, self._tasks.spawn, self._wake)

    # What the API says

    def listed(self, node: str, pods: Sequence[Pod]) -> None:
        """These are all the pods of the node."""
        present = {pod.metadata.uid for pod in pods}
        for pod in pods:
            self.seen(pod)
            if pod.metadata.uid in self._over[node] and (report := self._ends.again(pod)):
                self._reports.put(report)
        for work in list(self._of[node].values()):
            if work.uid not in present:
                self._lost(work)
            elif self._fences.open(work):
                self._wake_changed(work)
        self._over[node] &= present
        if node in self._unlisted:
            self._unlisted.discard(node)
            if not self._unlisted:
                self._sweep()

    def seen(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        work = self._works.get(uid)
        if work is not None:
            work.hear(pod)
            self._wake(work)
        elif uid not in self._over[pod.spec.node_name] or is_terminal(pod):
            self._over[pod.spec.node_name].discard(uid)
            if report := self._ends.again(pod):
                self._over[pod.spec.node_name].add(uid)
                self._reports.put(report)
            else:
                self._take(pod, self._found.pop(uid, []))

    def _take(self, pod: Pod, found: Sequence[ContainerStatus]) -> None:
        if is_terminal(pod) and pod.metadata.deletion_timestamp is None and not found:
            return  # history: nothing will ever be done about it
        work = Work(pod, self._clock.now(), [_key(status.key) for status in found])
        self._works[work.uid] = self._of[work.node][work.uid] = work
        self._fences.close(work)
        if work.uid in self._ips:
            work.ip, work.stands = self._ips.pop(work.uid), True
            self._host.hosts.seen(pod, work.ip)
        else:
            work.lose()
        for status in found:
            self._logs.grew(status.key, work.owner)  # it may have written while no agent was there
        self._wake(work)

    def gone(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if uid in self._works:
            self._lost(self._works[uid])
        self._over[pod.spec.node_name].discard(uid)

    def heard(self, report: Report, code: int) -> None:
        """The API has answered a report."""
        if code == 200:
            self._ends.keep(report)
        work = self._works.get(report.uid)
        if work is None:
            if code == 409 and has_ended(report.status):
                self._clock.call_later(CONFLICT_RETRY, lambda: self._repeat(report))
            return
        if code == 404:
            self._lost(work)
        elif code != 200:
            work.telling.untold(report.events if code == 409 else ())
            work.told = None  # 409: something changed meanwhile; anything else is for people to mend
            self._wake_later(work, CONFLICT_RETRY if code == 409 else TROUBLE_RETRY)
        elif has_ended(report.status):
            if report.gone or work.pod.metadata.deletion_timestamp is None:
                self._lost(work)
            else:
                self._wake_changed(work)

    def _repeat(self, report: Report) -> None:
        """The pod is over here, so nothing else would say it again."""
        if report.uid not in self._works:
            self._reports.put(report)

    def node_of(self, uid: str) -> str:
        """The node of a pod that is looked after; empty if it is not."""
        work = self._works.get(uid)
        return work.node if work else ""

    def all(self) -> list[Pod]:
        """Those that are looked after, as they are known."""
        return [work.pod for work in self._works.values()]

    def works(self) -> list[Work]:
        return list(self._works.values())

    def oust(self, uid: str, why: Ousted, note: Note | None) -> None:
        """The node cannot have it any longer: it fails."""
        work = self._works.get(uid)
        if work is not None and work.ousted is None:
            work.ousted = why
            if note is not None:
                self._note(work, note)
            self._wake_changed(work)

    # What the lease says

    def silent(self, node: str) -> None:
        """A node without its lease runs no pod for longer than the pod bears it. Said again and again."""
        for work in self._of[node].values():
            if self._fences.close(work):
                self._wake_changed(work)

    # What the runtime says

    async def adopt(self) -> None:
        """Before anything else: what earlier agents have left running."""
        for status in await self._runtime.list():
            self._found.setdefault(status.key.pod_uid, []).append(status)
        self._ips = {sandbox.pod_uid: sandbox.ip for sandbox in await self._runtime.sandboxes()}

    async def follow_events(self) -> None:
        async for key in self._runtime.events():
            work = self._works.get(key.pod_uid)
            if work is not None:
                work.look.add(_key(key))
                self._wake(work)

    async def follow_logs(self) -> None:
        async for key in self._runtime.logged():
            work = self._works.get(key.pod_uid)
            if work is not None:
                self._logs.grew(key, work.owner)

    async def relist(self) -> None:
        """Hints get lost; this finds what they missed."""
        while True:
            await self._clock.sleep(RELIST)
            stood = [work for work in self._works.values() if work.stands]
            standing = {sandbox.pod_uid for sandbox in await self._runtime.sandboxes()}
            for work in stood:
                if work.uid not in standing:
                    self._torn(work)
            self._compare(await self._runtime.list())
            if not self._unlisted:
                self._clearing.tidy(standing, self._works.keys())

    def _torn(self, work: Work) -> None:
        """The pod's sandbox is gone: whatever is left in it makes way for a new one."""
        if work.dropped or not work.stands or has_ended(work.pod.status):
            return
        work.stands, work.torn = False, True
        work.lose()
        work.look |= work.runs.keys()
        self._note(work, pod_events.sandbox_changed())
        self._wake_changed(work)

    def _compare(self, statuses: Iterable[ContainerStatus]) -> None:
        """The list may be older than what is known by now: where they differ, look again."""
        found: dict[str, dict[Key, ContainerStatus]] = defaultdict(dict)
        for status in statuses:
            found[status.key.pod_uid][_key(status.key)] = status
        for work in list(self._works.values()):
            listed = found.pop(work.uid, {})
            work.look |= {key for key, status in listed.items() if work.runs.get(key) != run_of(status)}
            work.look |= work.runs.keys() - listed.keys()
            self._wake(work)
        if not self._unlisted:
            for uid, left in found.items():
                self._clearing.clear(uid, _running(left.values()))

    def _sweep(self) -> None:
        """Every node's pods are known: what is left of the first list belongs to nobody."""
        for uid, left in self._found.items():
            self._clearing.clear(uid, _running(left))
        self._found, self._ips = {}, {}
        for uid in self._clearing.left() - self._works.keys():
            self._clearing.clear(uid, ())

    async def thin(self) -> None:
        """Little stays of runs that others have followed."""
        if not self._unlisted:
            await asyncio.gather(*map(self._thin, self.works()))

    async def _thin(self, work: Work) -> None:
        for run in list(node_garbage.dead(work.runs.values())):
            key = ContainerKey(work.uid, run.name, run.attempt)
            await self._logs.finish([key], work.owner)
            await self._runtime.remove_container(key)
            work.look.add(_key(key))
        self._wake(work)

    # One pod

    def _wake(self, work: Work) -> None:
        if work.is_due and work.task is None:
            work.task = self._tasks.spawn(self._tend(work))

    def _wake_changed(self, work: Work) -> None:
        work.changed = True
        self._wake(work)

    def _wake_later(self, work: Work, seconds: float) -> None:
        self._clock.call_later(seconds, lambda: self._wake_changed(work))

    async def _tend(self, work: Work) -> None:
        try:
            while work.is_due:
                await self._pace.turn()
                if work.is_due:
                    await self._once(work)
        except ConnectionError as error:
            log.warning("pod %s/%s: %s", work.owner.namespace, work.owner.name, error)
            self._wake_later(work, AWAY_RETRY)
        except Exception:
            log.exception("pod %s/%s", work.owner.namespace, work.owner.name)
            self._wake_later(work, TROUBLE_RETRY)
        finally:
            work.task = None

    async def _once(self, work: Work) -> None:
        if not await self._look(work) and not work.changed:
            return
        work.changed = False
        now = self._clock.now()
        work.torn = work.torn and work.is_live
        plan = pod_plan.plan(work.pod, work.runs.values(), now, work.place(self._host, self._fences.left(work)))
        if plan.status != work.pod.status:
            work.pod = replace(work.pod, status=plan.status)
        for note in plan.notes:
            work.telling.tell(note, now)
        self._probes.follow(work)
        self._set_alarm(work, plan.again_at, now)
        for stop in plan.stop:
            self._stops.stop(work, stop)
        await self._tell(work, plan)
        if plan.start:
            await self.starts.start(work, plan.start)

    async def _look(self, work: Work) -> bool:
        news = False
        while work.look:
            key = work.look.pop()
            try:
                status = await self._runtime.status(ContainerKey(work.uid, *key))
                run = await self._run_of(work, status) if status else None
            except BaseException:
                work.look.add(key)
                raise
            if run is None or run.state == "exited":
                work.ended(key)
            news |= work.saw(key, run)
        return news

    async def _run_of(self, work: Work, status: ContainerStatus) -> Run:
        run = run_of(status)
        if status.state != "exited" or not wants_them(status, named(work.pod, run.name).termination_message_policy):
            return run
        known = work.runs.get(_key(status.key))
        if known is not None and known.state == "exited":
            return run._replace(message=known.message)
        words = await last_words(self._runtime, status.key, self._logs.position(status.key))
        return run._replace(message=words or run.message)

    def _set_alarm(self, work: Work, at: datetime | None, now: datetime) -> None:
        if work.alarm is not None:
            work.alarm.cancel()
        seconds = (at - now).total_seconds() if at else 0
        work.alarm = self._clock.call_later(seconds, lambda: self._wake_changed(work)) if at else None

    async def _tell(self, work: Work, plan: PodPlan) -> None:
        if plan.remove:
            self._host.devices.release(work.uid)  # once its end is told, others may be given them
            await self._logs.finish(work.keys, work.owner)
        elif has_ended(plan.status):
            return  # the API knows that it has ended; it will know the rest when nothing runs any more
        elif is_only_starting(plan.status) and self._clock.now() - work.seen_at < STARTING_TOLD_AFTER:
            self._clock.call_later(STARTING_TOLD_AFTER.total_seconds(), lambda: self._report_starting(work))
            return
        self._report(work, gone=plan.remove and work.pod.metadata.deletion_timestamp is not None)

    def _report_starting(self, work: Work) -> None:
        if is_only_starting(work.pod.status):
            self._report(work, gone=False)

    def _report(self, work: Work, *, gone: bool) -> None:
        """The newest status, unless it was the last thing said."""
        status, events = work.pod.status, work.telling.take()
        if work.dropped or (work.told == (status, gone) and not events):
            return
        work.told = (status, gone)
        meta = work.pod.metadata
        self._reports.put(Report(meta.uid, meta.namespace, meta.name, status, gone, events))

    def _note(self, work: Work, note: Note) -> None:
        """To be told with the next status."""
        work.telling.tell(note, self._clock.now())

    def _tell_at_once(self, work: Work, note: Note) -> None:
        """Nothing else may come of it, so nothing else is waited for."""
        work.telling.tell(note, self._clock.now())
        self._wake_changed(work)

    def _lost(self, work: Work) -> None:
        """The API no longer has this pod, or no longer needs us for it."""
        self._logs.forget(work.keys)
        work.dropped = True
        del self._works[work.uid], self._of[work.node][work.uid]
        self._over[work.node].add(work.uid)
        if work.alarm is not None:
            work.alarm.cancel()
        self._probes.forget(work.uid)
        live = [key for key, run in work.runs.items() if run.state == "running"]
        self._clearing.clear(work.uid, [ContainerKey(work.uid, *key) for key in live], work.task)

    async def close(self) -> None:
        """Stop deciding. Containers run on, for the next agent."""
        await self._tasks.close()
        for part in (self._probes, self._hooks, self.images, self._checks):
            if part is not None:
                await part.close()


def _key(key: ContainerKey) -> Key:
    return Key(key.name, key.attempt)


def _running(statuses: Iterable[ContainerStatus]) -> list[ContainerKey]:
    return [status.key for status in statuses if status.state == "running"]
