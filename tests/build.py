"""Objects for tests: say only what the test is about, the rest is ordinary."""

import re
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from msgspec.structs import replace

from app.kinds.batch.job import Job, JobSpec, JobStatus
from app.kinds.pod.container import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
)
from app.kinds.pod.pod import Pod, PodSpec, PodStatus, PodTemplateSpec
from app.machinery.base import Condition, LabelSelector, ObjectMeta
from app.machinery.feature_gates import GENERIC_WORKLOAD
from app.plans.jobs.finalizers import TRACKING
from app.plans.jobs.pod_template import owner_reference
from app.plans.plan import Create, Delete, Emit, Names, Plan, SetStatus, Update

NOW = datetime(2026, 7, 24, 12, 0, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=2)
EVERY_API = frozenset({GENERIC_WORKLOAD})  # the feature gates with which every kind is served

UID_LABEL = "batch.kubernetes.io/controller-uid"
INDEX = "batch.kubernetes.io/job-completion-index"


def a_job(status: JobStatus | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> Job:
    """One pod that must succeed once, unless told otherwise; with `completion_mode="Indexed"` of that one index."""
    uid = (metadata or {}).get("uid", "uid-of-pi")
    labels = {UID_LABEL: uid}
    usual: dict[str, Any] = {
        "parallelism": 1,
        "completions": 1,
        "backoff_limit": 6,
        "completion_mode": "NonIndexed",
        "pod_replacement_policy": "TerminatingOrFailed",
        "selector": LabelSelector(match_labels=labels),
        "template": a_template(labels=labels),
    }
    meta = {"name": "pi", "namespace": "default", "uid": uid, "creation_timestamp": LONG_AGO, **(metadata or {})}
    return Job(
        api_version="batch/v1",
        kind="Job",
        metadata=ObjectMeta(**meta),
        spec=JobSpec(**(usual | spec)),
        status=status or JobStatus(),
    )


def a_template(labels: dict[str, str] | None = None, restart_policy: str = "Never", **spec: Any) -> PodTemplateSpec:
    containers = (Container(name="main", image="busybox"),)
    return PodTemplateSpec(
        metadata=ObjectMeta(labels=labels or {UID_LABEL: "uid-of-pi"}),
        spec=PodSpec(**({"containers": containers, "restart_policy": restart_policy} | spec)),
    )


def a_pod(
    phase: str = "Running",
    *,
    name: str = "pi-0",
    index: int | None = None,
    job: Job | None = None,
    finished_at: datetime | None = None,
    deleted_at: datetime | None = None,
    tracked: bool = True,
    exit_code: int | None = None,
    restarts: int = 0,
    ready: bool = False,
    **spec: Any,
) -> Pod:
    """A pod of `a_job()`, on a node and not counted yet; ended long ago, if it has."""
    job = job or a_job()
    mark = {} if index is None else {INDEX: str(index)}
    ended = phase in ("Succeeded", "Failed")
    code = exit_code if exit_code is not None else int(phase == "Failed")
    end = ContainerState(terminated=ContainerStateTerminated(exit_code=code, finished_at=finished_at or LONG_AGO))
    main = ContainerStatus(name="main", state=end if ended else None, restart_count=restarts, ready=ready)
    return Pod(
        api_version="v1",
        kind="Pod",
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-of-{name}",
            labels={UID_LABEL: job.metadata.uid} | mark,
            annotations=mark,
            creation_timestamp=LONG_AGO,
            deletion_timestamp=deleted_at,
            owner_references=(owner_reference(job),),
            finalizers=(TRACKING,) if tracked else (),
        ),
        spec=PodSpec(**({"node_name": "node-1"} | spec)),
        status=PodStatus(
            phase=phase,
            container_statuses=() if phase == "Pending" else (main,),
            conditions=(Condition(type="Ready", status="True", last_transition_time=LONG_AGO),) if ready else (),
        ),
    )


_PHASES = {"p": "Pending", "r": "Running", "s": "Succeeded", "f": "Failed", "u": "Unknown", "t": "Running"}


def pods(letters: str, job: Job | None = None) -> list[Pod]:
    """`"rsf"`: one running, one succeeded, one failed; `r2`: running, with index 2; p: pending, t: deleted long ago.

    In capitals: already counted, so that it has lost its finalizer.
    """
    made = []
    for number, (letter, index) in enumerate(re.findall(r"([a-zA-Z])(\d*)", letters)):
        pod = a_pod(
            _PHASES[letter.lower()],
            name=f"pi-{number}",
            index=int(index) if index else None,
            job=job,
            deleted_at=LONG_AGO if letter in "tT" else None,
            tracked=letter.islower(),
        )
        made.append(pod)
    return made


def names() -> Names:
    """A source of names that are easy to read: pi-new0, pi-new1."""
    numbers = count()
    return lambda prefix: f"{prefix}new{next(numbers)}"


def stored(plan: Plan, job: Job) -> Job:
    """The Job as it is once the plan has been carried out."""
    return next(
        (each.object for each in plan.actions if isinstance(each, SetStatus) and each.object.kind == "Job"), job
    )


def status_of(plan: Plan) -> JobStatus:
    return stored(plan, a_job()).status


def created(plan: Plan) -> list[Pod]:
    return [each.object for each in plan.actions if isinstance(each, Create)]


def deleted(plan: Plan) -> list[Pod]:
    return [each.object for each in plan.actions if isinstance(each, Delete)]


def updated(plan: Plan) -> list[Pod]:
    return [each.object for each in plan.actions if isinstance(each, Update)]


def told(plan: Plan) -> list[str]:
    """The reasons of the plan's events."""
    return [each.reason for each in plan.actions if isinstance(each, Emit)]


def said(plan: Plan) -> str:
    """What the plan does, as a reader would say it; counting pods and updating figures is not worth a word."""
    parts = [
        f"create {len(created(plan))}" * bool(created(plan)),
        f"delete {len(deleted(plan))}" * bool(deleted(plan)),
        _conclusion(status_of(plan)),
    ]
    return ", ".join(filter(None, parts)) or "nothing"


def _conclusion(status: JobStatus) -> str:
    if not status.conditions:
        return ""
    last = status.conditions[-1]
    return last.type if last.status == "True" else f"no longer {last.type}"


def with_status(job: Job, **status: Any) -> Job:
    return replace(job, status=replace(job.status, **status))
