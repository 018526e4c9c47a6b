"""All that can happen to a Job and its pods, one small event at a time; each says what it did, or None if it could not."""

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

from msgspec.structs import replace

from app.kinds.batch.job import Job, is_finished
from app.kinds.pod.container import ContainerState, ContainerStateTerminated, ContainerStatus
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.plans.jobs.pod_template import owner_reference
from tests.build import a_job, a_pod
from tests.plans.jobs.simulation.controller import Controller
from tests.plans.jobs.simulation.shapes import EXIT_CODES
from tests.plans.jobs.simulation.sight import OWNER_LABEL
from tests.plans.jobs.simulation.world import ENDED, World

NODES = ("node-a", "node-b", "node-c")
STRANGER = a_job(metadata={"uid": "uid-of-another", "name": "another"})

Move = Callable[[Controller, Random], str | None]


# Pods, as agents and the scheduler make them live and die.


def _living(world: World, rng: Random) -> Pod | None:
    if not world.living:
        return None
    return world.pods[world.living[int(rng.random() * len(world.living))]]


def advance(controller: Controller, rng: Random) -> str | None:
    """A pod comes a step further: to a node, into operation, or to its end if it has been deleted."""
    world = controller.world
    pod = _living(world, rng)
    return None if pod is None else advanced(world, pod, rng)


def advanced(world: World, pod: Pod, rng: Random) -> str | None:
    name, deleted = pod.metadata.name, pod.metadata.deletion_timestamp is not None
    if not pod.spec.node_name:
        if deleted:
            return None
        world.put(replace(pod, spec=replace(pod.spec, node_name=NODES[int(rng.random() * 3)])))
        return f"{name} is scheduled"
    if deleted:
        return end(world, pod, 0 if rng.random() < 0.3 else 137)
    if pod.status.phase == "Pending":
        world.put(replace(pod, status=replace(pod.status, phase="Running", container_statuses=(_main(pod, None),))))
        return f"{name} runs"
    ready = not any(each.status == "True" for each in pod.status.conditions)
    condition = Condition(type="Ready", status="True" if ready else "False", last_transition_time=world.now)
    world.put(replace(pod, status=replace(pod.status, conditions=(condition,))))
    return f"{name} is ready" if ready else f"{name} is not ready"


def _main(pod: Pod, state: ContainerState | None) -> ContainerStatus:
    restarts = pod.status.container_statuses[0].restart_count if pod.status.container_statuses else 0
    return ContainerStatus(name="main", state=state, restart_count=restarts)


def end(
    world: World, pod: Pod, code: int, condition: Condition | None = None, finished_at: datetime | None = None
) -> str:
    terminated = ContainerStateTerminated(exit_code=code, finished_at=finished_at or world.now)
    status = replace(
        pod.status,
        phase="Failed" if code or condition else "Succeeded",
        container_statuses=(_main(pod, ContainerState(terminated=terminated)),),
        conditions=(condition,) if condition else (),
    )
    world.put(replace(pod, status=status))
    return f"{pod.metadata.name} ends with {code}"


def succeed(controller: Controller, rng: Random) -> str | None:
    pod = _living(controller.world, rng)
    if pod is None or pod.status.phase != "Running":
        return None
    return end(controller.world, pod, 0)


def fail(controller: Controller, rng: Random) -> str | None:
    pod = _living(controller.world, rng)
    if pod is None or not pod.spec.node_name:
        return None
    late = timedelta(seconds=int(rng.random() * 8) - 2) if rng.random() < 0.3 else timedelta()  # clocks differ
    code = EXIT_CODES[int(rng.random() * len(EXIT_CODES))]
    return end(controller.world, pod, code, None, controller.world.now - late)


def restart(controller: Controller, rng: Random) -> str | None:
    """A container starts again in its pod."""
    world = controller.world
    pod = _living(world, rng)
    if pod is None or pod.status.phase != "Running" or pod.spec.restart_policy != "OnFailure":
        return None
    main = pod.status.container_statuses[0]
    again = replace(main, restart_count=main.restart_count + 1)
    world.put(replace(pod, status=replace(pod.status, container_statuses=(again,))))
    return f"{pod.metadata.name} restarts"


def lose_node(controller: Controller, rng: Random) -> str | None:
    """Its pods fail without a word of their containers, and are deleted."""
    world, node = controller.world, NODES[int(rng.random() * 3)]
    there = [world.pods[uid] for uid in world.living if world.pods[uid].spec.node_name == node]
    for pod in there:
        unready = Condition(type="Ready", status="False", last_transition_time=world.now)
        status = replace(pod.status, phase="Failed", conditions=(unready, _disrupted(world.now)))
        world.delete(replace(pod, status=status), 0)
    return f"{node} is lost with {len(there)} pods" if there else None


def _disrupted(now: datetime) -> Condition:
    return Condition(type="DisruptionTarget", status="True", last_transition_time=now)


# Pods, as users and other controllers treat them.


def delete_pod(controller: Controller, rng: Random) -> str | None:
    pods = list(controller.world.pods.values())
    if not pods:
        return None
    pod = pods[int(rng.random() * len(pods))]
    if pod.metadata.deletion_timestamp is not None:
        return None
    force = rng.random() < 0.2
    controller.world.delete(pod, 0 if force else None)
    return f"{pod.metadata.name} is deleted{' by force' if force else ''}"


def evict(controller: Controller, rng: Random) -> str | None:
    world = controller.world
    pod = _living(world, rng)
    if pod is None or pod.metadata.deletion_timestamp is not None:
        return None
    conditions = (*(each for each in pod.status.conditions if each.type == "Ready"), _disrupted(world.now))
    world.delete(replace(pod, status=replace(pod.status, conditions=conditions)))
    return f"{pod.metadata.name} is evicted"


def preempt(controller: Controller, rng: Random) -> str | None:
    """Its end shows the disruption: what a failure policy may look for."""
    pod = _living(controller.world, rng)
    if pod is None or not pod.spec.node_name:
        return None
    return end(controller.world, pod, 137, _disrupted(controller.world.now)) + ", disrupted"


def unlabel(controller: Controller, rng: Random) -> str | None:
    pods = list(controller.world.mine())
    if not pods:
        return None
    pod = pods[int(rng.random() * len(pods))]
    labels = {key: value for key, value in pod.metadata.labels.items() if key != OWNER_LABEL}
    controller.world.put(replace(pod, metadata=replace(pod.metadata, labels=labels)))
    return f"{pod.metadata.name} loses its labels"


def appear(controller: Controller, rng: Random) -> str | None:
    """A pod that nobody controls and that the Job's selector matches; or one that somebody else controls."""
    world, job = controller.world, controller.world.job
    if job is None:
        return None
    if rng.random() < 0.3:
        world.add(replace(a_pod("Succeeded", name=world.name("foreign-"), job=STRANGER), metadata=_foreign(world)))
        return "a pod of somebody else appears"
    index = int(rng.random() * 5) if job.spec.completion_mode == "Indexed" and rng.random() < 0.7 else None
    phase = ("Pending", "Running", "Succeeded", "Failed")[int(rng.random() * 4)]
    node = "" if phase == "Pending" else NODES[0]
    pod = a_pod(phase, name=world.name("orphan-"), index=index, job=job, tracked=False, node_name=node)
    world.add(replace(pod, metadata=replace(pod.metadata, owner_references=())))
    return f"an orphan appears, {phase}, index {index}"


def _foreign(world: World) -> Any:
    pod = a_pod(name=world.name("foreign-"))
    return replace(pod.metadata, owner_references=(owner_reference(STRANGER),))


def sweep(controller: Controller, rng: Random) -> str | None:
    """Pods that have ended, and were counted, are cleaned away."""
    world = controller.world
    over = [pod for pod in world.pods.values() if pod.status.phase in ENDED and not pod.metadata.finalizers]
    for pod in over:
        world.delete(pod)
    return f"{len(over)} ended pods are removed" if over else None


# Time.


def tick(controller: Controller, rng: Random) -> str:
    seconds = (1, 1, 2, 5, 11, 30)[int(rng.random() * 6)]
    controller.world.now += timedelta(seconds=seconds)
    return f"{seconds} s pass"


def wait(controller: Controller, rng: Random) -> str:
    """Until just when the controller wants to look again, or for long."""
    world = controller.world
    if controller.due is not None and controller.due > world.now and rng.random() < 0.9:
        early = timedelta(seconds=rng.random() < 0.3)
        world.now = max(world.now, controller.due - early)
        return "the time comes" if not early else "the time is near"
    world.now += timedelta(seconds=rng.choice((90, 700)))
    return "much time passes"


# Users.


def _edited(controller: Controller, text: str, **spec: Any) -> str | None:
    world, job = controller.world, controller.world.job
    if job is None:
        return None
    if all(getattr(job.spec, key) == value for key, value in spec.items()):
        return None
    meta = replace(job.metadata, generation=job.metadata.generation + 1)
    world.write(replace(job, metadata=meta, spec=replace(job.spec, **spec)))
    return f"{text}: {spec}"


def suspend(controller: Controller, _: Random) -> str | None:
    return _edited(controller, "edit", suspend=True)


def resume(controller: Controller, _: Random) -> str | None:
    return _edited(controller, "edit", suspend=False)


def rescale(controller: Controller, rng: Random) -> str | None:
    """Indexes beyond a new end must be seen to before the Job is no longer elastic: the API insists, too."""
    job = controller.world.job
    if job is None or (job.spec.completion_mode == "Indexed" and _is_unsettled(job)):
        return None
    return _edited(controller, "edit", parallelism=(0, 1, 2, 2, 3, 4, 5)[int(rng.random() * 7)])


def _is_unsettled(job: Job) -> bool:
    end = job.spec.completions or 0
    last = job.status.completed_indexes.replace("-", ",").rpartition(",")[2]
    return bool(last) and int(last) >= end


def resize(controller: Controller, rng: Random) -> str | None:
    job = controller.world.job
    if job is None or job.spec.completion_mode != "Indexed" or job.spec.success_policy is not None:
        return None
    size = int(rng.random() * 6)
    if job.spec.max_failed_indexes is not None and job.spec.max_failed_indexes > size:
        return None
    return _edited(controller, "elastic", parallelism=size, completions=size)


def relimit(controller: Controller, rng: Random) -> str | None:
    job = controller.world.job
    if job is None:
        return None
    what = int(rng.random() * 4)
    if what == 0:
        return _edited(controller, "edit", active_deadline_seconds=rng.choice((None, 1, 30, 300)))
    if what == 1:
        return _edited(controller, "edit", ttl_seconds_after_finished=rng.choice((None, 0, 20)))
    if what == 2:
        return _edited(controller, "edit", backoff_limit=rng.choice((0, 2, 5)))
    limited = job.spec.backoff_limit_per_index is not None and (job.spec.completions or 0) > 2
    return _edited(controller, "edit", max_failed_indexes=rng.choice((None, 0, 2))) if limited else None


def delete_job(controller: Controller, rng: Random) -> str | None:
    if controller.world.job is None or controller.world.job.metadata.deletion_timestamp is not None:
        return None
    how = rng.choice((None, "Background", "Foreground", "Orphan"))
    controller.world.delete_job(how)
    return f"the Job is deleted, {how}"


def collect(controller: Controller, _: Random) -> str | None:
    return "garbage is collected" if controller.world.collect() else None


# The controller.


def sync(controller: Controller, rng: Random) -> str | None:
    if not controller.awake and rng.random() < 0.9:
        return None
    controller.sync()
    return "sync"


def late(controller: Controller, _: Random) -> str | None:
    if controller.mirror is None or (controller.world.job is not None and is_finished(controller.world.job)):
        return None
    controller.sync_late()
    return "sync from an old mirror"


def lose_outcome(controller: Controller, _: Random) -> str:
    """The commit happened, and the controller was not told."""
    mirror = controller.mirror
    controller.sync()
    controller.mirror = mirror or controller.mirror
    controller.world.changed = True
    return "sync, of unknown outcome"


def think(controller: Controller, _: Random) -> str | None:
    if controller.thought is not None:
        return None
    controller.think()
    return "a second controller plans"


def act(controller: Controller, _: Random) -> str | None:
    if controller.thought is None:
        return None
    controller.act()
    return "the second controller commits"


def crash(controller: Controller, _: Random) -> str:
    controller.crash()
    return "the controller crashes"


WEIGHTS: dict[Move, int] = {
    sync: 220,
    advance: 300,
    succeed: 60,
    fail: 60,
    restart: 60,
    tick: 90,
    wait: 30,
    sweep: 25,
    delete_pod: 14,
    evict: 8,
    preempt: 12,
    lose_node: 5,
    unlabel: 4,
    appear: 6,
    suspend: 6,
    resume: 16,
    rescale: 26,
    resize: 12,
    relimit: 10,
    delete_job: 1,
    collect: 30,
    late: 10,
    lose_outcome: 5,
    think: 12,
    act: 16,
    crash: 6,
}
BAD_LUCK = WEIGHTS | {succeed: 4, fail: 120, wait: 90, delete_job: 0, suspend: 2}


def _table(weights: dict[Move, int]) -> tuple[Move, ...]:
    return tuple(move for move, weight in weights.items() for _ in range(weight))


ORDINARY, UNLUCKY = _table(WEIGHTS), _table(BAD_LUCK)
