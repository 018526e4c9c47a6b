"""Pod admission: what the rules of a namespace make of a new pod, and whether it may be created. Pure.

The registry judges with it what clients send, and the Job controller the pods that it is about to make: the same rules in
the same order as Kubernetes'. First a pod is completed; then, once it is known to be valid, it is judged.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from app.kinds.core.limitrange import LimitRange
from app.kinds.core.resourcequota import ResourceQuota
from app.kinds.core.serviceaccount import ServiceAccount
from app.kinds.pod.pod import Pod
from app.kinds.scheduling.priorityclass import PriorityClass
from app.machinery.base import Object
from app.machinery.errors import refused
from app.plans.admission import limit_ranger as limit_ranges
from app.plans.admission import resource_quota as quotas
from app.plans.admission import service_account_volume
from app.plans.admission.priority import USUAL_POLICY, default_of, second_default, with_priority
from app.plans.plan import Update

DEFAULT_ACCOUNT = "default"


class Rules(msgspec.Struct, frozen=True):
    """What objects in one namespace are judged by."""

    quotas: Sequence[ResourceQuota] = ()
    limit_ranges: Sequence[LimitRange] = ()
    accounts: Mapping[str, ServiceAccount] = {}
    classes: Mapping[str, PriorityClass] = {}


NO_RULES = Rules()


def completed(pod: Pod, rules: Rules) -> Pod:
    """The pod with what the rules give it: requests, limits, priority. Raises the 403 for what cannot be completed.

    Names are generated later, so a refusal calls a pod that has none by the prefix.
    """
    name = pod.metadata.name or pod.metadata.generate_name
    pod = limit_ranges.with_defaults(pod, rules.limit_ranges)
    pod = with_priority(_with_account(pod, rules.accounts, name), rules.classes, name)
    if pod.spec.runtime_class_name:
        raise refused("pods", name, f'pod rejected: RuntimeClass "{pod.spec.runtime_class_name}" not found')
    return pod


def is_completed(pod: Pod, rules: Rules) -> bool:
    """True if `completed` would return the pod as it is, as it mostly would."""
    spec = pod.spec
    account = rules.accounts.get(spec.service_account_name or DEFAULT_ACCOUNT)
    plain = not spec.service_account_name or account is not None
    return (
        not rules.limit_ranges
        and plain
        and not (account and account.image_pull_secrets)
        and not service_account_volume.is_asked_for(spec, account)
        and not (spec.priority_class_name or spec.priority or default_of(rules.classes.values()))
        and spec.preemption_policy in ("", USUAL_POLICY)
        and not spec.runtime_class_name
    )


def _with_account(pod: Pod, accounts: Mapping[str, ServiceAccount], name: str) -> Pod:
    """The account must exist. The default one is taken to: it may just not have been made yet."""
    spec = pod.spec
    wanted = spec.service_account_name or spec.service_account or DEFAULT_ACCOUNT
    account = accounts.get(wanted)
    if account is None and wanted != DEFAULT_ACCOUNT:
        why = f'error looking up service account {pod.metadata.namespace}/{wanted}: serviceaccount "{wanted}" not found'
        raise refused("pods", name, why)
    if account is not None and account.image_pull_secrets and not spec.image_pull_secrets:
        spec = replace(spec, image_pull_secrets=account.image_pull_secrets)
    if service_account_volume.is_asked_for(spec, account):
        spec = service_account_volume.with_token(spec, name)
    return pod if spec is pod.spec else replace(pod, spec=spec)


def judged(resource: str, obj: Object, rules: Rules) -> tuple[Update, ...]:
    """The quotas that a valid new object is charged to, as they will be. Raises the 403 if it may not be created."""
    check(resource, obj, rules)
    if not rules.quotas or resource in quotas.UNCOUNTED:
        return ()
    return tuple(Update(after, before) for before, after in quotas.charged(rules.quotas, resource, obj))


def check(resource: str, obj: Object, rules: Rules) -> None:
    """Whatever else stands against the object. Raises the 403."""
    if isinstance(obj, Pod) and (fault := limit_ranges.fault(obj, rules.limit_ranges)):
        raise refused(resource, obj.metadata.name, fault)
    if isinstance(obj, PriorityClass) and (error := second_default(obj, rules.classes)):
        raise error
