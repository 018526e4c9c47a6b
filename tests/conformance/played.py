"""Jobs played through by hand: controllers run, and the test says what becomes of the pods, as an agent would.

For the scenarios that Kubernetes tests without nodes. The clock stands still unless it is moved; what has to happen is
waited for, and what must not happen has not when nothing moves any more.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from msgspec.structs import replace

from app.client.protocol import StatusReport
from app.controllers.batch.jobs import JobController
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.kinds.batch.job import Job
from app.kinds.pod.container import ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus
from app.kinds.pod.pod import Pod, PodStatus, is_active, is_terminal
from app.machinery.base import Condition
from app.machinery.patch.json_patch import apply_merge_patch
from app.plans.jobs.finalizers import TRACKING
from app.plans.jobs.indexes import index_of
from app.registry.agents.status_reports import accept
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Mirror
from tests.controllers.running import Running, every, held_copy, running, settled, until
from tests.kinds.jobs import written
from tests.registry.examples import JOBS, PODS, create, get

NODE = "n1"
COMPLETE = ("SuccessCriteriaMet", "Finished", "Complete")
FAILED = ("FailureTarget", "Finished", "Failed")
INDEXED = {"completionMode": "Indexed"}


def of(count: int, completions: int | None = -1, **more: Any) -> dict[str, Any]:
    """The spec of a Job with so much parallelism and, unless told otherwise, as many completions."""
    wanted = {} if completions is None else {"completions": count if completions == -1 else completions}
    return {"parallelism": count, **wanted, **more}


class Play:
    """One Job, called pi unless it is said, and its pods."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def running(self, copy: Mirror | None = None) -> AbstractAsyncContextManager[Running]:
        """Controllers, until the context ends: what they had in memory ends with them."""
        return running(self.registry, JobController, GarbageCollector, copy=copy)

    async def crash(self) -> None:
        """A controller plans from what there is, commits once, and dies before it sees that it has."""
        copy, before = await held_copy(self.registry), await self.registry.store.revision()

        async def written() -> bool:
            return await self.registry.store.revision() > before

        async with running(self.registry, JobController, copy=copy):
            await until(self.registry, written)

    async def still(self) -> None:
        """Wait until nothing happens any more."""
        await settled(self.registry)

    # --- the Job

    async def submit(self, spec: dict[str, Any] | None = None, name: str = "pi", **parts: Any) -> Job:
        """In the words of a manifest; `pod` is the spec of its pods, `labels` are theirs."""
        metadata = {"name": name, **parts.pop("metadata", {})}
        made: Job = await create(self.registry, JOBS, written(spec, metadata=metadata, **parts))
        return made

    async def alter(self, spec: dict[str, Any], name: str = "pi") -> None:
        def change(old: Any) -> Job:
            return msgspec.convert(
                apply_merge_patch(msgspec.json.decode(msgspec.json.encode(old)), {"spec": spec}), Job
            )

        await objects.edit(self.registry, JOBS, "default", name, change)

    async def resize(self, size: int) -> None:
        """An Indexed Job, all of whose indexes may run at once."""
        await self.alter({"parallelism": size, "completions": size})

    async def delete(self, propagation: Any, name: str = "pi") -> None:
        await objects.delete(self.registry, JOBS, "default", name, Demand(propagation=propagation))

    async def job(self, name: str = "pi") -> Job:
        found: Job = await get(self.registry, JOBS, name)
        return found

    async def shows(self, name: str = "pi", **wanted: Any) -> Job:
        """The Job, once its status says all this. `true`: types of the conditions that hold; `reason`: of the last."""

        async def found() -> dict[str, Any]:
            seen = _seen(await self.job(name))
            return {field: seen[field] for field in wanted}

        async def so() -> bool:
            return await found() == wanted

        try:
            await until(self.registry, so)
        except AssertionError:
            assert await found() == wanted
            raise
        return await self.job(name)

    # --- its pods

    async def pods(self, phase: str = "", job: str = "pi") -> list[Pod]:
        """In the order in which they came; of that phase, if one is given."""
        found = [pod for pod in await every(self.registry, PODS) if pod.metadata.labels.get("job-name") == job]
        return [pod for pod in sorted(found, key=_born) if not phase or pod.status.phase == phase]

    async def active(self) -> list[Pod]:
        return [pod for pod in await self.pods() if is_active(pod)]

    async def by_index(self) -> dict[int, Pod]:
        """The active pods."""
        found = {index_of(pod): pod for pod in await self.active()}
        return {index: found[index] for index in sorted(index for index in found if index is not None)}

    async def there_are(self, count: int) -> list[Pod]:
        """The active pods, once there are so many."""

        async def so() -> bool:
            return len(await self.active()) == count

        await until(self.registry, so)
        return await self.active()

    async def indexes(self, *wanted: int) -> dict[int, Pod]:
        """The active pods by index, once there are these."""

        async def so() -> bool:
            return len(await self.active()) == len(wanted) and [*await self.by_index()] == [*wanted]

        await until(self.registry, so)
        return await self.by_index()

    async def start(self, *pods: Pod, ready: bool = False, restarts: int = 0) -> None:
        """They run on a node."""
        for pod in pods:
            await objects.rewrite(self.registry, PODS, "default", pod.metadata.name, _on_node)
        state = ContainerState(running=ContainerStateRunning(started_at=self.registry.now()))
        conditions = (self._condition("Ready"),) if ready else ()
        await self._report(pods, "Running", conditions, {"state": state, "ready": ready, "restart_count": restarts})

    async def succeed(self, *pods: Pod) -> None:
        await self._end(pods, "Succeeded", 0)

    async def fail(self, *pods: Pod, code: int = 1, condition: str = "") -> None:
        """With this exit code, and with this condition."""
        await self._end(pods, "Failed", code, (self._condition(condition),) if condition else ())

    async def _end(self, pods: Sequence[Pod], phase: str, code: int, conditions: tuple[Condition, ...] = ()) -> None:
        await self.start(*[pod for pod in pods if not pod.spec.node_name])
        ended = ContainerStateTerminated(exit_code=code, finished_at=self.registry.now())
        await self._report(pods, phase, conditions, {"state": ContainerState(terminated=ended)})

    def _condition(self, type_: str) -> Condition:
        return Condition(type=type_, status="True", last_transition_time=self.registry.now())

    async def _report(
        self, pods: Sequence[Pod], phase: str, conditions: tuple[Condition, ...], main: dict[str, Any]
    ) -> None:
        status = PodStatus(
            phase=phase, conditions=conditions, container_statuses=(ContainerStatus(name="main", **main),)
        )
        await self._tell([_about(pod, status) for pod in pods])

    async def remove(self, *pods: Pod) -> None:
        """Somebody deletes them."""
        for pod in pods:
            await objects.delete(self.registry, PODS, "default", pod.metadata.name, Demand())

    async def go(self, *pods: Pod, phase: str = "Failed") -> None:
        """They were deleted, and their containers have ended."""
        ended = ContainerStateTerminated(exit_code=int(phase == "Failed"), finished_at=self.registry.now())
        main = ContainerStatus(name="main", state=ContainerState(terminated=ended))
        status = PodStatus(phase=phase, container_statuses=(main,))
        await self._tell([replace(_about(pod, status), gone=True) for pod in pods])

    async def terminating(self) -> list[Pod]:
        return [pod for pod in await self.pods() if pod.metadata.deletion_timestamp and not is_terminal(pod)]

    async def _tell(self, reports: list[StatusReport]) -> None:
        outcomes = await accept(self.registry, PODS, reports, lambda _: True)
        assert {each.code for each in outcomes} <= {200}, outcomes

    async def all_are_free(self) -> None:
        """No pod has the tracking finalizer any more."""

        async def so() -> bool:
            return all(TRACKING not in pod.metadata.finalizers for pod in await self.pods())

        await until(self.registry, so)


def _seen(job: Job) -> dict[str, Any]:
    conditions = job.status.conditions
    return {
        **{field: getattr(job.status, field) for field in job.status.__struct_fields__},
        "true": tuple(each.type for each in conditions if each.status == "True"),
        "reason": conditions[-1].reason if conditions else "",
    }


def _born(pod: Pod) -> tuple[Any, str]:
    return pod.metadata.creation_timestamp, pod.metadata.name


def _about(pod: Pod, status: PodStatus) -> StatusReport:
    return StatusReport(namespace="default", name=pod.metadata.name, uid=pod.metadata.uid, status=status)


def _on_node(pod: Any) -> Pod:
    return pod if pod.spec.node_name else replace(pod, spec=replace(pod.spec, node_name=NODE))


__all__ = ["COMPLETE", "FAILED", "INDEXED", "Play", "Running", "of"]
