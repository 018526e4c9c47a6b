"""Numbers of Jobs, pods and nodes, under kube-state-metrics' names, but summed by namespace: a Job has no series of its own.

The leader's mirror tells of every change; counts are kept up to date by it, so that a scrape costs the same however many Jobs
and pods have ended. Dormant ones, which are not in the mirror, are counted by the database once (`DormantCounts`). Made by
`app.controllers.manager` before the mirror is filled.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from app.controllers.metrics.dormant_counts import DormantCounts, Group, Numbers
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job, condition, is_true
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import Node
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, is_terminal
from app.machinery.base import Object
from app.machinery.meta.owner_references import controller_of
from app.metrics.instruments import Family, family
from app.metrics.registry import MetricsRegistry
from app.store import Key, Mirror

COLLECTOR = "state"
MOST_NAMESPACES = 1_000  # that have series of their own; all others are one, named ""
MOST_NODES = 2_000  # likewise: of a larger fleet there are only totals
_DURATIONS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 10_800.0, 43_200.0, 86_400.0, 604_800.0)
_READY = "Ready"
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_STATUSES = ("true", "false", "unknown")


class JobCount(NamedTuple):
    """Counts that one Job adds to the metrics of its namespace."""

    active: int
    ready: int
    succeeded: int
    failed: int
    complete: int
    has_failed: int
    suspended: int


_JOB_FAMILIES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("kube_job_status_active", "Active pods of Jobs.", {}),
    ("kube_job_status_ready", "Ready pods of Jobs.", {}),
    ("kube_job_status_succeeded", "Pods of Jobs that succeeded.", {}),
    ("kube_job_status_failed", "Pods of Jobs that failed.", {}),
    ("kube_job_complete", "Jobs that have completed and still exist.", {"condition": "true"}),
    ("kube_job_failed", "Jobs that have failed and still exist.", {"condition": "true"}),
    ("jobplane_jobs_suspended", "Suspended Jobs.", {}),
)
_NONE = JobCount(*[0] * len(_JOB_FAMILIES))


class StateMetrics:
    """Counts of what is in a mirror."""

    def __init__(self, metrics: MetricsRegistry, mirror: Mirror) -> None:
        self._mirror = mirror
        self._pods: Counter[tuple[str, str]] = Counter()  # by namespace and phase
        self._jobs: dict[str, JobCount] = {}  # by namespace
        self._job_counts: Counter[str] = Counter()  # Jobs by namespace
        self._objects: Counter[str] = Counter()  # by kind
        self._finished = metrics.counter(
            "job_controller_jobs_finished_total", "Jobs that ended.", ("completion_mode", "result", "reason")
        )
        self._pods_finished = metrics.counter(
            "job_controller_job_pods_finished_total", "Pods of Jobs that ended.", ("result",)
        )
        self._durations = metrics.histogram(
            "jobplane_job_duration_seconds",
            "From the start of a Job until it ended, in seconds.",
            ("result",),
            _DURATIONS,
        )
        self.dormant = DormantCounts(mirror)
        mirror.listen(self._on_change)
        mirror.listen_to_dormancy(self._on_dormancy)
        metrics.add_collector(COLLECTOR, self._collect)

    def _on_dormancy(self, key: Key, obj: Object, is_dormant: bool) -> None:
        """Count an object that left the mirror as dormant. One that comes back is handled as a new one."""
        if is_dormant:
            self._on_change(key, obj, None)
        self.dormant.add(key, obj, 1 if is_dormant else -1)

    def _on_change(self, key: Key, before: Object | None, now: Object | None) -> None:
        if before is None or now is None:
            self._objects[key.kind] += (now is not None) - (before is not None)
        if key.kind == PODS.resource:
            self._on_pod(key.namespace, before, now)
        elif key.kind == JOBS.resource:
            self._on_job(key.namespace, before, now)

    def _on_pod(self, namespace: str, before: Object | None, now: Object | None) -> None:
        old, new = (_phase_of(each) if isinstance(each, Pod) else None for each in (before, now))
        if old == new:
            return
        if old is not None:
            self._add_pods(namespace, old, -1)
        if new is not None:
            self._add_pods(namespace, new, 1)
        if isinstance(before, Pod) and isinstance(now, Pod) and is_terminal(now) and not is_terminal(before):
            owner = controller_of(now)
            if owner is not None and owner.kind == JOBS.name:
                self._pods_finished.inc(now.status.phase.lower())

    def _add_pods(self, namespace: str, phase: str, sign: int) -> None:
        self._pods[namespace, phase] += sign
        if not self._pods[namespace, phase]:
            del self._pods[namespace, phase]

    def _on_job(self, namespace: str, before: Object | None, now: Object | None) -> None:
        self._job_counts[namespace] += (now is not None) - (before is not None)
        old, new = (_count_of(each) if isinstance(each, Job) else _NONE for each in (before, now))
        if old != new:
            sums = zip(self._jobs.get(namespace, _NONE), old, new, strict=True)
            self._jobs[namespace] = JobCount(*(total - less + more for total, less, more in sums))
        if not self._job_counts[namespace]:
            del self._job_counts[namespace]
            self._jobs.pop(namespace, None)
        if isinstance(before, Job) and isinstance(now, Job) and _result(now) and not _result(before):
            self._note_finished(now)

    def _note_finished(self, job: Job) -> None:
        result = _result(job)
        ended = condition(job, "Complete" if result == "succeeded" else "Failed")
        if ended is None:
            return
        self._finished.inc(job.spec.completion_mode or "NonIndexed", result, ended.reason)
        if job.status.start_time is not None and ended.last_transition_time is not None:
            lasted = ended.last_transition_time - job.status.start_time
            self._durations.observe(max(0.0, lasted.total_seconds()), result)

    async def _collect(self) -> Iterable[Family]:
        return [*self._job_families(), self._pod_family(), *self._node_families(), self._object_family()]

    def _job_families(self) -> Iterator[Family]:
        jobs, job_counts = self._all_jobs()
        summed = _by_namespace(jobs)
        counts = _by_namespace({namespace: (count,) for namespace, count in job_counts.items()})
        for at, (name, help_, labels) in enumerate(_JOB_FAMILIES):
            samples = [({"namespace": namespace, **labels}, values[at]) for namespace, values in summed.items()]
            yield family(name, help_, "gauge", samples)
        totals = [({"namespace": namespace}, values[0]) for namespace, values in counts.items()]
        yield family("jobplane_jobs", "Jobs that exist.", "gauge", totals)

    def _all_jobs(self) -> tuple[dict[str, JobCount], Counter[str]]:
        """Return the sums over Jobs in each namespace, and the number of Jobs."""
        jobs, counts = dict(self._jobs), self._job_counts.copy()
        for group, numbers in self.dormant.numbers.items():
            if group.kind == JOBS.resource:
                sums = zip(jobs.get(group.namespace, _NONE), _count_of_dormant(group, numbers), strict=True)
                jobs[group.namespace] = JobCount(*map(sum, sums))
                counts[group.namespace] += numbers.objects
        return jobs, counts

    def _pod_family(self) -> Family:
        rows: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(_PHASES))
        for (namespace, phase), count in self._pods.items():
            rows[namespace][_PHASES.index(phase)] = count
        for group, numbers in self.dormant.numbers.items():
            if group.kind == PODS.resource:
                rows[group.namespace][_PHASES.index(group.result)] += numbers.objects
        samples = [
            ({"namespace": namespace, "phase": phase}, count)
            for namespace, counts in _by_namespace(rows).items()
            for phase, count in zip(_PHASES, counts, strict=True)
        ]
        return family("kube_pod_status_phase", "Pods by phase.", "gauge", samples)

    def _node_families(self) -> Iterator[Family]:
        nodes = [each for each in self._mirror.all(NODES.resource) if isinstance(each, Node)]
        by_status = Counter(_status_of(node, _READY) for node in nodes)
        yield family(
            "jobplane_nodes",
            "Nodes, by whether they are ready.",
            "gauge",
            [({"ready": status}, by_status[status]) for status in _STATUSES],
        )
        cordoned = sum(node.spec.unschedulable for node in nodes)
        yield family("jobplane_nodes_cordoned", "Cordoned nodes.", "gauge", [({}, cordoned)])
        if len(nodes) <= MOST_NODES:
            samples = [sample for node in nodes for sample in _node_samples(node)]
            yield family("kube_node_status_condition", "Conditions of each node.", "gauge", samples)

    def _object_family(self) -> Family:
        samples = []
        objects = self._objects.copy()
        for dormant, numbers in self.dormant.numbers.items():
            objects[dormant.kind] += numbers.objects
        for resource, count in sorted(objects.items()):
            plural, _, group = resource.partition(".")
            samples.append(({"group": group, "resource": plural}, count))
        return family("apiserver_resource_objects", "Objects that exist, by resource.", "gauge", samples)


def _count_of_dormant(group: Group, numbers: Numbers) -> JobCount:
    complete = numbers.objects if group.result == "Complete" else 0
    return JobCount(0, 0, numbers.succeeded, numbers.failed, complete, numbers.objects - complete, 0)


def _phase_of(pod: Pod) -> str:
    phase = pod.status.phase or "Pending"
    return phase if phase in _PHASES else "Unknown"


def _result(job: Job) -> str:
    """Return how a Job ended, in the words of Kubernetes' Job controller; empty if it has not."""
    if is_true(job, "Complete"):
        return "succeeded"
    return "failed" if is_true(job, "Failed") else ""


def _count_of(job: Job) -> JobCount:
    status, result = job.status, _result(job)
    is_suspended = bool(job.spec.suspend) and not result
    ends = int(result == "succeeded"), int(result == "failed"), int(is_suspended)
    return JobCount(status.active, status.ready or 0, status.succeeded, status.failed, *ends)


def _by_namespace(
    rows: "dict[str, JobCount] | dict[str, tuple[int]] | defaultdict[str, list[int]]",
) -> dict[str, list[int]]:
    """Return the rows of at most MOST_NAMESPACES namespaces, and the sum of all others under an empty name."""
    found: dict[str, list[int]] = {}
    for at, (namespace, row) in enumerate(rows.items()):
        name = namespace if at < MOST_NAMESPACES else ""
        before = found.get(name)
        found[name] = list(row) if before is None else [old + more for old, more in zip(before, row, strict=True)]
    return found


def _status_of(node: Node, type_: str) -> str:
    found = next((each.status for each in node.status.conditions if each.type == type_), "Unknown")
    return found.lower() if found.lower() in _STATUSES else "unknown"


def _node_samples(node: Node) -> Iterator[tuple[dict[str, str], float]]:
    """Yield all three statuses of Ready, of which one is 1; of other conditions the one that holds."""
    name = node.metadata.name
    for each in node.status.conditions:
        is_status = _status_of(node, each.type)
        for status in _STATUSES if each.type == _READY else (is_status,):
            labels = {"node": name, "condition": each.type, "status": status}
            yield labels, float(status == is_status)
