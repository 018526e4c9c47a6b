"""Strategies: what the verbs do differently for one kind where its `Kind` record cannot say it, because it takes more to know:
rules of the namespace, feature gates, other objects.

`objects` and `versions` call the hooks of `strategy_of(kind)`, as Kubernetes' registries do theirs; no verb names a kind.
Most kinds have the default, which changes nothing.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.kinds.core.namespace import KIND as NAMESPACE
from app.kinds.core.namespace import Namespace
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_defaults import as_sent
from app.kinds.pod.pod_schema import PodTemplate
from app.kinds.pod.podtemplate import KIND as POD_TEMPLATES
from app.kinds.scheduling.priorityclass import KIND as PRIORITY_CLASSES
from app.kinds.scheduling.priorityclass import PriorityClass
from app.kinds.storage.persistentvolumeclaim import KIND as CLAIMS
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim, requested
from app.machinery.base import Kind
from app.machinery.errors import ApiError, forbidden_error, invalid, unprocessable
from app.machinery.meta.metadata_validation import IMMUTABLE
from app.machinery.quantity import compare
from app.plans.admission import claim_admission, pod_admission, resource_quota
from app.plans.admission.pod_admission import Rules
from app.plans.admission.pod_security import review as pod_security
from app.plans.admission.review import NOTHING, Review
from app.plans.jobs.workloads import is_gang_by_shape, is_on
from app.registry.admission.namespace_pods import warn_of_pods
from app.registry.codec import NAMESPACES, decode
from app.registry.registry import Registry
from app.store import Key


class Strategy:
    """The default. Objects are of the strategy's own kind: hence Any."""

    async def drop_disabled_fields(self, _registry: Registry, _namespace: str, sent: Any, _old: Any = None) -> Any:
        """Return what was sent, without fields that nothing acts on here, unless `old` has them."""
        return sent

    def admit(self, sent: Any, _namespace: str, _rules: Rules) -> Any:
        """A new object, completed by the rules of its namespace. Raises the 403."""
        return sent

    def client_fields(self, _kind: Kind, drafted: Any, _sent: Any) -> Any:
        """A new object with what its client is on record for: what it sent and the defaults, not what was admitted."""
        return drafted

    def client_object(self, made: Any, _sent: Any) -> Any:
        """A new object as its client is warned of it."""
        return made

    async def review_update(self, _registry: Registry, _made: Any, _old: Any) -> Review:
        """What there is to say about the next version beyond its own validity. Raises the 403 or 422."""
        return NOTHING


class _PodStrategy(Strategy):
    """LimitRanges, priority and the service account complete a new pod; its client answers for none of that.

    Of a pod that there is, only the images can change so that Pod Security looks at it again.
    """

    def admit(self, sent: Pod, namespace: str, rules: Rules) -> Pod:
        pod = replace(sent, metadata=replace(sent.metadata, namespace=namespace))
        return pod_admission.apply_defaults(pod, rules)

    def client_fields(self, kind: Kind, _drafted: Pod, sent: Pod) -> Pod:
        return as_sent(kind.prepare(sent), sent)

    def client_object(self, made: Pod, sent: Pod) -> Pod:
        return replace(made, spec=sent.spec)

    async def review_update(self, registry: Registry, made: Pod, old: Pod) -> Review:
        if made.spec is old.spec or not pod_security.is_significant_update(made, old):
            return NOTHING
        return await _review_template(registry, PODS, made)


class _NamespaceStrategy(Strategy):
    """Labels of Pod Security that cannot be read are refused. A stricter level warns of the pods that it would refuse."""

    def admit(self, sent: Namespace, _namespace: str, _rules: Rules) -> Namespace:
        return _check_labels(sent)

    async def review_update(self, registry: Registry, made: Namespace, old: Namespace) -> Review:
        if made.metadata.labels == old.metadata.labels:
            return NOTHING
        _check_labels(made, old)
        enforce = pod_security.changed_enforcement(made, old, registry.pod_security)
        if enforce is None:
            return NOTHING
        if made.metadata.name in registry.pod_security.exempt:
            warning = pod_security.exemption_warning(made, registry.pod_security)
            return Review((warning,) if warning else ())
        return Review(await warn_of_pods(registry, made.metadata.name, enforce))


def _check_labels(made: Namespace, old: Namespace | None = None) -> Namespace:
    if causes := pod_security.label_causes(made, old):
        raise unprocessable(NAMESPACE.name, NAMESPACE.group, made.metadata.name, causes)
    return made


async def _review_template(registry: Registry, kind: Kind, made: Any) -> Review:
    rules = await registry.admission.rules(made.metadata.namespace)
    return pod_security.review(kind.resource, made, rules.pod_security)


class _PodTemplateStrategy(Strategy):
    async def review_update(self, registry: Registry, made: PodTemplate, _old: PodTemplate) -> Review:
        return await _review_template(registry, POD_TEMPLATES, made)


class _JobStrategy(Strategy):
    """Gang scheduling: on by the feature gate WorkloadWithJob, or by the label of one namespace or Job.

    Only what says something about scheduling, or changes how many pods run at once, costs a look at the namespace.
    """

    async def drop_disabled_fields(self, registry: Registry, namespace: str, sent: Job, old: Job | None = None) -> Job:
        if sent.spec.scheduling is None or (old is not None and old.spec.scheduling is not None):
            return sent
        if await _schedules_gangs(registry, namespace, sent.metadata.labels):
            return sent
        return replace(sent, spec=replace(sent.spec, scheduling=None))

    async def review_update(self, registry: Registry, made: Job, old: Job) -> Review:
        await self._check_gang_size(registry, made, old)
        return await _review_template(registry, JOBS, made)

    async def _check_gang_size(self, registry: Registry, made: Job, old: Job) -> None:
        """The size of a gang that goes by the Job's shape cannot change."""
        if made.spec.parallelism == old.spec.parallelism or not (is_gang_by_shape(made) or is_gang_by_shape(old)):
            return
        if await _schedules_gangs(registry, made.metadata.namespace, made.metadata.labels):
            cause = invalid(
                "spec.parallelism", made.spec.parallelism, f"{IMMUTABLE} while the Job is scheduled as a gang"
            )
            raise unprocessable(JOBS.name, JOBS.group, made.metadata.name, [cause])


class _CronJobStrategy(Strategy):
    """The same for the Jobs that it will make."""

    async def drop_disabled_fields(
        self, registry: Registry, namespace: str, sent: CronJob, old: CronJob | None = None
    ) -> CronJob:
        template = sent.spec.job_template
        had_it = old is not None and old.spec.job_template.spec.scheduling is not None
        if template.spec.scheduling is None or had_it:
            return sent
        if await _schedules_gangs(registry, namespace, template.metadata.labels):
            return sent
        plain = replace(template, spec=replace(template.spec, scheduling=None))
        return replace(sent, spec=replace(sent.spec, job_template=plain))

    async def review_update(self, registry: Registry, made: CronJob, _old: CronJob) -> Review:
        return await _review_template(registry, CRON_JOBS, made)


async def _schedules_gangs(registry: Registry, namespace: str, labels: dict[str, str]) -> bool:
    """`labels`: those that the Job has, or that its Jobs will have."""
    head = await registry.store.get(Key(NAMESPACES, "", namespace))
    around = decode(NAMESPACE, head).metadata.labels if head is not None else {}
    return is_on(registry.features, around, labels)


class _PriorityClassStrategy(Strategy):
    async def review_update(self, registry: Registry, made: PriorityClass, _old: PriorityClass) -> Review:
        """There is one default class at most."""
        if not made.global_default:
            return NOTHING
        return pod_admission.check(PRIORITY_CLASSES.resource, made, await registry.admission.rules(""))


class _ClaimStrategy(Strategy):
    """A claim without a class gets the default one. It may grow if its class, the namespace's limits and quotas allow it."""

    def admit(self, sent: PersistentVolumeClaim, _namespace: str, rules: Rules) -> PersistentVolumeClaim:
        return claim_admission.with_default_class(sent, rules.storage_classes)

    async def review_update(
        self, registry: Registry, made: PersistentVolumeClaim, old: PersistentVolumeClaim
    ) -> Review:
        if compare(requested(made), requested(old)) <= 0:
            return NOTHING
        namespace = made.metadata.namespace
        if _growth_error(await registry.admission.rules(namespace), made, old) is not None:
            await registry.admission.catch_up()  # only the newest rules may refuse it
            if (error := _growth_error(await registry.admission.rules(namespace), made, old)) is not None:
                raise error
        return NOTHING


def _growth_error(rules: Rules, made: PersistentVolumeClaim, old: PersistentVolumeClaim) -> ApiError | None:
    """The refusal of a claim that asks for more than before."""
    name = made.metadata.name
    if not claim_admission.may_grow(made, rules.storage_classes):
        return forbidden_error(CLAIMS.resource, name, claim_admission.NOT_RESIZABLE)
    if violation := claim_admission.find_violation(made, rules.limit_ranges):
        return forbidden_error(CLAIMS.resource, name, violation)
    return resource_quota.find_exceeded_by_growth(rules.quotas, made, old)


_DEFAULT = Strategy()
_STRATEGIES: Mapping[str, Strategy] = {
    PODS.resource: _PodStrategy(),
    POD_TEMPLATES.resource: _PodTemplateStrategy(),
    NAMESPACE.resource: _NamespaceStrategy(),
    JOBS.resource: _JobStrategy(),
    CRON_JOBS.resource: _CronJobStrategy(),
    PRIORITY_CLASSES.resource: _PriorityClassStrategy(),
    CLAIMS.resource: _ClaimStrategy(),
}


def strategy_of(kind: Kind) -> Strategy:
    return _STRATEGIES.get(kind.resource, _DEFAULT)
