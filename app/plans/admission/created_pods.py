"""Admission of equal pods that a controller creates: defaults, rules and quotas, as if a client had sent each. Pure.

Called by the plans of what makes pods: Jobs and ReplicaSets. The pods differ in their names only, so the first one speaks
for all, and a quota admits as many as it has room for.
"""

from datetime import datetime

import msgspec
from msgspec.structs import replace

from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.errors import ApiError, unprocessable
from app.plans.admission import refusals, resource_quota
from app.plans.admission.pod_admission import Rules, apply_defaults, check, has_defaults
from app.plans.admission.refusals import NONE, Refusal
from app.plans.plan import Update


class AdmittedPods(msgspec.Struct, frozen=True):
    """The pods that may be created, and the quotas with these charged to them. `why`: of the refusal, if there is one."""

    pods: tuple[Pod, ...]
    quota_updates: tuple[Update, ...] = ()
    refusal: Refusal = NONE
    why: str = ""


def admit_pods(pods: tuple[Pod, ...], owner: Object, rules: Rules, now: datetime) -> AdmittedPods:
    """Of these pods, those that are not refused. `owner` remembers how often that was reported."""
    if not pods:
        return AdmittedPods(pods)
    try:
        if not has_defaults(pods[0], rules):
            apply_defaults(_without_name(pods[0]), rules)
            pods = tuple(apply_defaults(pod, rules) for pod in pods)
            _validate(pods[0])
        check("pods", pods[0], rules)
        return _charge_quotas(pods, owner, rules, now) if rules.quotas else AdmittedPods(pods)
    except ApiError as error:
        return _refuse(AdmittedPods(()), owner, error, now)


def _validate(pod: Pod) -> None:
    """What was valid may not be so with its defaults: a request may exceed a limit that a LimitRange sets."""
    if causes := PODS.validate(PODS.prepare(pod)):
        raise unprocessable(PODS.name, PODS.group, pod.metadata.name, causes)


def _without_name(pod: Pod) -> Pod:
    """The pod before it gets its name: Kubernetes' refusals of this stage call it by the prefix of its name."""
    return replace(pod, metadata=replace(pod.metadata, name=""))


def _charge_quotas(pods: tuple[Pod, ...], owner: Object, rules: Rules, now: datetime) -> AdmittedPods:
    first, wanted = pods[0], len(pods)
    each = resource_quota.cost_of_pod(first)
    concerns = resource_quota.matching_quotas(rules.quotas, each)
    resource_quota.check_specified(concerns, each, "pods", first)
    fitting = resource_quota.count_fitting(concerns, each, wanted)
    pairs = resource_quota.add_usage(concerns, each, fitting)
    charged = AdmittedPods(pods[:fitting], tuple(Update(after, before) for before, after in pairs))
    if fitting == wanted:
        return charged
    after = {before.metadata.uid: after for before, after in pairs}
    full = [after.get(quota.metadata.uid, quota) for quota in concerns]
    error = resource_quota.find_exceeded(full, each, "pods", pods[fitting].metadata.name)
    return _refuse(charged, owner, error, now)


def _refuse(admitted: AdmittedPods, owner: Object, error: ApiError | None, now: datetime) -> AdmittedPods:
    why = error.message if error else ""
    return replace(admitted, refusal=refusals.record(owner, why, now), why=why)
