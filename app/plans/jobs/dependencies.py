"""Dependencies of a Job: other Jobs that must end before it starts (`jobplane.dev/after`). Pure; used by `job`.

A Job that waits has no pods and no start time, as a suspended one, and the condition DependenciesMet says which Jobs it waits
for. What was seen of these is kept in its annotation `jobplane.dev/waiting-for`, `NAME=UID` or `NAME=met`: so a Job that was
seen and is gone was deleted, and one that is met stays so. Once the condition is true, nothing is looked at again.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from app.kinds.batch.job import Job, condition, is_finished, is_true
from app.kinds.batch.job_annotations import Dependency, dependencies
from app.machinery.base import Condition
from app.machinery.meta.conditions import with_condition
from app.plans import annotation_state
from app.plans.jobs.job_snapshot import NO_DEPENDENCIES, Dependencies, JobSnapshot, failure_target, new_condition

CONDITION = "DependenciesMet"
SEEN = "jobplane.dev/waiting-for"
MET = "met"
MOST_VISITED = 1_000  # Jobs in the search for a cycle

FindJob = Callable[[str], Job | None]  # name -> the Job in the same namespace, or one that has ended and is gone

_ENDS = {"ok": "complete", "failed": "fail", "any": "end"}


def find_nothing(_: str) -> Job | None:
    return None


def check_dependencies(job: Job, find: FindJob) -> Dependencies:
    wanted = dependencies(job.metadata)
    if not wanted or is_true(job, CONDITION):
        return NO_DEPENDENCIES
    if condition(job, CONDITION) is None and (path := find_cycle(job, find)):
        return Dependencies(impossible=f"Jobs wait for each other: {' after '.join(path)}", is_cycle=True)
    before, found = _read_seen(job), NO_DEPENDENCIES
    for each in wanted:
        found = _check(each, before.get(each.name, ""), find(each.name), found)
    return found


def find_lost(job: Job, find: FindJob) -> dict[str, str]:
    """UIDs by name: Jobs that were seen and are gone. Whoever plans may find out how they ended."""
    wanted = dependencies(job.metadata)
    if not wanted or is_finished(job) or is_true(job, CONDITION):
        return {}
    seen = _read_seen(job)
    return {name: uid for name, _ in wanted if (uid := seen.get(name, MET)) not in ("", MET) and find(name) is None}


def _check(wanted: Dependency, seen: str, other: Job | None, found: Dependencies) -> Dependencies:
    """`found`, and what is found about one dependency more."""
    name, result = wanted
    is_gone = other is None and seen not in ("", MET)
    if seen == MET or (is_gone and result == "any") or (other and is_finished(other) and _suits(other, result)):
        return replace(found, seen={**found.seen, name: MET})
    if is_gone or (other and is_finished(other)):
        return replace(found, impossible=found.impossible or f"Job {name} {_tell_end(other)}")
    if other is None:
        return replace(found, waiting=(*found.waiting, f"Job {name} to be created and to {_ENDS[result]}"))
    waiting = (*found.waiting, f"Job {name} to {_ENDS[result]}")
    return replace(found, waiting=waiting, seen={**found.seen, name: other.metadata.uid})


def _suits(other: Job, result: str) -> bool:
    return result == "any" or (result == "ok") == is_true(other, "Complete")


def _tell_end(other: Job | None) -> str:
    if other is None:
        return "was deleted before it ended"
    failed = condition(other, "Failed")
    return f"failed ({failed.reason})" if failed and failed.status == "True" else "completed"


def find_cycle(job: Job, find: FindJob) -> list[str]:
    """Names of Jobs that wait for each other, from this Job to itself; empty if it does not wait for itself."""
    own = job.metadata.name
    waits_for, names = {own: own}, [own]  # by awaited Job, one that waits for it
    while names and len(waits_for) <= MOST_VISITED:
        current = names.pop()
        found = job if current == own else find(current)
        if found is None or is_finished(found) or is_true(found, CONDITION):
            continue
        for name, _ in dependencies(found.metadata):
            if name == own:
                return [*_trace(waits_for, current), own]
            if name not in waits_for:
                waits_for[name] = current
                names.append(name)
    return []


def _trace(waits_for: Mapping[str, str], last: str) -> list[str]:
    """The names on the way to the last, the first of which waits for itself."""
    names = [last]
    while waits_for[names[-1]] != names[-1]:
        names.append(waits_for[names[-1]])
    return names[::-1]


def _read_seen(job: Job) -> dict[str, str]:
    pairs = (each.partition("=") for each in job.metadata.annotations.get(SEEN, "").split(","))
    return {name: seen for name, _, seen in pairs}


# --- what is written


def find_failure(snapshot: JobSnapshot) -> Condition | None:
    """The condition FailureTarget, if the Job can never start."""
    found = snapshot.dependencies
    if not found.impossible:
        return None
    reason = "DependencyCycle" if found.is_cycle else "DependencyNeverSatisfied"
    return failure_target(snapshot, reason, f"Job can never start: {found.impossible}")


def annotate(annotations: dict[str, str], found: Dependencies) -> dict[str, str]:
    """The annotations with what was seen, while the Job waits; the same dict if nothing changes."""
    pairs = ",".join(f"{name}={seen}" for name, seen in found.seen.items()) if found.is_waiting else ""
    return annotation_state.annotate(annotations, SEEN, pairs or None)


def update_condition(snapshot: JobSnapshot, present: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """The conditions with DependenciesMet as it is now. A Job that waits for nothing does not get it."""
    old = condition(snapshot.job, CONDITION)
    new = _build_condition(snapshot, snapshot.dependencies)
    if new is None or (old and old.status == "True"):
        return present
    if old and old.status == new.status:
        new = replace(old, message=new.message)
    return with_condition(present, new)


def _build_condition(snapshot: JobSnapshot, found: Dependencies) -> Condition | None:
    if found.is_waiting:
        return new_condition(CONDITION, "WaitingForJobs", _tell_waiting(found.waiting), snapshot.now, status="False")
    if condition(snapshot.job, CONDITION) is None and not found.seen:
        return None
    return new_condition(CONDITION, CONDITION, "Job waits for no other Job any more", snapshot.now)


def _tell_waiting(waiting: Iterable[str]) -> str:
    return f"Job waits for {', for '.join(waiting)}"
