"""More memory after an OOM kill: the next attempt of a container gets a higher limit (`jobplane.dev/oom-memory`). Pure.

Used by `job`, `scaling` and `job_events`. The limits that were raised stand in the Job's annotation `jobplane.dev/memory`,
`CONTAINER=QUANTITY`: pods that a Job has counted may be gone when the next one is created. With backoffLimitPerIndex, each index
has its own: the pod that an index failed with has its finalizer until it is replaced, and its replacement continues from it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.batch.job_annotations import MemoryRaise, memory_raise
from app.kinds.pod.container import Container, ContainerStatus, ResourceRequirements
from app.kinds.pod.pod import Pod, PodSpec
from app.machinery import quantity
from app.plans import annotation_state

ANNOTATION = "jobplane.dev/memory"
MIB = 2**20

Memory = Mapping[str, int]  # bytes by container


class Kill(msgspec.Struct, frozen=True):
    """A container that was killed for memory, with its limit (None if it had none) and what it gets next."""

    container: str
    limit: int | None
    next: int | None

    @property
    def is_raised(self) -> bool:
        return self.next is not None and self.limit is not None and self.next > self.limit


def find_kills(job: Job, pod: Pod) -> Iterator[Kill]:
    """The containers of a failed pod that the kernel killed; none, unless the Job asks for more memory then."""
    rule = memory_raise(job.metadata)
    if rule is None:
        return
    limits = _limits(pod.spec)
    for status in chain(pod.status.init_container_statuses, pod.status.container_statuses):
        if _is_oom_killed(status):
            limit = limits.get(status.name)
            yield Kill(status.name, limit, None if limit is None else max(limit, _raise(limit, rule)))


def _is_oom_killed(status: ContainerStatus) -> bool:
    ended = status.state.terminated if status.state else None
    return ended is not None and ended.reason == "OOMKilled"


def _raise(limit: int, rule: MemoryRaise) -> int:
    """In whole mebibytes, unless that is more than may be."""
    return min(-(-limit * rule.factor // MIB) * MIB, rule.most)


def _limits(spec: PodSpec) -> dict[str, int]:
    containers = chain(spec.init_containers, spec.containers)
    known = ((each.name, each.resources.limits.get("memory")) for each in containers if each.resources)
    return {name: quantity.value(limit) for name, limit in known if limit is not None}


# --- the Job's limits, and those of an index


def memory_of(job: Job, failed: Iterable[Pod]) -> Memory:
    """The limits of the Job's next pods, where they differ from the template's, after these pods have failed."""
    rule = memory_raise(job.metadata)
    if rule is None or job.spec.backoff_limit_per_index is not None:
        return {}
    memory = {name: min(limit, rule.most) for name, limit in _read(job).items()}
    for kill in chain.from_iterable(find_kills(job, pod) for pod in failed):
        if kill.is_raised and kill.next is not None:
            memory[kill.container] = max(memory.get(kill.container, 0), kill.next)
    return memory


def memory_after(job: Job, predecessor: Pod | None) -> Memory:
    """The limits of the pod that replaces this one of an index with a back-off limit of its own."""
    if predecessor is None or memory_raise(job.metadata) is None or job.spec.backoff_limit_per_index is None:
        return {}
    raised = {kill.container: kill.next for kill in find_kills(job, predecessor) if kill.next is not None}
    return _limits(predecessor.spec) | raised


def _read(job: Job) -> dict[str, int]:
    """A client may have written anything."""
    pairs = (each.partition("=") for each in job.metadata.annotations.get(ANNOTATION, "").split(",")[:100])
    known = {each.name for each in chain(job.spec.template.spec.init_containers, job.spec.template.spec.containers)}
    return {name: quantity.value(text) for name, _, text in pairs if name in known and not quantity.fault(text)}


def annotate(annotations: dict[str, str], memory: Memory) -> dict[str, str]:
    """The annotations with the raised limits; the same dict if nothing changes."""
    text = ",".join(f"{name}={format_memory(limit)}" for name, limit in memory.items())
    return annotation_state.annotate(annotations, ANNOTATION, text) if text else annotations


def format_memory(limit: int) -> str:
    return quantity.canonical(f"{limit // MIB}Mi") if limit % MIB == 0 else str(limit)


# --- pods


def with_memory(pod: Pod, memory: Memory) -> Pod:
    """The pod with these limits, and with requests that grow in proportion; the same pod if it has them."""
    if not memory or all(_limits(pod.spec).get(name) == limit for name, limit in memory.items()):
        return pod
    spec = pod.spec
    init = tuple(_with_limit(each, memory.get(each.name)) for each in spec.init_containers)
    apps = tuple(_with_limit(each, memory.get(each.name)) for each in spec.containers)
    return replace(pod, spec=replace(spec, init_containers=init, containers=apps))


def _with_limit(container: Container, limit: int | None) -> Container:
    if limit is None:
        return container
    resources = container.resources or ResourceRequirements()
    limits = {**resources.limits, "memory": format_memory(limit)}
    requests = resources.requests
    if "memory" in requests and "memory" in resources.limits:
        before = quantity.value(resources.limits["memory"])
        request = min(-(-quantity.value(requests["memory"]) * limit // max(before, 1)), limit)
        requests = {**requests, "memory": format_memory(request)}
    return replace(container, resources=replace(resources, limits=limits, requests=requests))


# --- wording


def tell_kills(kills: Sequence[Kill]) -> Iterator[tuple[str, str, str]]:
    """Type, reason and message of an event for each container that was killed."""
    for name in dict.fromkeys(kill.container for kill in kills):
        kill = max((each for each in kills if each.container == name), key=lambda each: each.limit or 0)
        if kill.limit is None or kill.next is None:
            message = f"Container {name} was OOMKilled, but has no memory limit to raise"
            yield "Warning", "MemoryNotRaised", message
        elif kill.is_raised:
            was, is_now = format_memory(kill.limit), format_memory(kill.next)
            yield "Normal", "MemoryRaised", f"Container {name} was OOMKilled with {was}: the next attempt gets {is_now}"
        else:
            message = (
                f"Container {name} was OOMKilled with {format_memory(kill.limit)}, which is the most that it may get"
            )
            yield "Warning", "MemoryNotRaised", message
