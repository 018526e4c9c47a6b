"""Gang scheduling of Jobs: what the feature gate WorkloadWithJob, and the label for one namespace or Job, change about
requests.

The registry asks before it stores a Job or CronJob. Only what says something about scheduling, or changes how many pods run
at once, costs a look at the namespace.
"""

from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.kinds.batch.job_scheduling import JobSchedulingConfiguration
from app.kinds.core.namespace import KIND as NAMESPACE
from app.machinery.base import Object
from app.machinery.errors import invalid, unprocessable
from app.machinery.feature_gates import Features
from app.machinery.metadata_validation import IMMUTABLE
from app.plans.jobs.workloads import is_gang_by_shape, is_on
from app.registry.codec import NAMESPACES, decode
from app.store import Key, Store

O = TypeVar("O", bound=Object)  # noqa: E741 - as in app.machinery.base


@dataclass(frozen=True)
class Gangs:
    store: Store
    features: Features

    async def fitted(self, namespace: str, sent: O, old: Object | None = None) -> O:
        """What was sent, without `spec.scheduling` where nothing acts on it, unless it is there already."""
        if _scheduling(sent) is None or (old is not None and _scheduling(old) is not None):
            return sent
        return sent if await self._is_on(namespace, _labels(sent)) else _plain(sent)

    async def check_update(self, new: Object, old: Object) -> None:
        """The size of a gang that goes by the Job's shape cannot change. Raises the 422."""
        if not isinstance(new, Job) or not isinstance(old, Job) or new.spec.parallelism == old.spec.parallelism:
            return
        if not (is_gang_by_shape(new) or is_gang_by_shape(old)):
            return
        if await self._is_on(new.metadata.namespace, new.metadata.labels):
            cause = invalid(
                "spec.parallelism", new.spec.parallelism, f"{IMMUTABLE} while the Job is scheduled as a gang"
            )
            raise unprocessable(JOBS.name, JOBS.group, new.metadata.name, [cause])

    async def _is_on(self, namespace: str, labels: dict[str, str]) -> bool:
        head = await self.store.get(Key(NAMESPACES, "", namespace))
        around = decode(NAMESPACE, head).metadata.labels if head is not None else {}
        return is_on(self.features, around, labels)


def _scheduling(obj: Object) -> JobSchedulingConfiguration | None:
    if isinstance(obj, CronJob):
        return obj.spec.job_template.spec.scheduling
    return obj.spec.scheduling if isinstance(obj, Job) else None


def _labels(obj: Object) -> dict[str, str]:
    """Those that the Job has, or that its Jobs will have."""
    return obj.spec.job_template.metadata.labels if isinstance(obj, CronJob) else obj.metadata.labels


def _plain(obj: O) -> O:
    if isinstance(obj, CronJob):
        template = obj.spec.job_template
        plain = replace(template, spec=replace(template.spec, scheduling=None))
        return replace(obj, spec=replace(obj.spec, job_template=plain))
    return replace(obj, spec=replace(obj.spec, scheduling=None)) if isinstance(obj, Job) else obj
