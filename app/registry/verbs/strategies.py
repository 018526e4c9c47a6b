"""Strategies: what the verbs do differently for one kind where its `Kind` record cannot say it, because it takes more to know:
rules of the namespace, feature gates, other objects.

`objects` and `versions` call the hooks of `strategy_of(kind)`, as Kubernetes' registries do theirs; no verb names a kind.
Most kinds have the default, which changes nothing.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from app.kinds.apiextensions import definition_conditions
from app.kinds.apiextensions.custom_resource_definition import KIND as DEFINITIONS
from app.kinds.apiextensions.custom_resource_definition import CustomResourceDefinition
from app.kinds.apiextensions.custom_resource_schema import CustomResourceDefinitionStatus
from app.kinds.apps.deployment import KIND as DEPLOYMENTS
from app.kinds.apps.replicaset import KIND as REPLICA_SETS
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.cronjob_schema import JobTemplateSpec
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.kinds.core.namespace import KIND as NAMESPACE
from app.kinds.core.namespace import Namespace
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_defaults import as_sent
from app.kinds.pod.pod_schema import PodTemplate
from app.kinds.pod.podtemplate import KIND as POD_TEMPLATES
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.scheduling.priorityclass import KIND as PRIORITY_CLASSES
from app.kinds.scheduling.priorityclass import PriorityClass
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import Workload
from app.kinds.storage.persistentvolumeclaim import KIND as CLAIMS
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim, requested
from app.machinery.base import Kind
from app.machinery.custom.custom_object import CustomObject
from app.machinery.errors import ApiError, forbidden_error, unprocessable
from app.machinery.feature_gates import GENERIC_WORKLOAD
from app.machinery.quantity import compare
from app.plans.admission import claim_admission, pod_admission, resource_quota
from app.plans.admission.pod_admission import Rules
from app.plans.admission.pod_security import review as pod_security
from app.plans.admission.review import NOTHING, Review
from app.plans.admission.workload_admission import (
    drop_disabled_group_fields,
    drop_disabled_pod_fields,
    drop_disabled_workload_fields,
    with_group_priority,
)
from app.plans.jobs.workloads import is_on
from app.registry.admission.namespace_pods import warn_of_pods
from app.registry.admission.rule_review import find_broken_rules
from app.registry.codec import NAMESPACES, decode
from app.registry.registry import Registry
from app.store import Key


class Strategy:
    """The default. Objects are of the strategy's own kind: hence Any. `reviews_status`: updates of the status, too."""

    reviews_status = False

    async def drop_disabled_fields(self, _registry: Registry, _namespace: str, sent: Any, _old: Any = None) -> Any:
        """Return what was sent, without fields that nothing acts on here, unless `old` has them."""
        return sent

    def serialize(self, _registry: Registry) -> AbstractAsyncContextManager[None]:
        """What to hold from `derive_status` until the object is stored."""
        return nullcontext()

    async def derive_status(self, _registry: Registry, sent: Any, _old: Any = None) -> Any:
        """What was sent, with a status that follows from other objects. Not asked for writes of the status itself."""
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

    async def review_create(self, _registry: Registry, _made: Any) -> None:
        """Raise the 422 for a new object that is invalid for reasons that take long to find out."""

    async def review_update(self, _registry: Registry, _made: Any, _old: Any) -> Review:
        """What there is to say about the next version beyond its own validity. Raises the 403 or 422."""
        return NOTHING


class _PodStrategy(Strategy):
    """LimitRanges, priority and the service account complete a new pod; its client answers for none of that.

    Of a pod that there is, only the images can change so that Pod Security looks at it again.
    """

    async def drop_disabled_fields(self, registry: Registry, _namespace: str, sent: Pod, old: Pod | None = None) -> Pod:
        spec = drop_disabled_pod_fields(sent.spec, old.spec if old is not None else None, registry.features)
        return sent if spec is sent.spec else replace(sent, spec=spec)

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


class _TemplateStrategy(Strategy):
    """Kinds whose pods Pod Security refuses later: it warns of a changed template."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    async def drop_disabled_fields(self, registry: Registry, _namespace: str, sent: Any, old: Any = None) -> Any:
        return _drop_from_template(registry, sent, old)

    async def review_update(self, registry: Registry, made: Any, _old: Any) -> Review:
        return await _review_template(registry, self._kind, made)


class _PodTemplateStrategy(_TemplateStrategy):
    async def drop_disabled_fields(
        self, registry: Registry, _namespace: str, sent: PodTemplate, old: PodTemplate | None = None
    ) -> PodTemplate:
        before = old.template.spec if old is not None else None
        spec = drop_disabled_pod_fields(sent.template.spec, before, registry.features)
        return sent if spec is sent.template.spec else replace(sent, template=replace(sent.template, spec=spec))


class _JobStrategy(Strategy):
    """`spec.scheduling` behind the feature gate WorkloadWithJob, or the label of one namespace or Job.

    Only what says something about scheduling costs a look at the namespace.
    """

    async def drop_disabled_fields(self, registry: Registry, namespace: str, sent: Job, old: Job | None = None) -> Job:
        sent = _drop_from_template(registry, sent, old)
        if sent.spec.scheduling is None or (old is not None and old.spec.scheduling is not None):
            return sent
        if await _schedules_gangs(registry, namespace, sent.metadata.labels):
            return sent
        return replace(sent, spec=replace(sent.spec, scheduling=None))

    async def review_update(self, registry: Registry, made: Job, _old: Job) -> Review:
        return await _review_template(registry, JOBS, made)


class _CronJobStrategy(Strategy):
    """The same for the Jobs that it will make."""

    async def drop_disabled_fields(
        self, registry: Registry, namespace: str, sent: CronJob, old: CronJob | None = None
    ) -> CronJob:
        template = _drop_from_template(
            registry, sent.spec.job_template, old.spec.job_template if old is not None else None
        )
        had_it = old is not None and old.spec.job_template.spec.scheduling is not None
        is_new = template.spec.scheduling is not None and not had_it
        if is_new and not await _schedules_gangs(registry, namespace, template.metadata.labels):
            template = replace(template, spec=replace(template.spec, scheduling=None))
        return replace(sent, spec=replace(sent.spec, job_template=template))

    async def review_update(self, registry: Registry, made: CronJob, _old: CronJob) -> Review:
        return await _review_template(registry, CRON_JOBS, made)


_J = TypeVar("_J", Job, JobTemplateSpec, Any)


def _drop_from_template(registry: Registry, sent: _J, old: _J | None) -> _J:
    """A Job, or a server, without the group of its pods, if pods cannot have one."""
    template = sent.spec.template
    before = old.spec.template.spec if old is not None else None
    spec = drop_disabled_pod_fields(template.spec, before, registry.features)
    return (
        sent if spec is template.spec else replace(sent, spec=replace(sent.spec, template=replace(template, spec=spec)))
    )


async def _schedules_gangs(registry: Registry, namespace: str, labels: dict[str, str]) -> bool:
    """`labels`: those that the Job has, or that its Jobs will have."""
    if GENERIC_WORKLOAD not in registry.features:
        return False
    head = await registry.store.get(Key(NAMESPACES, "", namespace))
    around = decode(NAMESPACE, head).metadata.labels if head is not None else {}
    return is_on(registry.features, around, labels)


class _WorkloadStrategy(Strategy):
    async def drop_disabled_fields(
        self, registry: Registry, _namespace: str, sent: Workload, old: Workload | None = None
    ) -> Workload:
        return drop_disabled_workload_fields(sent, old, registry.features)


class _PodGroupStrategy(Strategy):
    """A new group gets the priority of its class; its client does not answer for that."""

    async def drop_disabled_fields(
        self, registry: Registry, _namespace: str, sent: PodGroup, old: PodGroup | None = None
    ) -> PodGroup:
        return drop_disabled_group_fields(sent, old, registry.features)

    def admit(self, sent: PodGroup, _namespace: str, rules: Rules) -> PodGroup:
        return with_group_priority(sent, rules.classes)

    def client_fields(self, kind: Kind, _drafted: PodGroup, sent: PodGroup) -> PodGroup:
        return cast("PodGroup", kind.prepare(sent))


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


class _DefinitionStrategy(Strategy):
    """The names of a custom kind are accepted at once, if no other definition has them: it is served from the commit on.

    Of definitions that want one name at the same moment, through whatever processes, one is stored after the other.
    """

    def serialize(self, registry: Registry) -> AbstractAsyncContextManager[None]:
        return registry.store.names_lock.hold()

    async def derive_status(
        self, registry: Registry, sent: CustomResourceDefinition, old: CustomResourceDefinition | None = None
    ) -> CustomResourceDefinition:
        table = await registry.kinds.newest_table()
        status = CustomResourceDefinitionStatus() if old is None else old.status
        drafted = DEFINITIONS.prepare(replace(sent, status=status))
        name = sent.metadata.name or (old.metadata.name if old else "")
        drafted = replace(drafted, metadata=replace(drafted.metadata, name=name))
        named = definition_conditions.with_names(drafted, table.definitions(), registry.now())
        return replace(sent, status=named.status)


class _CustomStrategy(Strategy):
    """Rules in CEL of a custom object's schema."""

    reviews_status = True

    async def review_create(self, registry: Registry, made: CustomObject) -> None:
        await self._check_rules(registry, made, None)

    async def review_update(self, registry: Registry, made: CustomObject, old: CustomObject) -> Review:
        await self._check_rules(registry, made, old)
        return NOTHING

    async def _check_rules(self, registry: Registry, made: CustomObject, old: CustomObject | None) -> None:
        if causes := await find_broken_rules(registry.admission.reviewer.evaluator, made, old):
            kind = made.kind_record
            raise unprocessable(kind.name, kind.group, made.metadata.name, causes)


_DEFAULT, _CUSTOM = Strategy(), _CustomStrategy()
_STRATEGIES: Mapping[str, Strategy] = {
    PODS.resource: _PodStrategy(),
    **{each.resource: _TemplateStrategy(each) for each in (DEPLOYMENTS, REPLICA_SETS)},
    POD_TEMPLATES.resource: _PodTemplateStrategy(POD_TEMPLATES),
    NAMESPACE.resource: _NamespaceStrategy(),
    JOBS.resource: _JobStrategy(),
    CRON_JOBS.resource: _CronJobStrategy(),
    WORKLOADS.resource: _WorkloadStrategy(),
    POD_GROUPS.resource: _PodGroupStrategy(),
    PRIORITY_CLASSES.resource: _PriorityClassStrategy(),
    CLAIMS.resource: _ClaimStrategy(),
    DEFINITIONS.resource: _DefinitionStrategy(),
}


def strategy_of(kind: Kind) -> Strategy:
    return _CUSTOM if kind.definition else _STRATEGIES.get(kind.resource, _DEFAULT)
