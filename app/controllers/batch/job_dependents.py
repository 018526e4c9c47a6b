"""Job dependents: which Jobs wait for a Job (`jobplane.dev/after`). The Job controller asks it when a Job changes.

It follows the controller's events. It remembers how an awaited Job was when it was deleted, if that had finished: a Job may end
and be deleted before those that wait for it are reconciled.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import cast

from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job, is_finished, is_true
from app.kinds.batch.job_annotations import dependencies
from app.machinery.base import Object
from app.plans.jobs.dependencies import CONDITION, FindJob
from app.store import Key, Mirror


class JobDependents:
    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._awaited: dict[Key, tuple[Key, ...]] = {}  # by waiting Job
        self._waiting: defaultdict[Key, set[Key]] = defaultdict(set)  # by awaited Job
        self._deleted: dict[Key, Job] = {}  # awaited Jobs that had finished

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        """A Job has changed. Returns the Jobs that wait for it, if this may matter to them."""
        self._note(key, cast("Job | None", now))
        if key not in self._waiting:
            return ()
        if now is not None:
            self._deleted.pop(key, None)
        elif before is not None and is_finished(cast("Job", before)):
            self._deleted[key] = cast("Job", before)
        is_news = before is None or now is None or is_finished(cast("Job", now)) != is_finished(cast("Job", before))
        return tuple(self._waiting[key]) if is_news else ()

    def rebuild(self) -> None:
        """From the whole mirror."""
        self._awaited.clear()
        self._waiting.clear()
        for job in self._mirror.all(JOBS.resource):
            self._note(Key(JOBS.resource, job.metadata.namespace, job.metadata.name), cast("Job", job))

    def _note(self, key: Key, job: Job | None) -> None:
        awaited = tuple(_awaited_keys(job)) if job is not None else ()
        for other in self._awaited.pop(key, ()):
            self._waiting[other].discard(key)
            if not self._waiting[other] and other not in awaited:
                del self._waiting[other]
                self._deleted.pop(other, None)
        for other in awaited:
            self._waiting[other].add(key)
        if awaited:
            self._awaited[key] = awaited

    def absent(self, job: Job) -> list[Key]:
        """Return the Jobs that a Job waits for and that are not in the mirror: gone, dormant, or not there yet."""
        keys = _awaited_keys(job)
        return [key for key in keys if self._mirror.get(key) is None and key not in self._deleted]

    def find_in(self, namespace: str) -> FindJob:
        def find(name: str) -> Job | None:
            key = Key(JOBS.resource, namespace, name)
            return cast("Job | None", self._mirror.get(key)) or self._deleted.get(key)

        return find


def _awaited_keys(job: Job) -> Iterable[Key]:
    """None, once the Job has started or ended."""
    wanted = dependencies(job.metadata)
    if not wanted or is_finished(job) or is_true(job, CONDITION):
        return ()
    return (Key(JOBS.resource, job.metadata.namespace, name) for name, _ in wanted)
