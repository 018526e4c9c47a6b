"""Pod admission: apply a namespace's rules to a new pod, and decide whether it may be created. Pure.

Kubernetes' admission plugins in their order: LimitRanger (`limit_ranger`), ServiceAccount (`service_account_volume`),
PodSecurity (`pod_security`), Priority (here), RuntimeClass (`runtime_class`), ResourceQuota (`resource_quota`). The registry
calls it for objects that clients send, the Job and CronJob controllers for what they create. `apply_defaults` mutates a pod;
`admit`, once the pod is known to be valid, validates it.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from app.kinds.core.limitrange import LimitRange
from app.kinds.core.resourcequota import ResourceQuota
from app.kinds.core.serviceaccount import ServiceAccount
from app.kinds.pod.pod import Pod
from app.kinds.scheduling.priorityclass import KIND as PRIORITY_CLASSES
from app.kinds.scheduling.priorityclass import PriorityClass
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim
from app.kinds.storage.storageclass import StorageClass
from app.machinery.base import Object
from app.machinery.errors import ApiError, forbidden_error
from app.plans.admission import limit_ranger as limit_ranges
from app.plans.admission import resource_quota as quotas
from app.plans.admission import service_account_volume
from app.plans.admission.claim_admission import find_violation
from app.plans.admission.pod_security import review as pod_security
from app.plans.admission.pod_security.namespace_policy import ALL_PRIVILEGED, NamespacePolicy
from app.plans.admission.policies.matching import Bound
from app.plans.admission.review import NOTHING, Review
from app.plans.admission.runtime_class import RuntimeClasses, apply_runtime_class
from app.plans.admission.webhooks.matching import NO_WEBHOOKS, Webhooks
from app.plans.plan import Update

DEFAULT_ACCOUNT = "default"
USUAL_POLICY = "PreemptLowerPriority"

Classes = Mapping[str, PriorityClass]


class Rules(msgspec.Struct, frozen=True):
    """What new objects in one namespace are admitted by.

    policies: the admission policies in force anywhere, which the registry asks; so `webhooks`.
    refusal:  what they have said, once they were asked about what a controller would create.
    """

    quotas: Sequence[ResourceQuota] = ()
    limit_ranges: Sequence[LimitRange] = ()
    accounts: Mapping[str, ServiceAccount] = {}
    classes: Classes = {}
    storage_classes: Mapping[str, StorageClass] = {}
    runtime_classes: RuntimeClasses = {}
    pod_security: NamespacePolicy = ALL_PRIVILEGED
    policies: Sequence[Bound] = ()
    webhooks: Webhooks = NO_WEBHOOKS
    refusal: ApiError | None = None


NO_RULES = Rules()


def apply_defaults(pod: Pod, rules: Rules) -> Pod:
    """The pod with requests, limits, service account and priority by the rules. Raises the 403 if it cannot have them.

    Names are generated later, so a refusal calls a pod that has none by the prefix.
    """
    name = pod.metadata.name or pod.metadata.generate_name
    pod = limit_ranges.apply_defaults(pod, rules.limit_ranges)
    pod = with_priority(_apply_service_account(pod, rules.accounts, name), rules.classes, name)
    return apply_runtime_class(pod, rules.runtime_classes, name)


def has_defaults(pod: Pod, rules: Rules) -> bool:
    """True if `apply_defaults` would return an equal pod, as it mostly would."""
    spec = pod.spec
    account = rules.accounts.get(spec.service_account_name or DEFAULT_ACCOUNT)
    account_exists = not spec.service_account_name or account is not None
    return (
        not rules.limit_ranges
        and account_exists
        and not (account and account.image_pull_secrets)
        and not service_account_volume.is_wanted(spec, account)
        and not (spec.priority_class_name or spec.priority or default_class(rules.classes.values()))
        and spec.preemption_policy in ("", USUAL_POLICY)
        and not spec.runtime_class_name
    )


def _apply_service_account(pod: Pod, accounts: Mapping[str, ServiceAccount], name: str) -> Pod:
    """The account must exist, except the default one, which its controller may just not have created yet."""
    spec = pod.spec
    wanted = spec.service_account_name or spec.service_account or DEFAULT_ACCOUNT
    account = accounts.get(wanted)
    if account is None and wanted != DEFAULT_ACCOUNT:
        why = f'error looking up service account {pod.metadata.namespace}/{wanted}: serviceaccount "{wanted}" not found'
        raise forbidden_error("pods", name, why)
    if account is not None and account.image_pull_secrets and not spec.image_pull_secrets:
        spec = replace(spec, image_pull_secrets=account.image_pull_secrets)
    if service_account_volume.is_wanted(spec, account):
        spec = service_account_volume.add_token_volume(spec, name)
    return pod if spec is pod.spec else replace(pod, spec=spec)


def admit(resource: str, obj: Object, rules: Rules) -> tuple[Update, ...]:
    """The quotas with a valid new object charged to them. Raises the 403 if it may not be created."""
    check(resource, obj, rules)
    return charge_quotas(resource, obj, rules)


def charge_quotas(resource: str, obj: Object, rules: Rules) -> tuple[Update, ...]:
    """The quotas with a new object charged to them. Raises the 403 if they have no room for it."""
    if not rules.quotas or resource in quotas.UNCOUNTED:
        return ()
    return tuple(Update(after, before) for before, after in quotas.charge(rules.quotas, resource, obj))


def check(resource: str, obj: Object, rules: Rules) -> Review:
    """Return what all rules but quotas have to say about a valid new object. Raises the 403."""
    if isinstance(obj, Pod) and (violation := limit_ranges.find_violation(obj, rules.limit_ranges)):
        raise forbidden_error(resource, obj.metadata.name, violation)
    if isinstance(obj, PersistentVolumeClaim) and (violation := find_violation(obj, rules.limit_ranges)):
        raise forbidden_error(resource, obj.metadata.name, violation)
    if isinstance(obj, PriorityClass) and (error := check_single_default(obj, rules.classes)):
        raise error
    if rules.refusal is not None:
        raise rules.refusal
    return NOTHING if rules.pod_security is ALL_PRIVILEGED else pod_security.review(resource, obj, rules.pod_security)


# --- priority


def default_class(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """The class of pods that name none. Of several that are marked as default, the lowest."""
    marked = (each for each in classes if each.global_default)
    return min(marked, key=lambda each: (each.value or 0, each.metadata.name), default=None)


def with_priority(pod: Pod, classes: Classes, name: str) -> Pod:
    """The pod with the priority and the preemption policy of its class. `name` is the name of the pod in a refusal."""
    wanted = pod.spec.priority_class_name
    found = classes.get(wanted) if wanted else default_class(classes.values())
    if wanted and found is None:
        raise forbidden_error("pods", name, f"no PriorityClass with name {wanted} was found")
    value, policy = (found.value or 0, found.preemption_policy) if found else (0, USUAL_POLICY)
    if pod.spec.priority not in (None, value):
        raise forbidden_error("pods", name, _describe_difference("integer value of priority", pod.spec.priority, value))
    if policy and pod.spec.preemption_policy not in ("", policy):
        raise forbidden_error(
            "pods", name, _describe_difference("string value of PreemptionPolicy", pod.spec.preemption_policy, policy)
        )
    name = found.metadata.name if found else ""
    policy = policy or pod.spec.preemption_policy
    return replace(pod, spec=replace(pod.spec, priority_class_name=name, priority=value, preemption_policy=policy))


def _describe_difference(what: str, given: object, computed: object) -> str:
    return (
        f"the {what} ({given}) must not be provided in pod spec; "
        f"priority admission controller computed {computed} from the given PriorityClass name"
    )


def check_single_default(made: PriorityClass, classes: Classes) -> ApiError | None:
    """The refusal of a PriorityClass that would be the second default."""
    known = default_class(classes.values())
    name = made.metadata.name
    if not made.global_default or known is None or known.metadata.name == name:
        return None
    why = f"PriorityClass {known.metadata.name} is already marked as default. Only one default can exist"
    return forbidden_error(PRIORITY_CLASSES.resource, name, why)
