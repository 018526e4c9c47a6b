"""The store and the cluster: one Job, its pods, the time, and what a deletion comes to. Strict where the store is.

A commit names the versions that it was made from; if one of them is no longer the newest, nothing of it happens.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.meta.metadata_validation import FOREGROUND, ORPHAN
from app.plans import garbage_collection
from app.plans.garbage_collection import Owner
from app.plans.plan import Action, Create, Delete, Plan, SetStatus, Update
from tests.build import NOW

GRACE = 30
ENDED = ("Succeeded", "Failed")


class View(NamedTuple):
    """What somebody saw: a state that was true once."""

    job: Job
    pods: tuple[Pod, ...]
    revision: int  # of the Job


class World:
    def __init__(self, job: Job) -> None:
        self.job: Job | None = job
        self.revision = 0
        self.pods: dict[str, Pod] = {}
        self.living: list[str] = []  # pods that have not ended, and that this world makes run
        self.now: datetime = NOW
        self.changed = True  # something that the Job's controller is to look at
        self._made = 0

    def view(self) -> View | None:
        return None if self.job is None else View(self.job, tuple(self.pods.values()), self.revision)

    def name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    # What is written.

    def accepts(self, plan: Plan, view: View) -> bool:
        """Whether all that this plan was made from, and writes, is still so."""
        if self.revision != view.revision or self.job is None:
            return False
        for each in plan.actions:
            if isinstance(each, Update | Delete) and isinstance(each.object, Pod):
                uid = each.object.metadata.uid
                if self.pods.get(uid) is not (each.object if each.old is None else each.old):
                    return False
        return True

    def commit(self, plan: Plan) -> None:
        """Carry out what was accepted."""
        for each in plan.actions:
            if isinstance(each, Update | Delete) and isinstance(each.object, Pod):
                pod = self.marked(each.object, self.grace_of(each.object)) if isinstance(each, Delete) else each.object
                self.put(pod)
            elif isinstance(each, Create) and isinstance(each.object, Pod):
                self.add(each.object)
            elif isinstance(each, Delete):
                self.delete_job(each.propagation)
            elif isinstance(each, SetStatus) and isinstance(each.object, Job):
                self.job = each.object
        if plan.actions:
            self.revision += 1
            self.changed = True

    def write(self, job: Job) -> None:
        """As a user's update does."""
        self.job = job
        self.revision += 1
        self.changed = True

    def add(self, pod: Pod) -> Pod:
        uid = f"uid-of-{pod.metadata.name}"
        assert uid not in self.pods, "a name that is taken"
        meta = replace(pod.metadata, uid=uid, creation_timestamp=self.now)
        status = pod.status if pod.status.phase else replace(pod.status, phase="Pending")
        made = replace(pod, metadata=meta, status=status)
        self.pods[uid] = made
        if status.phase not in ENDED:
            self.living.append(uid)
        self.changed = True
        return made

    def put(self, pod: Pod) -> None:
        """In the place of its earlier version, unless this is its end."""
        meta = pod.metadata
        ended = pod.status.phase in ENDED
        over = meta.deletion_timestamp is not None and not meta.finalizers and (ended or not pod.spec.node_name)
        if over:
            del self.pods[meta.uid]
        else:
            self.pods[meta.uid] = pod
        if (over or ended) and meta.uid in self.living:
            self.living.remove(meta.uid)
        self.changed = True

    # Deletion.

    def grace_of(self, pod: Pod) -> int:
        return GRACE if pod.spec.node_name and pod.status.phase not in ENDED else 0

    def marked(self, pod: Pod, grace: int) -> Pod:
        meta = pod.metadata
        if meta.deletion_timestamp is not None and (meta.deletion_grace_period_seconds or 0) <= grace:
            return pod
        at = self.now + timedelta(seconds=grace)
        return replace(pod, metadata=replace(meta, deletion_timestamp=at, deletion_grace_period_seconds=grace))

    def delete(self, pod: Pod, grace: int | None = None) -> None:
        self.put(self.marked(pod, self.grace_of(pod) if grace is None else grace))

    def delete_job(self, propagation: str | None) -> None:
        """Without a word about its pods they are orphaned, as batch/v1 has it."""
        job = self.job
        assert job is not None
        kept = [each for each in job.metadata.finalizers if each not in {ORPHAN, FOREGROUND}]
        if propagation != "Background":
            kept.append(FOREGROUND if propagation == "Foreground" else ORPHAN)
        meta = replace(
            job.metadata, finalizers=tuple(kept), deletion_timestamp=job.metadata.deletion_timestamp or self.now
        )
        self.write(replace(job, metadata=meta))
        if not kept:
            self.job = None

    # The garbage collector.

    def collect(self) -> bool:
        """What it does about a Job that is going or gone; False if there is nothing to do."""
        if self.job is not None and self.job.metadata.deletion_timestamp is None:
            return False
        mine = [
            pod for pod in self.pods.values() if any(each.uid == "uid-of-pi" for each in pod.metadata.owner_references)
        ]
        if self.job is not None and garbage_collection.is_orphaning(self.job):
            for update in garbage_collection.orphan_dependents(self.job.metadata.uid, mine):
                self._carry_out(update)
            self.job = None
            return True
        if self.job is not None and not mine:
            self.job = None
            return True
        owner = Owner.GONE if self.job is None else Owner.WAITS
        actions = [action for pod in mine for action in garbage_collection.plan(pod, lambda _: owner, owns=False)]
        for action in actions:
            self._carry_out(action)
        return bool(actions)

    def _carry_out(self, action: Action) -> None:
        assert isinstance(action, Update | Delete)
        assert isinstance(action.object, Pod)
        pod = action.object
        self.put(self.marked(pod, self.grace_of(pod)) if isinstance(action, Delete) else pod)

    def mine(self) -> Iterable[Pod]:
        return (pod for pod in self.pods.values() if pod.metadata.owner_references[:1] and is_mine(pod))


def is_mine(pod: Pod) -> bool:
    references = pod.metadata.owner_references
    return bool(references) and references[0].uid == "uid-of-pi"
